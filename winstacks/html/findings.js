// This file is licensed under the Volatility Software License 1.0,
// available at https://www.volatilityfoundation.org/license/vsl-v1.0
// Findings, those of one story together, and the reasons why something was not checked.
"use strict";

/** The findings, and the stories, that are shown at once. */
const CARDS = 20;
const FEW_PLACES = 3;

/**
 * The findings of one story: what a process has above `low`, or what one innocent reason explains.
 * @typedef {{title: string, severity: string, cards: Card[]}} Story
 */

/**
 * Groups findings, the order of which stays: the worst of a story decides its place. A finding of many images is a story
 * of its own.
 * @param {Card[]} cards
 * @returns {Story[]}
 */
function storiesOf(cards) {
  /** @type {Map<unknown, Story>} */
  const stories = new Map();
  for (const card of cards) {
    const low = card.severity === "low";
    // A driver is a story of its own: all of the kernel's code has one process.
    const module = / \(4\)$/.test(card.process) ? (card.symbol ?? "").split(/[!+ ]/)[0] : "";
    const reason = card.innocent.replace(/0x[0-9a-f]+|\d+/gi, "#");
    const key = card.places ? card : low ? `low\n${card.check}\n${reason}` : `${card.process}\n${module}`;
    const found = stories.get(key);
    if (found) found.cards.push(card);
    else stories.set(key, { title: "", severity: card.severity, cards: [card] });
  }
  for (const story of stories.values()) story.title = titleOf(story.cards);
  return [...stories.values()];
}

/** Says what a story is about: its process, or the number of its processes, and its checks. @param {Card[]} cards */
function titleOf(cards) {
  const distinct = (/** @type {string[]} */ texts) => [...new Set(texts)];
  const processes = distinct(cards.map((card) => card.process));
  const where = processes.length > 1 ? `${count(processes.length)} processes` : processes[0];
  const checks = distinct(cards.map((card) => card.check)).join(", ");
  if (cards.length === 1) return `${checks} in ${where}`;
  return `${some(cards.length, "finding")} in ${where}: ${checks}`;
}

/** @param {Data} data @param {Findings} findings */
function findingsPart(data, findings) {
  const { cards, total, unchecked } = findings;
  const kinds = ["high", "medium", "low"].map((severity) =>
    `${count(cards.filter((card) => card.severity === severity).length)} ${severity}`);
  const stories = storiesOf(cards);
  const nothing = findings.examined ? `The checks found nothing: ${findings.examined}.` : "The checks found nothing.";
  const fewer = stories.length < cards.length ? `; ${count(stories.length)} to read, because findings of one story are one part` : "";
  const said = cards.length ? `${some(total, "finding")}: ${kinds.join(", ")}${fewer}.` : nothing;
  const key = "In stacks, ! marks code that belongs to no file, ? marks a guessed frame, and ◀ marks the frame that this finding is about.";
  const made = make("div", "", make("p", "", said));
  if (cards.length < total) made.append(make("p", "note", `The first ${count(cards.length)} are shown.`));
  if (cards.length) made.append(make("p", "note", key));
  const place = make("div", "cards");
  let first = 0;
  let shown = stories;
  const where = make("output", "found");
  const show = (whole = false) => {
    const part = whole ? shown : shown.slice(first, first + CARDS);
    place.replaceChildren(...part.map((story) => storyOf(data, findings, story)));
    where.textContent = `${count(shown.length && first + 1)} to ${count(Math.min(first + CARDS, shown.length))} of ${count(shown.length)}`;
  };
  const turn = (/** @type {number} */ step) => () => {
    first = Math.max(Math.min(first + step, Math.floor((shown.length - 1) / CARDS) * CARDS), 0);
    show();
  };
  const bar = make("div", "bar");
  if (cards.some((card) => card.places)) {
    bar.append(...filters(cards, (chosen) => {
      shown = storiesOf(chosen);
      first = 0;
      show();
    }));
  }
  if (cards.length) show();
  if (stories.length > CARDS) bar.append(button("Previous", turn(-CARDS)), button("Next", turn(CARDS)));
  if (bar.childElementCount) made.append(bar);
  if (bar.childElementCount) bar.append(where);
  made.append(place);
  if (unchecked.length) made.append(make("h3", "", "Not checked"), uncheckedPart(unchecked));
  printed(place, () => {
    if (shown.length > CARDS) show(true);
    return () => show();
  });
  return made;
}

/** @param {Data} data @param {Findings} findings @param {Story} story */
function storyOf(data, findings, story) {
  const [only] = story.cards;
  if (story.cards.length === 1 && only) return cardOf(data, only, findings.checks[only.check], only.severity !== "low");
  const title = make("span", "", make("span", `severity ${story.severity}`, story.severity), " ", make("b", "", story.title));
  const low = story.severity === "low";
  if (low && only) title.append(" ", make("span", "note", only.innocent));
  const made = folded(title, () => [listOf(data, findings, story)], !low);
  made.classList.add("story", story.severity);
  return made;
}

/** The findings of a story, the first of them, and a button for more. @param {Data} data @param {Findings} findings @param {Story} story */
function listOf(data, findings, story) {
  const list = make("div", "");
  let shown = 0;
  const more = button("", () => add(shown + CARDS));
  const add = (/** @type {number} */ end) => {
    if (shown >= story.cards.length) return;
    more.remove();
    for (const card of story.cards.slice(shown, end)) {
      // The meaning of a check is said once in a story.
      const first = story.cards.find((each) => each.check === card.check) === card;
      list.append(cardOf(data, card, first ? findings.checks[card.check] : undefined, card.severity !== "low"));
    }
    shown = Math.min(end, story.cards.length);
    more.textContent = `Show more: ${count(story.cards.length - shown)} of ${count(story.cards.length)} are left`;
    if (shown < story.cards.length) list.append(more);
  };
  add(CARDS);
  return printed(list, () => {
    add(story.cards.length);
    return () => {};
  });
}

/** Reasons why something was not checked, each once with the checks or processes that it concerns. @param {[string, string][]} unchecked */
function uncheckedPart(unchecked) {
  /** @type {Map<string, {title: string, lines: string[]}>} */
  const reasons = new Map();
  const add = (/** @type {string} */ key, /** @type {string} */ title, /** @type {string} */ line) => {
    const known = reasons.get(key) ?? { title, lines: [] };
    known.lines.push(line);
    reasons.set(key, known);
  };
  for (const [check, reason] of unchecked) {
    const [lost, by] = check === "lost_stacks" ? reason.split("; not examined by ") : [reason];
    if (by === undefined) add(reason, reason, check);
    else add(`lost ${by}`, `stacks are lost; not examined by ${by}`, lost ?? "");
  }
  const made = make("div", "");
  for (const [key, { title, lines }] of reasons) {
    const things = key.startsWith("lost ") ? `${count(lines.length)} ${lines.length === 1 ? "process" : "processes"}` : some(lines.length, "check");
    const several = lines.length > 1 || key.startsWith("lost ");
    if (several) made.append(folded(`${things}: ${title}`, () => [make("ul", "", ...lines.map((each) => make("li", "", each)))]));
    else made.append(make("p", "reason", make("b", "", lines[0] ?? ""), ` ${title}`));
  }
  const total = `${some(reasons.size, "reason")} in ${some(unchecked.length, "case")}`;
  return folded(total, () => [made], reasons.size <= CARDS);
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

/** @param {Data} data @param {Card} card @param {{meaning: string, innocent: string, next: string} | undefined} check @param {boolean} open */
function cardOf(data, card, check, open) {
  const thread = card.tid === null ? "" : `, thread ${card.tid}`;
  const title = make("span", "",
    make("span", `severity ${card.severity}`, card.severity), " ", make("b", "", card.check), " ",
    make("span", "", `${card.process}${thread}`), " ", make("code", "", card.symbol ?? ""));
  if (!open) title.append(" ", make("span", "note", card.innocent));
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
  const made = folded(title, () => {
    const stack = card.frames.length ? [make("pre", "stack", stackText(data, card.frames, card.frame))] : [];
    return [facts, ...stack];
  }, open);
  made.classList.add("card", card.severity);
  return made;
}

