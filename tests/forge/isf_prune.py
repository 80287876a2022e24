# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Removes all types and symbols from a symbol table but those that are named."""

from __future__ import annotations

import copy
from typing import Iterable, Optional

from .isf_types import Json

_BY_NAME = ("struct", "union", "class")


def prune(data: Json, roots: Iterable[str], symbols: Optional[Iterable[str]]) -> Json:
    """The table (an ISF's JSON) with `roots`, what they embed, and `symbols` (None: all) only."""
    types, known = data["user_types"], data["symbols"]
    keep: set[str] = set()
    enums: set[str] = set()
    queue = [root for root in roots if root in types]
    while queue:
        name = queue.pop()
        if name in keep or name not in types:
            continue
        keep.add(name)
        for field in types[name]["fields"].values():
            _embedded(field["type"], queue, enums)
    kept: Json = {name: copy.deepcopy(types[name]) for name in sorted(keep)}
    for user_type in kept.values():
        for field in user_type["fields"].values():
            field["type"] = _forget(field["type"], keep)
    expected = known if symbols is None else symbols
    return dict(
        data,
        user_types=kept,
        enums={name: data["enums"][name] for name in sorted(enums & set(data["enums"]))},
        symbols={name: known[name] for name in expected if name in known},
    )


def _embedded(what: Json, queue: list[str], enums: set[str]) -> None:
    if what["kind"] in _BY_NAME:
        queue.append(what["name"])
    elif what["kind"] == "enum":
        enums.add(what["name"])
    elif what["kind"] == "array":
        _embedded(what["subtype"], queue, enums)
    elif what["kind"] == "pointer" and (what.get("subtype") or {}).get("kind") == "enum":
        enums.add(what["subtype"]["name"])
    elif what["kind"] == "bitfield":
        _embedded(what["type"], queue, enums)


def _forget(what: Json, keep: set[str]) -> Json:
    if what["kind"] in ("pointer", "array") and what.get("subtype"):
        what["subtype"] = _forget(what["subtype"], keep)
    elif what["kind"] in _BY_NAME and what["name"] not in keep:
        return {"kind": "base", "name": "void"}
    return what
