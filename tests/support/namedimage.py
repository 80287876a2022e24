# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Forged images whose addresses get names of every form."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any, Dict, List

from tests.forge import kernels
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.forge.module import Module
from tests.forge.pe import Function
from tests.forge.process import Process
from tests.forge.unloaded import UnloadedDll, unload_trace
from tests.forge.vad import Vad
from winstacks.memory.image import AddressSpace
from winstacks.names.symbolizer import AddressNamer, Symbolizer
from winstacks.process.spaces import AddressSpaces

PLAIN, CHAINED = 0x5800, 0x5810
"""RVAs of unwind information in .rdata: of a whole function, and of a piece of the one at 0x1000."""

EXPORTS = {"Send": 0x1000, "Receive": 0x1200, "Leaf": 0x1400, "Away": "ntoskrnl.Other"}
FUNCTIONS = [
    Function(0x1000, 0x1100, PLAIN),
    Function(0x1100, 0x1180, PLAIN),
    Function(0x1200, 0x1280, PLAIN),
    Function(0x2000, 0x2040, CHAINED),
]
UNWIND = {PLAIN: b"\x01\0\0\0", CHAINED: b"\x21\0\0\0" + struct.pack("<III", 0x1000, 0x1100, PLAIN)}

GONE_DLL, OVERLAPPED_DLL = 0x18000000, 0x19000000
PRIVATE, MAPPED, SECTION, NOWHERE = 0x10000000, 0x20000000, 0x28000000, 0x30000000


def spec(wide: bool, **more: Any) -> Dict[str, Any]:
    """A module with exports, one of them without a name, and on x64 a function table."""
    options: Dict[str, Any] = {"exports": EXPORTS, "ordinals": {1: 0x1300}}
    if wide:
        options.update(functions=FUNCTIONS, contents=UNWIND)
    options.update(more)
    return options


def ring(bits: int, old: bool, dlls: List[UnloadedDll]) -> Dict[int, bytes]:
    """ntdll's contents with the unload events somewhere in its .data (RVA 0x7000)."""
    return {**(UNWIND if bits == 64 else {}), 0x7340: unload_trace(dlls, bits, old=old)}


@dataclasses.dataclass
class Sample:
    """An image with its parts; addresses of interest are looked up in them."""

    kernel: Kernel
    app: Process
    other: Process
    modules: Dict[str, Module]
    gone: int

    @property
    def wide(self) -> bool:
        return self.kernel.bits == 64


def build(name: str) -> Sample:
    """Builds the sample for one of the forge's kernels."""
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    wide = kernel.bits == 64
    session = kernel.session(1)
    modules = {
        "driver": kernel.module("tcpip.sys", **spec(wide)),
        "isf": kernel.module(
            "known.sys", **spec(wide, symbols={"Send": 0x1000, "Inner": 0x1040, "Hidden": 0x1100})
        ),
        "paged": kernel.module("paged.sys", **spec(wide, headers=False)),
        "session": kernel.module("win32k.sys", session=session, **spec(wide)),
        "hostile": kernel.module("evil\x1b[31m; x!.sys", **spec(wide)),
        "unlisted": kernel.module("rootkit.sys", listed=False, **spec(wide)),
        "reused": kernel.module("reused.sys", **spec(wide)),
        "again": kernel.module("again.sys", **spec(wide)),
    }
    gone = 0xFFFFF80360000000 if wide else 0x8F000000
    kernel.unloaded("gone.sys", gone, gone + 0x8000)
    kernel.unloaded("older.sys", modules["reused"].base, modules["reused"].base + 0x3000)
    kernel.unloaded("again.sys", modules["again"].base, modules["again"].base + modules["again"].size)

    app = kernel.process("app.exe", pid=1000, session=1)
    modules["app"] = app.module("app.exe", dll=False, exports={"main": 0x1000})
    dlls = [
        UnloadedDll("plugin.dll", GONE_DLL, 0x8000),
        UnloadedDll("older.dll", OVERLAPPED_DLL, 0x8000),
    ]
    ntdll = spec(wide, contents=ring(kernel.bits, name == "xp-x86", dlls))
    modules["ntdll"] = app.module("ntdll.dll", **ntdll)
    modules["kernel32"] = app.module("KERNEL32.DLL", **spec(wide, symbols={"Send": 0x1000, "Inner": 0x1040}))
    modules["no-vad"] = app.module("novad.dll", vad=False, **spec(wide))
    modules["unlinked"] = app.module("unlinked.dll", orders=["InMemoryOrderModuleList"], **spec(wide))
    modules["hidden"] = app.module("hidden.dll", listed=False, **spec(wide))
    modules["hollow"] = app.module("hollow.dll", vad=False, **spec(wide))
    app.vads.append(Vad(modules["hollow"].base, modules["hollow"].size))
    modules["renamed"] = app.module("renamed.dll", vad=False, **spec(wide))
    app.vads.append(Vad(modules["renamed"].base, modules["renamed"].size, "\\Windows\\real.dll", image=True))
    app.region(PRIVATE, size=0x3000)
    app.region(OVERLAPPED_DLL, size=0x10000)
    app.region(MAPPED, size=0x1000, file="\\Users\\a\\data;1.bin")
    other = kernel.process("other.exe", pid=2000)
    other.module("other.exe", dll=False)
    other.module("ntdll.dll", modules["ntdll"].base, **ntdll)
    if wide:
        wow = app.wow64()
        dlls = [UnloadedDll("plugin32.dll", GONE_DLL + 0x100000, 0x8000)]
        modules["ntdll32"] = wow.module("ntdll.dll", **spec(False, contents=ring(32, False, dlls)))
        modules["kernel32-32"] = wow.module(
            "kernel32.dll", **spec(False, symbols={"Send": 0x1000, "Inner": 0x1040})
        )
    return Sample(kernel, app, other, modules, gone)


@dataclasses.dataclass
class OpenedSample:
    """The sample in Volatility, with a symboliser for it."""

    sample: Sample
    opened: Opened
    symbolizer: Symbolizer
    spaces: List[AddressSpace]

    def space(self, pid: int, wow64: bool = False) -> AddressSpace:
        return next(space for space in self.spaces if space.pid == pid and space.wow64 == wow64)

    def names(self, pid: int, wow64: bool = False) -> AddressNamer:
        return self.symbolizer.for_space(self.space(pid, wow64))


def wrap(sample: Sample, opened: Opened) -> OpenedSample:
    image = opened.image
    return OpenedSample(sample, opened, Symbolizer(image), list(AddressSpaces.list_spaces(image)))
