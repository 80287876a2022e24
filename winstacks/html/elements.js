// This file is licensed under the Volatility Software License 1.0,
// available at https://www.volatilityfoundation.org/license/vsl-v1.0
// The elements that all parts of a page use: lists that draw only the rows in view, parts that fold, printing.
"use strict";

const MOST_ROWS = 60;
/** The most rows of a list that are printed; a line says how many more there are. */
const MOST_PRINTED = 5000;

/**
 * What is printed otherwise than it is shown: functions that prepare an element, and return what takes that back.
 * @type {WeakMap<Element, () => () => void>}
 */
const PRINTED = new WeakMap();
/** Whether the page is being printed, and what takes the preparations back. @type {{active: boolean, undo: (() => void)[]}} */
const PRINT = { active: false, undo: [] };

/** @template {Element} T @param {T} element @param {() => () => void} prepare @returns {T} */
function printed(element, prepare) {
  element.classList.add("printed");
  PRINTED.set(element, prepare);
  return element;
}

window.addEventListener("beforeprint", () => {
  PRINT.active = true;
  const done = new Set();
  // What is unfolded may hold further parts.
  for (let next = [...document.querySelectorAll(".printed")]; next.length;) {
    for (const each of next) {
      done.add(each);
      const undo = each.isConnected && PRINTED.get(each)?.();
      if (undo) PRINT.undo.push(undo);
    }
    next = [...document.querySelectorAll(".printed")].filter((each) => !done.has(each));
  }
});
window.addEventListener("afterprint", () => {
  PRINT.active = false;
  for (let undo = PRINT.undo.pop(); undo; undo = PRINT.undo.pop()) undo();
});

/**
 * Makes an element with a class and children; texts stay texts.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {string} [name]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[T]}
 */
function make(tag, name = "", ...children) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children);
  return made;
}

/**
 * @param {string} text
 * @param {() => void} press
 */
function button(text, press) {
  const made = make("button", "", text);
  made.type = "button";
  made.addEventListener("click", press);
  return made;
}

/**
 * A field with its label.
 * @param {string} label
 * @param {(text: string) => void} changed called when the text has changed
 */
function field(label, changed) {
  const input = make("input");
  input.type = "search";
  input.spellcheck = false;
  let timer = 0;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => changed(input.value), 120);
  });
  return { input, label: make("label", "", label, " ", input) };
}

/** @param {number} part @param {number} whole */
function share(part, whole) {
  return whole ? `${((100 * part) / whole).toFixed(part && part / whole < 0.001 ? 3 : 1)} %` : "0 %";
}

/** @param {number} value */
function count(value) {
  return value.toLocaleString("en");
}

/** @param {number} value @param {string} thing in singular */
function some(value, thing) {
  return `${count(value)} ${thing}${value === 1 ? "" : "s"}`;
}

/** A list of rows of one height. Only the rows in view are elements of the page. */
class List {
  /** Number of lists so far: it makes the IDs of their elements unique. */
  static made = 0;

  /**
   * @param {string} label text for screen readers
   * @param {(row: number) => (Node | string)[]} cells
   * @param {(row: number) => void} [chosen]
   */
  constructor(label, cells, chosen) {
    this.cells = cells;
    this.chosen = chosen;
    this.length = 0;
    this.current = 0;
    this.inner = make("div", "rows");
    this.inner.setAttribute("role", "none");
    this.element = make("div", "list", this.inner);
    this.element.id = `list-${List.made++}`;
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "listbox");
    this.element.setAttribute("aria-label", label);
    this.element.addEventListener("scroll", () => this.draw());
    this.element.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.left = make("p", "note");
    printed(this.element, () => {
      this.element.classList.add("whole");
      const left = this.length - MOST_PRINTED;
      if (left > 0) this.element.after(this.left);
      this.left.textContent = `${some(left, "more row")} of this list ${left === 1 ? "is" : "are"} not printed: the page on the screen has all.`;
      this.draw();
      return () => {
        this.left.remove();
        this.element.classList.remove("whole");
        this.draw();
      };
    });
  }

  /** @param {number} length */
  show(length) {
    this.length = length;
    this.current = 0;
    this.element.scrollTop = 0;
    this.inner.style.height = `${length * rowHeight()}px`;
    this.size(12);
  }

  /** @param {number} most rows in view */
  size(most) {
    this.element.style.height = `${Math.min(Math.max(this.length, 1), most) * rowHeight() + 4}px`;
    this.draw();
  }

  draw() {
    const whole = this.element.classList.contains("whole");
    const first = whole ? 0 : Math.max(Math.floor(this.element.scrollTop / rowHeight()) - 2, 0);
    const seen = Math.min(Math.ceil(this.element.clientHeight / rowHeight()) + 4, MOST_ROWS);
    const last = Math.min(first + (whole ? MOST_PRINTED : seen), this.length);
    const rows = [];
    for (let row = first; row < last; row++) {
      const made = make("div", row === this.current ? "row current" : "row");
      made.setAttribute("role", "option");
      made.setAttribute("aria-selected", String(row === this.current));
      made.setAttribute("aria-posinset", String(row + 1));
      made.setAttribute("aria-setsize", String(this.length));
      made.id = `${this.element.id}-${row}`;
      made.style.top = `${row * rowHeight()}px`;
      made.append(...this.cells(row));
      made.addEventListener("click", () => this.choose(row));
      rows.push(made);
    }
    this.inner.replaceChildren(...rows);
    this.element.setAttribute("aria-activedescendant", `${this.element.id}-${this.current}`);
  }

  /** @param {number} row */
  choose(row) {
    if (row < 0 || row >= this.length) return;
    this.current = row;
    const top = row * rowHeight();
    const view = this.element;
    if (top < view.scrollTop) view.scrollTop = top;
    if (top + rowHeight() > view.scrollTop + view.clientHeight) view.scrollTop = top + rowHeight() - view.clientHeight;
    this.draw();
    if (this.chosen) this.chosen(row);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const page = Math.max(Math.floor(this.element.clientHeight / rowHeight()) - 1, 1);
    /** @type {Record<string, number>} */
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.length, End: this.length };
    const step = steps[event.key];
    if (step === undefined && event.key !== "Enter") return;
    event.preventDefault();
    this.choose(Math.min(Math.max(this.current + (step || 0), 0), this.length - 1));
  }
}

/**
 * A part that is made when it is opened, and for print.
 * @param {string | Node} title
 * @param {() => (Node | string)[]} content
 * @param {boolean} [open]
 */
function folded(title, content, open = false) {
  const summary = make("summary", "", title);
  const made = make("details", "", summary);
  const fill = () => {
    if (made.open && made.childNodes.length === 1) made.append(...content());
  };
  made.addEventListener("toggle", fill);
  made.open = open;
  fill();
  return printed(made, () => {
    const before = made.open;
    made.open = true;
    fill();
    return () => {
      made.open = before;
      if (!before) made.replaceChildren(summary);
    };
  });
}

/**
 * A list of choices whose value the URL keeps.
 * @param {string} label @param {string} key of the URL @param {[string, string][]} options value and text; the first is the start
 * @param {(value: string) => void} chosen
 */
function choice(label, key, options, chosen) {
  const made = make("select");
  made.name = key;
  const first = options[0]?.[0] ?? "";
  for (const [value, text] of options) {
    const option = make("option", "", text);
    option.value = value;
    made.append(option);
  }
  made.addEventListener("change", () => {
    chosen(made.value);
    VIEW.set(key, made.value === first ? "" : made.value, false);
  });
  VIEW.parts.set(key, (value) => {
    const known = options.some(([each]) => each === value) ? value : first;
    if (made.value === known) return;
    made.value = known;
    chosen(known);
  });
  return make("label", "", `${label} `, made);
}
