# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Snapshots of ../shared/waits as dumps of a process, as Windows would have written them.

data = dump_of(snapshot, arguments=True)
"""

from __future__ import annotations

import struct
from typing import Dict, List, Sequence, Tuple

from tests.forge.minidump import Module, Writer, WrittenThread
from tests.forge.pe import Pe, Section
from tests.support import bare
from tests.support.processbytes import FLAGS
from tests.support.processdumps import ARCHITECTURES, READWRITE
from tests.support.waitsets import Bytes, Snapshot
from winstacks.memory.decode.machine import Machine
from winstacks.traps.decode.context import ContextLayout
from winstacks.traps.state import register_types

CODE, EXECUTABLE = 0x60000020, 0x40000040
_ARM64 = 12
COMMIT, IMAGE, PRIVATE = 0x1000, 0x1000000, 0x20000
_NAMES = {
    "NtWaitForSingleObject": 4,
    "NtDelayExecution": 0x34,
    "NtWaitForKeyedEvent": 0x1D1,
    "NtWaitForAlertByThreadId": 0x1CC,
    "NtWaitForMultipleObjects": 0x5B,
    "NtSignalAndWaitForSingleObject": 0x195,
}
"""Some numbers of system calls: what Rax holds."""


def ntdll_pages(snapshot: Snapshot) -> List[Tuple[int, bytes]]:
    """Returns headers and the export directory of ntdll, with the exports that the set names."""
    module = snapshot.truth["modules"][0]
    size, base = module["size"], module["base"]
    taken = [start - base for start, _ in snapshot.regions if base <= start < base + size]
    exports_rva = next(
        rva for rva in range(size - 0x2000 & ~0xFFF, 0, -0x1000) if not {rva, rva + 0x1000} & {*taken}
    )
    code = (min(snapshot.header["exports"].values()) & ~0xFFF, max(snapshot.header["exports"].values()))
    sections = [
        Section(".text", code[0], (code[1] - code[0] + 0x1FFF) & ~0xFFF, 0x60000020),
        Section(".data", 0x1000, 0x1000, 0xC0000040),
    ]
    image = Pe(
        "ntdll.dll",
        64 if snapshot.pointer_size == 8 else 32,
        base,
        size,
        [sections[0]],
        exports=snapshot.header["exports"],
        exports_rva=exports_rva,
    )
    pieces = image.pieces()
    return [(base + rva, data) for rva, data in sorted(pieces.items())]


def registers_of(snapshot: Snapshot, thread: Dict, arguments: bool) -> Dict[str, int]:
    """Returns the registers of a thread by x64 names, as a kernel that keeps arguments has them, or not."""
    prefix = "r" if snapshot.pointer_size == 8 else "e"
    found = {}
    for name, value in thread["regs"].items():
        wide = "r" + name[1:] if prefix == "e" else name
        found[wide.title()] = value
    if arguments and thread["call"] and snapshot.pointer_size == 8:
        given = [*thread["args"], 0, 0][:2]
        found.update(Rax=_NAMES[thread["call"]], Rcx=given[0], Rdx=given[1])
    return found


def context_of(snapshot: Snapshot, thread: Dict, arguments: bool) -> bytes:
    """Returns the CONTEXT of a thread."""
    size = snapshot.pointer_size
    machine = bare.MACHINES[size]
    structure = register_types(bare.image(size), machine)["_CONTEXT"]
    form, data = ContextLayout(structure, machine), bytearray(structure.size)
    values = registers_of(snapshot, thread, arguments)
    values.update(ContextFlags=FLAGS[machine], SegCs=0x33 if size == 8 else 0x1B)
    for name, value in values.items():
        field = form.fields.get(name)
        if field is not None:
            data[field.offset : field.offset + field.size] = value.to_bytes(field.size, "little")
    return bytes(data)


def arm_context_of(snapshot: Snapshot, thread: Dict) -> bytes:
    """Returns a CONTEXT of ARM64 for a thread of x64 code that stands behind a system call.

    There the return address is in Lr, and not on the stack.
    """
    regs, data = thread["regs"], bytearray(0x390)
    kept = ("rbx", "rsi", "rdi", "rbp", "r12", "r13", "r14", "r15")
    caller = Bytes(snapshot.regions).read(regs["rsp"], 8) or bytes(8)
    struct.pack_into("<I", data, 0, 0x400007)
    struct.pack_into("<8Q", data, 8 + 8 * 19, *(regs[name] for name in kept))
    data[8 + 8 * 30 : 8 + 8 * 31] = caller
    struct.pack_into("<QQ", data, 0x100, regs["rsp"] + 8, regs["rip"])
    return bytes(data)


def in_call(snapshot: Snapshot, tid: int, name: str, arguments: Tuple[int, int]) -> Snapshot:
    """Returns a snapshot in which a thread stands in another system call.

    On x86 the stub and KiFastSystemCall, which makes the call, have code, and their names.

    Args:
        name: the call: the export of the one in which the thread stands gets this name
        arguments: the first two arguments of the call
    """
    threads = [dict(thread) for thread in snapshot.truth["threads"]]
    (thread,) = (each for each in threads if each["tid"] == tid)
    exports, base = dict(snapshot.header["exports"]), snapshot.truth["modules"][0]["base"]
    stub = exports[name] = exports.pop(thread["call"])
    thread.update(args=list(arguments), call=name)
    regions = list(snapshot.regions)
    if snapshot.pointer_size == 4:
        sp, ip = thread["regs"]["esp"], thread["regs"]["eip"]
        exports["KiFastSystemCallRet"] = ip - base
        regions = [_with(region, sp + 8, struct.pack("<2I", *arguments)) for region in regions]
        made = b"\xb8" + bytes(4) + b"\xe8" + struct.pack("<i", ip - 4 - (base + stub + 10)) + b"\xc2\x0c\0"
        regions += [(base + stub, made), (ip - 4, b"\x8b\xd4\x0f\x34\xc3")]
    return snapshot._replace(
        truth={**snapshot.truth, "threads": threads},
        header={**snapshot.header, "exports": dict(sorted(exports.items()))},
        regions=sorted(regions),
    )


def _with(region: Tuple[int, bytes], at: int, data: bytes) -> Tuple[int, bytes]:
    """Returns a region with bytes at an address, if the address lies in it."""
    start, old = region
    place = at - start
    inside = place >= 0 and place + len(data) <= len(old)
    return (start, old[:place] + data + old[place + len(data) :]) if inside else region


def dump_of(
    snapshot: Snapshot,
    arguments: bool = True,
    exports: bool = True,
    handles: Sequence[Tuple[int, str, str, int]] = (),
    arm64: bool = False,
) -> bytes:
    """Returns a dump with the memory of a snapshot.

    Args:
        snapshot: the snapshot
        arguments: whether its registers have the arguments of system calls, as those of a new kernel
        exports: whether ntdll's exports are in the dump
        handles: handle, type, name and the TID of a mutex's owner, 0 for no information
        arm64: whether the dump is of a process of ARM64, whose structures are those of x64
    """
    truth, machine = snapshot.truth, bare.MACHINES[snapshot.pointer_size]
    memory = [*snapshot.regions, *(ntdll_pages(snapshot) if exports else ())]
    writer = Writer()
    version = (10, 0) if snapshot.build >= 10240 else (6, 1)
    writer.system_info(_ARM64 if arm64 else ARCHITECTURES[machine], snapshot.build, version)
    writer.misc_info(truth["pid"])
    folder = "C:\\Windows\\System32\\"
    writer.modules(
        [Module(item["base"], item["size"], 1, folder + item["name"]) for item in truth["modules"]]
    )
    if handles:
        _handles(writer, truth["pid"], handles)
    source = Bytes(memory)
    threads = []
    for thread in truth["threads"]:
        sp = thread["regs"]["rsp" if machine is Machine.AMD64 else "esp"]
        end = thread["stack"][1]
        stack = source.read(sp, end - sp) or b""
        context = arm_context_of(snapshot, thread) if arm64 else context_of(snapshot, thread, arguments)
        threads.append(WrittenThread(thread["tid"], thread["teb"], (sp, stack), context))
    writer.threads(threads)
    base, size = truth["modules"][0]["base"], truth["modules"][0]["size"]
    infos = [(base, base, 0x20, size, COMMIT, 0x20, IMAGE)]
    app = truth["modules"][1]
    infos.append((app["base"], app["base"], 0x20, app["size"], COMMIT, 0x20, IMAGE))
    for start, data in _pages(memory):
        if not any(at <= start < at + length for at, _, _, length, *_ in infos[:2]):
            infos.append((start, start, READWRITE, len(data), COMMIT, READWRITE, PRIVATE))
    writer.memory_infos(sorted(infos))
    writer.memory64(sorted(memory))
    return writer.bytes()


def _handles(writer: Writer, pid: int, handles: Sequence[Tuple[int, str, str, int]]) -> None:
    """Adds handles with the owners of mutexes: MINIDUMP_HANDLE_DESCRIPTOR_2, MiniMutantInformation2."""
    rows = b""
    for handle, kind, name, tid in handles:
        about = writer.put(struct.pack("<IIIII", 0, 3, 8, pid, tid)) if tid else 0
        rows += struct.pack("<QIIIIII", handle, writer.string(kind), writer.string(name), 0, 0, 1, 2)
        rows += struct.pack("<II", about, 0)
    writer.stream(12, struct.pack("<IIII", 16, 40, len(handles), 0) + rows)


def _pages(memory: List[Tuple[int, bytes]]) -> List[Tuple[int, bytes]]:
    return sorted(memory)
