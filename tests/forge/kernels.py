# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The Windows kernels that the forge knows: six of our own small symbol tables, or any real one.

    kernel = kernels.load("win7-x64")
    image = Kernel(kernel.table, **kernel.options())

What is fact and what is invented in the tables: `data/README.md`.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from typing import Any, Dict, Iterable, Mapping, Optional, Tuple

from . import isf
from .isf import Isf, Json
from .kernel_names import DATA, EXPORTED, VARIABLES
from .pe import DATA as DATA_SECTION
from .pe import TEXT, Section, guid_of
from .phys import PAGE

Version = Tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Identity:
    """Which kernel it is.

    `version` is (major, minor, build); `base` and `highest_user` are addresses that go with it.
    """

    name: str
    arch: str
    version: Version
    pdb: str
    base: int
    highest_user: int

    @property
    def pointer_size(self) -> int:
        return 8 if self.arch == "x64" else 4

    @property
    def guid(self) -> str:
        """Of a table of ours: 32 hex digits made from the name, which no real symbol file has."""
        return guid_of(f"kernel-{self.name}")


KERNELS: Dict[str, Identity] = {
    kernel.name: kernel
    for kernel in (
        Identity("xp-x86", "x86", (5, 1, 2600), "ntkrnlpa.pdb", 0x804D7000, 0x7FFEFFFF),
        Identity("win7-x86", "x86", (6, 1, 7601), "ntkrpamp.pdb", 0x82800000, 0x7FFEFFFF),
        Identity("win7-x64", "x64", (6, 1, 7601), "ntkrnlmp.pdb", 0xFFFFF80002A00000, 0x7FFFFFEFFFF),
        Identity("win10-x86", "x86", (10, 0, 17763), "ntkrpamp.pdb", 0x81A00000, 0x7FFEFFFF),
        Identity("win10-x64", "x64", (10, 0, 19041), "ntkrnlmp.pdb", 0xFFFFF80312200000, 0x7FFFFFFEFFFF),
        Identity("win11-x64", "x64", (10, 0, 22000), "ntkrnlmp.pdb", 0xFFFFF80455600000, 0x7FFFFFFEFFFF),
    )
}


# A structure or symbol, and the first version whose public symbols have it. What lies between two
# lines (20348 and 22000, say) has the same of them.
_OLDEST = (5, 1, 2600)
_SINCE = (
    ("_MM_AVL_TABLE", (5, 2, 3790)),
    ("KdCopyDataBlock", (6, 0, 6002)),
    ("_KERNEL_STACK_CONTROL", (6, 1, 7601)),
    ("_KSTACK_CONTROL", (6, 3, 9600)),
    ("ObHeaderCookie", (10, 0, 14393)),
    ("_RTL_STACKDB_CONTEXT", (10, 0, 17763)),
    ("_KQOS_GROUPING_SETS", (10, 0, 19041)),
    ("_KERNEL_SHADOW_STACK_LIMIT", (10, 0, 22000)),
)


@dataclasses.dataclass(frozen=True)
class KnownKernel:
    """A kernel with its symbol table; `sections` of its image are known for tables of ours only."""

    identity: Identity
    table: Isf
    sections: Tuple[Section, ...] = ()

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def arch(self) -> str:
        return self.identity.arch

    @property
    def version(self) -> Version:
        return self.identity.version

    @property
    def exports(self) -> Tuple[str, ...]:
        """Names of this kernel's functions and variables that Windows exports."""
        return tuple(name for name in EXPORTED if name in self.table.symbols)

    def options(self) -> Dict[str, Any]:
        """What the image builder's `Kernel` wants to know besides the table."""
        known: Dict[str, Any] = {
            "base": self.identity.base,
            "version": self.version,
            "highest_user": self.identity.highest_user,
            "exports": self.exports,
        }
        return dict(known, sections=self.sections) if self.sections else known

    def variant(
        self,
        name: str,
        drop: Iterable[str] = (),
        rename: Optional[Mapping[str, str]] = None,
        version: Optional[Version] = None,
    ) -> KnownKernel:
        """The same kernel under another name, with fewer symbols or with other names for them.

        Args:
            name: of the variant; its table's GUID is made from it.
            drop: symbols to leave out.
            rename: old symbol name to new one.
            version: of the variant, if another.

        Raises KeyError for a symbol that the table does not have.
        """
        symbols: Json = dict(self.table.symbols)
        for old in drop:
            del symbols[old]
        for old, new in (rename or {}).items():
            symbols[new] = symbols.pop(old)
        identity = dataclasses.replace(self.identity, name=name, version=version or self.identity.version)
        table = Isf(dict(self.table.data, symbols=symbols)).renamed(identity.guid)
        return KnownKernel(identity, table, self.sections)


@functools.lru_cache(maxsize=None)
def load(name: str) -> KnownKernel:
    """One of KERNELS, or `2003-x64`: Windows 7's structures under the names of 5.2.

    Raises KeyError for any other name.
    """
    if name == "2003-x64":
        return _relabelled_2003()
    identity = KERNELS[name]
    table = isf.load(DATA / f"{name}.json.xz")
    return KnownKernel(identity, table, _sections(table))


def real(path: pathlib.Path) -> KnownKernel:
    """A real kernel's symbol table (.json or .json.xz); its version is read off its structures."""
    table = isf.load(path)
    version = _OLDEST
    for mark, since in _SINCE:
        if table.has_type(mark) or mark in table.symbols:
            version = since
    alike = [kernel for kernel in KERNELS.values() if kernel.pointer_size == table.pointer_size]
    nearest = min(alike, key=lambda kernel: abs(kernel.version[2] - version[2]))
    name = f"real-{table.guid.lower()}"
    identity = dataclasses.replace(nearest, name=name, version=version, pdb=table.pdb)
    return KnownKernel(identity, table)


def _relabelled_2003() -> KnownKernel:
    """The 5.2 x64 kernel: the database's symbol, indices of 16 bits and what came in 2018 tell it from 7."""
    seven = load("win7-x64")
    later = [name for name in seven.table.symbols if name.startswith("Ki") and name.endswith("Shadow")]
    rename = {"RtlpStackTraceDatabase": "RtlpStackTraceDataBase"}
    known = seven.variant("2003-x64", later, rename, (5, 2, 3790))
    types: Json = dict(known.table.types)
    debug = types["_RTL_CRITICAL_SECTION_DEBUG"]
    fields = dict(debug["fields"])
    fields["SpareWORD"] = fields.pop("CreatorBackTraceIndexHigh")
    types["_RTL_CRITICAL_SECTION_DEBUG"] = {**debug, "fields": fields}
    return KnownKernel(known.identity, Isf({**known.table.data, "user_types": types}), known.sections)


def _sections(table: Isf) -> Tuple[Section, ...]:
    """Code, then variables: where `kernel_tables` puts them."""
    variables = {name: table.symbol(name) for name in VARIABLES if name in table.symbols}
    start = min(variables.values())
    end = max(rva + VARIABLES[name] for name, rva in variables.items())
    size = -(-(end - start) // PAGE) * PAGE
    return (Section(".text", PAGE, start - PAGE, TEXT), Section(".data", start, size, DATA_SECTION))
