// This file is licensed under the Volatility Software License 1.0,
// available at https://www.volatilityfoundation.org/license/vsl-v1.0
// The scripts of the pages are one script when they run: each knows the names of the other.
import js from "@eslint/js";

const browser = ["document", "window", "setTimeout", "clearTimeout", "ResizeObserver", "Element", "Node"];
const types = ["HTMLElement", "HTMLInputElement", "HTMLSelectElement", "KeyboardEvent", "Event", "HTMLElementTagNameMap"];
const places = ["location", "history", "URLSearchParams"];
// Every name at the top of a script that another one uses.
const ours = ["VIEW", "matcher", "rowHeight", "make", "button", "field", "share", "count", "some", "folded", "printed", "PRINT",
  "List", "Stacks", "Tree", "Flame", "GUESSED", "LOOKS", "hue", "programOf", "choice", "GROWTH", "growth", "growthOf", "stackText", "innermost", "table", "link",
  "filters", "findingsPart", "locksPart"];
const known = (names) => Object.fromEntries(names.map((name) => [name, "readonly"]));

export default [
  {
    files: ["*.js"],
    ...js.configs.recommended,
    languageOptions: {
      ecmaVersion: 2022,
      sourceType: "script",
      globals: known([...browser, ...types, ...places, ...ours]),
    },
    rules: {
      ...js.configs.recommended.rules,
      eqeqeq: "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-redeclare": ["error", { builtinGlobals: false }],
      "no-restricted-properties": [
        "error",
        ...["innerHTML", "outerHTML", "insertAdjacentHTML", "write"].map((property) => ({ property })),
      ],
      "no-unused-vars": ["error", { varsIgnorePattern: `^(${ours.join("|")})$` }],
      "no-var": "error",
      "prefer-const": "error",
    },
  },
];
