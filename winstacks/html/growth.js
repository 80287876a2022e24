// This file is licensed under the Volatility Software License 1.0,
// available at https://www.volatilityfoundation.org/license/vsl-v1.0
// Growth of a weight against a baseline: its color and its words.
"use strict";

/** Growth against a baseline: the least factor of each step, its look, and its words. @type {[number, string, string][]} */
const GROWTH = [
  [6, "grown g4", "new, or more than +500 %"], [3, "grown g3", "up to +500 %"], [1.5, "grown g2", "up to +200 %"],
  [1, "grown g1", "up to +50 %"], [0.5, "shrunk s1", "down to \u221250 %"], [0, "shrunk s2", "less than \u221250 %, or gone"],
];

/** Returns the look of a growth. @param {number} now @param {number} before */
function growthOf(now, before) {
  if (now === before) return "same";
  const factor = before ? now / before : Infinity;
  return (GROWTH.find(([least]) => (least >= 1 ? factor > least : factor >= least)) ?? ["", "same"])[1];
}

/** Returns a growth in words. @param {number} now @param {number} before */
function growth(now, before) {
  if (now === before) return "equal";
  if (!before) return "new";
  if (!now) return "gone";
  const percent = (100 * (now - before)) / before;
  return `${percent > 0 ? "+" : "\u2212"}${Math.abs(percent).toFixed(Math.abs(percent) < 10 ? 1 : 0)} %`;
}
