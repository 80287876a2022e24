# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Objects of a kernel by their headers: types, names, creators; the process list and PspCidTable."""

from __future__ import annotations

import functools
from typing import Any, Dict, Iterator, List, NamedTuple

from tests.forge import kernels
from tests.forge.handles import header_of, named
from tests.forge.kernel import Kernel
from tests.support import bare, heaptypes
from winstacks.memory.decode import status
from winstacks.memory.decode.memory import Memory
from winstacks.process.cidtable import CidTable
from winstacks.process.objectheaders import MAX_NAME, Objects
from winstacks.process.processlist import process_list
from winstacks.process.threadids import ThreadIds

from .target import Target, Template

_KERNELS = ("xp-x86", "win7-x64", "win10-x64")
_SYMBOLS = {"PspCidTable": 8, "PsActiveProcessHead": 16, "ObTypeIndexTable": 0x60, "ObHeaderCookie": 1}


class _Forged(NamedTuple):
    """A kernel's memory, its symbols, and the headers of its objects with the objects' names."""

    template: Template
    symbols: Dict[str, int]
    objects: Dict[int, str]


@functools.lru_cache(maxsize=None)
def _forged(name: str) -> _Forged:
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000)
    device = named(kernel, "_DEVICE_OBJECT", "Device", "Harddisk")
    file = kernel.file("\\a.txt")
    file["DeviceObject"] = device
    bodies = {
        named(kernel, "_KEVENT", "Event", "Ready", (1000, 7)): "Ready",
        device: "Harddisk",
        file: "\\Device\\Harddisk\\a.txt",
        app.eprocess: "app.exe Pid 1000",
        app.thread(1004).ethread: "Tid 1004 Pid 1000",
    }
    kernel.image()
    symbols = {each: kernel.symbol(each) for each in _SYMBOLS if each in kernel.isf.symbols}
    start, size = kernel.space.allocated
    ranges = [(start, size), *((address, _SYMBOLS[each]) for each, address in symbols.items())]
    regions = [(address, kernel.space.read(address, length)) for address, length in ranges]
    return _Forged(Template(regions), symbols, {header_of(body): text for body, text in bodies.items()})


def _objects(name: str, data: bytes, whole: bytes) -> None:
    """Each object has one description; of undamaged ones it is right."""
    forged, table = _forged(name), kernels.load(name).table
    memory = Memory.over(forged.template.extents(data), table.pointer_size)
    image: Any = bare.image(table.pointer_size)
    image.types, image.memory = heaptypes.structures(table), lambda space: memory
    image.symbol = lambda *names: next(
        (forged.symbols[each] for each in names if each in forged.symbols), None
    )
    objects = Objects(image)
    listed, ids = image.service(process_list).processes(), image.service(CidTable)
    headers = [*forged.objects, *(objects.header_of(process.eprocess) for process in listed[:32])]
    for header in headers:
        info = objects.describe(header)
        assert info == objects.describe(header)
        assert info.name is None or (info.name.isprintable() and len(info.name) <= 10 * MAX_NAME)
        assert info.type is None or info.type.isprintable()
        assert status.text(info.status).isprintable()
        creator, traced = objects.creator(header), objects.traced(header)
        assert creator is None or (creator.pid >= 0 and creator.back_trace_index >= 0)
        assert traced in (None, False, True)
        objects.references(header)
        image.service(ThreadIds).owner(info.body)
        if whole and data == whole:
            assert info.name == forged.objects.get(header, info.name) and not info.status
    most = len(data) // table.pointer_size
    assert len(listed) <= most and len(ids.processes) + len(ids.threads) <= most


def _seeds(name: str) -> List[bytes]:
    return [_forged(name).template.bytes]


def targets() -> Iterator[Target]:
    for name in _KERNELS:
        yield Target(f"objects-{name}", functools.partial(_seeds, name), functools.partial(_objects, name))
