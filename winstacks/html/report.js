// This file is licensed under the Volatility Software License 1.0,
// available at https://www.volatilityfoundation.org/license/vsl-v1.0
// Puts the parts of a page together: facts about the image, findings, flame graph, threads, locks, heaps.
"use strict";

const MOST_FRAMES = 1100;

/**
 * @typedef {object} Card
 * @property {string} severity
 * @property {string} confidence
 * @property {string} check
 * @property {string} process
 * @property {number | null} tid
 * @property {string | null} kind
 * @property {string | null} symbol
 * @property {string} evidence
 * @property {number} stacks
 * @property {string} innocent
 * @property {string} technique
 * @property {number | null} frame
 * @property {number[]} frames
 * @property {string} status
 * @property {number} [hosts] number of hosts with equal findings
 * @property {number} [number] number of equal findings
 * @property {string[]} [names] hosts and files of the images with equal findings
 * @property {Place[]} [places] the worst of the equal findings
 *
 * @typedef {{image: Link, where: string, tid: number | null, address: string, evidence: string}} Place
 *
 * @typedef {[string, string]} Link target and text
 *
 * @typedef {object} Thread
 * @property {string} process
 * @property {number} tid
 * @property {string} kind
 * @property {string} state
 * @property {number | null} unbacked
 * @property {number[]} frames
 * @property {string} status
 *
 * @typedef {object} Locks
 * @property {{text: string, process: string, waiters: number | "unknown", holders: number[], status: string}[]} locks
 * @property {number} more
 * @property {string[]} threads
 * @property {[number, number, string, boolean, string, string, string][]} waits thread, lock (-1: none in the list), how, sure,
 *   code that asked for the wait, what it waits for, end of its chain
 * @property {number} moreWaits
 * @property {{text: string, inferred: boolean, evidence: string[], threads: number[], locks: number[], things: string[]}[]} cycles
 * @property {number} gaps
 * @property {string} unknown that some threads may wait or not; empty if this is known of all
 * @property {string} command the command that lists the locks
 * @property {string} waitsCommand the command that lists the waits
 *
 * @typedef {object} Findings
 * @property {Card[]} cards
 * @property {number} total
 * @property {[string, string][]} unchecked
 * @property {string} [examined] how many checks examined how many stacks
 * @property {Record<string, {meaning: string, innocent: string, next: string}>} checks
 *
 * @typedef {object} FleetImage
 * @property {string} name
 * @property {string} path
 * @property {string} host
 * @property {string} status
 * @property {string} reason why it failed
 * @property {string} taken
 * @property {string} windows
 * @property {number[]} found number of findings of each severity, the highest first
 * @property {Link | null} page
 *
 * @typedef {object} RareStack
 * @property {number} hosts
 * @property {number} among
 * @property {boolean} comparable
 * @property {string} names
 * @property {string} kinds
 * @property {string} processes
 * @property {number} count
 * @property {number} unbacked
 * @property {number[]} frames
 * @property {Link[]} images
 *
 * @typedef {object} Data
 * @property {Link} [up]
 * @property {{images: FleetImage[], done: number, failed: number, hosts: number, notes: string[]}} [lake]
 * @property {{stacks: RareStack[], notes: string[]}} [rare]
 * @property {{head: [string, string][], rows: [string, string, string, string][], complete: [string, number, number][],
 *   warnings: string[], warned: number}} [image]
 * @property {Findings} [findings]
 * @property {FlameData} [flame]
 * @property {Thread[]} [threads]
 * @property {Locks} [locks]
 * @property {[number, number, string, number[], string][]} [heaps]
 * @property {number} [cut]
 * @property {string[]} [texts]
 */

/** @param {Data} data @param {number[]} frames @param {number | null} [marked] */
function stackText(data, frames, marked = null) {
  const texts = frames.slice(0, MOST_FRAMES).map((each, place) => {
    const text = (data.texts ?? [])[each] ?? "";
    return place === marked ? `${text}    ◀` : text;
  });
  const more = frames.length - texts.length;
  return [...texts, ...(more ? [`… ${some(more, "more frame")}`] : [])].join("\n");
}

/** @param {Data} data @param {number[]} frames */
function innermost(data, frames) {
  const shown = PRINT.active ? frames : frames.slice(0, 8);
  const more = frames.length - shown.length;
  return stackText(data, shown).split("\n").join(" ← ") + (more ? ` ← … ${more} more` : "");
}

/**
 * A list with a search field and columns that sort it; below it stands the stack of the chosen row.
 * @template T
 * @param {string} label
 * @param {T[]} things
 * @param {{name: string, kind: string, value: (thing: T) => string | number}[]} columns
 * @param {(thing: T) => string} text text of a row that the search examines
 * @param {(thing: T) => string} stack text below the list
 * @param {(thing: T) => Link[]} [links] links below the list
 */
function table(label, things, columns, text, stack, links = () => []) {
  /** @type {string[]} */
  const texts = [];
  let shown = things.map((_, place) => place);
  let sorted = -1;
  let down = false;
  const name = label.toLowerCase().replaceAll(" ", "-");
  const below = make("pre", "stack");
  below.tabIndex = 0;
  const found = make("output", "found");
  const leads = make("p", "links");
  const choose = (/** @type {T | undefined} */ chosen) => {
    below.textContent = chosen === undefined ? "" : stack(chosen);
    leads.replaceChildren(...(chosen === undefined ? [] : links(chosen)).map(link));
  };
  const thing = (/** @type {number} */ row) => /** @type {T} */ (things[shown[row] ?? 0]);
  const list = new List(
    label,
    (row) => columns.map(({ kind, value }) => {
      const cell = value(thing(row));
      return make("span", kind, typeof cell !== "number" ? cell : kind.includes("plain") ? String(cell) : count(cell));
    }),
    (row) => choose(thing(row)),
  );
  const show = () => {
    found.textContent = `${count(shown.length)} of ${count(things.length)}`;
    list.show(shown.length);
    choose(shown.length ? thing(0) : undefined);
  };
  const search = field("Search", (wanted) => {
    find(wanted);
    VIEW.set(name, wanted.trim(), false);
  });
  const find = (/** @type {string} */ wanted) => {
    const fits = matcher(wanted);
    things.forEach((each, place) => { texts[place] ??= text(each); });
    shown = things.map((_, place) => place).filter((place) => fits(texts[place] ?? ""));
    sorted = -1;
    show();
  };
  VIEW.parts.set(name, (wanted) => {
    if (search.input.value === wanted) return;
    search.input.value = wanted;
    find(wanted);
  });
  const head = make("div", "heads");
  columns.forEach(({ name, kind, value }, number) => {
    const press = button(name, () => {
      down = sorted === number ? !down : typeof value(/** @type {T} */ (things[0])) === "number";
      sorted = number;
      const sign = down ? -1 : 1;
      shown.sort((a, b) => {
        return sign * inOrder(value(/** @type {T} */ (things[a])), value(/** @type {T} */ (things[b])));
      });
      for (const each of head.children) each.removeAttribute("aria-pressed");
      press.setAttribute("aria-pressed", "true");
      press.title = down ? "sorted, largest first" : "sorted, smallest first";
      show();
    });
    press.className = kind;
    press.disabled = !things.length;
    head.append(press);
  });
  const element = make("div", "", make("div", "bar", search.label, found), head, list.element, leads, below);
  return { element, show };
}

/** Compares two cells of a column: numbers by value, before texts such as "unknown". @param {string | number} one @param {string | number} other */
function inOrder(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return Number(typeof one === "string") - Number(typeof other === "string") || String(one).localeCompare(String(other));
}

/** @param {Link} to */
function link([page, text]) {
  const made = make("a", "", text);
  made.href = page;
  return made;
}

/** @param {NonNullable<Data["lake"]>} lake */
function lakePart(lake) {
  const said = `${some(lake.done, "image")} of ${some(lake.hosts, "host")} ${lake.done === 1 ? "is" : "are"} done, ${count(lake.failed)} failed.`;
  const made = make("div", "", make("p", "", said));
  const more = lake.done + lake.failed - lake.images.length;
  if (more) made.append(make("p", "note", `${some(more, "more image")} with fewer findings ${more === 1 ? "is" : "are"} not in the list.`));
  for (const each of lake.notes) made.append(make("p", "note", each));
  const found = ["High", "Medium", "Low"].map((name, place) =>
    ({ name, kind: place ? "number lesser" : "number", value: (/** @type {FleetImage} */ image) => image.found[place] ?? 0 }));
  const list = table("Images", lake.images, [
    { name: "Image", kind: "where", value: (image) => image.name },
    { name: "Host", kind: "where lesser", value: (image) => image.host },
    { name: "Status", kind: "short", value: (image) => image.status },
    ...found,
    { name: "Taken", kind: "where lesser", value: (image) => image.taken },
    { name: "About", kind: "frames", value: (image) => image.reason || `Windows ${image.windows}` },
  ], (image) => `${image.path} ${image.host} ${image.status} ${image.reason} ${image.windows}`,
  (image) => [image.path, image.reason].filter(Boolean).join("\n"),
  (image) => image.page ? [image.page] : []);
  made.append(list.element);
  return { element: made, show: list.show };
}

/** @param {Data} data @param {NonNullable<Data["rare"]>} rare */
function rarePart(data, rare) {
  const made = make("div", "", make("p", "note", "Stacks that few hosts have, compared only with hosts that run the same versions of every module in the stack. Rarest first; stacks that fewer than 5 hosts could show come last."));
  for (const each of rare.notes) made.append(make("p", "note", each));
  const list = table("Rare stacks", rare.stacks, [
    { name: "Hosts", kind: "number", value: (stack) => stack.hosts },
    { name: "Among", kind: "number", value: (stack) => stack.among },
    { name: "Unbacked", kind: "number lesser", value: (stack) => stack.unbacked },
    { name: "Count", kind: "number lesser", value: (stack) => stack.count },
    { name: "Host", kind: "where", value: (stack) => stack.names },
    { name: "Process", kind: "where lesser", value: (stack) => stack.processes },
    { name: "Stack", kind: "frames", value: (stack) => innermost(data, stack.frames) },
  ], (stack) => `${stack.names} ${stack.kinds} ${stack.processes} ${stackText(data, stack.frames)}`,
  (stack) => {
    const said = stack.comparable ? "" : "Too few hosts have these versions of the modules: whether the stack is rare is unknown.";
    return [`${stack.kinds} of ${stack.processes}`, said, stackText(data, stack.frames)].filter(Boolean).join("\n\n");
  }, (stack) => stack.images);
  made.append(list.element);
  return { element: made, show: list.show };
}

/** @param {NonNullable<Data["image"]>} image */
function imagePart(image) {
  const facts = make("dl", "facts");
  for (const [name, value, meaning, words] of image.rows) {
    const term = make("dt", "", words);
    term.title = `${name}: ${meaning}`;
    facts.append(make("div", "", term, make("dd", "", value)));
  }
  const complete = make("ul", "complete");
  for (const [said, part, whole] of image.complete) {
    const text = `${count(part)} of ${count(whole)} ${said}`;
    complete.append(make("li", "lacking", `${text} (${share(part, whole)})`));
  }
  if (!image.complete.length) complete.append(make("li", "", "No process and no stack is known to be missing."));
  const made = make("div", "", make("h3", "", "Completeness"), complete);
  if (image.warned) {
    const repeated = image.warned - image.warnings.length;
    const said = repeated ? `, ${count(image.warnings.length)} of them with texts of their own; the log of the command has all` : "";
    const texts = make("ul", "", ...image.warnings.map((each) => make("li", "", each)));
    made.append(folded(`${some(image.warned, "warning")}${said}`, () => [texts]));
  }
  made.append(folded("All facts about the image", () => [facts]));
  return made;
}

/** @param {Data} data @param {Thread[]} threads */
function threadsPart(data, threads) {
  return table("Stacks of threads", threads, [
    { name: "Process", kind: "where", value: (thread) => thread.process },
    { name: "TID", kind: "number plain", value: (thread) => thread.tid },
    { name: "Kind", kind: "short", value: (thread) => thread.kind },
    { name: "State", kind: "where lesser", value: (thread) => thread.state },
    { name: "Unbacked", kind: "number lesser", value: (thread) => thread.unbacked ?? "unknown" },
    { name: "Stack", kind: "frames", value: (thread) => innermost(data, thread.frames) },
  ], (thread) => `${thread.process} ${thread.tid} ${thread.kind} ${thread.state} ${stackText(data, thread.frames)} ${thread.status}`,
  (thread) => [stackText(data, thread.frames), thread.status && `Status: ${thread.status}`].filter(Boolean).join("\n\n"));
}

/** @param {Data} data @param {NonNullable<Data["heaps"]>} heaps */
function heapsPart(data, heaps) {
  return table("Heap blocks by trace", heaps, [
    { name: "Bytes", kind: "number", value: (heap) => heap[0] },
    { name: "Blocks", kind: "number", value: (heap) => heap[1] },
    { name: "Process", kind: "where", value: (heap) => heap[2] },
    { name: "Stack", kind: "frames", value: (heap) => innermost(data, heap[3]) },
  ], (heap) => `${heap[2]} ${stackText(data, heap[3])} ${heap[4]}`, (heap) => stackText(data, heap[3]));
}

/** Adds the parts that the data of the page has, images first, then findings, with links to them. */
function start() {
  /** @type {Data} */
  const data = JSON.parse(document.getElementById("data")?.textContent || "{}");
  const main = /** @type {HTMLElement} */ (document.getElementById("main"));
  const links = make("nav", "links");
  links.setAttribute("aria-label", "Parts of the page");
  /** @type {(() => void)[]} */
  const shows = [];
  const add = (/** @type {string} */ id, /** @type {string} */ title, /** @type {HTMLElement} */ element) => {
    const heading = make("h2", "", title);
    heading.id = `${id}-title`;
    const section = make("section", "", heading, element);
    section.id = id;
    section.setAttribute("aria-labelledby", heading.id);
    main.append(section);
    links.append(link([`#${id}`, title]));
  };
  const widget = (/** @type {string} */ id, /** @type {string} */ title, /** @type {{element: HTMLElement, show: () => void}} */ part) => {
    add(id, title, part.element);
    shows.push(part.show);
  };
  if (data.image) {
    const head = make("dl", "facts wide head");
    for (const [name, value] of data.image.head) head.append(make("div", "", make("dt", "", name), make("dd", "", value)));
    main.append(head);
  }
  if (data.up) main.append(make("p", "", link(data.up)));
  if (data.findings) main.append(links);
  if (data.cut) main.append(make("p", "note", `${some(data.cut, "row")} of the lists below ${data.cut === 1 ? "is" : "are"} left out.`));
  if (data.lake) widget("lake", "Images", lakePart(data.lake));
  if (data.findings) add("findings", "Findings", findingsPart(data, data.findings));
  if (data.rare) widget("rare", "Rare stacks", rarePart(data, data.rare));
  if (data.image) add("image", "The image", imagePart(data.image));
  if (data.locks) widget("locks", "Who waits for whom", locksPart(data, data.locks));
  if (data.flame) {
    const flame = new Flame(data.flame);
    if (data.findings) add("graph", "Flame graph", flame.element);
    else main.append(make("section", "", flame.element));
    shows.push(() => flame.choose({}));
  }
  if (data.threads) widget("threads", "Threads", threadsPart(data, data.threads));
  if (data.heaps) widget("heaps", "Heap blocks by trace", heapsPart(data, data.heaps));
  for (const show of shows) show();
  if (location.hash.includes("=")) VIEW.apply();
  window.addEventListener("popstate", () => VIEW.apply());
}

start();
