# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Volatility symbol tables (ISF) for the image builder: where a member lies, by its path."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import lzma
import marshal
import pathlib
import re
from typing import Iterable, NamedTuple

from .isf_prune import prune
from .isf_types import Json, base_types
from .kept import FEW, keep

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_KINDS_BY_NAME = ("struct", "union", "class")


class Place(NamedTuple):
    """A member: where it is in its structure and what it holds.

    `kind` is one of base, pointer, struct (unions too), enum, array, bitfield, function; `name` is
    the base type, structure or enumeration. An array has `length` and `element`, a bit field `bits`
    (position, length); `size` is in bytes, of the whole member.
    """

    offset: int
    size: int
    kind: str
    name: str
    signed: bool
    length: int
    element: Json | None
    bits: tuple[int, int] | None


class Isf:
    """A symbol table; `data` is the JSON that Volatility reads."""

    def __init__(self, data: Json) -> None:
        self.data = data
        self.types: Json = data["user_types"]
        self.enums: Json = data["enums"]
        self.symbols: Json = data["symbols"]
        # Tables of fixed formats have no pointers and do not say how long one would be.
        self.pointer_size: int = data["base_types"].get("pointer", {"size": 8})["size"]
        self._places: dict[tuple[str, str], Place] = {}

    @property
    def pdb(self) -> str:
        return str(self.data["metadata"]["windows"]["pdb"]["database"])

    @property
    def guid(self) -> str:
        """The 32 hex digits of the PDB's GUID."""
        return str(self.data["metadata"]["windows"]["pdb"]["GUID"])

    @property
    def age(self) -> int:
        return int(self.data["metadata"]["windows"]["pdb"]["age"])

    def has_type(self, type_name: str) -> bool:
        return type_name in self.types

    def has(self, type_name: str, path: str) -> bool:
        """Whether the structure is known and has a member at `path`."""
        try:
            self.place(type_name, path)
        except KeyError:
            return False
        return True

    def size(self, type_name: str) -> int:
        """Bytes of a structure or base type. Raises KeyError if it is unknown."""
        known = self.types.get(type_name) or self.data["base_types"][type_name]
        return int(known["size"])

    def offset(self, type_name: str, path: str) -> int:
        return self.place(type_name, path).offset

    def first(self, type_name: str, *paths: str) -> str | None:
        """The first of `paths` that the structure has: members move from build to build."""
        return next((path for path in paths if self.has(type_name, path)), None)

    def place(self, type_name: str, path: str) -> Place:
        """Resolves `path` ("Tcb.TrapFrame", "Slots[3].Flink") within a structure.

        Pointers are not followed. An index past an array's end is allowed: Windows' own
        structures end in arrays of one. Raises KeyError when a part of the path does not exist.
        """
        key = (type_name, path)
        if key not in self._places:
            self._places[key] = self._resolve(type_name, path)
        return self._places[key]

    def _resolve(self, type_name: str, path: str) -> Place:
        here: Json = {"kind": "struct", "name": type_name}
        offset = 0
        for member, index in _split(path):
            if index is not None:
                if here["kind"] != "array":
                    raise KeyError(f"{type_name}.{path}: not an array")
                here = here["subtype"]
                offset += index * self._describe(here, 0).size
                continue
            if here["kind"] not in _KINDS_BY_NAME or here["name"] not in self.types:
                raise KeyError(f"{type_name}.{path}: {member} is not in a known structure")
            field = self.types[here["name"]]["fields"][member]
            offset, here = offset + field["offset"], field["type"]
        return self._describe(here, offset)

    def element(self, place: Place) -> Place:
        """What one element of an array member is (offset 0)."""
        if place.element is None:
            raise KeyError("not an array")
        return self._describe(place.element, 0)

    def _describe(self, what: Json, offset: int) -> Place:
        kind = what["kind"]
        if kind == "array":
            count = int(what["count"])
            size = count * self._describe(what["subtype"], 0).size
            return Place(offset, size, kind, "", False, count, what["subtype"], None)
        if kind == "bitfield":
            base = self._describe(what["type"], 0)
            bits = (int(what["bit_position"]), int(what["bit_length"]))
            return Place(offset, base.size, kind, base.name, False, 1, None, bits)
        if kind == "pointer":
            subtype = what.get("subtype") or {}
            name = subtype.get("name", "void")
            return Place(offset, self.pointer_size, kind, name, False, 1, None, None)
        if kind == "function":
            return Place(offset, 0, kind, "", False, 1, None, None)
        name = what["name"]
        if kind == "enum":
            return Place(offset, int(self.enums[name]["size"]), kind, name, False, 1, None, None)
        if kind in _KINDS_BY_NAME:
            size = int(self.types[name]["size"]) if name in self.types else 0
            return Place(offset, size, "struct", name, False, 1, None, None)
        base_type = self.data["base_types"][name]
        signed = bool(base_type["signed"])
        return Place(offset, int(base_type["size"]), kind, name, signed, 1, None, None)

    def constant(self, enum: str, name: str) -> int:
        return int(self.enums[enum]["constants"][name])

    def symbol(self, name: str) -> int:
        """RVA of a symbol. Raises KeyError."""
        return int(self.symbols[name]["address"])

    def first_symbol(self, *names: str) -> str | None:
        return next((name for name in names if name in self.symbols), None)

    def save(self, path: str | pathlib.Path) -> pathlib.Path:
        """Writes the table (packed if the name ends in .xz): the same bytes for the same table."""
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = _text(self.data)
        path.write_bytes(lzma.compress(text, preset=1) if path.suffix == ".xz" else text)
        return path

    def install(self, symbol_dir: pathlib.Path) -> pathlib.Path:
        """Saves the table where Volatility looks for it below a symbol directory (`-s`)."""
        return self.save(symbol_dir / "windows" / self.pdb / f"{self.guid}-{self.age}.json")

    def renamed(self, guid: str, age: int = 1, pdb: str | None = None) -> Isf:
        """The same table under another identity, so that no real symbol cache is mixed in."""
        data = dict(self.data, metadata=copy.deepcopy(self.data["metadata"]))
        identity = data["metadata"]["windows"]["pdb"]
        identity.update(GUID=guid.upper(), age=age, database=pdb or identity["database"])
        return Isf(data)

    def pruned(self, roots: Iterable[str], symbols: Iterable[str] | None = None) -> Isf:
        """Only the types `roots` and what they embed, and only `symbols` (all when None).

        Pointers to types that are left out become pointers to void. Roots and symbols that the
        table does not have are ignored, since Windows versions differ.
        """
        return Isf(prune(self.data, roots, symbols))


_texts: dict[bytes, bytes] = {}
"""The last tables that were saved, by a digest of their contents: most images of a run have one of few."""


def _text(data: Json) -> bytes:
    """Returns a table as JSON. A digest takes a quarter of the time that the text does."""
    digest = hashlib.sha256(marshal.dumps(data, 2)).digest()
    return keep(_texts, digest, lambda: json.dumps(data, sort_keys=True, separators=(",", ":")).encode())


@functools.lru_cache(maxsize=FEW)
def load(path: str | pathlib.Path) -> Isf:
    """Reads an ISF file (.json or .json.xz); loading one takes about 0.2 s, hence the cache."""
    raw = pathlib.Path(path).read_bytes()
    return Isf(json.loads(lzma.decompress(raw) if str(path).endswith(".xz") else raw))


def new(
    pdb: str,
    guid: str,
    pointer_size: int,
    symbols: dict[str, int] | None = None,
    user_types: Json | None = None,
    enums: Json | None = None,
    age: int = 1,
) -> Isf:
    """A table of our own making: of a forged module's `symbols` (name to RVA), say.

    Volatility finds it by `pdb`, `guid` and `age`, which the module's RSDS record must repeat.
    """
    machine = 0x8664 if pointer_size == 8 else 0x14C
    identity = {"GUID": guid.upper(), "age": age, "database": pdb, "machine_type": machine}
    producer = {"datetime": "2024-01-01T00:00:00", "name": "forge", "version": "1.0.0"}
    return Isf(
        {
            "metadata": {
                "format": "6.1.0",
                "producer": producer,
                "windows": {"pdb": identity},
            },
            "base_types": base_types(pointer_size),
            "user_types": user_types or {},
            "enums": enums or {},
            "symbols": {name: {"address": rva} for name, rva in (symbols or {}).items()},
        }
    )


def _split(path: str) -> Iterable[tuple[str, int | None]]:
    return [
        (match.group(1) or "", None if match.group(2) is None else int(match.group(2)))
        for match in _STEP.finditer(path)
    ]
