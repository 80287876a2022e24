# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Small images that claim to hold much: what is shared, overlaps or is mapped a thousand times over.

A count that is bounded is not enough where many structures may share what it counts. Each of these images is
a few megabytes long and would keep a reader busy for hours that took every structure at its word.
"""

from __future__ import annotations

import struct
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

from tests.forge.dump import Image
from tests.forge.handles import HandleTable, Ring, named
from tests.forge.kernel import Kernel
from tests.forge.locks import Resources
from tests.forge.obj import ring
from tests.forge.objecttraces import ObjectTraces
from tests.forge.paging import State
from tests.forge.std import Std
from tests.forge.vad import Vad
from tests.support.tracedkernels import new_kernel, put_database
from tests.support.work import Work

PAGE = 0x1000
_STACK = 0x40000
_NODES = 0x20000


class Amplifier(NamedTuple):
    """An image, and the plugin with the options that it aims at; a Status or warning says what was `cut`."""

    build: Callable[[], Image]
    plugin: str
    options: Dict[str, Any]
    cut: str = ""


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
    resources = Resources(kernel)
    first = resources.add(active=1, table=[(thread.ethread.address, 1)] * 4095)
    for _ in range(10_000):
        resources.add(active=1)["OwnerTable"] = first["OwnerTable"]
    resources.link()
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
    for number in range(40):
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
        struct.pack("<III", 12 * number, 12 * number + 12, 0x5000) for number in range(2 * PAGE // 12)
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
    modules = [kernel.module(f"m{number}.sys", size=0x400000, exports={"a": 0x1000}) for number in range(200)]
    first = modules[0]
    functions, names, places = arrays + PAGE, arrays + 0x41000, arrays + 0x81000
    kernel.space.write(first.base + arrays, b"x" * 0xFFF + b"\0")
    kernel.space.write(first.base + functions, struct.pack("<I", 0x1010) * count)
    kernel.space.write(first.base + names, struct.pack("<I", arrays) * count)
    ordinals = b"".join(struct.pack("<H", number) for number in range(count))
    kernel.space.write(first.base + places, ordinals)
    for module in modules:
        header = module.base + kernel.space.read_int(module.base + 0x3C, 4)
        kernel.space.write_int(header + 0x88, 0x5800, 4)
        kernel.space.write_int(header + 0x8C, 40, 4)
        words = (0, 0, 0, 0, 1, count, count, functions, names, places)
        kernel.space.write(module.base + 0x5800, struct.pack("<10I", *words))
        for rva in range(arrays, places + 0x20000, PAGE) if module is not first else ():
            kernel.space.map_frame(module.base + rva, kernel.space, first.base + rva)
    put_database(kernel, "6.1", [(module.base + 0x1010,) for module in modules])
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


def repeating_pool_table() -> Image:
    """A list of a million big blocks of the pool, all pages of which are two, and in each entry a ring."""
    kernel = _kernel()
    table = HandleTable(kernel.process("app.exe", pid=1000))
    table.finish()
    ring = Ring(table, 4096)
    ring.event(1, 0x84, 1000, 1004, [kernel.base + 0x1000])
    table.obj["DebugInfo"] = 0
    image = kernel.image()
    size = kernel.isf.size("_POOL_TRACKER_BIG_PAGES")
    length = ring.trace_db - ring.address + ring.size * ring.entry_size
    entries = [struct.pack("<QIIQ", ring.address + PAGE * number, 0, 0, length) for number in range(341)]
    start = kernel.space.reserve(size << 20)
    kernel.space.write(start, b"".join(entry.ljust(size, b"\0") for entry in entries).ljust(2 * PAGE, b"\0"))
    for number, address in enumerate(range(start + 2 * PAGE, start + (size << 20), PAGE)):
        kernel.space.map_frame(address, kernel.space, start + number % 2 * PAGE)
    kernel.set("PoolBigPageTable", start)
    kernel.set("PoolBigPageTableSize", 1 << 20, 4)
    return image


def repeating_page_tables() -> Image:
    """A process of 1 TB whose page tables are three, to each of which all entries of the one above lead."""
    kernel = _kernel()
    app = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    start, size = 0x100000000000, 0x8000000000
    app.region(start, b"x" * PAGE)
    app.vads.append(Vad(start + PAGE, 2 * size - PAGE))
    tables = app.space.tables
    table = tables.root >> 12
    for level, last in ((39, (start + size) >> 39), (30, 0x1FE), (21, 0x1FE)):
        index = start >> level & 0x1FF
        entry = tables._get(table, index)
        for other in range(index, last + 1):
            tables._put(table, other, entry)
        table = entry >> 12 & 0xFFFFFFFFF
    return kernel.image()


def handles_of_many_processes() -> Image:
    """Four hundred events of a ring, by eighteen processes in turn, each of which has a thousand VADs."""
    kernel = _kernel()
    processes = [kernel.process(f"p{number}.exe", pid=1000 + 4 * number) for number in range(18)]
    for process in processes:
        for number in range(1000):
            process.vads.append(Vad(0x10000000 + 0x20000 * number, PAGE))
    table = HandleTable(processes[0])
    table.add(0x84, named(kernel, "_KEVENT", "Event"))
    table.finish()
    ring = Ring(table, 512)
    for number in range(400):
        ring.event(1, 0x84, 1000 + 4 * (number % 18), 1004, [0x10000010 + number])
    return kernel.image()


def aliased_object_traces() -> Image:
    """Two traced objects, whose 65,535 events each are one page."""
    kernel = _kernel()
    traces = ObjectTraces(kernel)
    traces.stack([kernel.base + 0x1000] * 16)
    body = named(kernel, "_KEVENT", "Event")
    traces.object(body, "a.exe", [])
    traces.finish()
    events = kernel.space.allocate(PAGE, PAGE)
    kernel.space.write(events, bytes(PAGE))
    following = 0
    for _ in range(2):
        place = kernel.space.reserve(0x101 * PAGE)
        node = place + PAGE - 0x28
        kernel.space.write(node, struct.pack("<QQ", body.address - 0x30, following))
        kernel.space.write(node + 0x20, struct.pack("<HH", 0xFFFF, 0xFFFF))
        for address in range(place + PAGE, place + 0x101 * PAGE, PAGE):
            kernel.space.map_frame(address, kernel.space, events)
        following = node
    table = kernel.space.read_int(kernel.symbol("ObpObjectTable"))
    kernel.space.write_int(table, following)
    return kernel.image()


def page_heap_ring() -> Image:
    """Three thousand roots of page heaps on one list."""
    kernel = _kernel()
    app = kernel.process("app.exe", pid=1000, nt_global_flag=0x2001000)
    base, step, count = 0x10000000, 0x180, 3000
    memory = bytearray(PAGE + count * step)
    links = [base + PAGE + number * step + 0x138 for number in range(count)]
    for number in range(count):
        place = PAGE + number * step
        struct.pack_into("<I", memory, place, 0xFFEEDDCC)
        struct.pack_into("<QQ", memory, place + 0x138, links[(number + 1) % count], links[number - 1])
        struct.pack_into("<Q", memory, place + 0x150, 0x20000000)
    app.region(base, bytes(memory))
    return kernel.image()


def one_processor_block() -> Image:
    """A processor that is 256 processors, and each of whose stacks is one."""
    kernel = _kernel()
    cpu = kernel.cpus[0]
    base = cpu.stack("dpc", data=struct.pack("<Q", 0x33) * (0x6000 // 8))
    for number in range(1, 8):
        cpu._tss()[f"Ist[{number}]"] = base
    kernel.set("KeNumberProcessors", 256, 4)
    for number in range(1, 256):
        kernel.space.write_int(kernel.symbol("KiProcessorBlock") + 8 * number, cpu.kprcb.address)
    return kernel.image()


def overlapping_resources() -> Image:
    """A hundred thousand resources, of each of which only the links are its own."""
    kernel = _kernel()
    head, count = kernel.symbol("ExpSystemResourcesList"), 100_000
    start = kernel.space.allocate(16 * count + PAGE, PAGE)
    links = [head, *range(start, start + 16 * count, 16), head]
    kernel.space.write(start, b"".join(struct.pack("<QQ", *pair) for pair in zip(links[2:], links)))
    kernel.space.write(head, struct.pack("<QQ", links[1], links[-2]))
    return kernel.image()


def packed_processes() -> Image:
    """Twenty thousand nodes on the list of processes: links side by side, and no processes."""
    return _with_processes(_packed)


def packed_threads() -> Image:
    """The same on the list of threads of a process."""
    return _with_threads(_packed)


def _with_processes(nodes: Callable[[Kernel], Sequence[int]]) -> Image:
    """An image whose list of processes has further nodes."""
    kernel = _kernel()
    own = kernel.process("app.exe", pid=1000)
    image = kernel.image()
    links = [process.eprocess.at("ActiveProcessLinks") for process in (kernel.system, own)]
    ring(kernel.space, [kernel.symbol("PsActiveProcessHead"), *links, *nodes(kernel)])
    return image


def _with_threads(nodes: Callable[[Kernel], Sequence[int]]) -> Image:
    """The same with the list of threads of a process."""
    kernel = _kernel()
    own = kernel.process("app.exe", pid=1000)
    thread = own.thread(1004)
    image = kernel.image()
    head = own.eprocess.at("ThreadListHead")
    ring(kernel.space, [head, thread.ethread.at("ThreadListEntry"), *nodes(kernel)])
    return image


def _packed(kernel: Kernel) -> Sequence[int]:
    count = 20_000
    start = kernel.space.allocate(16 * count, PAGE)
    return range(start, start + 16 * count, 16)


def split_processes() -> Image:
    """Nodes at the start of pages: the type of each process lies in the page before, which is absent."""
    return _with_processes(_split)


def split_neighbours() -> Image:
    """The same nodes, to which a process leads; the list is broken, and a part of PspCidTable is absent."""
    kernel = _kernel()
    own, last = kernel.process("app.exe", pid=1000), kernel.process("last.exe", pid=0x4008)
    image = kernel.image()
    ring(kernel.space, [own.eprocess.at("ActiveProcessLinks"), *_split(kernel)])
    head = kernel.symbol("PsActiveProcessHead")
    for place, link in ((head, 0xFFFF800000002000), (head + 8, 0xFFFF800000005000)):
        kernel.space.write_int(place, link, 8)
    assert kernel.cid is not None
    kernel.space.set_state(kernel.cid.entry(last.pid), 8, State.PAGEFILE)
    return image


def split_threads() -> Image:
    """The same on the list of threads of a process."""
    return _with_threads(_split)


def _split(kernel: Kernel) -> Sequence[int]:
    nodes: List[int] = []
    for _ in range(500):
        start = kernel.space.reserve(2 * PAGE) + PAGE
        kernel.space.map(start, PAGE)
        nodes += range(start, start + 16 * 40, 16)
    return nodes


def vad_root_per_process() -> Image:
    """Processes each of which has all VADs of the one before but the first."""
    kernel = _kernel()
    app = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    for number in range(20_000):
        app.vads.append(Vad(0x10000000 + 0x20000 * number, PAGE))
    others = [kernel.process(f"p{number}.exe", pid=2000 + 4 * number) for number in range(100)]
    image = kernel.image()
    nodes = [vad.node for vad in app.vads if vad.node is not None]
    for node, following in zip(nodes, [*(node.address for node in nodes[1:]), 0]):
        node["VadNode.Left"], node["VadNode.Right"] = 0, following
    for process, root in zip([app, *others], nodes):
        process.eprocess["VadRoot.Root"] = root.address
    return image


AMPLIFIERS: Dict[str, Amplifier] = {
    "aliased database": Amplifier(aliased_database, "gflags", {}),
    "aliased database, carved": Amplifier(aliased_database, "stacktracedb", {"carve": True}),
    "shared owner table": Amplifier(shared_owner_table, "locks", {}, "owner table shared"),
    "overlapping object traces": Amplifier(overlapping_object_traces, "objecttraces", {}, "events overlap"),
    "shared stack": Amplifier(shared_stack, "trapframes", {"scan_stacks": True}),
    "shared stack, walked": Amplifier(shared_stack, "callstacks", {}),
    "aliased function table": Amplifier(aliased_function_table, "stacktracedb", {}),
    "shared exports": Amplifier(shared_exports, "stacktracedb", {}),
    "shared VADs": Amplifier(shared_vads, "gflags", {}, "read up to the limit"),
    "shared handle table": Amplifier(shared_handle_table, "handletraces", {}, "contradicted: ObjectTable"),
    "repeating pool table": Amplifier(repeating_pool_table, "handletraces", {}, "contradicted: DebugInfo"),
    "repeating page tables": Amplifier(repeating_page_tables, "heaptraces", {}, "page tables repeat"),
    "handles of many processes": Amplifier(handles_of_many_processes, "handletraces", {}),
    "aliased object traces": Amplifier(aliased_object_traces, "objecttraces", {}, "events overlap"),
    "page-heap ring": Amplifier(page_heap_ring, "heaptraces", {}),
    "one processor block": Amplifier(
        one_processor_block, "trapframes", {"scan_stacks": True}, "repeat the KPRCB"
    ),
    "overlapping resources": Amplifier(overlapping_resources, "locks", {}, "resources overlap"),
    "packed processes": Amplifier(packed_processes, "gflags", {}, "process list damaged"),
    "packed processes, walked": Amplifier(packed_processes, "callstacks", {}, "process list damaged"),
    "packed threads": Amplifier(packed_threads, "callstacks", {}, "thread list damaged"),
    "split processes": Amplifier(split_processes, "gflags", {}, "process list damaged"),
    "split neighbours": Amplifier(split_neighbours, "gflags", {}, "process list damaged"),
    "split threads": Amplifier(split_threads, "callstacks", {}, "thread list damaged"),
    "VAD root per process": Amplifier(vad_root_per_process, "gflags", {}, "read up to the limit"),
}

MOST: Dict[str, Work] = {
    "gflags": Work(pages=75, calls=9000, rows=1, kilobytes=96),
    "stacktracedb": Work(pages=75, calls=22_000, rows=250, kilobytes=96),
    "locks": Work(pages=2, calls=8000, rows=48, kilobytes=96),
    "objecttraces": Work(pages=1, calls=4500, rows=200, kilobytes=96),
    "trapframes": Work(pages=6, calls=9000, rows=1, kilobytes=96),
    "callstacks": Work(pages=6, calls=16_000, rows=1, kilobytes=96),
    "handletraces": Work(pages=2, calls=3000, rows=400, kilobytes=96),
    "heaptraces": Work(pages=2, calls=2000, rows=10, kilobytes=96),
}
"""The most that a plugin may do for each page of an image's file."""
