# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Process dumps, small kernel dumps, bitmaps: the file with all of its parts; PDBs of modules.

And the texts that make this project's symbol tables.
"""

from __future__ import annotations

import pathlib
import struct
import tempfile
from typing import List

from symbols import isf
from tests.forge.minidump import Writer
from tests.winstacks.minidump.decode import (
    test_bitmap,
    test_pageranges,
    test_reporters,
    test_streams,
    test_threadstates,
    test_triage,
)
from tests.winstacks.names.decode import test_pdb
from winstacks.memory.decode.status import text
from winstacks.minidump.decode import handleobjects, handles, reporters, threadstates
from winstacks.minidump.decode.bitmap import Bitmap, BitmapError
from winstacks.minidump.decode.dumpfile import NotAMinidumpError
from winstacks.minidump.decode.kernelheader import NotAKernelDumpError
from winstacks.minidump.decode.writers import writer_of
from winstacks.names.decode.pdb import Pdb, PdbError

from .target import Target


def _decode(data: bytes, whole: bytes) -> None:
    """No more comes out than the file has bytes."""
    try:
        dump = test_streams.dump_of(data)
    except NotAMinidumpError:
        return
    assert test_streams.everything(dump) <= len(data)
    for read in (threadstates.listed_states, threadstates.listed_files, threadstates.trap_frames):
        found, faults = read(dump)
        assert len(found) <= len(data) and text(faults).isprintable()
    for state in threadstates.listed_states(dump)[0]:
        assert {*state.unknown, *state.unsure} <= set(threadstates.REGISTER_BITS)
    described, _ = handles.handle_data(dump)
    owners = handleobjects.mutant_owners(dump, described)
    assert set(owners) <= {handle.Handle for handle in described}
    assert all(writer_of(stream.StreamType) for stream in dump.streams)
    info = reporters.crashpad_info(dump)
    if info is not None:
        values = {id(found.value): len(found.value or b"") for found in info.annotations}
        assert sum(values.values()) <= len(data)


def _with_owners() -> bytes:
    """A dump whose handles have information about their objects: of a mutex its owner, and a list of two."""
    writer = Writer()
    owner = writer.put(struct.pack("<III", 0, 3, 8) + struct.pack("<II", 4312, 8))
    first = writer.put(struct.pack("<III", owner, 1, 8) + bytes(8))
    rows = b"".join(
        struct.pack("<Q8I", 4 * number, writer.string("Mutant"), 0, 0, 0x1F0001, 1, 2, rva, 0)
        for number, rva in enumerate((owner, first, 0), 1)
    )
    writer.stream(12, struct.pack("<4I", 16, 40, 3, 0) + rows)
    return writer.bytes()


def _seeds() -> List[bytes]:
    own = test_threadstates.written().bytes()
    return [test_streams.full(), test_reporters.annotated(3), own, _with_owners()]


def _decode_small(data: bytes, whole: bytes) -> None:
    try:
        test_triage.everything(test_triage.opened(data))
    except NotAKernelDumpError:
        return


def _small_dumps() -> List[bytes]:
    return [test_triage.writer(name).file() for name in test_triage.GENERATIONS]


def _decode_bitmap(data: bytes, whole: bytes) -> None:
    """No run leaves the file, and the runs are in order in memory and in the file."""
    try:
        found = test_bitmap.read(data)
    except BitmapError:
        return
    assert all(run.length > 0 and run.offset + run.length <= len(data) for run in found.runs)
    for before, run in zip(found.runs, found.runs[1:]):
        assert before.address + before.length < run.address
        assert before.offset + before.length == run.offset
    assert min(found.lost, found.left_out, found.cut) >= 0


def _bitmaps() -> List[bytes]:
    bits = [b"\xff" * 8, b"\x55" * 64, b"\0" * 40 + b"\x0f\xf0", b"\xff" * 600]
    return [test_bitmap.dump(pattern, pages) for pattern, pages in zip(bits, (4, 3, 8, 1))]


def _decode_ranges(data: bytes, whole: bytes) -> None:
    """No run leaves the file, and the runs are in order in memory."""
    for wide in (True, False):
        _check_runs(data, test_pageranges.complete(data, wide))
    try:
        _check_runs(data, test_pageranges.live(data))
    except BitmapError:
        return


def _check_runs(data: bytes, found: Bitmap) -> None:
    assert all(run.length > 0 and run.offset + run.length <= len(data) for run in found.runs)
    assert sum(run.length for run in found.runs) <= len(data)
    for before, run in zip(found.runs, found.runs[1:]):
        assert before.address + before.length <= run.address


def _page_ranges() -> List[bytes]:
    ranges = [(5, 3), (0x20, 2), (0x21, 4)]
    return [
        test_pageranges.live_dump(ranges),
        *(test_pageranges.complete_file(w, ranges) for w in (True, False)),
    ]


def _decode_pdb(data: bytes, whole: bytes) -> None:
    try:
        pdb = Pdb(lambda offset, length: data[offset : offset + length], len(data))
        found = list(pdb.symbols())
    except PdbError:
        return
    assert len(found) <= len(data)


def _pdbs() -> List[bytes]:
    return [test_pdb.files(arch)["app.pdb"] for arch in test_pdb.ARCHES]


def _decode_isf(data: bytes, whole: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        pathlib.Path(folder, f"{isf.BASIC}.h").write_bytes((isf.FOLDER / f"{isf.BASIC}.h").read_bytes())
        pathlib.Path(folder, "kind.h").write_bytes(data)
        try:
            isf.make(pathlib.Path(folder))
        except isf.DeclarationError:
            return


def _isf_texts() -> List[bytes]:
    return [path.read_bytes() for path in sorted(isf.FOLDER.glob("*.h")) if path.stem != isf.BASIC]


def targets() -> List[Target]:
    """Returns the targets."""
    return [
        Target("minidump", _seeds, _decode),
        Target("smalldump", _small_dumps, _decode_small),
        Target("bitmap", _bitmaps, _decode_bitmap),
        Target("pageranges", _page_ranges, _decode_ranges),
        Target("pdb", _pdbs, _decode_pdb),
        Target("isftext", _isf_texts, _decode_isf),
    ]
