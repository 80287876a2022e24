// This file is licensed under the Volatility Software License 1.0,
// available at https://www.volatilityfoundation.org/license/vsl-v1.0
// Puts the parts of a page together: facts about the image, findings, flame graph, threads, locks, heaps.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const CARDS = 20;
const FEW_PLACES = 3;
const MOST_DRAWN = 40;
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
 * @property {[number, number, string, boolean, string][]} waits thread, lock (-1: unknown), how, sure, function
 * @property {{text: string, threads: number[], locks: number[]}[]} cycles
 * @property {number} gaps
 * @property {boolean} cut
 * @property {string} command the command that lists the locks
 *
 * @typedef {object} Findings
 * @property {Card[]} cards
 * @property {number} total
 * @property {[string, string][]} unchecked
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
 * @property {{rows: [string, string, string][], complete: [string, number, number][], warnings: string[]}} [image]
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
  return texts.join("\n");
}

/** @param {Data} data @param {number[]} frames */
function innermost(data, frames) {
  return stackText(data, frames.slice(0, 8)).split("\n").join(" ← ");
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
  for (const [name, value, meaning] of image.rows) {
    const term = make("dt", "", name);
    term.title = meaning;
    facts.append(make("div", "", term, make("dd", "", value)));
  }
  const complete = make("ul", "complete");
  for (const [said, part, whole] of image.complete) {
    const text = `${count(part)} of ${count(whole)} ${said}`;
    complete.append(make("li", "lacking", `${text} (${share(part, whole)})`));
  }
  if (!image.complete.length) complete.append(make("li", "", "No process and no stack is known to be missing."));
  const made = make("div", "", make("h3", "", "Completeness"), complete);
  if (image.warnings.length) {
    const texts = image.warnings.slice(0, 100).map((each) => make("li", "", each));
    made.append(make("details", "", make("summary", "", some(image.warnings.length, "warning")), make("ul", "", ...texts)));
  }
  made.append(make("details", "", make("summary", "", "All facts about the image"), facts));
  return made;
}

/** @param {Data} data @param {Findings} findings */
function findingsPart(data, findings) {
  const { cards, total, unchecked, checks } = findings;
  const kinds = ["high", "medium", "low"].map((severity) =>
    `${count(cards.filter((card) => card.severity === severity).length)} ${severity}`);
  const said = cards.length ? `${some(total, "finding")}: ${kinds.join(", ")}.` : "The checks found nothing.";
  const key = "In stacks, ! marks code that belongs to no file, ? marks a guessed frame, and ◀ marks the frame that this finding is about.";
  const made = make("div", "", make("p", "", said));
  if (cards.length < total) made.append(make("p", "note", `The first ${count(cards.length)} are shown.`));
  if (cards.length) made.append(make("p", "note", key));
  const place = make("div", "cards");
  let first = 0;
  let shown = cards;
  const where = make("output", "found");
  const show = () => {
    place.replaceChildren(...shown.slice(first, first + CARDS).map((card) => cardOf(data, card, checks[card.check])));
    where.textContent = `${count(shown.length && first + 1)} to ${count(Math.min(first + CARDS, shown.length))} of ${count(shown.length)}`;
  };
  const turn = (/** @type {number} */ step) => () => {
    first = Math.max(Math.min(first + step, Math.floor((shown.length - 1) / CARDS) * CARDS), 0);
    show();
  };
  const bar = make("div", "bar");
  if (cards.some((card) => card.places)) {
    bar.append(...filters(cards, (chosen) => {
      shown = chosen;
      first = 0;
      show();
    }));
  }
  if (cards.length) show();
  if (cards.length > CARDS) bar.append(button("Previous", turn(-CARDS)), button("Next", turn(CARDS)));
  if (bar.childElementCount) made.append(bar);
  if (bar.childElementCount) bar.append(where);
  made.append(place);
  if (unchecked.length) {
    const texts = unchecked.slice(0, 60).map(([check, reason]) => make("li", "", make("b", "", check), ` ${reason}`));
    made.append(make("h3", "", "Not checked"), make("ul", "", ...texts));
  }
  return made;
}

/**
 * Fields that filter the cards.
 * @param {Card[]} cards
 * @param {(shown: Card[]) => void} chosen called with the cards that fit
 */
function filters(cards, chosen) {
  let host = "";
  const change = () => chosen(cards.filter((card) =>
    (!severity.value || card.severity === severity.value) && (!check.value || card.check === check.value)
    && (!host || (card.names ?? []).some((name) => name.toLowerCase().includes(host)))));
  const choice = (/** @type {string} */ label, /** @type {string[]} */ values) => {
    const made = make("select");
    for (const value of ["", ...values]) {
      const option = make("option", "", value || "all");
      option.value = value;
      made.append(option);
    }
    made.addEventListener("change", change);
    return { made, label: make("label", "", label, " ", made) };
  };
  const there = new Set(cards.map((card) => card.severity));
  const severities = choice("Severity", ["high", "medium", "low"].filter((each) => there.has(each)));
  const checks = choice("Check", [...new Set(cards.map((card) => card.check))].sort());
  const [severity, check] = [severities.made, checks.made];
  const hosts = field("Host or file", (wanted) => {
    host = wanted.trim().toLowerCase();
    change();
  });
  return [severities.label, checks.label, hosts.label];
}

/**
 * The places of equal findings, a line each.
 * @param {Card} card
 * @param {Place[]} places
 */
function placesOf(card, places) {
  const list = make("ul", "", ...places.map((each) => {
    const thread = each.tid === null ? "" : `, thread ${each.tid}`;
    const address = each.address ? ` at ${each.address}` : "";
    const evidence = each.evidence === card.evidence ? "" : `: ${each.evidence}`;
    return make("li", "", link(each.image), ` ${each.where}${thread}${address}${evidence}`);
  }));
  const more = (card.number ?? 0) - places.length;
  if (more > 0) list.append(make("li", "note", `and ${some(more, "more finding")}`));
  const made = make("details", "places", make("summary", "", `${some(card.hosts ?? 0, "host")}, ${some(card.number ?? 0, "finding")}`), list);
  made.open = places.length <= FEW_PLACES;
  return made;
}

/** @param {Data} data @param {Card} card @param {{meaning: string, innocent: string, next: string} | undefined} check */
function cardOf(data, card, check) {
  const thread = card.tid === null ? "" : `, thread ${card.tid}`;
  const title = make("summary", "",
    make("span", `severity ${card.severity}`, card.severity), " ", make("b", "", card.check), " ",
    make("span", "", `${card.process}${thread}`), " ", make("code", "", card.symbol ?? ""));
  const facts = make("dl", "facts wide");
  /** @type {[string, string][]} */
  const rows = [
    ["Evidence", card.evidence],
    ["Confidence", card.confidence],
    ["Seen in", card.stacks > 1 ? `${count(card.stacks)} stacks` : ""],
    ["Innocent", card.innocent],
    ["Meaning", check ? check.meaning : ""],
    ["Next", check ? check.next : ""],
    ["ATT&CK", card.technique],
    ["Status", card.status],
  ];
  for (const [name, value] of rows) {
    if (value) facts.append(make("div", "", make("dt", "", name), make("dd", "", value)));
  }
  if (card.places) facts.append(make("div", "", make("dt", "", "Seen on"), make("dd", "", placesOf(card, card.places))));
  const made = make("details", `card ${card.severity}`, title, facts);
  if (card.frames.length) made.append(make("pre", "stack", stackText(data, card.frames, card.frame)));
  made.open = true;
  return made;
}

/** @param {string} tag @param {Record<string, string | number>} attributes @param {...(Node | string)} children */
function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/**
 * Groups of connected threads and locks. Members of a cycle are drawn on a circle, others in columns.
 * @param {Locks} locks
 * @returns {{threads: Set<number>, locks: Set<number>, cycle: Locks["cycles"][number] | undefined}[]}
 */
function groupsOf(locks) {
  /** @type {Map<number, number[]>} */
  const near = new Map();
  const join = (/** @type {number} */ a, /** @type {number} */ b) => {
    near.set(a, [...(near.get(a) ?? []), b]);
    near.set(b, [...(near.get(b) ?? []), a]);
  };
  const waited = new Set();
  for (const [thread, lock] of locks.waits) {
    if (lock < 0) continue;
    join(thread, -1 - lock);
    waited.add(lock);
  }
  locks.locks.forEach((lock, number) => {
    if (waited.has(number)) for (const holder of lock.holders) join(holder, -1 - number);
  });
  const seen = new Set();
  const groups = [];
  for (const start of near.keys()) {
    if (seen.has(start)) continue;
    const group = { threads: new Set(), locks: new Set(), cycle: locks.cycles.find((each) => each.threads.includes(start)) };
    const waiting = [start];
    seen.add(start);
    for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
      if (node < 0) group.locks.add(-1 - node);
      else group.threads.add(node);
      const here = node;
      group.cycle ??= locks.cycles.find((each) => each.threads.includes(here));
      for (const other of near.get(node) ?? []) {
        if (!seen.has(other)) waiting.push(other);
        seen.add(other);
      }
    }
    groups.push(group);
  }
  return groups.sort((a, b) => Number(Boolean(b.cycle)) - Number(Boolean(a.cycle)) || b.threads.size - a.threads.size);
}

/** @param {Locks} locks @param {ReturnType<typeof groupsOf>[number]} group */
function drawing(locks, group) {
  /** @type {Map<string, {x: number, y: number, text: string, lock: boolean, cycle: boolean}>} */
  const nodes = new Map();
  const cycle = group.cycle;
  const ring = cycle ? cycle.threads.flatMap((thread, step) => [`t${thread}`, `l${cycle.locks[step]}`]) : [];
  // On a telephone the ring is high, and what is beside it elsewhere stands below it.
  const narrow = document.documentElement.clientWidth < 600;
  const [wide, high, gap] = narrow ? [200, 44, 20] : [230, 44, 70];
  const radius = Math.max(ring.length * 34, 110);
  const across = radius * (narrow ? 0.8 : 1.45);
  const all = [...[...group.threads].map((each) => `t${each}`), ...[...group.locks].map((each) => `l${each}`)];
  const rest = all.filter((each) => !ring.includes(each)).slice(0, MOST_DRAWN);
  const textOf = (/** @type {string} */ key) => {
    const number = Number(key.slice(1));
    return (key[0] === "t" ? locks.threads[number] : locks.locks[number]?.text) ?? "";
  };
  const put = (/** @type {string} */ key, /** @type {number} */ x, /** @type {number} */ y) =>
    nodes.set(key, { x, y, text: textOf(key), lock: key[0] === "l", cycle: ring.includes(key) });
  const middle = ring.length ? across + wide / 2 + 10 : 0;
  ring.forEach((key, place) => {
    const turn = (2 * Math.PI * place) / ring.length - Math.PI / 2;
    put(key, middle + across * Math.cos(turn), radius + high / 2 + 10 + radius * Math.sin(turn));
  });
  const left = ring.length && !narrow ? middle + across + wide + 60 : wide / 2 + 10;
  const top = high / 2 + 10 + (ring.length && narrow ? 2 * radius + high + 30 : 0);
  const counts = [0, 0, 0];
  const held = new Set([...group.locks].flatMap((lock) => locks.locks[lock]?.holders ?? []));
  const waiting = new Set(locks.waits.filter((wait) => wait[1] >= 0).map((wait) => wait[0]));
  for (const key of rest) {
    const number = Number(key.slice(1));
    const column = key[0] === "l" ? 1 : held.has(number) && !waiting.has(number) && !narrow ? 2 : 0;
    put(key, left + column * (wide + gap), top + (counts[column] ?? 0) * (high + 22));
    counts[column] = (counts[column] ?? 0) + 1;
  }
  const width = Math.max(...[...nodes.values()].map((node) => node.x)) + wide / 2 + 10;
  const height = Math.max(...[...nodes.values()].map((node) => node.y)) + high / 2 + 10;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "waits" });
  picture.append(svg("title", {}, cycle ? cycle.text : "Who waits for whom"));
  const arrow = (/** @type {string} */ from, /** @type {string} */ to, /** @type {string} */ kind) => {
    const [a, b] = [nodes.get(from), nodes.get(to)];
    if (!a || !b) return;
    const name = `${kind}${a.cycle && b.cycle ? " cycle" : ""}`;
    const [dx, dy] = [b.x - a.x, b.y - a.y];
    const cut = Math.min(wide / 2 / Math.max(Math.abs(dx), 0.01), high / 2 / Math.max(Math.abs(dy), 0.01), 0.5);
    const [x1, y1, x2, y2] = [a.x + dx * cut, a.y + dy * cut, b.x - dx * cut, b.y - dy * cut];
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const [ux, uy] = [(x2 - x1) / length, (y2 - y1) / length];
    const tip = `${x2},${y2} ${x2 - 10 * ux - 5 * uy},${y2 - 10 * uy + 5 * ux} ${x2 - 10 * ux + 5 * uy},${y2 - 10 * uy - 5 * ux}`;
    picture.append(svg("line", { x1, y1, x2: x2 - 6 * ux, y2: y2 - 6 * uy, class: name }), svg("polygon", { points: tip, class: name }));
    picture.append(svg("text", { x: (x1 + x2) / 2, y: (y1 + y2) / 2 + 4, class: "edge" }, kind === "waits" ? "waits for" : "held by"));
  };
  for (const [thread, lock] of locks.waits) arrow(`t${thread}`, `l${lock}`, "waits");
  for (const lock of group.locks) for (const holder of locks.locks[lock]?.holders ?? []) arrow(`l${lock}`, `t${holder}`, "held");
  for (const node of nodes.values()) {
    const words = node.text.split(" of ");
    const name = `${node.lock ? "lock" : "thread"}${node.cycle ? " cycle" : ""}`;
    picture.append(svg("rect", { x: node.x - wide / 2, y: node.y - high / 2, width: wide, height: high, rx: node.lock ? 4 : 20, class: name }));
    picture.append(svg("text", { x: node.x, y: node.y + (words[1] ? -3 : 4), class: "node" }, words[0] ?? ""));
    if (words[1]) picture.append(svg("text", { x: node.x, y: node.y + 14, class: "node soft" }, words[1]));
  }
  return make("div", "picture", picture);
}

/**
 * The steps of a deadlock as a numbered list, which a narrow window wraps.
 * @param {Locks} locks @param {number[]} threads @param {number[]} wanted
 */
function stepsOf(locks, threads, wanted) {
  const steps = make("ol", "steps");
  threads.forEach((thread, place) => {
    const holder = locks.threads[threads[(place + 1) % threads.length] ?? 0] ?? "";
    const lock = locks.locks[wanted[place] ?? -1]?.text ?? "a lock";
    steps.append(make("li", "", `${locks.threads[thread] ?? ""} waits for ${lock}, which ${holder} holds`));
  });
  return steps;
}

/** @param {Data} data @param {Locks} locks */
function locksPart(data, locks) {
  const made = make("div", "");
  for (const cycle of locks.cycles.slice(0, 20)) {
    const said = make("p", "deadlock", cycle.text);
    said.setAttribute("role", "alert");
    made.append(said, stepsOf(locks, cycle.threads, cycle.locks));
  }
  if (!locks.cycles.length) made.append(make("p", "", "No threads are known to wait for each other."));
  if (locks.gaps) made.append(make("p", "note", `Locks may be missing in ${some(locks.gaps, "place")}: ${locks.command} names them.`));
  if (locks.cut || locks.more) made.append(make("p", "note", "There are more locks or waiting threads than are shown."));
  const groups = groupsOf(locks);
  for (const group of groups.slice(0, 8)) made.append(drawing(locks, group));
  if (groups.length > 8) made.append(make("p", "note", `${count(groups.length - 8)} more groups are in the lists only.`));
  const names = (/** @type {number[]} */ threads) => threads.map((each) => locks.threads[each] ?? "").join(", ");
  /** @type {Map<string, Thread[]>} */
  const stacks = new Map();
  for (const each of data.threads ?? []) {
    const called = `thread ${each.tid} of ${each.process}`;
    stacks.set(called, [...(stacks.get(called) ?? []), each]);
  }
  const stackOf = (/** @type {number} */ thread) => (stacks.get(locks.threads[thread] ?? "") ?? [])
    .map((each) => `  ${each.kind}:\n${stackText(data, each.frames).replace(/^/gm, "    ")}`).join("\n");
  /** @type {Map<number, Locks["waits"]>} */
  const waitsFor = new Map();
  for (const wait of locks.waits) waitsFor.set(wait[1], [...(waitsFor.get(wait[1]) ?? []), wait]);
  const waitsOf = (/** @type {Locks["locks"][number]} */ lock) => waitsFor.get(locks.locks.indexOf(lock)) ?? [];
  const waiters = (/** @type {Locks["locks"][number]} */ lock) => names(waitsOf(lock).map((wait) => wait[0]));
  const held = table("Locks", locks.locks, [
    { name: "Lock", kind: "where wide", value: (lock) => lock.text },
    { name: "Held by", kind: "frames", value: (lock) => names(lock.holders) },
    { name: "Waiters", kind: "number", value: (lock) => lock.waiters },
    { name: "Waiting threads", kind: "frames lesser", value: waiters },
    { name: "Status", kind: "where lesser", value: (lock) => lock.status },
  ], (lock) => `${lock.text} ${names(lock.holders)} ${waiters(lock)} ${lock.status}`, (lock) => {
    const known = waitsOf(lock);
    const texts = known.map(([thread, , how]) => [`${locks.threads[thread]} waits: ${how}`, stackOf(thread)].filter(Boolean).join("\n"));
    const unknown = Number(lock.waiters) - known.length;
    if (unknown > 0) texts.push(`${some(unknown, known.length ? "more waiting thread" : "waiting thread")}: unknown which`);
    return texts.join("\n\n");
  });
  const waiting = table("Waiting threads", locks.waits, [
    { name: "Thread", kind: "where wide", value: (wait) => locks.threads[wait[0]] ?? "" },
    { name: "Waits for", kind: "frames", value: (wait) => locks.locks[wait[1]]?.text ?? "an unknown lock" },
    { name: "In", kind: "where lesser", value: (wait) => wait[4] },
  ], (wait) => `${locks.threads[wait[0]]} ${locks.locks[wait[1]]?.text} ${wait[4]}`,
  (wait) => [wait[2], stackOf(wait[0])].filter(Boolean).join("\n\n"));
  made.append(make("h3", "", "Locks that are held, or for which threads wait"), held.element,
    make("h3", "", "Threads that wait for a lock"), waiting.element);
  return { element: made, show: () => { held.show(); waiting.show(); } };
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
    const row = (/** @type {string} */ name) => data.image?.rows.find((each) => each[0] === name)?.[1] ?? "";
    const said = [row("ComputerName"), `Windows ${row("KernelBuild")} ${row("Arch")} ${row("Product")}`, row("CaptureTime")];
    main.append(make("p", "note", said.filter(Boolean).join(" · ")));
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
    shows.push(() => flame.zoom(0));
  }
  if (data.threads) widget("threads", "Threads", threadsPart(data, data.threads));
  if (data.heaps) widget("heaps", "Heap blocks by trace", heapsPart(data, data.heaps));
  for (const show of shows) show();
  if (location.hash.includes("=")) VIEW.apply();
  window.addEventListener("popstate", () => VIEW.apply());
}

start();
