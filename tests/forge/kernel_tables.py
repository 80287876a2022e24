# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Writes the forged kernels' symbol tables: `python3 -m tests.forge.kernel_tables SYMBOLS`.

For maintainers, where real tables are at hand; `data/README.md` says which, and what comes of them.
SYMBOLS is a folder as Volatility's `-s` takes it.
"""

from __future__ import annotations

import copy
import json
import lzma
import pathlib
import sys
import zlib
from typing import Dict, Iterable

from . import isf
from .isf import Isf, Json
from .kernel_layouts import parse
from .kernel_names import (
    DATA,
    FIXED_TYPES,
    FUNCTIONS,
    OUR_TYPES,
    TRIMMED,
    VARIABLES,
    VOLATILITY_TYPES,
    X64_FUNCTIONS,
    X64_TYPES,
    X86_FUNCTIONS,
)
from .kernel_rescale import Rescaler, pointer_sized_members, unsized
from .kernels import KERNELS, Identity

REAL = {
    "xp-x86": "ntkrnlpa.pdb/30B5FB31AE7E4ACAABA750AA241FF331-1",
    "win7-x64": "ntkrnlmp.pdb/339E74133576439CBCDF7E0229DA3773-1",
    "win10-x64": "ntkrnlmp.pdb/5278AFF86C341677D7D7835C85B7B844-1",
    "win11-x64": "ntkrnlmp.pdb/0B0A89438BE7729EB33FD00A7D6FA816-1",
    # Not forged themselves: the 32-bit Windows 10 is made of these.
    "17763-x64": "ntkrnlmp.pdb/06F33B5BE23EF96AC9D93825124DAA16-1",
    "17763-ntdll-x64": "ntdll.pdb/E1871A04CD5CECCF719D9442628056C8-1",
    "17763-ntdll-x86": "wntdll.pdb/6B2BD108307BDD8EC619AEA4FB75E833-1",
}
# Code lies below, variables above, and between them is room for what the image builder adds.
_FIRST_FUNCTION = 0x1000
_FIRST_VARIABLE = 0x40000
_NAMELESS = ("__unnamed_", "__anonymous_", "<unnamed", "<anonymous")


def real_table(symbols: pathlib.Path, name: str) -> Isf:
    """A real table whose nameless structures are named after the member that holds them."""
    table = isf.load(symbols / "windows" / f"{REAL[name]}.json.xz")
    data = dict(table.data, user_types=copy.deepcopy(table.types))
    renamed: Dict[str, str] = {}
    queue = sorted(kind for kind in table.types if not kind.startswith(_NAMELESS))
    while queue:
        holder = queue.pop(0)
        for member, field in sorted(data["user_types"][holder]["fields"].items()):
            inner = unsized(field["type"])
            text = inner.get("name", "")
            if text.startswith(_NAMELESS) and text in data["user_types"]:
                # The holder was renamed before it was taken from the queue.
                prefix = holder if holder.startswith("__unnamed") else f"__unnamed{holder}"
                renamed[text] = f"{prefix}_{member}"
                data["user_types"][renamed[text]] = data["user_types"].pop(text)
                queue.append(renamed[text])
            if text in renamed:
                inner["name"] = renamed[text]
    return Isf(data)


def trimmed(table: Isf) -> Isf:
    """The structures of the lists, those in TRIMMED with fewer members."""
    types = dict(table.types)
    for name, members in TRIMMED.items():
        if name in types:
            kept = {m: f for m, f in types[name]["fields"].items() if m in members}
            types[name] = dict(types[name], fields=kept)
    whole = Isf(dict(table.data, user_types=types))
    return whole.pruned([*OUR_TYPES, *VOLATILITY_TYPES, *TRIMMED], symbols=())


def narrowed(symbols: pathlib.Path, wide: Isf, known: Json) -> Isf:
    """A 32-bit table: known structures, and the others worked out from the 64-bit table."""
    pairs = [
        (real_table(symbols, "17763-ntdll-x64"), real_table(symbols, "17763-ntdll-x86")),
        (real_table(symbols, "17763-x64"), real_table(symbols, "17763-ntdll-x86")),
        (real_table(symbols, "win7-x64"), real_table(symbols, "xp-x86")),
    ]
    rescaler = Rescaler(wide, known, pointer_sized_members(pairs), FIXED_TYPES)
    for name in (*OUR_TYPES, *VOLATILITY_TYPES, *TRIMMED):
        if name not in X64_TYPES:
            rescaler.add(name)
    enums = {**pairs[0][1].enums, **wide.enums}
    return Isf(dict(wide.data, user_types=rescaler.types, enums=enums))


def windows_10_x86(symbols: pathlib.Path) -> Isf:
    """ntdll's public symbols have most of the kernel's structures, too."""
    ntdll = real_table(symbols, "17763-ntdll-x86").types
    known = {**ntdll, **layouts("x86"), **layouts("win10-x86")}
    return narrowed(symbols, real_table(symbols, "17763-x64"), known)


def windows_7_x86(symbols: pathlib.Path) -> Isf:
    """What is the same before and after, what the 64-bit kernel knows of 32 bits, what is listed."""
    wide = real_table(symbols, "win7-x64")
    later_wide = real_table(symbols, "17763-x64").types
    later, before = real_table(symbols, "17763-ntdll-x86").types, real_table(symbols, "xp-x86").types
    known: Json = {}
    for name, layout in later.items():
        if layout == before.get(name) or (name in wide.types and wide.types[name] == later_wide.get(name)):
            known[name] = layout
    for name in ("_PEB", "_TEB", "_NT_TIB", "_CLIENT_ID", "_GDI_TEB_BATCH"):
        twin = wide.types[f"{name}32"]
        fields = {
            member: dict(field, type={}) if member in wide.types[name]["fields"] else field
            for member, field in twin["fields"].items()
        }
        known[name] = {"kind": "struct", "size": twin["size"], "fields": fields}
    known.update(layouts("x86"))
    known.update(layouts("win7-x86"))
    return narrowed(symbols, wide, known)


def layouts(name: str) -> Json:
    return parse((DATA / f"{name}.layout").read_text())


def synthetic_symbols(kernel: Identity, real_names: Iterable[str]) -> Dict[str, int]:
    """RVAs of our own for the names that the real kernel has.

    They depend on nothing but the names; the order and the distances differ from kernel to kernel.
    """
    real = set(real_names)
    by_arch = X64_FUNCTIONS if kernel.arch == "x64" else X86_FUNCTIONS
    placed: Dict[str, int] = {}
    at = _FIRST_FUNCTION
    functions = [name for name in (*FUNCTIONS, *by_arch) if name in real]
    for name in sorted(functions, key=lambda name: _number(kernel, name)):
        placed[name] = at
        at += 0x40 + _number(kernel, name) % 0x40 * 0x10
    if at > _FIRST_VARIABLE - 0x8000:
        raise ValueError(f"{kernel.name}: code up to {at:#x}")
    at = _FIRST_VARIABLE
    for name in sorted(set(VARIABLES) & real, key=lambda name: _number(kernel, name)):
        placed[name] = at
        at += -(-VARIABLES[name] // 0x40) * 0x40
    return placed


def _number(kernel: Identity, name: str) -> int:
    return zlib.crc32(f"{kernel.name}!{name}".encode())


def table(symbols: pathlib.Path, kernel: Identity) -> Isf:
    """The finished table of a forged kernel."""
    xp_names = set(real_table(symbols, "xp-x86").symbols)
    if kernel.name == "win7-x86":
        layout = windows_7_x86(symbols)
        names = set(real_table(symbols, "win7-x64").symbols) | (xp_names & set(X86_FUNCTIONS))
    elif kernel.name == "win10-x86":
        layout = windows_10_x86(symbols)
        names = set(real_table(symbols, "17763-x64").symbols) | (xp_names & set(X86_FUNCTIONS))
    else:
        layout = real_table(symbols, kernel.name)
        names = set(layout.symbols)
    layout = trimmed(layout)
    return isf.new(
        kernel.pdb,
        kernel.guid,
        kernel.pointer_size,
        synthetic_symbols(kernel, names),
        layout.types,
        layout.enums,
    )


def main() -> None:
    symbols = pathlib.Path(sys.argv[1])
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0}]
    for kernel in KERNELS.values():
        text = json.dumps(table(symbols, kernel).data, sort_keys=True, separators=(",", ":"))
        packed = lzma.compress(text.encode(), filters=filters)
        (DATA / f"{kernel.name}.json.xz").write_bytes(packed)
        print(f"{kernel.name}: {len(packed)} bytes")


if __name__ == "__main__":
    main()
