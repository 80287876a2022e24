# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Every number of a dump's header, directory and streams that says where something is, how much, or what.

Each is overwritten with 0, with its neighbour's value, with ones, and with a little more and less: what is
decoded is as before, or some status says so, or docs/trust.md lists the member as one that nothing repeats.
"""

from __future__ import annotations

import re
import struct
from typing import Any, Dict, Iterator, List, NamedTuple, Set, Tuple

from tests.forge.minidump import Module, Writer, WrittenThread
from tests.forge.vol import REPOSITORY
from winstacks.memory.decode.status import Status
from winstacks.minidump import opened
from winstacks.minidump.decode import threads
from winstacks.minidump.decode.dumpfile import NotAMinidumpError

from .test_streams import GUID, LISTS, PAGE, RECORDS, dump_of

Form = Tuple[Tuple[str, int, int], ...]
"""(name, offset, bytes) of members."""


class Layout(NamedTuple):
    """A stream: its members, and those of the entries of its list."""

    name: str
    header: Form = ()
    start: int = 0
    entry: int = 0
    members: Form = ()


def _form(*members: Tuple[str, int], start: int = 0) -> Form:
    form = []
    for name, size in members:
        form.append((name, start, size))
        start += size
    return tuple(form)


COUNT = "NumberOfEntries"
_LIST = _form(("SizeOfHeader", 4), ("SizeOfEntry", 4), (COUNT, 4))
LAYOUTS: Dict[int, Layout] = {
    3: Layout(
        "MINIDUMP_THREAD",
        _form(("NumberOfThreads", 4)),
        4,
        48,
        _form(("ThreadId", 4), ("SuspendCount", 4), ("PriorityClass", 4), ("Priority", 4), ("Teb", 8))
        + _form(("Stack.StartOfMemoryRange", 8), ("Stack.DataSize", 4), ("Stack.Rva", 4), start=24)
        + _form(("ThreadContext.DataSize", 4), ("ThreadContext.Rva", 4), start=40),
    ),
    4: Layout(
        "MINIDUMP_MODULE",
        _form(("NumberOfModules", 4)),
        4,
        108,
        _form(("BaseOfImage", 8), ("SizeOfImage", 4), ("CheckSum", 4), ("TimeDateStamp", 4))
        + _form(("ModuleNameRva", 4), start=20)
        + _form(("CvRecord.DataSize", 4), ("CvRecord.Rva", 4), start=76),
    ),
    5: Layout(
        "MINIDUMP_MEMORY_DESCRIPTOR",
        _form(("NumberOfMemoryRanges", 4)),
        4,
        16,
        _form(("StartOfMemoryRange", 8), ("DataSize", 4), ("Rva", 4)),
    ),
    6: Layout(
        "MINIDUMP_EXCEPTION_STREAM",
        _form(("ThreadId", 4), start=0)
        + _form(("ExceptionCode", 4), ("ExceptionFlags", 4), ("ExceptionRecord", 8), start=8)
        + _form(("ExceptionAddress", 8), ("NumberParameters", 4), start=24)
        + _form(("ThreadContext.DataSize", 4), ("ThreadContext.Rva", 4), start=160),
    ),
    9: Layout(
        "MINIDUMP_MEMORY_DESCRIPTOR64",
        _form(("NumberOfMemoryRanges", 8), ("BaseRva", 8)),
        16,
        16,
        _form(("StartOfMemoryRange", 8), ("DataSize", 8)),
    ),
    12: Layout(
        "MINIDUMP_HANDLE_DESCRIPTOR",
        _form(("SizeOfHeader", 4), ("SizeOfDescriptor", 4), ("NumberOfDescriptors", 4)),
        16,
        32,
        _form(("Handle", 8), ("TypeNameRva", 4), ("ObjectNameRva", 4), ("Attributes", 4))
        + _form(("GrantedAccess", 4), ("HandleCount", 4), ("PointerCount", 4), start=20),
    ),
    13: Layout(
        "MINIDUMP_FUNCTION_TABLE_DESCRIPTOR",
        _form(("SizeOfHeader", 4), ("SizeOfDescriptor", 4), ("SizeOfNativeDescriptor", 4))
        + _form(("SizeOfFunctionEntry", 4), ("NumberOfDescriptors", 4), ("SizeOfAlignPad", 4), start=12),
        24,
        148,
        _form(("MinimumAddress", 8), ("MaximumAddress", 8), ("BaseAddress", 8), ("EntryCount", 4))
        + _form(("SizeOfAlignPad", 4), start=28),
    ),
    14: Layout("MINIDUMP_UNLOADED_MODULE", _LIST, 12, 24, _form(("BaseOfImage", 8), ("SizeOfImage", 4))),
    16: Layout(
        "MINIDUMP_MEMORY_INFO",
        _form(("SizeOfHeader", 4), ("SizeOfEntry", 4), (COUNT, 8)),
        16,
        48,
        _form(("BaseAddress", 8), ("AllocationBase", 8), ("AllocationProtect", 4))
        + _form(("RegionSize", 8), ("State", 4), ("Protect", 4), ("Type", 4), start=24),
    ),
    17: Layout("MINIDUMP_THREAD_INFO", _LIST, 12, 64, _form(("ThreadId", 4), ("DumpFlags", 4))),
    18: Layout(
        "AVRF_HANDLE_OPERATION",
        _LIST,
        16,
        288,
        _form(("Handle", 8), ("ProcessId", 4), ("ThreadId", 4), ("OperationType", 4))
        + _form(("BackTraceInformation.Depth", 4), ("BackTraceInformation.Index", 4), start=24),
    ),
    19: Layout(
        "MINIDUMP_TOKEN_INFO_HEADER",
        _form(("TokenListEntries", 4), ("ListHeaderSize", 4), ("ElementHeaderSize", 4), start=4),
        16,
        24,
        _form(("TokenSize", 4), ("TokenId", 4), ("TokenHandle", 8)),
    ),
    24: Layout(
        "MINIDUMP_THREAD_NAME",
        _form(("NumberOfThreadNames", 4)),
        4,
        12,
        _form(("ThreadId", 4), ("RvaOfThreadName", 8)),
    ),
}
HEADER = _form(("NumberOfStreams", 4), ("StreamDirectoryRva", 4), start=8) + _form(("Flags", 8), start=24)
DIRECTORY = _form(("StreamType", 4), ("Location.DataSize", 4), ("Location.Rva", 4))


def whole() -> bytes:
    """A dump with each stream that has a list, of two or three entries each."""
    writer = Writer(flags=0x2 | 0x4 | 0x20 | 0x800 | 0x1000 | 0x40000)
    writer.system_info()
    writer.misc_info(4312)
    stacks = [(0x20000 + 0x1000 * number, PAGE[: 64 + number]) for number in range(3)]
    writer.threads(
        [
            WrittenThread(8 + 4 * number, 0x10000 + 0x2000 * number, stack, bytes([65 + number]) * 1232)
            for number, stack in enumerate(stacks)
        ]
    )
    writer.thread_infos([(8 + 4 * number, 0, 0, 259, 1, 2, 3, 4, 5, 6) for number in range(3)])
    writer.thread_names([(8, "worker"), (12, "reader"), (16, "writer")])
    writer.exception(8, 0xC0000005, 0x1234, (1, 0), b"e" * 1232)
    modules = [
        Module(
            0x7FF600000000 + 0x100000 * n, 0x20000, 0x5F000000 + n, f"C:\\a{n}.dll", (GUID, n, f"a{n}.pdb")
        )
        for n in range(3)
    ]
    writer.modules(modules)
    writer.unloaded_modules([module._replace(base=module.base + 0x50000) for module in modules])
    listed, _ = threads.thread_list(dump_of(writer.bytes()))
    rows = [(memory_range.StartOfMemoryRange, *memory_range.Stack) for memory_range in listed]
    writer.stream(5, struct.pack("<I", 3) + b"".join(struct.pack("<QII", *row) for row in rows))
    writer.memory_infos([(base, base, 4, 0x1000, 0x1000, 4, 0x20000) for base in (0x20000, 0x21000, 0x22000)])
    writer.handles([(4, "File", "\\x"), (8, "Event", ""), (12, "Event", "\\e")])
    writer.handle_operations([(4, 4312, 8, 1, (0x11, 0x22)), (4, 4312, 8, 2, (0x33, 0x44))])
    writer.function_tables([(base, base + 0x20, base, ((0, 8, 4), (8, 16, 4))) for base in (0x10, 0x40)])
    writer.tokens([(8, 0x44, b"token   "), (12, 0x48, b"another ")])
    writer.memory64([(0x100000, PAGE), (0x300000, PAGE), (0x500000, PAGE)])
    return writer.bytes()


class Case(NamedTuple):
    """A write: what it is called, where, and what."""

    member: str
    offset: int
    data: bytes


def _values(data: bytes, offset: int, size: int, step: int) -> Iterator[bytes]:
    """Yields what is written over a member; `step` leads to the same member of the neighbour."""
    value = int.from_bytes(data[offset : offset + size], "little")
    near = data[offset + step : offset + step + size] if step else b""
    most = (1 << 8 * size) - 1
    numbers = {0, most, most >> 1, value + 8, value - 8, value + 1, value - 1, value * 2}
    found = {(number & most).to_bytes(size, "little") for number in numbers} | ({near} if near else set())
    yield from sorted(found - {data[offset : offset + size]})


def cases() -> Iterator[Case]:
    data = whole()
    dump = dump_of(data)
    for name, offset, size in HEADER:
        for value in _values(data, offset, size, 0):
            yield Case(f"MINIDUMP_HEADER.{name}", offset, value)
    for place, stream in enumerate(dump.streams):
        at = 32 + 12 * place
        for name, offset, size in DIRECTORY:
            for value in _values(data, at + offset, size, 12 if place + 1 < len(dump.streams) else -12):
                yield Case(f"MINIDUMP_DIRECTORY.{name}", at + offset, value)
        layout = LAYOUTS.get(stream.StreamType)
        if layout is None:
            continue
        rva = stream.Location.Rva
        for name, offset, size in layout.header:
            for value in _values(data, rva + offset, size, 0):
                yield Case(f"{dump.streams[place].name}.{name}", rva + offset, value)
        for name, offset, size in layout.members:
            for number, step in ((0, layout.entry), (1, -layout.entry)):
                here = rva + layout.start + number * layout.entry + offset
                for value in _values(data, here, size, step):
                    yield Case(f"{layout.name}.{name}", here, value)


def decoded(data: bytes) -> Tuple[List[Any], List[Status]]:
    """Returns all that a dump has, and all that is wrong with it."""
    try:
        dump = dump_of(data)
    except NotAMinidumpError as error:
        return [], [(str(error),)]  # type: ignore[list-item]
    statuses: List[Status] = [dump.status, *(stream.status for stream in dump.streams)]
    found: List[Any] = []
    for list_ in LISTS:
        rows, wrong = list_(dump)
        found.append(rows)
        statuses.append(wrong)
        statuses += [row.status for row in rows if hasattr(row, "status")]
    for record in RECORDS:
        one = record(dump)
        found.append(one)
        # A row of minidump.info says that a structure cannot be read.
        statuses.append(("no structure",) if one is None else getattr(one, "status", ()))  # type: ignore[arg-type]
    for thread in threads.thread_list(dump)[0]:
        registers, wrong = threads.context(dump, thread.ThreadContext)
        found.append(registers)
        statuses.append(wrong)
    ranges, wrong = opened.memory(dump)
    found.append([dump.read(piece.offset, piece.length) for piece in ranges])
    statuses.append(wrong)
    return found, statuses


def untold() -> Set[str]:
    """The members of a dump that docs/trust.md lists."""
    text = (REPOSITORY / "docs" / "trust.md").read_text(encoding="utf-8")
    _, _, part = text.partition("## What cannot be detected in a process dump\n")
    rows = [line for line in part.split("\n## ")[0].splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def silent() -> Dict[str, List[Case]]:
    data = whole()
    clean, said_clean = decoded(data)
    found: Dict[str, List[Case]] = {}
    for case in cases():
        written = data[: case.offset] + case.data + data[case.offset + len(case.data) :]
        now, faults = decoded(written)
        if now != clean and faults == said_clean:
            found.setdefault(case.member, []).append(case)
    return found


def test_each_write_is_said_or_listed() -> None:
    found, listed = silent(), untold()
    assert sorted(set(found) - listed) == []
    assert sorted(listed - set(found)) == []


if __name__ == "__main__":
    for member, some in silent().items():
        print(member, len(some), some[0].data.hex())
