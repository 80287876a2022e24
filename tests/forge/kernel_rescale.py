# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Computes 32-bit structures from the 64-bit ones of the same Windows.

The members of most structures are the same on both architectures, in the same order: with 4-byte
pointers and natural alignment they fall into place. A structure whose 32-bit layout is known is
taken as it is (`known`); the rest is computed.
"""

from __future__ import annotations

import copy
from typing import Dict, Iterable, NamedTuple, Optional, Tuple

from .isf import Isf, Json

Member = Tuple[str, str]
_NAMED = ("struct", "union", "class")
_WIDE = ("unsigned long long", "long long")
_ENUM = 4


class Layout(NamedTuple):
    """A finished 32-bit type: its JSON, size in bytes and alignment."""

    what: Json
    size: int
    alignment: int


def unsized(what: Json) -> Json:
    """The type without its array and bit field wrapping."""
    while what["kind"] in ("array", "bitfield"):
        what = what["subtype"] if what["kind"] == "array" else what["type"]
    return what


def pointer_sized_members(pairs: Iterable[Tuple[Isf, Isf]]) -> Dict[Member, str]:
    """What 8-byte integer members of 64-bit tables are in the 32-bit table of each pair.

    ULONG_PTR and ULONGLONG look alike in a 64-bit table; this tells them apart by the members
    that both tables have.
    """
    found: Dict[Member, str] = {}
    for wide, narrow in pairs:
        for name in set(wide.types) & set(narrow.types):
            members = narrow.types[name]["fields"]
            for member, field in wide.types[name]["fields"].items():
                there = unsized(members[member]["type"]) if member in members else {}
                if unsized(field["type"]).get("name") in _WIDE and there.get("kind") == "base":
                    found[name, member] = there["name"]
    return found


class Rescaler:
    """Computes 32-bit types.

    Args:
        wide: the 64-bit table.
        known: 32-bit types by name; a member without a type takes the 64-bit member's.
        integers: what the 8-byte integer members become, see `pointer_sized_members`; one that is
            not listed becomes pointer-sized.
        fixed: types that are the same on both architectures, with all that they embed.
    """

    def __init__(self, wide: Isf, known: Json, integers: Dict[Member, str], fixed: Iterable[str]) -> None:
        self._wide = wide
        self._known = known
        self._integers = integers
        self._fixed = wide.pruned(fixed).types
        self.types: Json = {}
        self._alignment: Dict[str, int] = {}

    def add(self, name: str) -> bool:
        """Makes `types` hold the structure and all that it embeds. False if it is unknown."""
        if name in self.types:
            return True
        if name in self._known:
            self._take(name, copy.deepcopy(self._known[name]))
        elif name in self._fixed:
            self._take(name, self._wide.types[name])
        elif name in self._wide.types:
            self._compute(name)
        else:
            return False
        return True

    def _take(self, name: str, known: Json) -> None:
        """A type whose layout is known; types of members may have to be filled in."""
        self.types[name] = known
        wide = self._wide.types.get(name, {"fields": {}})["fields"]
        for member, field in list(known["fields"].items()):
            if field["type"]:
                continue
            for other, there in wide.items():
                if other == member or (
                    there["offset"] == wide[member]["offset"] and other not in known["fields"]
                ):
                    what = self._convert(there["type"], (name, other)).what
                    known["fields"][other] = {"offset": field["offset"], "type": what}
        members = [self._convert(field["type"], None) for field in known["fields"].values()]
        self._alignment[name] = max((member.alignment for member in members), default=1)

    def _compute(self, name: str) -> None:
        wide = self._wide.types[name]
        fields: Json = {}
        self.types[name] = {"kind": wide["kind"], "size": 0, "fields": fields}
        placed: list[tuple[int, int]] = [(0, 0)]
        widest = 1
        for member, field in sorted(wide["fields"].items(), key=lambda pair: pair[1]["offset"]):
            layout = self._convert(field["type"], (name, member))
            start = max(end32 for end64, end32 in placed if end64 <= field["offset"])
            offset = -(-start // layout.alignment) * layout.alignment
            fields[member] = {"offset": offset, "type": layout.what}
            placed.append((field["offset"] + self._wide_size(name, member), offset + layout.size))
            widest = max(widest, layout.alignment)
        _shorten_bit_fields(fields)
        end = max(end32 for _, end32 in placed)
        self.types[name]["size"] = -(-end // widest) * widest
        self._alignment[name] = widest

    def _wide_size(self, name: str, member: str) -> int:
        return self._wide.place(name, member).size

    def _convert(self, what: Json, member: Optional[Member]) -> Layout:
        """The 32-bit form of a 64-bit member's type (None: of one that has 32-bit form already)."""
        kind = what["kind"]
        if kind in _NAMED:
            if not self.add(what["name"]):
                return Layout(what, 0, 1)
            return Layout(what, self.types[what["name"]]["size"], self._alignment[what["name"]])
        if kind == "pointer":
            return Layout(what, 4, 4)
        if kind == "function":
            return Layout(what, 0, 1)
        if kind == "array":
            element = self._convert(what["subtype"], member)
            array = dict(what, subtype=element.what)
            return Layout(array, element.size * what["count"], element.alignment)
        if kind == "bitfield":
            unit = self._convert(what["type"], member)
            return Layout(dict(what, type=unit.what), unit.size, unit.alignment)
        if kind == "enum":
            return Layout(what, _ENUM, _ENUM)
        name = what["name"]
        if name in _WIDE and member is not None:
            name = self._integers.get(member, "unsigned long")
        size = int(self._wide.data["base_types"][name]["size"])
        return Layout(dict(what, name=name), size, max(size, 1))


def _shorten_bit_fields(fields: Json) -> None:
    """In a unit that was 64 bits the longest field gives up 32, and those above it come down.

    What then does not fit goes: it is there on x64 only.
    """
    for offset in {field["offset"] for field in fields.values()}:
        unit = {
            member: field["type"]
            for member, field in fields.items()
            if field["offset"] == offset and field["type"]["kind"] == "bitfield"
        }
        longest = max(unit.values(), key=lambda bits: int(bits["bit_length"]), default=None)
        if longest is None or longest["type"]["name"] in _WIDE:
            continue
        if longest["bit_length"] > 32:
            longest["bit_length"] -= 32
            for bits in unit.values():
                if bits["bit_position"] > longest["bit_position"]:
                    bits["bit_position"] -= 32
        for member, bits in unit.items():
            bits["bit_length"] = min(bits["bit_length"], 32 - bits["bit_position"])
            if bits["bit_length"] <= 0:
                del fields[member]
