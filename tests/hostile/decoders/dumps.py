# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Process dumps: the file with all its streams; and PDBs of their modules."""

from __future__ import annotations

from typing import List

from tests.winstacks.minidump.decode import test_reporters, test_streams
from tests.winstacks.names.decode import test_pdb
from winstacks.minidump.decode.dumpfile import NotAMinidumpError
from winstacks.names.decode.pdb import Pdb, PdbError

from .target import Target


def _decode(data: bytes, whole: bytes) -> None:
    try:
        found = test_streams.everything(test_streams.dump_of(data))
    except NotAMinidumpError:
        return
    assert found <= len(data)


def _seeds() -> List[bytes]:
    return [test_streams.full(), test_reporters.annotated(3)]


def _decode_pdb(data: bytes, whole: bytes) -> None:
    try:
        pdb = Pdb(lambda offset, length: data[offset : offset + length], len(data))
        found = list(pdb.symbols())
    except PdbError:
        return
    assert len(found) <= len(data)


def _pdbs() -> List[bytes]:
    return [test_pdb.files(arch)["app.pdb"] for arch in test_pdb.ARCHES]


def targets() -> List[Target]:
    """Returns the targets."""
    return [Target("minidump", _seeds, _decode), Target("pdb", _pdbs, _decode_pdb)]
