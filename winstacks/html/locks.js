// This file is licensed under the Volatility Software License 1.0,
// available at https://www.volatilityfoundation.org/license/vsl-v1.0
// Who waits for whom: deadlocks in words, drawings, lists of locks and of waiting threads.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
/** The most threads and locks beside a circle that are drawn; a line says how many more there are. */
const MOST_DRAWN = 40;
/** The most drawings; a line says how many groups have none. */
const MOST_DRAWINGS = 8;

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
  const rest = all.filter((each) => !ring.includes(each));
  const beside = rest.slice(0, MOST_DRAWN);
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
  for (const key of beside) {
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
  const undrawn = rest.length - beside.length;
  const said = `${count(undrawn)} more of the threads and locks of this group are in the lists only.`;
  return [make("div", "picture", picture), ...(undrawn ? [make("p", "note", said)] : [])];
}

/**
 * A deadlock: its steps as a numbered list, which a narrow window wraps, and how they are known.
 * @param {Locks} locks @param {Locks["cycles"][number]} cycle
 */
function deadlock(locks, { threads, things, inferred, evidence }) {
  const steps = make("ol", "steps");
  threads.forEach((thread, place) => {
    const holder = locks.threads[threads[(place + 1) % threads.length] ?? 0] ?? "";
    steps.append(make("li", "", `${locks.threads[thread] ?? ""} waits for ${things[place] ?? ""}, which ${holder} holds`));
  });
  const said = make("div", "deadlock", make("p", "", `Deadlock${inferred ? ", by inference," : ""} of ${some(threads.length, "thread")}:`),
    steps, make("p", "note", `Evidence of the waits: ${evidence.join("; ")}.`));
  said.setAttribute("role", "alert");
  return said;
}

/** @param {Data} data @param {Locks} locks */
function locksPart(data, locks) {
  const made = make("div", "");
  for (const cycle of locks.cycles) made.append(deadlock(locks, cycle));
  if (!locks.cycles.length) made.append(make("p", "", "No threads are known to wait for each other."));
  if (locks.gaps) made.append(make("p", "note", `Locks may be missing in ${some(locks.gaps, "place")}: ${locks.command} names them.`));
  if (locks.unknown) made.append(make("p", "note", `${locks.unknown}.`));
  if (locks.more) made.append(make("p", "note", `${some(locks.more, "more lock")} ${locks.more === 1 ? "is" : "are"} not shown.`));
  if (locks.moreWaits) made.append(make("p", "note", `${some(locks.moreWaits, "more wait")} ${locks.moreWaits === 1 ? "is" : "are"} not shown: ${locks.waitsCommand} lists all.`));
  const groups = groupsOf(locks);
  for (const group of groups.slice(0, MOST_DRAWINGS)) made.append(...drawing(locks, group));
  const more = groups.length - MOST_DRAWINGS;
  if (more > 0) made.append(make("p", "note", `${some(more, "more group")} of threads and locks ${more === 1 ? "is" : "are"} in the lists only.`));
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
    { name: "Waits for", kind: "frames", value: (wait) => wait[5] },
    { name: "It ends", kind: "where lesser", value: (wait) => wait[6] },
    { name: "Asked for by", kind: "where lesser", value: (wait) => wait[4] },
  ], (wait) => `${locks.threads[wait[0]]} ${wait[5]} ${wait[6]} ${wait[4]}`,
  (wait) => [wait[2], stackOf(wait[0])].filter(Boolean).join("\n\n"));
  made.append(make("h3", "", "Locks that are held, or for which threads wait"), held.element,
    make("h3", "", "Threads that wait, the worst ends of their chains first"), waiting.element);
  return { element: made, show: () => { held.show(); waiting.show(); } };
}

