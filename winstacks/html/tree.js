// This file is licensed under the Volatility Software License 1.0,
// available at https://www.volatilityfoundation.org/license/vsl-v1.0
// The stacks of a flame graph, and those of one weight as a prefix tree with sums.
"use strict";

const MOST_SORTED = 20000;
const GUESSED = 8;
const LOOKS = ["code", "unbacked", "unloaded", "level", "rest", "unreadable"];
/** The looks of code in no file. */
const RED = [1, 2];

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
 *   names, these names, outermost first, its weight, and, if there is a baseline, its weight in the baseline. The first
 *   two names are its kind and its process
 *
 * What is drawn.
 * @typedef {object} Choice
 * @property {string} unit of the weights
 * @property {number} process the name of the only process, -1 for all
 * @property {boolean} split whether each process has its own boxes
 */

/** All stacks, decoded. A stack has a number. */
class Stacks {
  /** @param {FlameData} data */
  constructor(data) {
    const coded = data.stacks;
    this.data = data;
    /** @type {number[]} the names of all stacks, one after the other */
    this.names = [];
    /** @type {number[]} */
    this.starts = [];
    /** @type {number[]} */
    this.now = [];
    /** @type {number[]} */
    this.before = [];
    let last = 0;
    for (let at = 0; at < coded.length; ) {
      const start = this.names.length;
      for (let left = coded[at++] || 0; left; left--) this.names.push(this.names[last++] ?? -1);
      for (let left = coded[at++] || 0; left; left--) this.names.push(coded[at++] ?? -1);
      this.starts.push(start);
      this.now.push(coded[at++] || 0);
      if (data.compared) this.before.push(coded[at++] || 0);
      last = start;
    }
    this.size = this.starts.length;
    this.starts.push(this.names.length);
  }

  /** @param {number} stack @param {number} place of a name: 0 the kind, 1 the process, 2 the outermost frame */
  name(stack, place) {
    return this.names[(this.starts[stack] ?? 0) + place] ?? -1;
  }

  /** @param {number} stack */
  length(stack) {
    return (this.starts[stack + 1] ?? 0) - (this.starts[stack] ?? 0);
  }

  /** @param {number} name */
  text(name) {
    return this.data.texts[name] ?? "";
  }

  /** Returns the unit of the weight of a stack, in singular. @param {number} stack */
  unit(stack) {
    return this.data.unit === "stacks" ? (UNITS[this.text(this.name(stack, 0))] ?? "stack") : this.data.unit.replace(/s$/, "");
  }

  /** Returns the weights by unit, of all stacks or of some. @param {(stack: number) => boolean} wanted */
  weights(wanted = () => true) {
    /** @type {Map<string, number>} */
    const found = new Map();
    for (let stack = 0; stack < this.size; stack++) {
      if (wanted(stack)) found.set(this.unit(stack), (found.get(this.unit(stack)) ?? 0) + (this.now[stack] ?? 0));
    }
    return found;
  }

  /** Returns the place of the outermost frame of a stack that is in no file, -1 without one. @param {number} stack */
  red(stack) {
    for (let place = 2; place < this.length(stack); place++) {
      if (RED.includes((this.data.looks[this.name(stack, place)] ?? 0) % GUESSED)) return place;
    }
    return -1;
  }

  /** Compares stacks by kind, by process if it is wanted, and by frames. @param {number} a @param {number} b @param {boolean} split */
  compare(a, b, split) {
    const least = Math.min(this.length(a), this.length(b));
    for (let place = 0; place < least; place++) {
      const order = place === 1 && !split ? 0 : this.name(a, place) - this.name(b, place);
      if (order) return order;
    }
    return this.length(a) - this.length(b);
  }

  /** Returns the tree of a choice. @param {Choice} choice */
  tree(choice) {
    const chosen = [];
    for (let stack = 0; stack < this.size; stack++) {
      if (this.unit(stack) === choice.unit && (choice.process < 0 || this.name(stack, 1) === choice.process)) chosen.push(stack);
    }
    chosen.sort((a, b) => this.compare(a, b, choice.split));
    return new Tree(this, chosen, choice.split);
  }
}

/** The sums of a prefix tree. Nodes are numbers in preorder, so the nodes, and the stacks, of a subtree follow each other. */
class Tree {
  /** @param {Stacks} stacks @param {number[]} chosen numbers of stacks, sorted @param {boolean} split */
  constructor(stacks, chosen, split) {
    const { data } = stacks;
    const kept = (/** @type {number} */ stack) => (split ? stacks.length(stack) : Math.max(stacks.length(stack) - 1, 1));
    const name = (/** @type {number} */ stack, /** @type {number} */ place) => stacks.name(stack, place && !split ? place + 1 : place);
    const shares = chosen.map((stack, order) => {
      const before = order ? (chosen[order - 1] ?? 0) : -1;
      let place = 0;
      if (before < 0) return 0;
      while (place < Math.min(kept(before), kept(stack)) && name(before, place) === name(stack, place)) place++;
      return place;
    });
    const size = chosen.reduce((sum, stack, order) => sum + kept(stack) - (shares[order] ?? 0), 1);
    this.stacks = stacks;
    this.data = data;
    this.chosen = chosen;
    this.split = split;
    this.size = size;
    this.names = new Int32Array(size).fill(-1);
    this.depths = new Int32Array(size);
    this.parent = new Int32Array(size).fill(-1);
    this.end = new Int32Array(size).fill(size, 0, 1);
    this.first = new Int32Array(size);
    /** The node at which each stack ends. */
    this.ends = new Int32Array(chosen.length);
    this.now = new Float64Array(size);
    this.before = data.compared ? new Float64Array(size) : null;
    /** The weight of the stacks that come to code in no file at or below a node. */
    this.red = new Float64Array(size);
    this.totals = this.now;
    /** @type {Map<number, number[]>} */
    this.sorted = new Map();
    const path = [0];
    let made = 1;
    chosen.forEach((stack, order) => {
      path.length = (shares[order] ?? 0) + 1;
      for (let place = path.length - 1; place < kept(stack); place++) {
        this.names[made] = name(stack, place);
        this.depths[made] = path.length;
        this.parent[made] = path[path.length - 1] || 0;
        this.first[made] = order;
        path.push(made++);
      }
      const node = path[path.length - 1] || 0;
      this.ends[order] = node;
      this.now[node] = this.at(this.now, node) + (stacks.now[stack] ?? 0);
      if (this.before) this.before[node] = this.at(this.before, node) + (stacks.before[stack] ?? 0);
    });
    for (let node = size - 1; node > 0; node--) {
      this.end[node] = Math.max(this.at(this.end, node), node + 1);
      const parent = this.at(this.parent, node);
      this.end[parent] = Math.max(this.at(this.end, parent), this.at(this.end, node));
      this.now[parent] = this.at(this.now, parent) + this.at(this.now, node);
      if (this.before) this.before[parent] = this.at(this.before, parent) + this.at(this.before, node);
      if (this.isRed(node)) this.red[node] = this.at(this.now, node);
      this.red[parent] = this.at(this.red, parent) + this.at(this.red, node);
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

  /** Returns whether a node is code in no file. @param {number} node */
  isRed(node) {
    return RED.includes((this.data.looks[this.names[node] ?? -1] ?? 0) % GUESSED);
  }

  /** Returns the weight of the stacks that end at a node. @param {number} node @param {Float64Array} weights */
  own(node, weights = this.totals) {
    let sum = this.at(weights, node);
    for (let child = node + 1; child < this.at(this.end, node); child = this.at(this.end, child)) sum -= this.at(weights, child);
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
    return node ? this.stacks.text(this.at(this.names, node)) : "all";
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

  /** Returns the stacks that pass through a node. @param {number} node */
  through(node) {
    const end = this.at(this.end, node);
    return this.chosen.slice(node ? this.at(this.first, node) : 0, end < this.size ? this.at(this.first, end) : undefined);
  }

  /** Returns the processes of stacks, those with the most stacks first. @param {number[]} stacks @returns {string[]} */
  processes(stacks) {
    /** @type {Map<number, number>} */
    const found = new Map();
    for (const stack of stacks) found.set(this.stacks.name(stack, 1), (found.get(this.stacks.name(stack, 1)) ?? 0) + (this.stacks.now[stack] ?? 0));
    return [...found].sort((a, b) => b[1] - a[1]).map(([name]) => this.stacks.text(name));
  }

  /** Returns the node at which a stack has a name, 0 without one. @param {number} stack @param {number} place of the name */
  node(stack, place) {
    let node = 0;
    for (let each = 0; each <= place; each++) {
      if (each === 1 && !this.split) continue;
      let child = node + 1;
      while (child < this.at(this.end, node) && this.names[child] !== this.stacks.name(stack, each)) child = this.at(this.end, child);
      if (child >= this.at(this.end, node)) return 0;
      node = child;
    }
    return node;
  }

  /** Returns the program of each node: the name without the PID, empty for several. */
  programs() {
    const made = /** @type {(string | undefined)[]} */ (new Array(this.size));
    const join = (/** @type {number} */ node, /** @type {string | undefined} */ program) => {
      made[node] = made[node] === undefined || made[node] === program ? program : "";
    };
    this.chosen.forEach((stack, order) => join(this.ends[order] ?? 0, programOf(this.stacks.text(this.stacks.name(stack, 1)))));
    for (let node = this.size - 1; node > 0; node--) join(this.at(this.parent, node), made[node]);
    return made;
  }
}

/** Returns the name of a process without its PID. @param {string} label */
function programOf(label) {
  return label.replace(/ \([^()]*\)$/, "");
}

/**
 * The hue of a module or a program, the same on every page (FNV-1a). Red is reserved for unbacked code.
 * @param {string} text
 */
function hue(text) {
  let sum = 0x811c9dc5;
  for (const letter of text.toLowerCase()) sum = Math.imul(sum ^ letter.charCodeAt(0), 0x01000193) >>> 0;
  return 40 + (((sum ^ (sum >>> 11)) >>> 0) % 270);
}
