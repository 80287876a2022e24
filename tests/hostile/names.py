# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""An image all of whose names were chosen to harm who reads them: terminals, file systems, spreadsheets."""

from __future__ import annotations

from typing import List

from tests.forge.dump import Image
from tests.forge.handles import OPEN, HandleTable, Ring, named
from tests.forge.kernel import Kernel
from tests.forge.pe import Pdb, guid_of
from tests.forge.std import Std
from tests.support.tracedkernels import new_kernel, put_database

NAMES = (
    "\x1b[31mred\x1b]0;title\x07",
    "..\\..\\..\\windows\\x.dll",
    "../../../../tmp/owned",
    "..",
    "a\r\nb,c\"d'e;f",
    "\u202egnp.exe",
    "lone\uf8ffsurrogate",
    "\x00\x01\x02",
    " ",
    "=cmd|' /C calc'!A0",
    "%s%n{0}{1!r}\\x1b[0m",
    "\u2028\u2029\x85\x9b2J",
    "C:\\con",
    "x" * 32700,
    "\x07" * 32700,
)
EXPORTS = ("\x1b[2Jclear", "../up", "a;b", "tab\there", "\x7f\x80\x9b", "y" * 0x800)

_STANDS_FOR_A_SURROGATE = ("\uf8ff".encode("utf-16-le"), b"\x80\xdc")

DATABASE = {8: 0x1D2A0000000, 4: 0x02A00000}


def image(name: str) -> Image:
    """Makes the image; half a surrogate pair, which no encoder writes, is put in at the end."""
    builder = _build(name)
    finished = builder.image()
    for _, page in builder.phys.pages():
        if page is not None:
            page[:] = page.replace(*_STANDS_FOR_A_SURROGATE)
    return finished


def _build(name: str) -> Kernel:
    """Makes the image: every kind of name takes every value, and traces lead to what bears it."""
    kernel = new_kernel(name, 0x6000)
    wide = kernel.bits == 64
    frames: List[int] = []
    gone = 0xFFFFF80350000000 if wide else 0x8F000000
    for number, text in enumerate(NAMES):
        exports = {export: 0x1000 + 0x40 * place for place, export in enumerate(EXPORTS)}
        pdb = Pdb(text[:200], guid_of(f"{name}-{number}"), 1)
        module = kernel.module(text, exports=exports, pdb=pdb)
        frames += [module.base + 0x1010, module.base + 0x1090, module.base + 0x3000]
        kernel.unloaded(text, gone + 0x10000 * number, gone + 0x10000 * number + 0x8000)
        frames.append(gone + 0x10000 * number + 0x10)
    traces = [tuple(frames[start : start + 20]) for start in range(0, len(frames), 20)]
    put_database(kernel, "5.1" if name == "xp-x86" else "6.1", traces)
    for number, text in enumerate(NAMES):
        _process(kernel, name, number, text)
    return kernel


def _process(kernel: Kernel, name: str, number: int, text: str) -> None:
    wide = kernel.bits == 64
    app = kernel.process(_image_name(text), pid=1000 + 4 * number, nt_global_flag=0x1000)
    module = app.module(text, dll=False, exports={"main": 0x1000})
    ntdll = app.module("ntdll.dll", data=0x2000)
    other = app.module(text + "2", listed=False)
    app.region(0x20000000, size=0x1000, file=text)
    std = Std("5.1" if name == "xp-x86" else "6.1", "x64" if wide else "x86", DATABASE[8 if wide else 4])
    std.log([module.base + 0x1010, 0x20000010, other.base + 0x20, ntdll.base + 0x1000])
    for address, data in std.regions().items():
        app.region(address, data)
    app.space.write_int(ntdll.base + 0x7340, std.base, kernel.space.pointer_size)
    table = HandleTable(app)
    table.add(0x84, named(kernel, "_KEVENT", "Event", text))
    table.finish()
    ring = Ring(table, 4096 if name == "xp-x86" else 8)
    ring.event(OPEN, 0x84, 1000 + 4 * number, 4, [module.base + 0x1010, 0x20000010])
    app.thread(1002 + 4 * number)


def _image_name(text: str) -> str:
    return text.encode("utf-8", "replace")[:15].decode("latin-1")
