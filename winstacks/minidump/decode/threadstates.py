# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Streams that this project adds to the minidumps that `windows.minidump` makes of a process in an image.

A dump that Windows writes has all registers of a thread. An image has the registers that a trap frame saved,
and the registers that the walk up the kernel's stack found. CONTEXT.ContextFlags covers groups of registers:
an unknown register in a group with known ones is 0 in the CONTEXT. WinstacksThreadListStream names the
unknown ones. Without it a reader would take the 0 for the value.

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

WinstacksTrapFrameListStream has the trap frames (_KTRAP_FRAME) that callbacks to user mode keep: an x86 stack
can be walked above a callback only with these, and user mode has no copy. A header as before with SizeOfEntry
24, and for each an ULONG64 Address, an ULONG32 ThreadId, an ULONG32 Reserved, DataSize and RVA of its bytes.
"""

from __future__ import annotations

from typing import Annotated, Dict, List, Optional, Sequence, Tuple

from ...memory.decode.declared import STRING, UCHAR, ULONG, ULONGLONG, USHORT, Declared
from ...memory.decode.records import NamedTuple
from ...memory.decode.status import NOTHING, Status, status
from .dumpfile import MAPPED_FILES, THREAD_STATES, TRAP_FRAMES, Location, Minidump
from .lists import HEADER_OF_16, read_headed_list, read_list_header
from .memory import MAX_RANGES
from .threads import MAX_THREADS_OF_DUMP

REGISTER_BITS = (
    "Rip", "Rsp", "Rbp", "Rax", "Rcx", "Rdx", "Rbx", "Rsi", "Rdi",
    "R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15",
    "EFlags", "SegCs", "SegSs", "SegDs", "SegEs", "SegFs", "SegGs",
    "Dr0", "Dr1", "Dr2", "Dr3", "Dr6", "Dr7", "MxCsr",
)  # fmt: skip
"""The registers in the order of the bits of Unknown and Unsure, bit 0 first. 32-bit registers such as Eip use
the bits of their x64 names."""

INCOMPLETE_MODULES, INCOMPLETE_REGIONS, INCOMPLETE_THREADS, WOW64_PROCESS = 1, 2, 4, 8
"""Bits of Flags: lists of the image that are incomplete, and a process with a 32-bit half."""

KNOWN_START_ADDRESS = 1
"""A bit of Known: MINIDUMP_THREAD_INFO.StartAddress is the image's value, even if it is 0."""

NO_VALUE = 0xFF


class ThreadList(NamedTuple):
    """WINSTACKS_THREAD_LIST."""

    SizeOfHeader: ULONG
    SizeOfEntry: ULONG
    NumberOfEntries: ULONG
    Flags: ULONG
    ImageFileName: STRING
    UnreadBytes: Annotated[int, "ULONGLONG @0x18"]
    Peb: ULONGLONG
    Peb32: ULONGLONG


class WinstacksThread(NamedTuple):
    """WINSTACKS_THREAD."""

    ThreadId: ULONG
    Machine: USHORT
    State: UCHAR
    WaitReason: UCHAR
    Unknown: ULONGLONG
    Unsure: ULONGLONG
    Status: STRING
    Known: ULONG


class MappedFile(NamedTuple):
    """A mapping: its address, and the path of its file, None if that cannot be read."""

    BaseOfMapping: ULONGLONG
    FileName: STRING


class KeptTrapFrame(NamedTuple):
    """A trap frame in the kernel's memory, and the file range of its bytes."""

    Address: ULONGLONG
    ThreadId: ULONG
    Location: Annotated[Location, "@0x10"]


THREADS_HEADER, THREAD_STATE = Declared(ThreadList), Declared(WinstacksThread)
MAPPED_FILE, TRAP_FRAME = Declared(MappedFile, size=16), Declared(KeptTrapFrame)


class ThreadState(NamedTuple):
    """The registers of a thread in its CONTEXT of one machine: which of them the image has.

    Attributes:
        Machine: machine of the CONTEXT, as a number of PE headers
        State, WaitReason: members of KTHREAD; None if they are unknown
        unknown: registers, by x64 names, whose value is unknown; their content in the CONTEXT is meaningless
        unsure: registers that may not have been saved
        known: bits KNOWN_*
        Status: the image's column Status for the registers, None if it cannot be read
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
        flags: bits INCOMPLETE_*, WOW64_PROCESS
        image_file_name: ImageFileName of the process in the kernel; None if it cannot be read
        unread_bytes: bytes of the dump's memory that could not be read during writing, and are 0
        peb, peb32: addresses of the PEBs of both halves, 0 without one; the memory may lack them
        threads: the entries by ThreadId and Machine; the first of equal ones counts
    """

    flags: int
    image_file_name: Optional[str]
    unread_bytes: int
    peb: int
    peb32: int
    threads: Dict[Tuple[int, int], ThreadState]
    status: Status


NO_STATE = ThreadState(0, 0, None, None, (), (), 0, None)
"""Stands for the entry of a thread, which a dump of another program lacks."""

NO_STATES = ThreadStates(0, None, 0, 0, 0, {}, NOTHING)
"""Stands for the stream, which a dump of another program lacks."""


def thread_states(dump: Minidump) -> ThreadStates:
    """Returns WinstacksThreadListStream, NO_STATES if the dump has none or it is unreadable."""
    header, _, _, _ = read_list_header(dump, THREAD_STATES, THREADS_HEADER)
    if header is None:
        return NO_STATES
    found, faults = read_headed_list(
        dump, THREAD_STATES, THREADS_HEADER, THREAD_STATE, MAX_THREADS_OF_DUMP, "NumberOfEntries"
    )
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
                text,
            ),
        )
    faults = status(faults, dump.text_status)
    return ThreadStates(*header[3:], threads, faults)


def mapped_files(dump: Minidump) -> Tuple[Dict[int, Optional[str]], Status]:
    """Returns the paths of WinstacksFileListStream by BaseOfMapping, and the status of the stream."""
    if dump.stream(MAPPED_FILES) is None:
        return {}, NOTHING
    found, faults = read_headed_list(
        dump, MAPPED_FILES, HEADER_OF_16, MAPPED_FILE, MAX_RANGES, "NumberOfEntries"
    )
    files = dict(reversed(found))
    return files, status(faults, dump.text_status)


def trap_frames(dump: Minidump) -> Tuple[List[KeptTrapFrame], Status]:
    """Returns the entries of WinstacksTrapFrameListStream in its order, and the status of the stream."""
    if dump.stream(TRAP_FRAMES) is None:
        return [], NOTHING
    return read_headed_list(
        dump, TRAP_FRAMES, HEADER_OF_16, TRAP_FRAME, MAX_THREADS_OF_DUMP, "NumberOfEntries"
    )


def bits_of(names: Sequence[str]) -> int:
    """Returns the bits of registers."""
    return sum(1 << REGISTER_BITS.index(name) for name in set(names))


def _named(bits: int) -> Tuple[str, ...]:
    return tuple(name for number, name in enumerate(REGISTER_BITS) if bits >> number & 1)


def listed_states(dump: Minidump) -> Tuple[List[ThreadState], Status]:
    """Returns the entries of WinstacksThreadListStream, and the status of the stream."""
    found = thread_states(dump)
    return list(found.threads.values()), found.status


def listed_files(dump: Minidump) -> Tuple[List[str], Status]:
    """Returns the readable paths of WinstacksFileListStream, and the status of the stream."""
    found, faults = mapped_files(dump)
    return [path for path in found.values() if path is not None], faults
