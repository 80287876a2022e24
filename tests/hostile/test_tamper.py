# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Writes that would silence a plugin: each leaves its rows, or a word that names what was written."""

from __future__ import annotations

import pathlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Set, Tuple

import pytest
from volatility3.plugins.windows import gflags, locks, stacktracedb, traces

from tests.forge import context, heap_layouts, kernels, sample, sampleheaps, sampleowners, std_layouts
from tests.forge.kernel import Kernel
from tests.forge.locks import Sections
from tests.forge.module import Module
from tests.forge.obj import Obj
from tests.forge.paging import State
from tests.forge.process import Process
from tests.forge.std import Std
from tests.hostile.target import Answer, Target, Write
from tests.support import grid
from tests.support.only import only
from winstacks.findings.facts import NO_VAD
from winstacks.findings.loststacks import LOST_STACKS
from winstacks.locks import resources

NONSENSE = 0x4141414141414141
FOREIGN = "foreign_handle"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    yield Target(sample.build(), tmp_path_factory.mktemp("tamper"))


class Silencer(NamedTuple):
    """A write of the sample, the command whose rows it would take, and the word that must be said.

    `kept`: all rows stay, but for what Status says.
    """

    write: Callable[[Target], List[Write]]
    plugin: str
    options: Dict[str, Any]
    word: str
    kept: bool = True


def _updater(target: Target) -> Process:
    return target.kernel.processes[1]


def _member(kind: str, path: str, value: Any) -> Callable[[Target], List[Write]]:
    """Returns a write to a member of the updater's process, or of its first thread."""

    def write(target: Target) -> List[Write]:
        updater = _updater(target)
        structure = updater.eprocess if kind == "process" else updater.threads[0].ethread
        isf = target.kernel.isf
        size = isf.place(structure.type_name, path).size
        number = value(target) if callable(value) else value
        return [target.at(structure.at(path), number, size)]

    return write


def _alone(place: Callable[[Target], int]) -> Callable[[Target], List[Write]]:
    """Returns the write of both links of a list's head to itself."""

    def write(target: Target) -> List[Write]:
        head = place(target)
        return [target.at(head, head), target.at(head + 8, head)]

    return write


def _unlink(place: Callable[[Target], int]) -> Callable[[Target], List[Write]]:
    """Returns the writes that take a node off its list, whose neighbours then point past it."""

    def write(target: Target) -> List[Write]:
        link = place(target)
        space = target.kernel.space
        after, before = space.read_int(link), space.read_int(link + 8)
        return [
            target.at(before, after),
            target.at(after + 8, before),
            target.at(link, link),
            target.at(link + 8, link),
        ]

    return write


def _symbol(name: str) -> Callable[[Target], int]:
    return lambda target: target.kernel.symbol(name)


def _process_links(target: Target) -> int:
    return _updater(target).eprocess.at("ActiveProcessLinks")


def _thread_head(target: Target) -> int:
    return _updater(target).eprocess.at("ThreadListHead")


def _root_of(number: int) -> Callable[[Target], int]:
    return lambda target: int(target.kernel.processes[number].eprocess["Pcb.DirectoryTableBase"])


def _driver_links(target: Target) -> int:
    entry = next(module.entry for module in target.kernel.modules if module.name == "tcpip.sys")
    assert entry is not None
    return entry.at("InLoadOrderLinks")


def _injected(path: str, value: Callable[[int], int]) -> Callable[[Target], List[Write]]:
    """Returns a write to a member of the thread that runs code in private memory, made of what is there."""

    def write(target: Target) -> List[Write]:
        thread = _updater(target).threads[1].ethread
        size = target.kernel.isf.place(thread.type_name, path).size
        return [target.at(thread.at(path), value(thread[path]), size)]

    return write


def _heap_header(size: int) -> Callable[[Target], List[Write]]:
    """Returns a write over the bytes before a block of the updater's heap: its second header, or both."""

    def write(target: Target) -> List[Write]:
        answer, space = target.clean("heaptraces", blocks=True), _updater(target).space
        user = min(value for value in answer.column("Block") if value and value > sampleheaps.HEAP + 0x1000)
        return [(space.physical(user - size), bytes([0x41]) * size)]

    return write


def _threads(path: str, value: int) -> Callable[[Target], List[Write]]:
    """Returns a write to a pointer of all threads."""

    def write(target: Target) -> List[Write]:
        threads = [thread.ethread for process in target.kernel.processes for thread in process.threads]
        return [target.at(thread.at(path), value) for thread in threads]

    return write


def _saved(member: str) -> Callable[[Target], List[Write]]:
    """Returns a write of 0 to a register in the frame of the same thread."""

    def write(target: Target) -> List[Write]:
        thread = _updater(target).threads[1]
        answer = target.clean("trapframes")
        places = dict(zip(answer.column("TID"), answer.column("TrapFrame")))
        frame = places[thread.tid] | 0xFFFF << 48
        place = target.kernel.isf.place("_KTRAP_FRAME", member)
        return [target.at(frame + place.offset, 0, place.size)]

    return write


def _vad_of_private_code(target: Target) -> List[Write]:
    """Cuts off the subtree of the process's VADs that has the private memory in which its thread runs."""
    for node in (vad.node for vad in _updater(target).vads if vad.node is not None):
        path = "Core.VadNode.Left" if node.has("Core.VadNode.Left") else "VadNode.Left"
        if node[path]:
            return [target.at(node.at(path), 0)]
    raise LookupError("no VAD has a left child")


def _type_of_a_file(target: Target) -> List[Write]:
    """Gives the process that the updater opened the type of the file that it opened."""
    answer, space = target.clean("handletraces"), target.kernel.space
    bodies = dict(zip(answer.column("ObjectType"), answer.column("Object")))
    place, body = (target.kernel.isf.place("_OBJECT_HEADER", name) for name in ("TypeIndex", "Body"))
    file, process = ((bodies[kind] | 0xFFFF << 48) - body.offset for kind in ("File", "Process"))
    # The index is mixed with the second byte of the header's address.
    kind = space.read_int(file + place.offset, 1) ^ (file >> 8 ^ process >> 8) & 0xFF
    return [target.at(process + place.offset, kind, 1)]


def _vpns(target: Target) -> List[Write]:
    """Moves both ends of the VAD of the private memory in which a thread of the updater runs."""
    answer = target.clean("tracefindings")
    code = next(
        address
        for name, pid, address in zip(*map(answer.column, ("Finding", "PID", "Address")))
        if (name, pid) == ("unbacked", 4312)
    )
    vad = next(vad for vad in _updater(target).vads if vad.start <= code < vad.start + vad.size)
    assert vad.node is not None
    isf, kind = target.kernel.isf, vad.node.type_name
    writes = []
    for path in ("StartingVpn", "EndingVpn"):
        place = next(isf.place(kind, member) for member in (f"Core.{path}", path) if isf.has(kind, member))
        at = vad.node.address + place.offset
        number = target.kernel.space.read_int(at, place.size) + vad.size // 0x1000 + 1
        writes.append(target.at(at, number, place.size))
    return writes


def _unloaded(place: int, value: int) -> Callable[[Target], List[Write]]:
    """Returns a write to a member of the first unloaded driver of an x64 kernel."""

    def write(target: Target) -> List[Write]:
        space = target.kernel.space
        return [target.at(space.read_int(target.kernel.symbol("MmUnloadedDrivers")) + place, value)]

    return write


def _moved_driver(target: Target) -> List[Write]:
    """Returns a write of an address within a page to StartAddress of the first unloaded driver."""
    space = target.kernel.space
    place = space.read_int(target.kernel.symbol("MmUnloadedDrivers")) + 0x10
    return [target.at(place, space.read_int(place) + 8)]


def _name_of_driver(member: str, value: int) -> Callable[[Target], List[Write]]:
    """Returns a write to a member of BaseDllName of a driver."""

    def write(target: Target) -> List[Write]:
        entry = next(module.entry for module in target.kernel.modules if module.name == "Ntfs.sys")
        assert entry is not None
        return [target.at(entry.at(f"BaseDllName.{member}"), value, 2)]

    return write


def _active(stored: int, value: int) -> Callable[[Target], List[Write]]:
    """Returns a write to ActiveEntries of the first resource that has some number of them."""

    def write(target: Target) -> List[Write]:
        members = [
            member for member in target.read("locks").members if member.name == "_ERESOURCE.ActiveEntries"
        ]
        places = [member.place or 0 for member in members]
        place = next(at for at in places if int.from_bytes(target.data[at : at + 4], "little") == stored)
        return [(place, value.to_bytes(4, "little"))]

    return write


def _depth(target: Target) -> List[Write]:
    """Adds a frame that is 0 to a record of the heap's trace log, whose hash stays right."""
    answer, updater = target.clean("heaptraces"), _updater(target)
    rows = zip(*map(answer.column, ("PID", "TraceKind", "EntryAddress")))
    records = {address for pid, kind, address in rows if (pid, kind) == (4312, "log")}
    for record in sorted(records):
        depth = updater.space.read_int(record + 12, 4)
        if not updater.space.read_int(record + 16 + 8 * depth):
            return [target.at(record + 12, depth + 1, 4, updater)]
    raise AssertionError("no record has zeros behind its frames")


def _next_position(target: Target) -> List[Write]:
    """Adds one to NextPos of the first traced object, behind whose events is nothing."""
    kernel = target.kernel
    table = kernel.space.read_int(kernel.symbol("ObpObjectTable"))
    first = next(filter(None, (kernel.space.read_int(table + 8 * bucket) for bucket in range(401))))
    info = Obj(kernel.space, kernel.isf, "_OBJECT_REF_INFO", first)
    return [target.at(info.at("NextPos"), info["NextPos"] + 1, 2)]


def _heap_record(target: Target) -> List[Write]:
    """Changes the innermost frame of a record of the heap's trace log."""
    answer, space = target.clean("heaptraces"), _updater(target).space
    rows = zip(*map(answer.column, ("PID", "TraceKind", "EntryAddress")))
    record = next(address for pid, kind, address in rows if (pid, kind) == (4312, "log"))
    frame = next(
        address
        for entry, address in zip(answer.column("EntryAddress"), answer.column("Address"))
        if entry == record and address is not None
    )
    at = next(place for place in range(record, record + 0x40, 8) if space.read_int(place) == frame)
    return [(space.physical(at), (frame + 0x10).to_bytes(8, "little"))]


def _length(structure: str, value: int) -> Callable[[Target], List[Write]]:
    """Returns a write to the Length of the names of all objects or types that windows.handletraces reads."""

    def write(target: Target) -> List[Write]:
        names = (f"{structure}.Name.Length", f"{structure}.Name.Length[0]")
        members = [member for member in target.read("handletraces").members if member.name in names]
        assert members
        return [(member.place or 0, value.to_bytes(2, "little")) for member in members]

    return write


def _cookie(target: Target) -> List[Write]:
    """Returns a write of another cookie, with which the type of every object seems to be another one."""
    place = target.kernel.symbol("ObHeaderCookie")
    return [target.at(place, target.kernel.space.read_int(place, 1) ^ 1, 1)]


def _of_waited(name: str, value: int) -> Callable[[Target], List[Write]]:
    """Returns a write to a member of the sections that two threads wait for, each holding the other's."""

    def write(target: Target) -> List[Write]:
        path = f"_RTL_CRITICAL_SECTION.{name}"
        members = [member for member in target.read("waits").members if member.name == path]
        assert len(members) == 2
        return [(member.place or 0, value.to_bytes(member.size, "little")) for member in members]

    return write


def _wow64(process: int, value: int) -> Callable[[Target], List[Write]]:
    """Returns a write to WoW64Process of a process: to memory that is not there, or to none."""

    def write(target: Target) -> List[Write]:
        eprocess = target.kernel.processes[process].eprocess
        return [target.at(eprocess.at("WoW64Process"), value)]

    return write


def _hidden_thread(target: Target) -> List[Write]:
    """Takes a thread of the updater off its list, and its entry out of PspCidTable."""
    space, thread = target.kernel.space, _updater(target).threads[1].ethread
    table = space.read_int(target.kernel.symbol("PspCidTable"))
    code = space.read_int(table + target.kernel.isf.offset("_HANDLE_TABLE", "TableCode"))
    number, entries = thread["Cid.UniqueThread"] // 4, 0x100
    assert code & 3 == 1, "a table of tables"
    entry = space.read_int((code & ~3) + 8 * (number // entries)) + 16 * (number % entries)
    assert space.read_int(entry) >> 16 == thread.address & 0xFFFFFFFFFFFF
    unlinked = _unlink(lambda _: thread.at("ThreadListEntry"))(target)
    return [*unlinked, target.at(entry, 0), target.at(entry + 8, 0)]


def _first_entry(target: Target) -> List[Write]:
    members = target.read("heaptraces").members
    first, last = (
        next(member for member in members if member.name == f"_HEAP_SEGMENT.{path}")
        for path in ("FirstEntry", "LastValidEntry")
    )
    place = last.place or 0
    return [(first.place or 0, target.data[place : place + last.size])]


SILENCERS: Dict[str, Silencer] = {
    **{
        f"ObHeaderCookie, {plugin}": Silencer(_cookie, plugin, {}, "contradicted: ObHeaderCookie")
        for plugin in ("handletraces", "objecttraces")
    },
    **{
        f"a thread that its list and PspCidTable lack, {plugin}": Silencer(
            _hidden_thread, plugin, {}, "3 active threads", False
        )
        for plugin in ("callstacks", "trapframes", "waits", "locks")
    },
    **{
        f"DebugInfo of sections that are waited for is {value:#x}": Silencer(
            _of_waited("DebugInfo", value), "waits", {}, "contradicted: DebugInfo"
        )
        for value in (0, NONSENSE)
    },
    "WoW64Process of a process without 32-bit half": Silencer(
        _wow64(1, -8), "callstacks", {}, "contradicted: WoW64Process"
    ),
    "WoW64Process leads nowhere": Silencer(
        _wow64(2, NONSENSE), "callstacks", {}, "WoW64 process structure unreadable"
    ),
    **{
        f"Length of a name is {value:#x}": Silencer(
            _length("_OBJECT_HEADER_NAME_INFO", value), "handletraces", {}, "contradicted: Name", False
        )
        for value in (0, 3, 0x4141)
    },
    **{
        f"Length of a type's name is {value:#x}": Silencer(
            _length("_OBJECT_TYPE", value), "handletraces", {}, "object type unknown", False
        )
        for value in (0, 2, 0x4141)
    },
    **{
        f"{path} of an unloaded driver": Silencer(
            _unloaded(place, NONSENSE), "stacktracedb", {}, "contradicted: MmUnloadedDrivers", False
        )
        for path, place in (("StartAddress", 0x10), ("EndAddress", 0x18))
    },
    **{
        f"{path} of the injected thread, {plugin}": Silencer(
            _injected(path, change), plugin, {}, "no saved registers", False
        )
        for path, change in (
            ("Tcb.InitialStack", lambda value: value - 0x1000),
            ("Tcb.StackBase", lambda value: value - 0x1000),
        )
        for plugin in ("trapframes", "callstacks")
    },
    **{
        f"{member} of the injected thread, {plugin}": Silencer(
            _saved(member), plugin, {}, "no saved registers", False
        )
        for member in ("SegCs", "SegSs", "Rip", "Rsp")
        for plugin in ("trapframes", "callstacks")
    },
    **{
        f"a subtree of VADs, {plugin}": Silencer(_vad_of_private_code, plugin, {}, "VADs incomplete", False)
        for plugin in ("callstacks", "trapframes", "handletraces", "heaptraces", "stacktracedb")
    },
    "StartAddress of an unloaded driver is not on a page": Silencer(
        _moved_driver,
        *("stacktracedb", {}, "contradicted: MmUnloadedDrivers", False),
    ),
    **{
        f"BaseDllName.{member} of a driver is {value:#x}": Silencer(
            _name_of_driver(member, value), "stacktracedb", {}, "contradicted: BaseDllName", False
        )
        for member, value in (("Length", 4), ("Length", 0))
    },
    **{
        f"ActiveEntries of a resource is {value} instead of {stored}": Silencer(
            _active(stored, value), "locks", {}, word, False
        )
        for stored, value, word in (
            (2, 1, "contradicted: ActiveEntries"),
            (1, 2, "1 owners missing"),
        )
    },
    "a heap's trace counts a frame that is 0": Silencer(_depth, "heaptraces", {}, "hash", False),
    "NextPos counts an event that is 0": Silencer(
        _next_position, "objecttraces", {}, "contradicted: NextPos"
    ),
    "Peb is not on a page": Silencer(
        _member("process", "Peb", lambda target: _updater(target).eprocess["Peb"] + 8),
        *("locks", {}, "contradicted: Peb", False),
    ),
    "a driver taken off the list": Silencer(
        _unlink(_driver_links), "stacktracedb", {}, "in no module list", False
    ),
    "the type of a process": Silencer(_type_of_a_file, "handletraces", {}, "contradicted: TypeIndex"),
    **{
        f"both ends of a VAD, {plugin}": Silencer(_vpns, plugin, {}, "VADs incomplete", False)
        for plugin in ("callstacks", "trapframes", "handletraces", "stacktracedb")
    },
    "MmUnloadedDrivers is nonsense": Silencer(
        lambda target: [target.at(target.kernel.symbol("MmUnloadedDrivers"), NONSENSE)],
        *("stacktracedb", {}, "contradicted: MmUnloadedDrivers", False),
    ),
    "RtlpStackTraceDatabase": Silencer(
        lambda target: [target.at(target.kernel.symbol("RtlpStackTraceDatabase"), 0)],
        *("stacktracedb", {}, "no database", False),
    ),
    "page tables of System, gflags": Silencer(
        _member("process", "Pcb.DirectoryTableBase", _root_of(0)),
        *("gflags", {}, "page tables of process 4", False),
    ),
    "page tables of System, stacktracedb": Silencer(
        _member("process", "Pcb.DirectoryTableBase", _root_of(0)),
        *("stacktracedb", {}, "page tables of process 4", False),
    ),
    "page tables of System, locks": Silencer(
        _member("process", "Pcb.DirectoryTableBase", _root_of(0)),
        *("locks", {}, "page tables of process 4", False),
    ),
    "page tables of another, locks": Silencer(
        _member("process", "Pcb.DirectoryTableBase", _root_of(2)),
        *("locks", {}, "page tables of process 5120", False),
    ),
    **{
        f"page tables of another, {plugin}": Silencer(
            _member("process", "Pcb.DirectoryTableBase", _root_of(2)),
            *(plugin, {}, "page tables of process 5120", False),
        )
        for plugin in ("gflags", "stacktracedb")
    },
    "page tables are nonsense": Silencer(
        _member("process", "Pcb.DirectoryTableBase", NONSENSE),
        *("locks", {}, "page tables unreadable", False),
    ),
    "both links of PsActiveProcessHead": Silencer(
        _alone(_symbol("PsActiveProcessHead")), "trapframes", {}, "process list damaged"
    ),
    "both links of PsActiveProcessHead, handles": Silencer(
        _alone(_symbol("PsActiveProcessHead")), "handletraces", {}, "process list damaged"
    ),
    "a process taken off the list": Silencer(
        _unlink(_process_links), "trapframes", {}, "not in the process list"
    ),
    "a process taken off the list, heaps": Silencer(
        _unlink(_process_links), "heaptraces", {}, "not in the process list"
    ),
    "both links of one process": Silencer(_alone(_process_links), "trapframes", {}, "process list damaged"),
    "both links of ThreadListHead": Silencer(
        _alone(_thread_head), "trapframes", {}, "not in the thread list"
    ),
    "InitialStack": Silencer(
        _member("thread", "Tcb.InitialStack", 0), "trapframes", {}, "contradicted: InitialStack"
    ),
    "InitialStack is nonsense": Silencer(
        _member("thread", "Tcb.InitialStack", NONSENSE), "callstacks", {}, "contradicted: InitialStack"
    ),
    "StackBase": Silencer(_member("thread", "Tcb.StackBase", 0), "callstacks", {}, "contradicted: StackBase"),
    "StackBase is nonsense": Silencer(
        _member("thread", "Tcb.StackBase", NONSENSE), "trapframes", {}, "contradicted: StackBase"
    ),
    **{
        f"{path} is {value:#x}, trapframes{' --scan-stacks' if scan else ''}": Silencer(
            _member("thread", f"Tcb.{path}", value),
            *("trapframes", {"scan_stacks": scan}, f"contradicted: {path}"),
        )
        for path in ("InitialStack", "StackBase")
        for value in (0, NONSENSE)
        for scan in (False, True)
    },
    "StackLimit": Silencer(
        _member("thread", "Tcb.StackLimit", 0),
        "trapframes",
        {"scan_stacks": True},
        "contradicted: StackLimit",
    ),
    "ActiveEntries": Silencer(
        lambda target: _resource(target, 0, "ActiveEntries", 0),
        *("locks", {"held": True}, "contradicted: ActiveEntries", False),
    ),
    "OwnerThread": Silencer(
        lambda target: _resource(target, 0, "OwnerEntry.OwnerThread", 0),
        *("locks", {"held": True}, "owners unknown", False),
    ),
    "both links of ExpSystemResourcesList": Silencer(
        _alone(_symbol("ExpSystemResourcesList")), "locks", {}, "list broken"
    ),
    "ObjectTable": Silencer(
        _member("process", "ObjectTable", 0), "handletraces", {}, "contradicted: ObjectTable"
    ),
    "ObjectTable is nonsense": Silencer(
        _member("process", "ObjectTable", NONSENSE), "handletraces", {}, "contradicted: ObjectTable"
    ),
    "DebugInfo": Silencer(
        lambda target: [target.at(_debug_info(target), 0)],
        *("handletraces", {}, "contradicted: DebugInfo"),
    ),
    "DebugInfo is nonsense": Silencer(
        lambda target: [target.at(_debug_info(target), NONSENSE)],
        *("handletraces", {}, "contradicted: DebugInfo"),
    ),
    "TableSize": Silencer(
        lambda target: [target.at(_ring(target) + _info(target, "TableSize"), 2, 4)],
        *("handletraces", {}, "table size"),
    ),
    "CurrentStackIndex": Silencer(
        lambda target: [target.at(_ring(target) + _info(target, "CurrentStackIndex"), 0x10005, 4)],
        *("handletraces", {}, "contradicted: CurrentStackIndex", False),
    ),
    "CurrentStackIndex is 0": Silencer(
        lambda target: [target.at(_ring(target) + _info(target, "CurrentStackIndex"), 0, 4)],
        *("handletraces", {}, "beyond the ring's counter", False),
    ),
    **{
        f"{path} of the owners of locks is {value:#x}": Silencer(
            _threads(path, value), "locks", {}, word, path != "Cid.UniqueThread"
        )
        for path, value, word in (
            ("Tcb.Process", 0, "contradicted: Tcb.Process"),
            ("Cid.UniqueProcess", NONSENSE, "contradicted: Cid.UniqueProcess"),
            ("Cid.UniqueThread", 0, "in PspCidTable"),
        )
    },
    "the handle of an event": Silencer(
        lambda target: [target.at(_ring_event(target, 4) + _event(target, "Handle"), 0x5550)],
        *("handletraces", {"leaks": True}, "no longer open", False),
    ),
    "NextPos": Silencer(
        lambda target: _traced(target, "NextPos", 0), "objecttraces", {}, "contradicted: NextPos"
    ),
    "a bucket of ObpObjectTable": Silencer(
        lambda target: [target.at(_bucket(target), 0)], "objecttraces", {}, "in no chain", False
    ),
    "ObpObjectTable": Silencer(
        lambda target: [target.at(target.kernel.symbol("ObpObjectTable"), 0)],
        *("objecttraces", {}, "contradicted: ObpObjectTable", False),
    ),
    "DllBase": Silencer(
        lambda target: _driver(target, "DllBase", sample.HIDDEN_CODE - 0x1000),
        *("stacktracedb", {}, "contradicted: DllBase"),
    ),
    "MmUnloadedDrivers": Silencer(
        lambda target: [target.at(target.kernel.symbol("MmUnloadedDrivers"), 0)],
        *("stacktracedb", {"pid": [0]}, "contradicted: MmUnloadedDrivers", False),
    ),
    "the pointer to the heap's log": Silencer(
        lambda target: _ntdll(target, sampleheaps.LOG_POINTER_RVA, 0), "stacktracedb", {}, "no pointer"
    ),
    "the pointer to the database": Silencer(
        lambda target: _ntdll(target, sample.POINTER_RVA, 0), "stacktracedb", {}, "no pointer"
    ),
    "one link of the list of sections": Silencer(
        lambda target: _ntdll(target, sampleowners.LIST_RVA + 8, _section_list(target)),
        *("locks", {}, "list damaged"),
    ),
    "VadRoot, gflags": Silencer(
        _member("process", "VadRoot.Root", 0), "gflags", {"carve": True}, "contradicted: VadRoot"
    ),
    "VadRoot, stacktracedb": Silencer(
        _member("process", "VadRoot.Root", 0), "stacktracedb", {"fold": True}, "contradicted: VadRoot", False
    ),
    "State is Running": Silencer(
        _member("thread", "Tcb.State", 2), "callstacks", {}, "running on no processor"
    ),
    "State is Terminated": Silencer(
        _member("thread", "Tcb.State", 4), "callstacks", {}, "contradicted: State"
    ),
    "the process of a thread": Silencer(
        _member("thread", "Tcb.Process", lambda target: _legacy(target).eprocess.address),
        *("callstacks", {}, "contradicted: Tcb.Process"),
    ),
    "CurrentStackIndex, where the oldest slot is in use": Silencer(
        lambda target: [target.at(_ring(target) + _info(target, "CurrentStackIndex"), NONSENSE, 4)],
        *("handletraces", {}, "contradicted: CurrentStackIndex", False),
    ),
    "FirstEntry of a heap is its LastValidEntry": Silencer(_first_entry, "heaptraces", {}, "damaged"),
}


def _legacy(target: Target) -> Process:
    return next(process for process in target.kernel.processes if process.wow is not None)


def _resource(target: Target, number: int, path: str, value: int) -> List[Write]:
    """Returns a write to a resource of the sample's list."""
    kernel = target.kernel
    link = kernel.symbol("ExpSystemResourcesList")
    for _ in range(number + 1):
        link = kernel.space.read_int(link)
    start = link - kernel.isf.offset("_ERESOURCE", "SystemResourcesList")
    place = kernel.isf.place("_ERESOURCE", path)
    return [target.at(start + place.offset, value, place.size)]


def _debug_info(target: Target) -> int:
    table = _updater(target).eprocess["ObjectTable"]
    return int(table + target.kernel.isf.offset("_HANDLE_TABLE", "DebugInfo"))


def _ring(target: Target) -> int:
    return target.kernel.space.read_int(_debug_info(target))


def _info(target: Target, path: str) -> int:
    return int(target.kernel.isf.offset("_HANDLE_TRACE_DEBUG_INFO", path))


def _event(target: Target, path: str) -> int:
    return int(target.kernel.isf.offset("_HANDLE_TRACE_DB_ENTRY", path))


def _ring_event(target: Target, number: int) -> int:
    size = target.kernel.isf.size("_HANDLE_TRACE_DB_ENTRY")
    return _ring(target) + _info(target, "TraceDb") + number * int(size)


def _bucket(target: Target) -> int:
    """Returns the address of the only bucket of ObpObjectTable that is in use."""
    kernel = target.kernel
    table = kernel.space.read_int(kernel.symbol("ObpObjectTable"))
    return next(place for place in range(table, table + 8 * 401, 8) if kernel.space.read_int(place))


def _traced(target: Target, path: str, value: int) -> List[Write]:
    info = target.kernel.space.read_int(_bucket(target))
    place = target.kernel.isf.place("_OBJECT_REF_INFO", path)
    return [target.at(info + place.offset, value, place.size)]


def _driver(target: Target, path: str, value: int) -> List[Write]:
    entry = next(module.entry for module in target.kernel.modules if module.name == "tcpip.sys")
    assert entry is not None
    return [target.at(entry.at(path), value)]


def _section_list(target: Target) -> int:
    return (
        next(module.base for module in _updater(target).modules if module.name == "ntdll.dll")
        + sampleowners.LIST_RVA
    )


def _ntdll(target: Target, rva: int, value: int) -> List[Write]:
    updater = _updater(target)
    ntdll = next(module for module in updater.modules if module.name == "ntdll.dll")
    return [target.at(ntdll.base + rva, value, 8, updater)]


@pytest.mark.parametrize("name", SILENCERS)
def test_it_is_said(target: Target, name: str) -> None:
    silencer = SILENCERS[name]
    clean = target.clean(silencer.plugin, **silencer.options)
    answer = target.run(silencer.plugin, silencer.write(target), **silencer.options)
    assert not any(silencer.word in (value or "") for value in clean.column("Status"))
    assert any(silencer.word in (value or "") for value in answer.column("Status")), answer.column("Status")
    if silencer.kept:
        assert _bare(clean) <= _bare(answer)
    assert _others(clean) <= _others(answer)


@pytest.mark.parametrize("value", [0, NONSENSE])
def test_a_section_whose_owner_was_written_over_is_still_waited_for(target: Target, value: int) -> None:
    answer = target.run("waits", _of_waited("OwningThread", value)(target))
    names = ("WaitsFor", "Ownership", "OwnerTID", "Status")
    rows = [row for row in zip(*map(answer.column, names)) if row[-1] == "contradicted: OwningThread"]
    assert rows == [("critical section", "unknown", None, "contradicted: OwningThread")] * 2


def test_one_skipped_driver_is_not_accused(target: Target) -> None:
    """Flink of the driver before it leads past it; its own links and the Blink behind it are as they were."""
    space = target.kernel.space
    entry = next(module.entry for module in target.kernel.modules if module.name == "tcpip.sys")
    assert entry is not None
    after, before = (space.read_int(entry.at(f"InLoadOrderLinks.{name}")) for name in ("Flink", "Blink"))
    clean = target.clean("stacktracedb", unbacked=True)
    answer = target.run("stacktracedb", [target.at(before, after)], unbacked=True)
    assert _bare(clean) == _bare(answer)
    shown = target.run("stacktracedb", [target.at(before, after)])
    assert "partly unlinked" in shown.column("Status")


@pytest.mark.parametrize("write", ["MmUnloadedDrivers", "an entry over hidden code", "DllBase"])
def test_what_no_module_backs_stays(target: Target, write: str) -> None:
    """What may have been a driver, and what a module claims that is not there, counts as unbacked."""
    kernel = target.kernel
    first = kernel.space.read_int(kernel.symbol("MmUnloadedDrivers"))
    size, start = 0x28, sample.HIDDEN_CODE & ~0xFFFF
    record = target.opened.layer.read(first & target.opened.layer.address_mask, size)
    over = (
        record[:0x10] + start.to_bytes(8, "little") + (start + 0x10000).to_bytes(8, "little") + record[0x20:]
    )
    writes = {
        "MmUnloadedDrivers": [target.at(kernel.symbol("MmUnloadedDrivers"), 0)],
        "an entry over hidden code": [
            (target.at(first + size, 0)[0], over),
            target.at(kernel.symbol("MmLastUnloadedDriver"), 2, 4),
        ],
        "DllBase": _driver(target, "DllBase", sample.HIDDEN_CODE - 0x1000),
    }[write]
    clean = target.clean("stacktracedb", unbacked=True)
    answer = target.run("stacktracedb", writes, unbacked=True)
    assert sample.HIDDEN_CODE + 0x88 in {
        address | 0xFFFF << 48 for address in filter(None, answer.column("Address"))
    }
    assert len(answer.rows) >= len(clean.rows)
    assert set(clean.column("Address")) <= set(answer.column("Address"))


def test_a_header_of_a_heap_that_swallows_its_neighbour(target: Target) -> None:
    """The header behind the neighbour still has the neighbour's size."""
    updater, layout = _updater(target), heap_layouts.LAYOUTS["6.2-x64"]
    assert layout.encoding is not None
    space, key = updater.space, sampleheaps.HEAP + layout.encoding + 8
    clean = target.clean("heaptraces", blocks=True)
    blocks = sorted(value for value in clean.column("Block") if value and value > sampleheaps.HEAP + 0x1000)

    def code(header: int) -> int:
        return space.read_int(header + 8) ^ space.read_int(key)

    def sound(header: int) -> bool:
        value = code(header)
        return bool(value & 0xFFFF) and not (value ^ value >> 8 ^ value >> 16 ^ value >> 24) & 0xFF

    header = next(number for number in range(blocks[0] - 0x10, blocks[0] - 0x80, -0x10) if sound(number))
    value = code(header)
    behind = header + 16 * (value & 0xFFFF)
    swallowed = only(block for block in blocks if behind < block < behind + 16 * (code(behind) & 0xFFFF))
    whole = (value & 0xFFFF) + (code(behind) & 0xFFFF)
    flags = value >> 16 & 0xFF
    tag = whole & 0xFF ^ whole >> 8 ^ flags
    value = value & ~0xFFFFFFFF | tag << 24 | flags << 16 | whole
    write = target.at(header + 8, value ^ space.read_int(key), 8, updater)
    answer = target.run("heaptraces", [write], blocks=True)
    assert swallowed in answer.column("Block")
    assert set(clean.column("Block")) <= set(answer.column("Block"))
    assert any("damaged" in (value or "") for value in answer.column("Status"))
    assert not any("damaged" in (value or "") for value in clean.column("Status"))


def test_a_pool_scan_finds_what_nothing_else_knows(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    kernel.process("hidden.exe", pid=1000, listed=False)
    opened = context.open_image(kernel.image(), tmp_path)
    assert [node.row["PID"] for node in grid.run(opened, gflags.GFlags)] == [0, 4]
    scanned = [node.row for node in grid.run(opened, gflags.GFlags, scan_processes=True)]
    assert [row["PID"] for row in scanned] == [0, 4, 1000]
    assert scanned[-1]["Status"] == "not in the process list, found by pool scan"


def test_a_list_of_sections_beside_the_real_one(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    ntdll = app.module("ntdll.dll", data=0x2000)
    planted, real = Sections(ntdll, ntdll.base + 0x7100), Sections(ntdll, ntdll.base + 0x7400)
    for sections, count in ((planted, 2), (real, 5)):
        for _ in range(count):
            sections.add()
        sections.link()
    assert app.peb is not None
    app.peb["LoaderLock"] = real.entries[0].address
    opened = context.open_image(kernel.image(), tmp_path)
    statuses = {node.row["Lock"]: node.row["Status"] for node in grid.run(opened, locks.Locks, pid=[1000])}
    assert statuses == {
        **{entry.address: "" for entry in real.entries},
        **{entry.address: "on another list" for entry in planted.entries},
    }


@pytest.mark.parametrize(("place", "value"), [(6, 0), (6, 2), (0x50, 0x1000), (0x50, 0x3000)])
def test_headers_hide_no_list_of_sections(tmp_path: pathlib.Path, place: int, value: int) -> None:
    """With another NumberOfSections or SizeOfImage ntdll's data is in no section: it is searched as well."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    ntdll = app.module("ntdll.dll", data=0x1000)
    sections = Sections(ntdll, ntdll.base + 0x7400)
    sections.add()
    sections.link()
    headers = ntdll.base + int.from_bytes(app.space.read(ntdll.base + 0x3C, 4), "little")
    size = 2 if place == 6 else 4
    assert app.space.read(headers + place, size) == {6: 3, 0x50: ntdll.size}[place].to_bytes(size, "little")
    app.space.write(headers + place, value.to_bytes(size, "little"))
    opened = context.open_image(kernel.image(), tmp_path)
    rows = [node.row for node in grid.run(opened, locks.Locks, pid=[1000])]
    assert [row["Lock"] for row in rows] == [entry.address for entry in sections.entries]


def test_a_database_beside_the_real_one(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    ntdll = app.module("ntdll.dll", data=0x2000)
    entries = []
    for number, most in enumerate((2, 6)):
        database = Std("6.1", "x64", 0x1D2A0000000 + number * 0x10000000)
        for trace in range(most):
            database.log([ntdll.base + 0x1000 + 0x10 * trace, ntdll.base + 0x1500])
        sample.write(app, database)
        app.space.write_int(ntdll.base + 0x7300 + 0x40 * number, database.base)
        entries.append(database)
    opened = context.open_image(kernel.image(), tmp_path)
    rows = [node.row for node in grid.run(opened, stacktracedb.StackTraceDb, pid=[1000])]
    heads = [(row["Database"], row["Status"]) for row in rows if row["CommittedMemory"] is not None]
    assert heads == [(module.base, "one of 2 databases") for module in reversed(entries)]
    assert len(rows) == 2 + 8


def _with_private_code() -> Tuple[Kernel, Process, Module, int]:
    """A process whose flags ask for a database, its ntdll, and the address of a private range."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    app = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    ntdll = app.module("ntdll.dll", data=0x2000)
    private = 0x1D0F0000000
    app.region(private, size=0x1000)
    return kernel, app, ntdll, private


@pytest.mark.parametrize("members", [("CommitBase",), ("NumberOfBuckets", "CommitBase")])
def test_a_decoy_hides_no_database_whose_header_was_damaged(
    tmp_path: pathlib.Path, members: Tuple[str, ...]
) -> None:
    """The decoy proves itself, and the entries of the real database agree with what is left of its header."""
    kernel, app, ntdll, private = _with_private_code()
    databases = []
    for number in range(2):
        database = Std("6.1", "x64", 0x1D2A0000000 + number * 0x10000000)
        for trace in range(8):
            inner = ntdll.base + 0x1000 if number else private
            database.log([inner + 0x10 * trace, ntdll.base + 0x1500])
        sample.write(app, database)
        app.space.write_int(ntdll.base + 0x7300 + 0x40 * number, database.base)
        databases.append(database)
    real, decoy = databases
    for member in members:
        offset, size = std_layouts.layout("6.1", "x64").fields[member]
        app.space.write_int(real.base + offset, 0, size)
    opened = context.open_image(kernel.image(), tmp_path)
    rows = [node.row for node in grid.run(opened, stacktracedb.StackTraceDb, pid=[1000])]
    heads = {row["Database"]: row["Status"] for row in rows if row["CommittedMemory"] is not None}
    assert heads == {
        decoy.base: "one of 2 databases",
        real.base: f"one of 2 databases, header: {' '.join(members)}",
    }
    assert sum(row["Unbacked"] or 0 for row in rows) == 8


def test_an_image_cut_in_the_middle_says_so(target: Target) -> None:
    cut = target.at(target.kernel.processes[2].eprocess.address, 0)[0] & ~0xFFF
    for plugin in ("trapframes", "heaptraces", "gflags"):
        answer = target.run(plugin, cut=cut)
        assert any("process list damaged" in (value or "") for value in answer.column("Status")), plugin
        assert any("process list damaged" in warning for warning in answer.warnings)
        assert not any("+ust" in warning for warning in answer.warnings)


def test_no_image_of_the_forge_is_accused(target: Target) -> None:
    """What Windows leaves as it is gives no new word: neither an accusation nor a warning."""
    accusing = (
        "contradicted",
        "found by",
        "damaged",
        "page tables of",
        "one of",
        "disagree",
        "active threads",
    )
    for plugin in target.names:
        answer = target.clean(plugin)
        statuses = [*answer.column("Status"), *answer.warnings]
        assert not [text for text in statuses if any(word in (text or "") for word in accusing)]


def _bare(answer: Answer) -> set[Tuple[Any, ...]]:
    """Returns the rows without what is said of them."""
    left_out = {"Status", "State", "WaitReason"}
    kept = [place for place, name in enumerate(answer.columns) if name not in left_out]
    return {tuple(row[place] for place in kept) for row in answer.rows}


def _others(answer: Answer) -> set[Tuple[Any, ...]]:
    """Returns the rows of the processes that were not written to, without what is said of them."""
    if "PID" not in answer.columns:
        return set()
    place = answer.columns.index("PID")
    return {row for row in _bare(answer) if row[place] not in (0, 4312)}


@pytest.mark.parametrize(
    ("write", "pid"),
    [
        (_injected("Tcb.InitialStack", lambda value: value - 0x1000), 4312),
        (_saved("SegCs"), 4312),
        (_injected("Tcb.Header.Type", lambda value: 0), 4312),
        (_injected("Tcb.StackBase", lambda value: value - 0x1000), 4312),
        (_saved("SegSs"), 4312),
        (_saved("Rip"), 4312),
        (_member("process", "Pcb.DirectoryTableBase", 0), 4312),
        (lambda target: [target.at(target.kernel.symbol("RtlpStackTraceDatabase"), 0)], 0),
        (_heap_record, 4312),
        (_heap_header(0x20), 4312),
        (_heap_header(0x40), 4312),
    ],
)
def test_findings_say_which_stacks_were_lost(
    target: Target, write: Callable[[Target], List[Write]], pid: int
) -> None:
    """What takes a stack away leaves a row that names its process, and the checks that would have looked."""

    def lost(answer: Answer) -> Dict[int, str]:
        rows = zip(answer.column("Finding"), answer.column("PID"), answer.column("Evidence"))
        return {pid: evidence for finding, pid, evidence in rows if finding == LOST_STACKS}

    assert pid not in lost(target.clean("tracefindings"))
    assert "not examined by" in lost(target.run("tracefindings", write(target)))[pid]


def _trap_frame_of_another(target: Target) -> List[Write]:
    """Has KTHREAD.TrapFrame of the thread that runs private code lead to the frame of the first thread."""
    answer = target.clean("trapframes")
    places = dict(zip(answer.column("TID"), answer.column("TrapFrame")))
    first, injected = _updater(target).threads[:2]
    return [target.at(injected.ethread.at("Tcb.TrapFrame"), places[first.tid] | 0xFFFF << 48)]


@pytest.mark.parametrize(
    "write",
    [
        _trap_frame_of_another,
        _vad_of_private_code,
        _vpns,
        _type_of_a_file,
        lambda target: [target.at(target.kernel.symbol("MmUnloadedDrivers"), NONSENSE)],
        _unlink(_driver_links),
        _unlink(_process_links),
    ],
)
def test_a_finding_stays_or_its_process_is_named(
    target: Target, write: Callable[[Target], List[Write]]
) -> None:
    """What one write leaves unsure is no reason for silence."""

    def high(answer: Answer) -> set[Tuple[Any, ...]]:
        rows = zip(*map(answer.column, ("Finding", "PID", "TID", "Severity")))
        return {row[:3] for row in rows if row[3] in ("high", "medium")}

    clean, answer = target.clean("tracefindings"), target.run("tracefindings", write(target))
    named = set(answer.column("PID")) if LOST_STACKS in answer.column("Finding") else set()
    assert {row for row in high(clean) - high(answer) if row[1] not in named} == set()


@pytest.mark.parametrize("alone", [False, True])
def test_resources_that_overlap_are_counted_where_they_have_no_row(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    """Also those that still point to a head whose own links lead nowhere."""
    monkeypatch.setattr(resources, "MAX_OVERLAPS", 0)
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    head, start = kernel.symbol("ExpSystemResourcesList"), kernel.space.allocate(0x1000, 0x1000)
    links = [head, start + 0x100, start + 0x110, head]
    for before, link, after in zip(links, links[1:], links[2:]):
        kernel.space.write(link, after.to_bytes(8, "little") + before.to_bytes(8, "little"))
    first, last = (head, head) if alone else (links[1], links[2])
    kernel.space.write(head, first.to_bytes(8, "little") + last.to_bytes(8, "little"))
    opened = context.open_image(kernel.image(), tmp_path)
    statuses = [node.row["Status"] for node in grid.run(opened, locks.Locks, pid=[0])]
    assert statuses.count("1 resources overlap") == 1


def test_the_file_of_a_process_without_an_id_has_its_address(tmp_path: pathlib.Path) -> None:
    kernel = sample.build()
    lost = kernel.processes[2].eprocess.address
    image = kernel.image()
    kernel.set("PspCidTable", 0)
    kernel.space.set_state(lost & ~0xFFF, 0x1000, State.MISSING)
    opened = context.open_image(image, tmp_path)
    rows = grid.rendered(opened, locks.Locks, tmp_path / "out", dump=True)
    assert None in {row["PID"] for row in rows}
    assert f"locks.{lost:#x}.x64.bin" in {path.name for path in (tmp_path / "out").iterdir()}


@pytest.mark.parametrize("decoys", [1, 9])
def test_a_decoy_database_hides_no_stack_of_a_lock(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture, decoys: int
) -> None:
    """The index of a lock is looked up in all databases: what one has passes --unbacked, or is counted."""
    kernel, app, ntdll, private = _with_private_code()
    for number in range(decoys + 1):
        # Decoys have more traces than the real database, and so are tried first.
        database = Std("6.1", "x64", 0x1D2A0000000 + number * 0x10000000)
        for trace in range(2 if number == 0 else 6):
            unbacked = private + 0x10 * trace if number == 0 else ntdll.base + 0x1000 + 0x10 * number
            database.log([unbacked, ntdll.base + 0x1500 + 0x10 * trace])
        sample.write(app, database)
        app.space.write_int(ntdll.base + 0x7300 + 0x10 * number, database.base)
    sections = Sections(ntdll, ntdll.base + 0x7600)
    sections.add(index=1)
    sections.link()
    opened = context.open_image(kernel.image(), tmp_path)
    rows = [node.row for node in grid.run(opened, locks.Locks, pid=[1000])]
    assert all(f"one of {decoys + 1} databases" in row["Status"] for row in rows if row["Lock"] is not None)
    unbacked_rows = [node.row for node in grid.run(opened, locks.Locks, pid=[1000], unbacked=True)]
    flat = list(opened.rows(traces.StackTraces, pid=[1000], kinds=["lock"], unbacked=True))
    if decoys == 1:
        assert sorted(row["Unbacked"] for row in rows) == [0, 1]
        assert [row["Unbacked"] for row in unbacked_rows] == [1]
        assert [row["Unbacked"] for _, row in flat] == [1]
    else:
        # More than are read: a row says so, and is counted where a filter hides it.
        assert [row["Status"] for row in rows if row["Lock"] is None] == ["one of 10 databases"]
        assert (unbacked_rows, flat) == ([], [])
        assert caplog.text.count("1 more may match --find and --unbacked") == 2


def test_a_handle_table_off_its_list_that_its_process_has_not(target: Target) -> None:
    """Both ways to the table are gone: the ring's own pool block still leads to the events."""
    table = _updater(target).eprocess["ObjectTable"]
    link = table + target.kernel.isf.offset("_HANDLE_TABLE", "HandleTableList")
    writes = [*_unlink(lambda _: link)(target), *_member("process", "ObjectTable", 0)(target)]
    answer, clean = target.run("handletraces", writes), target.clean("handletraces")
    pid = _updater(target).pid
    statuses = {
        status for owner, status in zip(answer.column("PID"), answer.column("Status")) if owner == pid
    }
    assert "contradicted: DebugInfo" in statuses
    events = [
        [event for event, owner in zip(output.column("Event"), output.column("PID")) if owner == pid]
        for output in (clean, answer)
    ]
    assert events[1].count("open") == events[0].count("open") > 0


def test_a_handle_whose_table_cannot_be_read_is_not_checked(target: Target) -> None:
    """Its rights are there: the check says that it could not read them."""
    table = _updater(target).eprocess["ObjectTable"]
    code = target.kernel.isf.offset("_HANDLE_TABLE", "TableCode")
    answer = target.run("tracefindings", [target.at(table + code, NONSENSE & ~7)])
    clean = target.clean("tracefindings")
    assert 4312 in {pid for name, pid in zip(clean.column("Finding"), clean.column("PID")) if name == FOREIGN}
    rows = zip(*map(answer.column, ("Finding", "PID", "Evidence")))
    message = "the handle table, which has the rights of handles, cannot be read: updater.exe"
    assert [(pid, evidence) for name, pid, evidence in rows if name == FOREIGN] == [(None, message)]


def test_a_handle_that_its_table_lacks_is_not_checked(target: Target) -> None:
    """TableCode leads to a page that is no table: the ring has the open, and nobody closed the handle."""
    table = _updater(target).eprocess["ObjectTable"]
    code = target.kernel.isf.offset("_HANDLE_TABLE", "TableCode")
    answer = target.run("tracefindings", [target.at(table + code, table & ~7)])
    rows = zip(*map(answer.column, ("Finding", "PID", "Evidence")))
    found = [(pid, evidence) for name, pid, evidence in rows if name == FOREIGN]
    assert [pid for pid, _ in found] == [None]
    assert "opened a handle that is not in the handle table" in found[0][1]


def test_a_thread_is_found_in_the_process_whose_list_has_it(target: Target) -> None:
    """A write to the pointer to its process accuses no other process."""
    thread, legacy = _updater(target).threads[0].ethread, _legacy(target).eprocess.address
    answer = target.run("tracefindings", [target.at(thread.at("Tcb.Process"), legacy)])
    clean = target.clean("tracefindings")
    found = [set(zip(output.column("Finding"), output.column("PID"))) for output in (clean, answer)]
    pid = _legacy(target).pid
    assert {row for row in found[1] if row[1] == pid} == {row for row in found[0] if row[1] == pid}


def test_a_finding_has_what_is_doubtful_about_any_of_its_stacks(target: Target) -> None:
    """A damaged header of one heap block, of which another row of the same finding knows nothing."""
    members = [
        member for member in target.read("tracefindings").members if member.name == "_HEAP_ENTRY.EntryOffset"
    ]
    writes = [(member.place or 0, b"\x3f") for member in members]
    assert "damaged" not in target.clean("tracefindings").column("Status")
    answer = target.run("tracefindings", writes)
    rows = zip(answer.column("Finding"), answer.column("Status"))
    assert "damaged" in [status for finding, status in rows if finding == "history_unbacked"]


def test_code_whose_file_is_unknown_is_not_compared(target: Target) -> None:
    """The reason is the VAD, and not that other processes lack the file."""
    legacy = _legacy(target).pid
    writes = [
        (member.place or 0, (member.start | 0xFFFF << 48).to_bytes(8, "little"))
        for member in target.read("tracefindings").members
        if member.name == "_MMVAD.Subsection" and target.belonging.owner(member.place or 0).pid == legacy
    ]
    answer = target.run("tracefindings", writes)
    reasons = [text or "" for text in answer.column("Evidence")]
    assert [text for text in reasons if "the VAD leads to no file that can be named: ntdll" in text]
    assert not [text for text in reasons if "no second process maps the file" in text]


@pytest.mark.parametrize("change", [-1, 8, 1 << 32])
def test_code_whose_vad_is_lost_is_not_compared(target: Target, change: int) -> None:
    """The loader's list still names the modules, so that no frame shows that VADs are missing."""
    place = _legacy(target).eprocess.at("VadRoot.Root")
    root = target.kernel.space.read_int(place, 8)
    answer = target.run("tracefindings", [target.at(place, root + change)])
    reasons = list(zip(answer.column("Finding"), (text or "" for text in answer.column("Evidence"))))
    for check in ("modified_code", "module_mismatch"):
        assert [text for name, text in reasons if name == check and NO_VAD in text and "legacy.exe" in text]
    assert not [text for text in target.clean("tracefindings").column("Evidence") if NO_VAD in (text or "")]


def test_an_image_whose_file_lost_its_name_is_no_private_memory(target: Target) -> None:
    """One write to the control area of a DLL that all processes map: only module_mismatch says so."""

    def found(answer: Answer) -> Set[Any]:
        rows = zip(*map(answer.column, ("Severity", "Finding", "PID", "TID")))
        return {row[1:] for row in rows if row[0] in ("high", "medium")}

    clean = found(target.clean("tracefindings"))
    members = target.read("tracefindings").members
    areas = {each.place or 0 for each in members if each.name == "_CONTROL_AREA.FilePointer.Value"}
    new = [found(target.run("tracefindings", [(place, bytes(8))])) - clean for place in sorted(areas)[:3]]
    assert {row[0] for rows in new for row in rows} == {"module_mismatch"}


def test_an_entry_of_the_table_of_types_and_the_id_of_a_process(tmp_path: pathlib.Path) -> None:
    """Windows 7 mixes no index with a cookie: its processes all have the same index.

    The name of a process has the ID by which Windows finds it.
    """
    target = Target(sample.build("win7-x64", legacy_pid=5136), tmp_path)
    kernel = target.kernel
    place = _legacy(target).eprocess.at("UniqueProcessId")
    clean, answer = (target.run("objecttraces", writes) for writes in ([], [target.at(place, 4312)]))
    assert "ID 5136 in PspCidTable" in answer.column("Status")
    assert _bare(answer) == _bare(clean)
    header = _updater(target).eprocess.address - kernel.isf.offset("_OBJECT_HEADER", "Body")
    index = kernel.space.read_int(header + kernel.isf.offset("_OBJECT_HEADER", "TypeIndex"), 1)
    entry = kernel.symbol("ObTypeIndexTable") + 8 * index
    clean = target.clean("handletraces")
    answer = target.run("handletraces", [target.at(entry, kernel.space.read_int(entry + 8))])
    assert "Process" in clean.column("ObjectType")
    assert answer.column("ObjectType") == clean.column("ObjectType")
    assert "contradicted: TypeIndex" in answer.column("Status")
    assert not [text for text in answer.warnings if "ObHeaderCookie" in text]


@pytest.mark.parametrize("value", [0, NONSENSE])
def test_findings_end_whatever_the_page_tables_are(target: Target, value: int) -> None:
    """Checks whose process has no page tables are rows that say so, and end no other check."""
    answer = target.run("tracefindings", _member("process", "Pcb.DirectoryTableBase", value)(target))
    clean = target.clean("tracefindings")
    others = {row for row in zip(clean.column("Finding"), clean.column("PID")) if row[1] not in (4312, None)}
    assert others <= set(zip(answer.column("Finding"), answer.column("PID")))


def test_a_waiting_thread_whose_type_is_wrong_has_its_row(target: Target) -> None:
    """State says that it waits, and the list of its process has it; its stacks are not walked."""

    def waits(answer: Answer) -> Dict[Any, str]:
        rows = zip(*map(answer.column, ("PID", "TID", "WaitsFor", "Status")))
        return {row[:2]: row[3] or "" for row in rows if row[1] is not None and row[2] is not None}

    clean = waits(target.clean("waits"))
    tampered = 0
    for process in target.kernel.processes:
        for thread in process.threads:
            key = process.pid, thread.ethread["Cid.UniqueThread"]
            if key not in clean:
                continue
            place = thread.ethread.at("Tcb.Header.Type")
            found = waits(target.run("waits", [target.at(place, 0x40, 1)]))
            assert clean.keys() <= found.keys()
            assert "not a thread" in found[key]
            tampered += 1
    assert tampered == len(clean) > 2
