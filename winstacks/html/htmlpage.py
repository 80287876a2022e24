# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""HTML pages of one file each, without requests: style, script and data are inside the page.

    for piece in page("Stacks of mem.dmp", {"flame": flame_data(tree, "stacks")}): file.write(piece)

The Content-Security-Policy of a page allows its own style and script, by their hashes, and nothing else: no
request, no other script, no attribute `style`, no form. Data is a JSON block in which no character can end
the block; the script inserts it into the page as text only.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import pathlib
from typing import Any, Dict, Iterator, List, Mapping, Sequence

from ..memory.decode.text import counted, printable
from .prefixes import PrefixTree

FOLDER = pathlib.Path(__file__).resolve().parent
STYLE = "page.css"
SCRIPTS = (
    "view.js", "elements.js", "tree.js", "growth.js", "flame.js",
    "findings.js", "locks.js", "report.js",
)  # fmt: skip

MAX_TITLE = 200
_AT_ONCE = 1 << 16

_POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'"
)
_BLOCK = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}

_HEAD = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1></header>
<main id="main"></main>
<noscript><p>This page draws its data with a script, and the browser does not run scripts.</p></noscript>
"""


def page_title(about: str, paths: Sequence[str], computer: str = "") -> str:
    """Returns the title of a page, which begins with the name of the file that was read. `computer` is the
    computer's name, empty if unknown."""
    names = [path.replace("\\", "/").rpartition("/")[2] for path in paths]
    others = f" and {counted(len(names) - 1, 'other file')}" if len(names) > 1 else ""
    read = f"{names[0]}{others}: " if names else ""
    return f"{read}{about}{f' ({computer})' if computer else ''}"


def page(title: str, data: Mapping[str, Any]) -> Iterator[str]:
    """Yields the pieces of a page. `data` has the parts of the page by name, each in the form that `flame.js`
    or `report.js` describes."""
    style = _read(STYLE)
    script = "\n".join(_read(name) for name in SCRIPTS)
    policy = _POLICY.format(script=_hash(script), style=_hash(style))
    yield _HEAD.format(policy=policy, title=html.escape(printable(title, MAX_TITLE)), style=style)
    yield '<script type="application/json" id="data">'
    yield from _json(data)
    yield f"</script>\n<script>{script}</script>\n</body>\n</html>\n"


def flame_data(tree: PrefixTree, unit: str, files: Sequence[str] = ()) -> Dict[str, Any]:
    """Returns the data that `tree.js` decodes and `flame.js` draws.

    Args:
        unit: plural of the unit of the weights
        files: with a baseline: what is drawn, and the file of the baseline
    """
    notes = [f"Compared: now is {files[0]}, before is {files[1]}."] if files else []
    if tree.cut:
        notes.append(f"Some stacks were cut: the boxes … stand for {tree.cut} {unit}.")
    if tree.capped:
        notes.append(f"{tree.capped} {unit} are left out: the sum would be too large.")
    modules: Dict[str, int] = {"": 0}
    module_numbers = [modules.setdefault(box.module, len(modules)) for box in tree.boxes]
    coded: List[int] = []
    last: List[int] = []
    for names, weight, before in tree.stacks():
        shared = _shared(last, names)
        coded += (shared, len(names) - shared, *names[shared:], weight)
        if tree.compared:
            coded.append(before)
        last = names
    return {
        "unit": unit,
        "notes": notes,
        "texts": [box.text for box in tree.boxes],
        "looks": [box.style for box in tree.boxes],
        "of": module_numbers,
        "modules": list(modules),
        "compared": tree.compared,
        "stacks": coded,
    }


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Returns the number of names that two stacks share at their start."""
    for place, (left, right) in enumerate(zip(one, other)):
        if left != right:
            return place
    return min(len(one), len(other))


def _json(data: Mapping[str, Any]) -> Iterator[str]:
    """Yields JSON in which no character has a meaning in HTML. Lists of numbers are yielded in pieces."""
    yield "{"
    for number, (name, value) in enumerate(data.items()):
        yield f"{',' if number else ''}{_value(name)}:"
        if isinstance(value, Mapping):
            yield from _json(value)
        elif isinstance(value, list) and len(value) > _AT_ONCE:
            for start in range(0, len(value), _AT_ONCE):
                yield ("," if start else "[") + _value(value[start : start + _AT_ONCE])[1:-1]
            yield "]"
        else:
            yield _value(value)
    yield "}"


def _value(value: Any) -> str:
    text = json.dumps(_shown(value), separators=(",", ":"))
    for sign, escaped in _BLOCK.items():
        text = text.replace(sign, escaped)
    return text


def _shown(value: Any) -> Any:
    """Returns a value without characters that change the display of other characters."""
    if isinstance(value, str):
        return value if value.isprintable() else printable(value, len(value) + 1)
    if isinstance(value, (list, tuple)):
        # Most lists are long lists of numbers.
        return (
            value
            if all(type(element) is int for element in value)
            else [_shown(element) for element in value]
        )
    if isinstance(value, Mapping):
        return {_shown(key): _shown(element) for key, element in value.items()}
    return value


def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Returns the hash of a script or a style in the form of a policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
