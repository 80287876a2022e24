# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Small images that claim to hold much: what is shared, overlaps or is mapped a thousand times over.

A count that is bounded is not enough where many structures may share what it counts. Each of these images is
a few megabytes long and would keep a reader busy for hours that took every structure at its word.
"""

from __future__ import annotations

import struct
from typing import Any, Callable, Dict, NamedTuple

from tests.forge.dump import Image
from tests.forge.handles import HandleTable, Ring, named
from tests.forge.kernel import Kernel
from tests.forge.locks import Resources
from tests.forge.objecttraces import ObjectTraces
from tests.forge.std import Std
from tests.forge.vad import Vad
from tests.support.tracedkernels import new_kernel, put_database
from tests.support.work import Work

PAGE = 0x1000
_STACK = 0x40000
_NODES = 0x20000


class Amplifier(NamedTuple):
    """An image, and the plugin with the options that it aims at."""

    build: Callable[[], Image]
    plugin: str
    options: Dict[str, Any]


def _kernel(flags: int = 0x2000) -> Kernel:
    return new_kernel("win10-x64", flags)


def aliased_database() -> Image:
    """A database of 128 MB of entries, all of which are one page in turn with another."""
    kernel = _kernel()
    base = 0xFFFFAB8010000000
    std = Std("6.1", "x64", base, kernel=True, reserve=0x8000000, bucket_count=16)
    for number in range(1200):
        std.log([0xFFFFF80000001000 + number])
    kernel.space.write(base, std.regions()[base][: 8 * PAGE])
    limit = std.end - 2 * PAGE
    for number, address in enumerate(range(base + 8 * PAGE, limit, PAGE)):
        kernel.space.map_frame(address, kernel.space, base + (3 + number % 2) * PAGE)
    offset, size = std.layout.fields["NextFreeLowerMemory"]
    kernel.space.write_int(base + offset, limit, size)
    kernel.set("RtlpStackTraceDatabase", base)
    return kernel.image()


def shared_owner_table() -> Image:
    """Ten thousand resources with one table of 4096 owners between them."""
    kernel = _kernel()
    thread = kernel.system.thread(100)
    made = Resources(kernel)
    first = made.add(active=1, table=[(thread.ethread.address, 1)] * 4095)
    for _ in range(10_000):
        made.add(active=1)["OwnerTable"] = first["OwnerTable"]
    made.link()
    return kernel.image()


def overlapping_object_traces() -> Image:
    """Traced objects side by side, each of which claims all that follows as its events."""
    kernel = _kernel()
    traces = ObjectTraces(kernel)
    traces.stack([kernel.base + 0x1000] * 16)
    body = named(kernel, "_KEVENT", "Event")
    traces.object(body, "a.exe", [])
    traces.finish()
    table = kernel.space.read_int(kernel.symbol("ObpObjectTable"))
    nodes = kernel.space.allocate(_NODES, PAGE)
    step, count = 0x28, _NODES // 0x28 - 2
    memory = bytearray(_NODES)
    for number in range(count):
        following = nodes + (number + 1) * step if number + 1 < count else 0
        struct.pack_into("<QQ", memory, number * step, body.address - 0x30, following)
        struct.pack_into("<HH", memory, number * step + 0x20, 0xFFFF, 0xFFFF)
    kernel.space.write(nodes, bytes(memory))
    for bucket in range(401):
        kernel.space.write_int(table + 8 * bucket, nodes if not bucket else 0)
    return kernel.image()


def shared_stack() -> Image:
    """Threads that all claim one kernel stack of 256 KB."""
    kernel = _kernel()
    app = kernel.process("app.exe", pid=1000)
    stack = kernel.space.reserve(_STACK)
    page = struct.pack("<Q", 0x33) * (PAGE // 8)
    kernel.space.write(stack, page)
    kernel.space.write(stack + PAGE, page)
    for number, address in enumerate(range(stack + 2 * PAGE, stack + _STACK, PAGE)):
        kernel.space.map_frame(address, kernel.space, stack + number % 2 * PAGE)
    for number in range(100):
        thread = app.thread(1004 + 4 * number)
        thread.kthread["StackBase"], thread.kthread["StackLimit"] = stack + _STACK, stack
        thread.kthread["InitialStack"] = stack + _STACK
        thread.kthread["KernelStack"] = stack + 0x100
    return kernel.image()


def aliased_function_table() -> Image:
    """A driver with a function table of 32 MB, which is two pages in turn."""
    kernel = _kernel()
    size, table = 0x4000000, 0x100000
    driver = kernel.module("big.sys", size=size, pdata_rva=table, functions=[], exports={"a": 0x1000})
    header = driver.base + kernel.space.read_int(driver.base + 0x3C, 4)
    kernel.space.write_int(header + 0x88 + 3 * 8, table, 4)
    kernel.space.write_int(header + 0x88 + 3 * 8 + 4, 0x2000000, 4)
    entries = b"".join(
        struct.pack("<III", 12 * each, 12 * each + 12, 0x5000) for each in range(2 * PAGE // 12)
    )
    kernel.space.write(driver.base + table, entries[: 2 * PAGE])
    for number, rva in enumerate(range(table + 2 * PAGE, table + 0x2000000, PAGE)):
        kernel.space.map_frame(driver.base + rva, kernel.space, driver.base + table + number % 2 * PAGE)
    put_database(kernel, "6.1", [(driver.base + 0x1010,)])
    return kernel.image()


def shared_exports() -> Image:
    """Two hundred modules that share the pages of one directory of 65536 exports of 4 KB names."""
    kernel = _kernel()
    count, arrays = 0x10000, 0x100000
    made = [kernel.module(f"m{number}.sys", size=0x400000, exports={"a": 0x1000}) for number in range(200)]
    first = made[0]
    functions, names, places = arrays + PAGE, arrays + 0x41000, arrays + 0x81000
    kernel.space.write(first.base + arrays, b"x" * 0xFFF + b"\0")
    kernel.space.write(first.base + functions, struct.pack("<I", 0x1010) * count)
    kernel.space.write(first.base + names, struct.pack("<I", arrays) * count)
    ordinals = b"".join(struct.pack("<H", number) for number in range(count))
    kernel.space.write(first.base + places, ordinals)
    for module in made:
        header = module.base + kernel.space.read_int(module.base + 0x3C, 4)
        kernel.space.write_int(header + 0x88, 0x5800, 4)
        kernel.space.write_int(header + 0x8C, 40, 4)
        words = (0, 0, 0, 0, 1, count, count, functions, names, places)
        kernel.space.write(module.base + 0x5800, struct.pack("<10I", *words))
        for rva in range(arrays, places + 0x20000, PAGE) if module is not first else ():
            kernel.space.map_frame(module.base + rva, kernel.space, first.base + rva)
    put_database(kernel, "6.1", [(module.base + 0x1010,) for module in made])
    return kernel.image()


def shared_vads() -> Image:
    """Processes that share one tree of VADs."""
    kernel = _kernel()
    app = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    for number in range(20_000):
        app.vads.append(Vad(0x10000000 + 0x10000 * number, PAGE, "\\a.dll", image=True))
    others = [kernel.process(f"p{number}.exe", pid=2000 + 4 * number) for number in range(100)]
    image = kernel.image()
    for other in others:
        other.eprocess["VadRoot.Root"] = app.eprocess["VadRoot.Root"]
    return image


def shared_handle_table() -> Image:
    """Processes that share one handle table and its ring of 4096 events."""
    kernel = _kernel()
    app = kernel.process("app.exe", pid=1000)
    table = HandleTable(app)
    table.add(0x84, named(kernel, "_KEVENT", "Event"))
    table.finish()
    ring = Ring(table, 4096)
    for number in range(4096):
        ring.event(1, 0x84, 1000, 1004, [kernel.base + 0x1000 + number] * 16)
    for number in range(60):
        kernel.process(f"p{number}.exe", pid=2000 + 4 * number).eprocess["ObjectTable"] = table.obj
    return kernel.image()


AMPLIFIERS: Dict[str, Amplifier] = {
    "aliased database": Amplifier(aliased_database, "gflags", {}),
    "aliased database, carved": Amplifier(aliased_database, "stacktracedb", {"carve": True}),
    "shared owner table": Amplifier(shared_owner_table, "locks", {}),
    "overlapping object traces": Amplifier(overlapping_object_traces, "objecttraces", {}),
    "shared stack": Amplifier(shared_stack, "trapframes", {"scan_stacks": True}),
    "shared stack, walked": Amplifier(shared_stack, "callstacks", {}),
    "aliased function table": Amplifier(aliased_function_table, "stacktracedb", {}),
    "shared exports": Amplifier(shared_exports, "stacktracedb", {}),
    "shared VADs": Amplifier(shared_vads, "gflags", {}),
    "shared handle table": Amplifier(shared_handle_table, "handletraces", {}),
}

MOST: Dict[str, Work] = {
    "gflags": Work(pages=75, calls=9000, rows=1, kilobytes=96),
    "stacktracedb": Work(pages=75, calls=22_000, rows=250, kilobytes=96),
    "locks": Work(pages=1, calls=4500, rows=24, kilobytes=96),
    "objecttraces": Work(pages=1, calls=4500, rows=200, kilobytes=96),
    "trapframes": Work(pages=6, calls=12_000, rows=1, kilobytes=96),
    "callstacks": Work(pages=6, calls=20_000, rows=1, kilobytes=96),
    "handletraces": Work(pages=12, calls=25_000, rows=4000, kilobytes=96),
}
"""The most that a plugin may do for each page of an image's file."""
