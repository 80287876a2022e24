# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The kernel's symbol table (ISF) of a small kernel dump.

Such a dump lacks the kernel's debug record, which would name the table. It has the addresses of variables: a
table belongs to this kernel if it places all of them where the dump has them. It is inferred that no two
builds agree on all.
"""

from __future__ import annotations

import json
import pathlib
from typing import Dict, Iterator, Optional, Tuple

from volatility3 import symbols
from volatility3.framework import constants, interfaces
from volatility3.framework.layers import resources
from volatility3.framework.symbols import intermed

from ..memory.tables import KernelSymbolsError
from .decode.triage import TriageDump

MAX_TRIED = 16
"""Greatest number of tables on the symbol path that are tried: each takes a third of a second."""

_LEAST = 3
"""Least number of variables that a table must have."""
_KERNELS = ("ntkrnlmp.pdb", "ntoskrnl.pdb", "ntkrnlpa.pdb", "ntkrpamp.pdb")
_VARIABLES: Dict[str, Tuple[str, ...]] = {
    **{
        name: (name,)
        for name in (
            "KdDebuggerDataBlock", "KiCallUserMode", "PsLoadedModuleList", "PsActiveProcessHead",
            "KiProcessorBlock", "MmUnloadedDrivers", "MmLastUnloadedDriver", "MmHighestUserAddress",
            "MmSystemRangeStart",
        )
    },
    "KiBugcheckData": ("KiBugcheckData", "KiBugCheckData"),
    "NtBuildLab": ("NtBuildLab", "NtBuildLabEx"),
}  # fmt: skip
"""Members of KDDEBUGGER_DATA64 and of the header, and the symbols whose address each may have. In 19041 the
member NtBuildLab has the address of NtBuildLabEx (measured)."""
_OF_HEADER = ("KdDebuggerDataBlock", "PsLoadedModuleList", "PsActiveProcessHead")
_SYMBOLS = frozenset(symbol for names in _VARIABLES.values() for symbol in names)


def kernel_table(
    context: interfaces.context.ContextInterface,
    config_path: str,
    dump: TriageDump,
    base: int,
    named: Optional[str] = None,
) -> str:
    """Returns the name of the kernel's symbol table, empty without one.

    Args:
        base: address of the kernel, 0 if it is unknown
        named: the file that the user named; None: search the symbol path

    Raises:
        KernelSymbolsError: the table that the user named is absent, cannot be read, or belongs to another
            kernel
    """
    expected = _expected(dump, base)
    if named:
        path = pathlib.Path(named)
        if not path.is_file():
            raise KernelSymbolsError(f"--kernel-symbols: there is no file '{named}'")
        wrong = _wrong(path.resolve().as_uri(), expected, dump.machine.pointer_size)
        if wrong:
            raise KernelSymbolsError(
                f"--kernel-symbols: {named} is not a table of this dump's kernel: {wrong}"
            )
        return _loaded(context, config_path, path)
    if len(expected) < _LEAST:
        return ""
    candidates = list(dict.fromkeys(_files()))
    for path in candidates if len(candidates) <= MAX_TRIED else ():
        if not _wrong(path.as_uri(), expected, dump.machine.pointer_size):
            return _loaded(context, config_path, path)
    return ""


def _expected(dump: TriageDump, base: int) -> Dict[str, int]:
    """Returns the RVAs of the kernel's variables in the dump, by the names of their symbols."""
    header, data = dump.header, dump.debugger_data
    known: Dict[str, Optional[int]] = {name: getattr(data, name, None) for name in _VARIABLES}
    for name in _OF_HEADER:
        known[name] = getattr(header, name) or known.get(name)
    rvas = {name: dump.canonical(value) - base for name, value in known.items() if value}
    return {name: rva for name, rva in rvas.items() if base and 0 < rva < 1 << 32}


def _files() -> Iterator[pathlib.Path]:
    """Yields the tables of kernels on Volatility's symbol path."""
    for folder in symbols.__path__:
        for found in (pathlib.Path(folder, "windows", name) for name in _KERNELS):
            for path in sorted(found.iterdir()) if found.is_dir() else ():
                if path.name.endswith(tuple(constants.ISF_EXTENSIONS)):
                    yield path.resolve()


def _wrong(url: str, expected: Dict[str, int], pointer_size: int) -> str:
    """Returns why a table does not belong to the kernel, empty if it does."""
    try:
        with resources.ResourceAccessor().open(url) as file:
            table = json.load(file)
        size = table["base_types"]["pointer"]["size"]
        known = {
            name: int(symbol["address"]) for name, symbol in table["symbols"].items() if name in _SYMBOLS
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"it cannot be read ({type(error).__name__})"
    if size != pointer_size:
        return f"its pointers have {size} bytes"
    agreed = 0
    for name, place in expected.items():
        possible = [known[symbol] for symbol in _VARIABLES[name] if symbol in known]
        if possible and place not in possible:
            return f"{name} lies at {possible[0]:#x} in it, and at {place:#x} in the dump"
        agreed += bool(possible)
    return "" if agreed >= min(_LEAST, max(len(expected), 1)) else "it has none of the dump's variables"


def _loaded(context: interfaces.context.ContextInterface, config_path: str, path: pathlib.Path) -> str:
    name = f"kernel_{path.parent.name}_{path.name.partition('.')[0]}"
    if name not in context.symbol_space:
        place = interfaces.configuration.path_join(config_path, name)
        table = intermed.IntermediateSymbolTable(context, place, name, isf_url=path.resolve().as_uri())
        context.symbol_space.append(table)
    return name
