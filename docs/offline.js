// This file is licensed under the Volatility Software License 1.0,
// available at https://www.volatilityfoundation.org/license/vsl-v1.0
// Browsers do not let a page that was opened as a file read the search index: such a page shows no search field.
"use strict";

if (location.protocol === "file:") {
  for (const each of document.querySelectorAll(".md-search, label[for=__search], #__search")) each.remove();
}
