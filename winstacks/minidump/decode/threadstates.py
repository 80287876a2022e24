# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Streams of this project's own in the minidumps that `windows.minidump` makes of a process of an image.

A dump that Windows writes knows all registers of a thread. An image knows those that a trap frame saved, and
those that the walk up the kernel's stack found. CONTEXT.ContextFlags speak of groups of registers: a register
that is not known, in a group of which others are, is 0 in the CONTEXT. WinstacksThreadListStream says which
these are. Without it a reader would take the 0 for the value.

    typedef struct {                          typedef struct {
        ULONG32 SizeOfHeader;     // 48           ULONG32 ThreadId;
        ULONG32 SizeOfEntry;      // 32           USHORT  Machine;      // IMAGE_FILE_MACHINE_*
        ULONG32 NumberOfEntries;                  UCHAR   State;        // KTHREAD.State, FFh: not known
        ULONG32 Flags;            // see below    UCHAR   WaitReason;   // KTHREAD.WaitReason, likewise
        RVA     ImageFileName;    // a string     ULONG64 Unknown;      // a bit for each of REGISTER_BITS
        ULONG32 Reserved;                         ULONG64 Unsure;       // likewise
        ULONG64 UnreadBytes;                      RVA     Status;       // a string
        ULONG64 Peb;                              ULONG32 Known;        // KNOWN_*
        ULONG64 Peb32;                        } WINSTACKS_THREAD;
    } WINSTACKS_THREAD_LIST;

WinstacksFileListStream names the files behind mappings that no stream of Windows names: a header of
SizeOfHeader (16), SizeOfEntry (16), NumberOfEntries and Reserved, and for each an ULONG64 BaseOfMapping, the
RVA of a string and an ULONG32 Reserved. An empty string: the page file backs the mapping.

WinstacksTrapFrameListStream has trap frames (_KTRAP_FRAME) that callbacks to user mode have kept: with them
alone an x86 stack goes on above a callback, and user mode has no copy. A header as before with SizeOfEntry
24, and for each an ULONG64 Address, an ULONG32 ThreadId, an ULONG32 Reserved, DataSize and RVA of its bytes.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from ...memory.decode.status import NOTHING, Status
from .dumpfile import MAPPED_FILES, THREAD_STATES, TRAP_FRAMES, Fixed, Location, Minidump, head, headed
from .memory import MAX_RANGES
from .threads import MAX_THREADS

REGISTER_BITS = (
    *("Rip", "Rsp", "Rbp", "Rax", "Rcx", "Rdx", "Rbx", "Rsi", "Rdi"),
    *("R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15"),
    *("EFlags", "SegCs", "SegSs", "SegDs", "SegEs", "SegFs", "SegGs"),
    *("Dr0", "Dr1", "Dr2", "Dr3", "Dr6", "Dr7", "MxCsr"),
)
"""The registers in the order of the bits of Unknown and Unsure, bit 0 first. Eip and the like have the bits
of their x64 names."""

INCOMPLETE_MODULES, INCOMPLETE_REGIONS, INCOMPLETE_THREADS, WOW64_PROCESS = 1, 2, 4, 8
"""Bits of Flags: what of the image could not be listed wholly, and that the process has a 32-bit half."""

KNOWN_START_ADDRESS = 1
"""A bit of Known: MINIDUMP_THREAD_INFO.StartAddress is what the image has, though it may be 0."""

NO_VALUE = 0xFF

THREADS_HEADER = Fixed("IIIIIIQQQ")
THREAD_STATE = Fixed("IHBBQQII")
FILES_HEADER = Fixed("IIII")
MAPPED_FILE = Fixed("QII")
TRAP_FRAME = Fixed("QIIII")


class ThreadState(NamedTuple):
    """What the image knows of a thread, and of the registers in its CONTEXT of one machine.

    Attributes:
        ThreadId: the thread
        Machine: the machine of the CONTEXT, as PE headers have it
        State, WaitReason: of KTHREAD; None where they are not known
        unknown: registers, by x64 names, whose value is not known: what the CONTEXT has is no value
        unsure: registers of which it is not known whether their value was saved
        known: KNOWN_*
        Status: what the image's column Status says of the registers, None where it cannot be read
    """

    ThreadId: int
    Machine: int
    State: Optional[int]
    WaitReason: Optional[int]
    unknown: Tuple[str, ...]
    unsure: Tuple[str, ...]
    known: int
    Status: Optional[str]


class ThreadStates(NamedTuple):
    """WinstacksThreadListStream.

    Attributes:
        flags: INCOMPLETE_*, WOW64_PROCESS
        image_file_name: of the process as the kernel has it; None where it cannot be read
        unread_bytes: bytes of the dump's memory that could not be read while they were written, and are 0
        peb, peb32: addresses of the PEBs of both halves, 0 without one; the memory need not have them
        threads: by ThreadId and Machine; of equal ones the first counts
        status: what is wrong with the stream
    """

    flags: int
    image_file_name: Optional[str]
    unread_bytes: int
    peb: int
    peb32: int
    threads: Dict[Tuple[int, int], ThreadState]
    status: Status


def thread_states(dump: Minidump) -> Optional[ThreadStates]:
    """Returns WinstacksThreadListStream, None if the dump has none that can be read."""
    members = head(dump, THREAD_STATES, THREADS_HEADER).members
    if not members:
        return None
    found, said = headed(dump, THREAD_STATES, THREADS_HEADER, THREAD_STATE, MAX_THREADS, "NumberOfEntries")
    threads: Dict[Tuple[int, int], ThreadState] = {}
    for tid, machine, state, reason, unknown, unsure, text, known in found:
        threads.setdefault(
            (tid, machine),
            ThreadState(
                tid,
                machine,
                None if state == NO_VALUE else state,
                None if reason == NO_VALUE else reason,
                _named(unknown),
                _named(unsure),
                known,
                dump.string(text),
            ),
        )
    flags, name, _, unread, peb, peb32 = members[3:]
    return ThreadStates(flags, dump.string(name), unread, peb, peb32, threads, said)


def mapped_files(dump: Minidump) -> Tuple[Dict[int, Optional[str]], Status]:
    """Returns the paths of WinstacksFileListStream by BaseOfMapping, and what is wrong with the stream."""
    if dump.stream(MAPPED_FILES) is None:
        return {}, NOTHING
    found, said = headed(dump, MAPPED_FILES, FILES_HEADER, MAPPED_FILE, MAX_RANGES, "NumberOfEntries")
    return {base: dump.string(rva) for base, rva, _ in reversed(found)}, said


class KeptTrapFrame(NamedTuple):
    """A trap frame in the kernel's memory, and where in the file its bytes are."""

    Address: int
    ThreadId: int
    Location: Location


def trap_frames(dump: Minidump) -> Tuple[List[KeptTrapFrame], Status]:
    """Returns the entries of WinstacksTrapFrameListStream in its order, and what is wrong with it."""
    if dump.stream(TRAP_FRAMES) is None:
        return [], NOTHING
    found, said = headed(dump, TRAP_FRAMES, FILES_HEADER, TRAP_FRAME, MAX_THREADS, "NumberOfEntries")
    return [KeptTrapFrame(address, tid, Location(*place)) for address, tid, _, *place in found], said


def bits_of(names: Sequence[str]) -> int:
    """Returns the bits of registers."""
    return sum(1 << REGISTER_BITS.index(name) for name in set(names))


def _named(bits: int) -> Tuple[str, ...]:
    return tuple(name for number, name in enumerate(REGISTER_BITS) if bits >> number & 1)


def listed(dump: Minidump) -> Tuple[List[ThreadState], Status]:
    """Returns the entries of WinstacksThreadListStream, and what is wrong with it."""
    found = thread_states(dump)
    return ([], NOTHING) if found is None else (list(found.threads.values()), found.status)


def listed_files(dump: Minidump) -> Tuple[List[str], Status]:
    """Returns the paths of WinstacksFileListStream that can be read, and what is wrong with it."""
    found, said = mapped_files(dump)
    return [path for path in found.values() if path is not None], said
