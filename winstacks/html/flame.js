// This file is licensed under the Volatility Software License 1.0,
// available at https://www.volatilityfoundation.org/license/vsl-v1.0
// A flame graph, with its controls and its lists of stacks.
"use strict";

const LINE = 19;
const MOST_BOXES = 1000;
/** The most programs that the legend names; it says how many more there are. */
const MOST_PROGRAMS = 24;
const LEGEND = [
  ["code", "code of a module: one color for each"],
  ["unbacked", "code in no image and no mapped file"],
  ["unloaded", "code of a module that was unloaded"],
  ["code holds", "leads to code in no file"],
  ["code guessed", "a guess, or found through a guess"],
  ["unreadable", "the address cannot be read"],
  ["rest", "several boxes, or stacks that were cut"],
];
/** What the weights of a unit count. @type {Record<string, string>} */
const COUNTED = {
  stack: "stacks of threads", trace: "recorded traces", block: "heap blocks", lock: "locks",
  event: "events of handles and objects", byte: "bytes of heap blocks", thread: "threads",
};

/** @typedef {{node: number, level: number, left: number, weight: number, more: number, red: number}} Box */

/** A flame graph with its controls, the stacks with code in no file, and the list of the stacks below a box. */
class Flame {
  /** @param {FlameData} data */
  constructor(data) {
    this.stacks = new Stacks(data);
    this.data = data;
    this.units = [...this.stacks.weights()].sort((a, b) => b[1] - a[1]);
    /** @type {Choice} */
    this.choice = { unit: this.first(), process: -1, split: false };
    this.tree = this.stacks.tree(this.choice);
    this.widths = false;
    this.hues = data.modules.map(hue);
    /** The program of each node, if the colors are those of programs. @type {(string | undefined)[] | null} */
    this.programs = null;
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
    this.view = printed(make("div", "flame", this.inner), () => {
      this.draw();
      return () => this.draw();
    });
    this.view.tabIndex = -1;
    this.view.setAttribute("role", "tree");
    this.view.setAttribute("aria-label", "Flame graph: arrow keys move, Enter zooms, Escape goes back");
    this.stack = make("pre", "stack");
    this.stack.tabIndex = 0;
    this.list = new List("Stacks below the chosen box", (row) => this.row(row), (row) => this.tell(row));
    this.listed = make("h3", "");
    this.heads = make("div", "heads");
    this.colors = make("ul", "legend");
    this.search = field("Search", (text) => {
      this.find(text);
      VIEW.set("find", text.trim(), false);
    });
    this.search.input.placeholder = "text or glob: nt!Nt*";
    const controls = this.controls();
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
    this.element = make("div", "flamegraph", this.reds(), controls, this.legend(), this.view, this.detail,
      this.listed, this.heads, this.list.element, this.stack);
    if (this.tree.before) this.heads.append(...["Now", "Before", "Change", "Growth"].map((each) => make("span", "number", each)), make("span", "where", "Kind, process"), make("span", "frames", "Stack"));
    this.view.addEventListener("keydown", (event) => this.key(event));
    this.view.addEventListener("scroll", () => this.draw());
    this.view.addEventListener("click", (event) => this.press(event));
    this.view.addEventListener("mouseover", (event) => this.hover(event));
    new ResizeObserver(() => this.draw()).observe(this.view);
  }

  /** Returns the unit that is shown first: stacks of threads, else the one with the largest sum. */
  first() {
    return this.units.some(([unit]) => unit === "stack") ? "stack" : (this.units[0]?.[0] ?? "stack");
  }

  /** Draws another choice of stacks. @param {Partial<Choice>} change */
  choose(change) {
    this.choice = { ...this.choice, ...change };
    this.tree = this.stacks.tree(this.choice);
    this.tree.weigh(this.widths);
    if (this.programs) this.programs = this.tree.programs();
    this.root = this.focus = 0;
    if (this.search.input.value) this.find(this.search.input.value);
    this.name();
    this.zoom(0);
  }

  controls() {
    const bar = make("div", "bar", this.search.label);
    bar.append(button("Flip", () => this.flip()), button("Zoom out", () => this.zoom(this.above(this.root))),
      button("All", () => this.zoom(0)));
    const start = this.first();
    const units = [...this.units].sort((a, b) => Number(b[0] === start) - Number(a[0] === start));
    /** @type {[string, string][]} */
    const weights = units.map(([unit, sum]) => [unit, `${COUNTED[unit] ?? unit} (${count(sum)})`]);
    bar.append(choice("Width", "unit", weights, (unit) => this.choose({ unit })));
    const names = [...new Set(Array.from({ length: this.stacks.size }, (_, stack) => this.stacks.name(stack, 1)))];
    const processes = names.map((name) => /** @type {[string, string]} */ ([String(name), this.stacks.text(name)]));
    processes.sort((a, b) => a[1].localeCompare(b[1], "en", { numeric: true }));
    bar.append(choice("Process", "process", [["-1", `all ${count(processes.length)}`], ...processes],
      (process) => this.choose({ process: Number(process) })));
    bar.append(choice("Boxes", "split", [["", "of all processes together"], ["1", "of each process"]],
      (split) => this.choose({ split: Boolean(split) })));
    if (this.tree.before) {
      const box = make("input");
      box.type = "checkbox";
      box.addEventListener("change", () => {
        this.widths = box.checked;
        this.choose({});
      });
      bar.append(make("label", "", box, " widths of the baseline"));
    } else {
      bar.append(choice("Colors", "color", [["", "of modules"], ["process", "of programs"]], (color) => {
        this.programs = color ? this.tree.programs() : null;
        this.name();
        this.draw();
      }));
    }
    bar.append(this.found);
    return bar;
  }

  legend() {
    const made = make("ul", "legend");
    const entries = this.tree.before
      ? [...GROWTH.map(([, look, text]) => [look, text]), ["same", "equal"], ["code holds", "leads to code in no file"], ["same unbacked", "code in no file"], ["rest", "several boxes"]]
      : LEGEND;
    for (const [look, text] of entries) {
      made.append(make("li", "", make("span", `key box ${look}`), ` ${text}`));
    }
    return make("div", "", ...this.data.notes.map((note) => make("p", "note", note)), made, this.colors);
  }

  /** Names the colors of programs, those with the largest sums first; and says how many more there are. */
  name() {
    this.colors.replaceChildren();
    if (!this.programs) return;
    /** @type {Map<string, number>} */
    const sums = new Map();
    for (const stack of this.tree.chosen) {
      const program = programOf(this.stacks.text(this.stacks.name(stack, 1)));
      sums.set(program, (sums.get(program) ?? 0) + (this.stacks.now[stack] ?? 0));
    }
    const sorted = [...sums].sort((a, b) => b[1] - a[1]);
    for (const [program, sum] of sorted.slice(0, MOST_PROGRAMS)) {
      const key = make("span", "key box code");
      key.style.setProperty("--h", String(hue(program)));
      this.colors.append(make("li", "", key, ` ${program}: ${some(sum, this.choice.unit)}`));
    }
    const more = sorted.length - MOST_PROGRAMS;
    if (more > 0) this.colors.append(make("li", "", `${some(more, "more program")} with fewer`));
    this.colors.append(make("li", "", make("span", "key box several"), " several programs"));
  }

  /** The list of all stacks with code in no file, whatever the graph shows. */
  reds() {
    /** @type {Map<string, number[]>} equal stacks of all processes */
    const equal = new Map();
    for (let stack = 0; stack < this.stacks.size; stack++) {
      if (!this.stacks.now[stack] || this.stacks.red(stack) < 0) continue;
      const key = this.stacks.names.slice((this.stacks.starts[stack] ?? 0) + 2, this.stacks.starts[stack + 1]).join() + `;${this.stacks.name(stack, 0)}`;
      const known = equal.get(key);
      if (known) known.push(stack);
      else equal.set(key, [stack]);
    }
    const order = Object.keys(COUNTED);
    const rows = [...equal.values()].sort((a, b) => order.indexOf(this.stacks.unit(a[0] ?? 0)) - order.indexOf(this.stacks.unit(b[0] ?? 0)) || a.length - b.length);
    if (!rows.length) return make("p", "note", "No stack has code in no file.");
    const sum = (/** @type {number[]} */ stacks) => stacks.reduce((all, stack) => all + (this.stacks.now[stack] ?? 0), 0);
    const list = new List("Stacks with code in no file", (row) => {
      const stacks = rows[row] ?? [];
      const stack = stacks[0] ?? 0;
      const frames = [];
      for (let place = this.stacks.length(stack) - 1; place > 1; place--) frames.push(this.stacks.text(this.stacks.name(stack, place)));
      return [
        make("span", "number", some(sum(stacks), this.stacks.unit(stack))),
        make("span", "where", `${this.stacks.text(this.stacks.name(stack, 0))}, ${this.owners(stacks)}`),
        make("span", "where red lesser", this.stacks.text(this.stacks.name(stack, this.stacks.red(stack)))),
        make("span", "frames", PRINT.active ? frames.join(" ← ") : shortened(frames)),
      ];
    }, (row) => {
      const stack = rows[row]?.[0] ?? 0;
      this.go(stack, this.stacks.red(stack));
    });
    list.show(rows.length);
    const processes = new Set(rows.flat().map((stack) => this.stacks.name(stack, 1))).size;
    const title = make("h3", "", `Stacks with code in no file: ${some(rows.length, "different stack")} in ${count(processes)} ${processes === 1 ? "process" : "processes"}`);
    return make("div", "reds", title, list.element);
  }

  /** Returns whose stacks are: the process, or the number of processes. @param {number[]} stacks */
  owners(stacks) {
    const found = this.tree.processes(stacks);
    return found.length === 1 ? (found[0] ?? "") : `${count(found.length)} processes`;
  }

  /** Zooms to a frame of a stack, in the graph of its weight. @param {number} stack @param {number} place */
  go(stack, place) {
    const unit = this.stacks.unit(stack);
    if (unit !== this.choice.unit || this.choice.process >= 0) {
      this.choose({ unit, process: -1 });
      VIEW.set("process", "", false);
      VIEW.set("unit", unit === this.first() ? "" : unit, false);
      for (const [key, value] of [["unit", unit], ["process", "-1"]]) {
        const made = this.element.querySelector(`select[name=${key}]`);
        if (made instanceof HTMLSelectElement) made.value = value ?? "";
      }
    }
    this.zoom(this.tree.node(stack, place));
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
    /** @type {Box[]} */
    const made = [];
    for (const node of tree.path(this.root).slice(1)) {
      const level = tree.depth(node);
      if (level >= first && level <= last) made.push({ node, level, left: 0, weight: whole, more: 0, red: 0 });
    }
    if (this.root && !first) made.push({ node: 0, level: 0, left: 0, weight: whole, more: 0, red: 0 });
    const waiting = [{ node: this.root, left: 0 }];
    for (let next = waiting.pop(); next; next = waiting.pop()) {
      const level = tree.depth(next.node);
      if (level >= first) made.push({ node: next.node, level, left: next.left, weight: tree.total(next.node), more: 0, red: 0 });
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
        let red = 0;
        for (const node of children.slice(drawn)) {
          weight += tree.total(node);
          red += tree.at(tree.red, node);
        }
        made.push({ node: next.node, level: level + 1, left, weight, more, red });
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
    if (PRINT.active) [first, last] = [0, levels];
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

  /** @param {Box} box @param {number} whole */
  box({ node, level, left, weight, more, red }, whole) {
    const tree = this.tree;
    const text = more ? `${red ? `${count(red)} red, ` : ""}… ${more}` : tree.text(node);
    const name = this.tree.names[node] ?? -1;
    const look = more ? `rest${red ? " red" : ""}` : node ? this.look(node, name) : "level";
    const fits = weight * this.inner.clientWidth >= 22 * whole;
    const made = make("div", `box ${look}`, fits ? text : "");
    made.style.left = `${whole ? (100 * left) / whole : 0}%`;
    made.style.width = `${whole ? (100 * weight) / whole : 100}%`;
    made.style.top = `${(this.flipped ? this.deepest - level : level) * LINE}px`;
    const program = this.programs && !more ? this.programs[node] : undefined;
    if (program === "" && look.startsWith("code")) made.classList.add("several");
    made.style.setProperty("--h", String(program ? hue(program) : this.hues[this.data.of[name] ?? 0] ?? 0));
    if (!more && !this.tree.isRed(node) && tree.at(tree.red, node)) made.classList.add("holds");
    if (this.matched) made.classList.add(!more && this.matched.has(name) ? "match" : "dim");
    if (level < tree.depth(this.root)) made.classList.add("above");
    made.tabIndex = node === this.focus && !more ? 0 : -1;
    made.setAttribute("role", "treeitem");
    made.setAttribute("aria-level", String(level + 1));
    made.setAttribute("aria-label", `${more ? `${more} more${red ? `, ${count(red)} with code in no file` : ""}` : text}, ${this.figure(node, weight)}`);
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
      return `${growthOf(tree.at(tree.now, node), tree.at(tree.before, node))}${tree.isRed(node) ? " unbacked" : ""}`;
    }
    const look = this.data.looks[name] ?? 0;
    return `${LOOKS[look % GUESSED]}${look >= GUESSED ? " guessed" : ""}`;
  }

  /** Returns weights by unit in words, each with its share of all weights of the unit. @param {Map<string, number>} weights */
  sums(weights) {
    const wholes = new Map(this.units);
    return [...weights].filter(([, part]) => part).map(([unit, part]) => {
      const whole = wholes.get(unit) ?? part;
      return part === whole ? some(part, unit) : `${some(part, unit)} (${share(part, whole)})`;
    }).join(", ");
  }

  /** Returns a weight in words: with its unit, and its share of its kind of stacks. @param {number} node @param {number} weight */
  figure(node, weight) {
    const kind = this.tree.kind(node);
    if (!kind) return some(weight, this.choice.unit);
    const all = `${share(weight, this.tree.total(kind))} of ${this.tree.text(kind)}`;
    const part = this.tree.depth(this.root) > 1 ? `, ${share(weight, this.tree.total(this.root))} of the part shown` : "";
    return `${some(weight, this.choice.unit)}, ${all}${part}`;
  }

  /** @param {number} node */
  show(node) {
    const tree = this.tree;
    let text = `${tree.text(node)}: ${this.figure(node, tree.total(node))}, in ${this.owners(tree.through(node))}`;
    const red = tree.at(tree.red, node);
    if (red && !tree.before) text += `; ${count(red)} with code in no file`;
    if (tree.before) {
      const change = tree.at(tree.now, node) - tree.at(tree.before, node);
      text += `, ${change > 0 ? "+" : ""}${count(change)} (${growth(tree.at(tree.now, node), tree.at(tree.before, node))}) against the baseline`;
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
      const { names, starts } = this.stacks;
      const weights = this.stacks.weights((stack) => {
        for (let at = starts[stack] ?? 0; at < (starts[stack + 1] ?? 0); at++) if (matched.has(names[at])) return true;
        return false;
      });
      this.matched = matched;
      const sums = this.sums(weights);
      this.found.textContent = [some(matched.size, "name"), sums].filter(Boolean).join(", ");
    }
    this.found.dataset["touched"] = String(this.touched);
    this.draw();
    this.below(this.root);
  }

  /** Returns whether a stack has a name that the search has found. @param {number} end its last node */
  fits(end) {
    const { matched, tree } = this;
    if (!matched || tree.path(end).some((node) => matched.has(tree.at(tree.names, node)))) return true;
    return this.endingAt(end).some((stack) => matched.has(this.stacks.name(stack, 1)));
  }

  /** Returns the stacks that end at a node. @param {number} node */
  endingAt(node) {
    const all = this.tree.through(node);
    const first = node ? this.tree.at(this.tree.first, node) : 0;
    return all.filter((_, place) => this.tree.ends[first + place] === node);
  }

  /** Lists the stacks that pass through a node and match the search; with a baseline those that have grown most first. @param {number} node */
  below(node) {
    const tree = this.tree;
    this.ends = [];
    let all = 0;
    /** @type {Map<number, number>} */
    const order = new Map();
    const first = node ? tree.at(tree.first, node) : 0;
    const ends = new Set(tree.through(node).map((_, place) => tree.ends[first + place] ?? 0));
    for (const end of ends) {
      const [now, before] = [tree.own(end, tree.now), tree.before ? tree.own(end, tree.before) : 0];
      if (tree.before ? now + before <= 0 : now <= 0) continue;
      all++;
      if (!this.fits(end)) continue;
      this.ends.push(end);
      order.set(end, tree.before ? now - before : now);
    }
    this.ends.sort((a, b) => (order.get(b) ?? 0) - (order.get(a) ?? 0));
    const shown = node ? ` below ${tree.text(node)}` : "";
    const part = this.matched ? `${count(this.ends.length)} of ` : "";
    const sorted = tree.before ? ", the most growth first" : "";
    this.listed.textContent = `${part}${some(all, "different stack")}${shown}${part ? " that match the search" : ""}${sorted}`;
    this.list.show(this.ends.length);
    this.stack.textContent = "";
    if (this.ends.length) this.tell(0);
  }

  /** @param {number} row */
  row(row) {
    const tree = this.tree;
    const node = this.ends[row] ?? 0;
    const path = tree.path(node);
    const kind = tree.text(path.pop() ?? 0);
    if (tree.split) path.pop();
    const frames = path.map((each) => tree.text(each));
    const own = tree.own(node, tree.now);
    const where = make("span", "where", `${kind}, ${this.owners(this.endingAt(node))}`);
    const stack = make("span", "frames", PRINT.active ? frames.join(" ← ") : shortened(frames));
    if (tree.before) {
      const before = tree.own(node, tree.before);
      const change = own - before;
      return [
        ...[count(own), count(before), `${change > 0 ? "+" : ""}${count(change)}`].map((each) => make("span", "number", each)),
        make("span", `number key box ${growthOf(own, before)}`, growth(own, before)), where, stack,
      ];
    }
    return [make("span", "number", count(own)), make("span", "number lesser", share(own, tree.total(tree.kind(node)))), where, stack];
  }

  /** @param {number} row */
  tell(row) {
    const end = this.ends[row] ?? 0;
    const owners = this.tree.processes(this.endingAt(end));
    const path = this.tree.path(end);
    const kind = this.tree.text(path.pop() ?? 0);
    if (this.tree.split) path.pop();
    this.stack.textContent = [...path.map((each) => this.tree.text(each)), "", `${kind}, ${owners.join(", ")}`].join("\n");
  }
}

/** Returns the innermost frames of a stack, and the number of the others. @param {string[]} frames */
function shortened(frames) {
  const more = frames.length - 12;
  return frames.slice(0, 12).join(" ← ") + (more > 0 ? ` ← … ${more} more` : "");
}
