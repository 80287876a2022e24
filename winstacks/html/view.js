// This file is licensed under the Volatility Software License 1.0,
// available at https://www.volatilityfoundation.org/license/vsl-v1.0
// Keeps the view of a page in its URL; the search that all lists use.
"use strict";

/** The choices of the user. They are kept behind # in the URL, so that a link shows them and Back returns to them. */
const VIEW = {
  /** @type {Map<string, (value: string) => void>} functions that apply each value; the start has empty values */
  parts: new Map(),
  /** The values that are shown now. */
  kept: new URLSearchParams(),
  applying: false,

  /** Returns the values in the URL, null if it names a part of the page instead. */
  values() {
    const text = location.hash.slice(1);
    return text && !text.includes("=") ? null : new URLSearchParams(text);
  },

  /**
   * Keeps a value in the URL.
   * @param {string} name
   * @param {string} value empty for the value at the start
   * @param {boolean} step whether Back returns to the value before
   */
  set(name, value, step) {
    if (this.applying || (this.kept.get(name) ?? "") === value) return;
    if (value) this.kept.set(name, value);
    else this.kept.delete(name);
    const url = `#${this.kept}`;
    if (step) history.pushState(null, "", url);
    else history.replaceState(null, "", url);
  },

  /** Applies the values in the URL. */
  apply() {
    const values = this.values();
    if (!values) return;
    this.kept = values;
    this.applying = true;
    for (const [name, show] of this.parts) show(values.get(name) ?? "");
    this.applying = false;
  },
};

/**
 * Returns a function that decides whether a text matches a search: a glob as --find takes it, or any part of the text.
 * @param {string} wanted
 * @returns {(text: string) => boolean}
 */
function matcher(wanted) {
  const word = wanted.trim().toLowerCase();
  if (!/[*?[]/.test(word)) return (text) => text.toLowerCase().includes(word);
  const globs = (word.includes("!") ? [word] : [word, `*!${word}`]).map(expression);
  return (text) => {
    const whole = text.toLowerCase();
    return [whole, ...whole.split(/\s+/)].some((each) => globs.some((glob) => glob.test(each)));
  };
}

/** Returns the expression of a glob: * any text, ? any letter, [a-f] and [!a-f] one of some. @param {string} glob */
function expression(glob) {
  const text = glob.replace(/\[(!?)([^\]]+)\]|[\\^$.*+?()[\]{}|]/g, (all, not, letters) => {
    if (letters) return `[${not ? "^" : ""}${letters.replace(/[\\\]^]/g, "\\$&")}]`;
    return all === "*" ? ".*" : all === "?" ? "." : `\\${all}`;
  });
  return new RegExp(`^${text}$`, "s");
}

/** On a narrow screen a row of a list has two lines: the stack is on the second one. */
const NARROW = window.matchMedia("(max-width: 40rem)");

/** Returns the height of a row in pixels; page.css has the same two. */
function rowHeight() {
  return NARROW.matches ? 46 : 26;
}

/** The key / goes to the search field of the part on the screen. */
document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof Element && event.target.matches("input, select, textarea");
  if (event.key !== "/" || typing || event.ctrlKey || event.altKey || event.metaKey) return;
  const fields = [...document.querySelectorAll("input[type=search]")];
  const below = fields.find((each) => {
    const part = each.closest("section") ?? each;
    return part.getBoundingClientRect().bottom > window.innerHeight / 3;
  });
  const found = below ?? fields[fields.length - 1];
  if (!(found instanceof HTMLInputElement)) return;
  event.preventDefault();
  found.focus();
  found.select();
});
