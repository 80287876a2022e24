// This file is licensed under the Volatility Software License 1.0,
// available at https://www.volatilityfoundation.org/license/vsl-v1.0
// Puts the parts of a page together.
"use strict";

/** @param {string} id */
function parsed(id) {
  return JSON.parse(document.getElementById(id)?.textContent || "{}");
}

function start() {
  const data = parsed("data");
  const main = /** @type {HTMLElement} */ (document.getElementById("main"));
  if (data.flame) {
    const flame = new Flame(data.flame);
    main.append(make("section", "", flame.element));
    flame.zoom(0);
  }
}

start();
