# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What Crashpad and Breakpad add to minidumps: real files, forged ones in many layouts, and damage."""

from __future__ import annotations

import struct
from typing import Any, List, Optional

import pytest

from tests.forge.minidump import Writer
from tests.support.changeddumps import BROKEN, OTHER_SYSTEMS, ChangedDump
from tests.support.only import only
from winstacks.memory.decode.status import status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.minidump.decode import reporters
from winstacks.minidump.decode.dumpfile import Minidump
from winstacks.minidump.decode.platform import other_system
from winstacks.minidump.decode.reporters import Annotation
from winstacks.minidump.decode.writers import writer_of

SIMPLE = [("prod", "app"), ("ver", "1.2"), ("note", "café\n")]
OBJECTS = [("reason", 1, b"out of memory"), ("count", 0x802A, b"\1\0\0\0")]
ASSERTION = ("size < limit", "grow", "store.cpp", 42, 1)
REAL = pytest.mark.skipif(not OTHER_SYSTEMS, reason="the real minidumps are not there")


def annotated(seed: Optional[int]) -> bytes:
    """A dump with all annotations, in the layout of a seed."""
    writer = Writer(seed=seed)
    writer.system_info()
    writer.crashpad(SIMPLE, OBJECTS, 2)
    writer.breakpad(4, 8, ASSERTION)
    return writer.bytes()


def dump_of(data: bytes) -> Minidump:
    return Minidump(lambda offset, length: data[offset : offset + length], len(data))


@pytest.mark.parametrize("seed", [None, *range(8)])
def test_each_annotation(seed: Optional[int]) -> None:
    dump = dump_of(annotated(seed))
    info = reporters.crashpad_info(dump)
    assert info is not None
    expected: List[Any] = [(None, "SimpleAnnotations", name, 1, value.encode()) for name, value in SIMPLE]
    expected += [(2, "AnnotationObjects", *row) for row in OBJECTS]
    assert [tuple(found) for found in info.annotations] == expected
    assert (info.report_id[-1], info.client_id[-1], info.status) == ("1", "2", ())
    assert reporters.breakpad_info(dump) == (4, 8)
    assert reporters.assertion_info(dump) == ASSERTION


def test_loops_and_counts_are_bounded() -> None:
    """A list of modules that leads to itself, with a count that no file has."""
    data = bytearray(annotated(None))
    dump = dump_of(bytes(data))
    stream = dump.stream(reporters.CRASHPAD_INFO)
    assert stream is not None
    rva = stream.Location.Rva
    struct.pack_into("<IIII", data, rva + 36, 0xFFFFFFFF, rva, 0xFFFFFFFF, rva)
    info = reporters.crashpad_info(dump_of(bytes(data)))
    assert info is not None
    assert len(info.annotations) <= reporters.MAX_ANNOTATIONS


def test_annotations_are_no_larger_than_the_file() -> None:
    """Thousands of annotations whose bytes overlap: each byte counts once, and Status names the limit."""
    writer = Writer()
    texts = writer.put(struct.pack("<I", 0x4E20) * 0x2800)
    rows = [struct.pack("<II", texts + 4 * number, texts + 8 * number) for number in range(2000)]
    pairs = struct.pack("<I", len(rows)) + b"".join(rows)
    writer.stream(
        reporters.CRASHPAD_INFO,
        struct.pack("<I32xIIII", 1, len(pairs), writer.put(pairs), 0, 0),
    )
    data = writer.bytes()
    info = reporters.crashpad_info(dump_of(data))
    assert info is not None
    assert len(info.annotations) == 2000 and info.annotations[0].value is not None
    values = {id(found.value): len(found.value or b"") for found in info.annotations}
    names = {id(found.name): len(found.name or "") for found in info.annotations}
    assert sum(values.values()) + sum(names.values()) // 4 <= 2 * len(data)
    assert info.status == status(StatusCode.LIMIT)


def test_a_cut_list_is_said() -> None:
    data = bytearray(annotated(None))
    stream = dump_of(bytes(data)).stream(reporters.CRASHPAD_INFO)
    assert stream is not None
    struct.pack_into("<I", data, stream.Location.Rva + 40, len(data) - 2)
    info = reporters.crashpad_info(dump_of(bytes(data)))
    assert info is not None
    assert info.status


@REAL
@pytest.mark.shared
def test_real_annotations() -> None:
    apple = only(path for path in OTHER_SYSTEMS if path.stem == "breakpad-minidump_crashpad_annotation")
    info = reporters.crashpad_info(dump_of(apple.read_bytes()))
    assert info is not None
    assert len(info.annotations) == 10
    assert Annotation(1, "AnnotationObjects", "exceptionName", 1, b"NSRangeException") in info.annotations
    assert Annotation(1, "AnnotationObjects", "CounterAnnotation", 0x802A, b"\1\0\0\0") in info.annotations


@REAL
@pytest.mark.shared
def test_the_forge_has_the_layout_of_a_real_file() -> None:
    """The same values give streams of the same bytes, apart from offsets and IDs."""
    apple = only(path for path in OTHER_SYSTEMS if path.stem == "rust-simple-crashpad")
    true = ChangedDump(apple.read_bytes())
    writer = Writer()
    writer.crashpad([("hello", "world")], [])
    forged = ChangedDump(writer.bytes())
    one, two = true.stream(reporters.CRASHPAD_INFO), forged.stream(reporters.CRASHPAD_INFO)
    assert (len(one), one[:4], one[36:40]) == (len(two), two[:4], two[36:40])
    pairs = [
        dump.read(int.from_bytes(data[40:44], "little"), 12) for dump, data in ((true, one), (forged, two))
    ]
    assert pairs[0][:4] == pairs[1][:4] == struct.pack("<I", 1)
    texts = [
        [dump.read(rva, 10) for rva in struct.unpack("<II", pair[4:])]
        for dump, pair in zip((true, forged), pairs)
    ]
    assert texts[0] == texts[1] == [b"\5\0\0\0hello\0", b"\5\0\0\0world\0"]
    parameter = only(path for path in BROKEN if path.stem == "rust-invalid-parameter")
    data = parameter.read_bytes()
    info = reporters.assertion_info(dump_of(data))
    threads = reporters.breakpad_info(dump_of(data))
    assert info is not None
    assert threads is not None
    assertion = info.expression, info.function, info.file, info.line, info.type
    writer = Writer()
    writer.breakpad(
        threads.dump_thread_id or 0,
        threads.requesting_thread_id or 0,
        assertion,
    )
    forged, true = ChangedDump(writer.bytes()), ChangedDump(data)
    assert forged.stream(reporters.BREAKPAD_INFO) == true.stream(reporters.BREAKPAD_INFO)
    one, two = (dump.stream(reporters.ASSERTION_INFO) for dump in (forged, true))
    assert (len(one), one[768:]) == (len(two), two[768:])
    for place, text in zip((0, 256, 512), info[:3]):
        # Behind the text of the real file is what the writer's memory had.
        length = 2 * len(str(text)) + 2
        assert one[place : place + length] == two[place : place + length]


@REAL
@pytest.mark.shared
def test_systems_by_name() -> None:
    names = {path.stem: other_system(dump_of(path.read_bytes())) for path in OTHER_SYSTEMS}
    assert sorted(names.values()) == ["Linux", "iOS", "macOS"]


def test_who_writes_streams() -> None:
    kinds = {8: "Windows", 0x8001: "Windows CE", 0x43500001: "Crashpad", 0x4767000A: "Breakpad"}
    kinds.update({0x4D7A0001: "Mozilla", 0x57530001: "winstacks", 0x12345678: "another program"})
    assert {kind: writer_of(kind) for kind in kinds} == kinds
