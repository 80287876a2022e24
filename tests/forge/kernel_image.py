# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The kernel's own PE image: sections that go with a symbol table."""

from __future__ import annotations

from typing import Mapping, Optional, Sequence

from .isf import Isf
from .module import Spec
from .pe import DATA, RDATA, TEXT, Function, Pdb, Section, header_size
from .phys import PAGE

# Variables that lie in the kernel's .data: where it begins and ends unless somebody says it.
_DATA_SYMBOLS = (
    "KdDebuggerDataBlock",
    "KdVersionBlock",
    "PsActiveProcessHead",
    "PsLoadedModuleList",
    "RtlpStackTraceDatabase",
    "RtlpStackTraceDataBase",
    "NtGlobalFlag",
    "MmUnloadedDrivers",
    "MmLastUnloadedDriver",
    "KeNumberProcessors",
    "KiProcessorBlock",
    "ExpSystemResourcesList",
    "HandleTableListHead",
    "ObpRootDirectoryObject",
    "PspCidTable",
)


def kernel_spec(
    isf: Isf,
    exports: Mapping[str, int],
    functions: Sequence[Function],
    contents: Mapping[int, bytes],
    sections: Optional[Sequence[Section]],
) -> Spec:
    """The module of a symbol table; for the arguments see `kernel.Kernel`."""
    end = max(isf.symbol(name) for name in isf.symbols) + PAGE
    own = list(sections) if sections is not None else _sections(isf, _pages(end))
    extra = _pages(max([end] + [section.rva + section.size for section in own]))
    exports_size = _pages(0x40 + 40 * len(exports) + sum(map(len, exports)))
    pdata_size = _pages(12 * len(functions) + 1)
    own.append(Section(".edata", extra, exports_size, RDATA))
    own.append(Section(".pdata", extra + exports_size, pdata_size, RDATA))
    return Spec(
        size=extra + exports_size + pdata_size,
        sections=own,
        exports=exports,
        functions=functions,
        contents=contents,
        pdb=Pdb(isf.pdb, isf.guid, isf.age),
        # Right behind the section table: the one place that no symbol can name.
        meta_rva=header_size(len(own)),
        exports_rva=extra,
        pdata_rva=extra + exports_size,
        dll=False,
    )


def _sections(isf: Isf, end: int) -> list[Section]:
    known = [isf.symbol(name) for name in _DATA_SYMBOLS if name in isf.symbols]
    start, stop = min(known) // PAGE * PAGE, _pages(max(known) + 1)
    layout = [
        Section(".text", PAGE, start - PAGE, TEXT),
        Section(".data", start, stop - start, DATA),
        Section("PAGE", stop, end - stop, TEXT),
    ]
    return [section for section in layout if section.size > 0]


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE
