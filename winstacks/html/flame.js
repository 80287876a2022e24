// This file is licensed under the Volatility Software License 1.0,
// available at https://www.volatilityfoundation.org/license/vsl-v1.0
// Flame graphs, and the elements that all parts of a page use, such as lists that draw only the rows in view.
"use strict";

const LINE = 19;
const MOST_BOXES = 1000;
const MOST_ROWS = 60;
const MOST_SORTED = 20000;
const GUESSED = 8;
const LOOKS = ["code", "unbacked", "unloaded", "level", "rest", "unreadable"];
const LEGEND = [
  ["code", "code of a module: one color for each"],
  ["unbacked", "code in no image and no mapped file"],
  ["unloaded", "code of a module that was unloaded"],
  ["code guessed", "a guess, or found through a guess"],
  ["unreadable", "the address cannot be read"],
  ["rest", "several boxes, or stacks that were cut"],
];

/** The unit of each kind of stacks. Numbers of different units are never added. @type {Record<string, string>} */
const UNITS = {
  kernel: "stack", user: "stack", wow64: "stack", std: "trace", heaplog: "trace", heap: "block", lock: "lock",
  handle: "event", object: "event",
};

/**
 * @typedef {object} FlameData stacks; stacks with the same beginning follow each other
 * @property {string} unit what the weights count
 * @property {string[]} notes
 * @property {string[]} texts distinct names
 * @property {number[]} looks of the names
 * @property {number[]} of number of the module of each name
 * @property {string[]} modules
 * @property {boolean} compared whether there is a baseline
 * @property {number[]} stacks for each stack: number of names that it shares with the stack before, number of further
 *   names, these names, outermost first, its weight, and, if there is a baseline, its weight in the baseline
 */

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
    window.addEventListener("beforeprint", () => this.size(MOST_ROWS));
    window.addEventListener("afterprint", () => this.size(12));
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
    const first = Math.max(Math.floor(this.element.scrollTop / rowHeight()) - 2, 0);
    const last = Math.min(first + Math.ceil(this.element.clientHeight / rowHeight()) + 4, this.length, first + MOST_ROWS);
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

/** The sums of a prefix tree. Nodes are numbers in preorder, so the nodes of a subtree follow each other. */
class Tree {
  /** @param {FlameData} data */
  constructor(data) {
    const coded = data.stacks;
    let size = 1;
    for (let at = 0; at < coded.length; at += (coded[at + 1] || 0) + (data.compared ? 4 : 3)) size += coded[at + 1] || 0;
    this.data = data;
    this.size = size;
    this.names = new Int32Array(size).fill(-1);
    this.depths = new Int32Array(size);
    this.parent = new Int32Array(size).fill(-1);
    this.end = new Int32Array(size).fill(size, 0, 1);
    this.now = new Float64Array(size);
    this.before = data.compared ? new Float64Array(size) : null;
    this.totals = this.now;
    /** @type {Map<number, number[]>} */
    this.sorted = new Map();
    const path = [0];
    let made = 1;
    for (let at = 0; at < coded.length; ) {
      path.length = (coded[at++] || 0) + 1;
      for (let left = coded[at++] || 0; left; left--) {
        this.names[made] = coded[at++] ?? -1;
        this.depths[made] = path.length;
        this.parent[made] = path[path.length - 1] || 0;
        path.push(made++);
      }
      const node = path[path.length - 1] || 0;
      this.now[node] = coded[at++] || 0;
      if (this.before) this.before[node] = coded[at++] || 0;
    }
    for (let node = size - 1; node > 0; node--) {
      this.end[node] = Math.max(this.at(this.end, node), node + 1);
      const parent = this.at(this.parent, node);
      this.end[parent] = Math.max(this.at(this.end, parent), this.at(this.end, node));
      this.now[parent] = this.at(this.now, parent) + this.at(this.now, node);
      if (this.before) this.before[parent] = this.at(this.before, parent) + this.at(this.before, node);
    }
  }

  /** Selects the weights of the baseline, or the present ones. @param {boolean} baseline */
  weigh(baseline) {
    this.totals = (baseline && this.before) || this.now;
    this.sorted.clear();
  }

  /** @param {Float64Array | Int32Array} array @param {number} node */
  at(array, node) {
    return array[node] || 0;
  }

  /** @param {number} node */
  total(node) {
    return this.at(this.totals, node);
  }

  /** @param {number} node the weight of the stacks that end at a node */
  own(node) {
    let sum = this.total(node);
    for (const child of this.children(node)) sum -= this.total(child);
    return sum;
  }

  /** @param {number} node @returns {number[]} the heaviest first */
  children(node) {
    const known = this.sorted.get(node);
    if (known) return known;
    const found = [];
    for (let child = node + 1; child < this.at(this.end, node); child = this.at(this.end, child)) {
      if (this.total(child)) found.push(child);
    }
    found.sort((a, b) => this.total(b) - this.total(a));
    if (this.sorted.size > MOST_SORTED) this.sorted.clear();
    this.sorted.set(node, found);
    return found;
  }

  /** @param {number} node */
  depth(node) {
    return this.at(this.depths, node);
  }

  /** @param {number} node */
  text(node) {
    return node ? (this.data.texts[this.at(this.names, node)] ?? "") : "all";
  }

  /** @param {number} node */
  path(node) {
    const found = [];
    for (let each = node; each > 0; each = this.at(this.parent, each)) found.push(each);
    return found;
  }

  /** Returns the box of the kind of stacks to which a box belongs, 0 for the whole. @param {number} node */
  kind(node) {
    let found = node;
    while (this.depth(found) > 1) found = this.at(this.parent, found);
    return found;
  }

  /** @param {number} node the depth of the deepest node below a node */
  deepest(node) {
    let depth = this.depth(node);
    for (let each = node; each < this.at(this.end, node); each++) depth = Math.max(depth, this.depth(each));
    return depth;
  }
}

/**
 * The hue of a module, the same on every page (FNV-1a). Red is reserved for unbacked code.
 * @param {string} text
 */
function hue(text) {
  let sum = 0x811c9dc5;
  for (const letter of text.toLowerCase()) sum = Math.imul(sum ^ letter.charCodeAt(0), 0x01000193) >>> 0;
  return 40 + (((sum ^ (sum >>> 11)) >>> 0) % 270);
}

/** A flame graph with its controls and the list of the stacks below a box. */
class Flame {
  /** @param {FlameData} data */
  constructor(data) {
    this.tree = new Tree(data);
    this.data = data;
    this.hues = data.modules.map(hue);
    this.root = 0;
    this.focus = 0;
    this.flipped = false;
    this.deepest = this.tree.deepest(0);
    /** @type {Set<number> | null} */
    this.matched = null;
    this.touched = 0;
    /** @type {number[]} */
    this.ends = [];
    this.detail = make("p", "detail");
    this.detail.setAttribute("aria-live", "polite");
    this.found = make("output", "found");
    this.inner = make("div", "boxes");
    this.inner.setAttribute("role", "none");
    this.view = make("div", "flame", this.inner);
    this.view.tabIndex = -1;
    this.view.setAttribute("role", "tree");
    this.view.setAttribute("aria-label", "Flame graph: arrow keys move, Enter zooms, Escape goes back");
    this.stack = make("pre", "stack");
    this.stack.tabIndex = 0;
    this.list = new List("Stacks below the chosen box", (row) => this.row(row), (row) => this.tell(row));
    this.listed = make("h3", "");
    this.search = field("Search", (text) => {
      this.find(text);
      VIEW.set("find", text.trim(), false);
    });
    this.search.input.placeholder = "text or glob: nt!Nt*";
    VIEW.parts.set("find", (text) => {
      this.search.input.value = text;
      this.find(text);
    });
    VIEW.parts.set("flip", (flip) => {
      if (Boolean(flip) !== this.flipped) this.flip();
    });
    VIEW.parts.set("box", (box) => {
      const node = Number(box);
      this.zoom(Number.isInteger(node) && node > 0 && node < this.tree.size ? node : 0);
    });
    this.element = make("div", "flamegraph", this.controls(), this.legend(), this.view, this.detail,
      this.listed, this.list.element, this.stack);
    this.view.addEventListener("keydown", (event) => this.key(event));
    this.view.addEventListener("scroll", () => this.draw());
    this.view.addEventListener("click", (event) => this.press(event));
    this.view.addEventListener("mouseover", (event) => this.hover(event));
    new ResizeObserver(() => this.draw()).observe(this.view);
  }

  controls() {
    const bar = make("div", "bar", this.search.label);
    bar.append(button("Flip", () => this.flip()), button("Zoom out", () => this.zoom(this.above(this.root))),
      button("All", () => this.zoom(0)));
    const jump = make("select");
    const option = (/** @type {number} */ node) => {
      const made = make("option", "", "\u00a0".repeat(2 * this.tree.depth(node)) + this.tree.text(node));
      made.value = String(node);
      return made;
    };
    jump.append(option(0));
    for (const kind of this.tree.children(0)) {
      jump.append(option(kind), ...this.tree.children(kind).slice(0, 30).map(option));
      if (jump.length > 150) break;
    }
    jump.addEventListener("change", () => this.zoom(Number(jump.value)));
    bar.append(make("label", "", "Show ", jump));
    if (this.tree.before) {
      const box = make("input");
      box.type = "checkbox";
      box.addEventListener("change", () => {
        this.tree.weigh(box.checked);
        this.zoom(0);
      });
      bar.append(make("label", "", box, " widths of the baseline"));
    }
    bar.append(this.found);
    return bar;
  }

  legend() {
    const made = make("ul", "legend");
    const entries = this.tree.before
      ? [["grown", "more than in the baseline"], ["shrunk", "less"], ["same", "equal"], ["rest", "several boxes"]]
      : LEGEND;
    for (const [look, text] of entries) {
      made.append(make("li", "", make("span", `key box ${look}`), ` ${text}`));
    }
    return make("div", "", ...this.data.notes.map((note) => make("p", "note", note)), made);
  }

  /** @param {number} node */
  above(node) {
    return Math.max(this.tree.at(this.tree.parent, node), 0);
  }

  /** @param {number} node */
  zoom(node) {
    this.root = this.focus = node;
    this.deepest = this.tree.deepest(node);
    this.inner.style.height = `${(this.deepest + 1) * LINE}px`;
    this.view.scrollTop = this.flipped ? this.inner.offsetHeight : Math.max(this.tree.depth(node) - 3, 0) * LINE;
    this.draw();
    this.show(node);
    this.below(node);
    VIEW.set("box", node ? String(node) : "", true);
  }

  flip() {
    this.flipped = !this.flipped;
    this.view.classList.toggle("flipped", this.flipped);
    VIEW.set("flip", this.flipped ? "1" : "", false);
    this.view.scrollTop = this.flipped ? this.inner.offsetHeight : 0;
    this.draw();
  }

  /**
   * Returns the boxes of the levels in view. The children of a node that are wide enough have a box each; one more
   * box stands for all other children. So no weight is missing from a level, except stacks that end above it.
   * @param {number} first @param {number} last @param {number} least the least share of the width
   */
  boxes(first, last, least) {
    const tree = this.tree;
    const whole = tree.total(this.root);
    /** @type {{node: number, level: number, left: number, weight: number, more: number}[]} */
    const made = [];
    for (const node of tree.path(this.root).slice(1)) {
      const level = tree.depth(node);
      if (level >= first && level <= last) made.push({ node, level, left: 0, weight: whole, more: 0 });
    }
    if (this.root && !first) made.push({ node: 0, level: 0, left: 0, weight: whole, more: 0 });
    const waiting = [{ node: this.root, left: 0 }];
    for (let next = waiting.pop(); next; next = waiting.pop()) {
      const level = tree.depth(next.node);
      if (level >= first) made.push({ node: next.node, level, left: next.left, weight: tree.total(next.node), more: 0 });
      if (level >= last || made.length > MOST_BOXES) continue;
      const children = tree.children(next.node);
      let left = next.left;
      let drawn = 0;
      for (const node of children) {
        if (tree.total(node) < least * whole) break;
        waiting.push({ node, left });
        left += tree.total(node);
        drawn++;
      }
      const more = children.length - drawn;
      if (more && level + 1 >= first) {
        let weight = 0;
        for (const node of children.slice(drawn)) weight += tree.total(node);
        made.push({ node: next.node, level: level + 1, left, weight, more });
      }
    }
    return made;
  }

  draw() {
    const height = this.view.clientHeight;
    const top = this.view.scrollTop;
    const levels = this.deepest + 1;
    let first = Math.max(Math.floor(top / LINE) - 1, 0);
    let last = Math.min(Math.ceil((top + height) / LINE) + 1, levels);
    if (this.flipped) [first, last] = [Math.max(levels - last - 1, 0), levels - first];
    const whole = this.tree.total(this.root);
    let least = 2 / Math.max(this.inner.clientWidth, 100);
    let boxes = this.boxes(first, last, least);
    while (boxes.length > MOST_BOXES && least < 1) {
      least *= 2;
      boxes = this.boxes(first, last, least);
    }
    boxes.sort((a, b) => a.level - b.level || a.left - b.left);
    const held = this.view.contains(document.activeElement);
    this.inner.replaceChildren(...boxes.map((box) => this.box(box, whole)));
    // If the box with the focus is scrolled out of view, the keyboard still works.
    if (held) (this.focused() ?? this.view).focus({ preventScroll: true });
  }

  /** Returns the element of the box that has the focus of the keyboard, if it is in view. */
  focused() {
    const box = this.inner.querySelector(`[data-node="${this.focus}"][data-more="0"]`);
    return box instanceof HTMLElement ? box : null;
  }

  /** @param {{node: number, level: number, left: number, weight: number, more: number}} box @param {number} whole */
  box({ node, level, left, weight, more }, whole) {
    const tree = this.tree;
    const text = more ? `… ${more}` : tree.text(node);
    const name = this.tree.names[node] ?? -1;
    const look = more ? "rest" : node ? this.look(node, name) : "level";
    const fits = weight * this.inner.clientWidth >= 22 * whole;
    const made = make("div", `box ${look}`, fits ? text : "");
    made.style.left = `${whole ? (100 * left) / whole : 0}%`;
    made.style.width = `${whole ? (100 * weight) / whole : 100}%`;
    made.style.top = `${(this.flipped ? this.deepest - level : level) * LINE}px`;
    made.style.setProperty("--h", String(this.hues[this.data.of[name] ?? 0] ?? 0));
    if (this.matched) made.classList.add(!more && this.matched.has(name) ? "match" : "dim");
    if (level < tree.depth(this.root)) made.classList.add("above");
    made.tabIndex = node === this.focus && !more ? 0 : -1;
    made.setAttribute("role", "treeitem");
    made.setAttribute("aria-level", String(level + 1));
    made.setAttribute("aria-label", `${more ? `${more} more` : text}, ${this.figure(node, weight)}`);
    made.dataset["node"] = String(node);
    made.dataset["level"] = String(level);
    made.dataset["weight"] = String(weight);
    made.dataset["more"] = String(more);
    return made;
  }

  /** @param {number} node @param {number} name */
  look(node, name) {
    const tree = this.tree;
    if (tree.before) {
      const change = tree.at(tree.now, node) - tree.at(tree.before, node);
      return change > 0 ? "grown" : change < 0 ? "shrunk" : "same";
    }
    const look = this.data.looks[name] ?? 0;
    return `${LOOKS[look % GUESSED]}${look >= GUESSED ? " guessed" : ""}`;
  }

  /** Returns the unit of the weights of a kind of stacks, in singular. @param {number} kind */
  unit(kind) {
    if (this.data.unit !== "stacks") return this.data.unit.replace(/s$/, "");
    return UNITS[this.tree.text(kind)] ?? "stack";
  }

  /** Returns the weights by unit, each with its share of all weights of the unit. @param {(kind: number) => number} weight of a kind */
  sums(weight) {
    /** @type {Map<string, [number, number]>} */
    const found = new Map();
    for (const kind of this.tree.children(0)) {
      const [part, whole] = found.get(this.unit(kind)) ?? [0, 0];
      found.set(this.unit(kind), [part + weight(kind), whole + this.tree.total(kind)]);
    }
    return [...found].filter(([, [part]]) => part).map(([unit, [part, whole]]) =>
      part === whole ? some(part, unit) : `${some(part, unit)} (${share(part, whole)})`).join(", ");
  }

  /** Returns a weight in words: with its unit, and its share of its kind of stacks. @param {number} node @param {number} weight */
  figure(node, weight) {
    const kind = this.tree.kind(node);
    if (!kind) return weight === this.tree.total(0) ? this.sums((each) => this.tree.total(each)) : "of several kinds";
    const all = `${share(weight, this.tree.total(kind))} of ${this.tree.text(kind)}`;
    const part = this.tree.depth(this.root) > 1 ? `, ${share(weight, this.tree.total(this.root))} of the part shown` : "";
    return `${some(weight, this.unit(kind))}, ${all}${part}`;
  }

  /** @param {number} node */
  show(node) {
    const tree = this.tree;
    let text = `${tree.text(node)}: ${this.figure(node, tree.total(node))}`;
    if (tree.before) {
      const change = tree.at(tree.now, node) - tree.at(tree.before, node);
      text += `, ${change > 0 ? "+" : ""}${count(change)} against the baseline`;
    }
    this.detail.textContent = text;
  }

  /** @param {Event} event */
  box_of(event) {
    const target = event.target;
    const found = target instanceof Element ? target.closest(".box") : null;
    return found instanceof HTMLElement ? found : null;
  }

  /** @param {Event} event */
  press(event) {
    const box = this.box_of(event);
    if (box) this.zoom(Number(box.dataset["node"]));
    this.take();
  }

  /** @param {Event} event */
  hover(event) {
    const box = this.box_of(event);
    if (!box) return;
    if (Number(box.dataset["more"])) this.detail.textContent = box.getAttribute("aria-label");
    else this.show(Number(box.dataset["node"]));
  }

  /** Gives the keyboard focus to the box `focus`, and scrolls there. */
  take() {
    if (!this.focused()) {
      const level = this.tree.depth(this.focus);
      this.view.scrollTop = (this.flipped ? this.deepest - level : level) * LINE - this.view.clientHeight / 2;
      this.draw();
    }
    const box = this.focused();
    if (box) box.tabIndex = 0;
    box?.focus();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const tree = this.tree;
    const siblings = this.focus ? tree.children(this.above(this.focus)) : [];
    const place = siblings.indexOf(this.focus);
    const inward = this.flipped ? "ArrowUp" : "ArrowDown";
    const outward = this.flipped ? "ArrowDown" : "ArrowUp";
    /** @type {number | undefined} */
    let next;
    if (event.key === inward) next = tree.children(this.focus)[0];
    else if (event.key === outward) next = this.focus ? this.above(this.focus) : undefined;
    else if (event.key === "ArrowRight") next = siblings[place + 1];
    else if (event.key === "ArrowLeft") next = siblings[place - 1];
    else if (event.key === "Enter" || event.key === " ") this.zoom(this.focus);
    else if (event.key === "Escape" || event.key === "Backspace") this.zoom(this.above(this.root));
    else if (event.key === "Home") this.zoom(0);
    else if (event.key === "f") this.flip();
    else return;
    event.preventDefault();
    if (next !== undefined) {
      this.focus = next;
      for (const box of this.inner.querySelectorAll("[tabindex='0']")) box.setAttribute("tabindex", "-1");
      this.show(next);
    }
    this.take();
  }

  /** Finds names, and the weight of the stacks with such a name. @param {string} text */
  find(text) {
    const wanted = text.trim();
    const fits = matcher(wanted);
    const { texts } = this.data;
    this.matched = null;
    this.touched = 0;
    this.found.textContent = "";
    if (wanted) {
      const matched = new Set();
      for (let name = 0; name < texts.length; name++) {
        this.touched++;
        if (fits(texts[name] ?? "")) matched.add(name);
      }
      /** @type {Map<number, number>} */
      const weights = new Map();
      for (let node = 1, kind = 0; node < this.tree.size; ) {
        if (this.tree.depth(node) === 1) kind = node;
        const hit = matched.has(this.tree.names[node]);
        if (hit) weights.set(kind, (weights.get(kind) ?? 0) + this.tree.total(node));
        node = hit ? this.tree.at(this.tree.end, node) : node + 1;
      }
      this.matched = matched;
      const sums = this.sums((kind) => weights.get(kind) ?? 0);
      this.found.textContent = [some(matched.size, "name"), sums].filter(Boolean).join(", ");
    }
    this.found.dataset["touched"] = String(this.touched);
    this.draw();
    this.below(this.root);
  }

  /** Returns whether a stack has a frame that the search has found. @param {number} end its last node */
  fits(end) {
    return !this.matched || this.tree.path(end).some((node) => this.matched?.has(this.tree.at(this.tree.names, node)));
  }

  /** Lists the stacks that pass through a node and match the search. @param {number} node */
  below(node) {
    const tree = this.tree;
    const own = new Float64Array(tree.at(tree.end, node) - node);
    for (let each = node; each < tree.at(tree.end, node); each++) {
      own[each - node] = (own[each - node] || 0) + tree.total(each);
      const parent = tree.at(tree.parent, each);
      if (each > node) own[parent - node] = (own[parent - node] || 0) - tree.total(each);
    }
    this.ends = [];
    let all = 0;
    own.forEach((weight, place) => {
      if (weight <= 0) return;
      all++;
      if (this.fits(node + place)) this.ends.push(node + place);
    });
    this.ends.sort((a, b) => (own[b - node] || 0) - (own[a - node] || 0));
    const shown = node ? ` below ${tree.text(node)}` : "";
    const part = this.matched ? `${count(this.ends.length)} of ` : "";
    this.listed.textContent = `${part}${some(all, "different stack")}${shown}${part ? " that match the search" : ""}`;
    this.list.show(this.ends.length);
    this.stack.textContent = "";
    if (this.ends.length) this.tell(0);
  }

  /** @param {number} row */
  row(row) {
    const node = this.ends[row] ?? 0;
    const path = this.tree.path(node);
    const levels = path.splice(Math.max(path.length - 2, 0));
    const frames = path.slice(0, 12).map((each) => this.tree.text(each));
    const own = this.tree.own(node);
    return [
      make("span", "number", count(own)),
      make("span", "number lesser", share(own, this.tree.total(this.tree.kind(node)))),
      make("span", "where", levels.reverse().map((each) => this.tree.text(each)).join(" ")),
      make("span", "frames", frames.join(" ← ") + (path.length > 12 ? " ← …" : "")),
    ];
  }

  /** @param {number} row */
  tell(row) {
    const frames = this.tree.path(this.ends[row] ?? 0).map((each) => this.tree.text(each));
    this.stack.textContent = frames.slice(0, 4096).join("\n");
  }
}
