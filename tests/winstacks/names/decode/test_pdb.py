# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""PDBs that LLVM made, read as llvm-pdbutil reads them."""

from __future__ import annotations

import io
import pathlib
import random
import re
import shutil
import struct
import subprocess
import tarfile
from typing import Dict, List, Set, Tuple

import pytest

from tests.conftest import ROOT
from winstacks.names.decode.pdb import MAGIC, Pdb, PdbError

FOLDER = ROOT / "tests" / "data" / "pdb"
PDBUTIL = shutil.which("llvm-pdbutil")
ARCHES = ("x64", "x86")


def files(arch: str) -> Dict[str, bytes]:
    """Returns app.exe and app.pdb."""
    with tarfile.open(FOLDER / f"app-{arch}.tar.xz") as archive:
        found = {}
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            found[member.name] = file.read()
        return found


def opened(data: bytes) -> Pdb:
    return Pdb(lambda offset, length: data[offset : offset + length], len(data))


def symbols(data: bytes) -> List[Tuple[int, str]]:
    return [(symbol.rva, symbol.name) for symbol in opened(data).symbols()]


@pytest.mark.parametrize("arch", ARCHES)
def test_every_function(arch: str) -> None:
    """Static functions too, of which two have one name."""
    names = [name for _, name in symbols(files(arch)["app.pdb"])]
    functions = ["open_store", "store::Shelf::grow", "hidden", "mainCRTStartup", "second", "hidden"]
    assert names[: len(functions)] == functions
    assert len({rva for rva, _ in symbols(files(arch)["app.pdb"])}) == len(names) == len(functions) + 1


@pytest.mark.skipif(PDBUTIL is None, reason="llvm-pdbutil is not installed")
@pytest.mark.parametrize("arch", ARCHES)
def test_addresses_and_ids_of_llvm(arch: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "app.pdb").write_bytes(files(arch)["app.pdb"])
    command = [str(PDBUTIL), "dump", "--symbols", "--section-headers", "--summary", "app.pdb"]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    starts = [int(found, 16) for found in re.findall(r"([0-9A-F]+) virtual address", printed)]
    functions: Set[Tuple[int, str]] = set()
    for name, section, offset in re.findall(r"PROC32 .*`(.*)`\n.*addr = (\d+):(\d+)", printed):
        functions.add((starts[int(section) - 1] + int(offset), name))
    found = opened((tmp_path / "app.pdb").read_bytes())
    assert functions <= {(symbol.rva, symbol.name) for symbol in found.symbols()}
    assert len(functions) == 6
    guid = re.search(r"GUID: \{([0-9A-F-]+)\}", printed)
    assert guid is not None
    assert (found.guid, found.age) == (guid.group(1).replace("-", ""), 1)


@pytest.mark.parametrize("arch", ARCHES)
def test_the_id_is_that_of_the_program(arch: str) -> None:
    made = files(arch)
    pdb = opened(made["app.pdb"])
    at = made["app.exe"].index(b"RSDS")
    guid, age = made["app.exe"][at + 4 : at + 20], made["app.exe"][at + 20 : at + 24]
    assert pdb.guid == bytes((*guid[3::-1], *guid[5:3:-1], *guid[7:5:-1], *guid[8:])).hex().upper()
    assert pdb.age == int.from_bytes(age, "little")


@pytest.mark.parametrize("seed", range(3))
def test_damage_ends_in_a_sentence(seed: int) -> None:
    """Any bytes: symbols, or a PdbError."""
    data, random_ = files("x64")["app.pdb"], random.Random(seed)
    for _ in range(150):
        changed = bytearray(data)
        for _ in range(random_.randrange(1, 5)):
            at = random_.choice((random_.randrange(60), random_.randrange(len(data))))
            size = random_.choice((1, 2, 4))
            changed[at : at + size] = random_.choice((b"\0", b"\xff", b"\x7f", random_.randbytes(1))) * size
        cut = bytes(changed[: random_.choice((len(data), random_.randrange(len(data))))])
        try:
            for rva, name in symbols(cut):
                assert rva >= 0
                assert name
        except PdbError as error:
            assert str(error).split()[0] in ("is", "has")


def test_pages_that_are_listed_repeatedly_end_the_reading() -> None:
    """A directory whose streams have far more bytes than the file."""
    page, streams = 512, 40
    sizes = [64 * page] * streams
    directory = struct.pack("<I", streams) + struct.pack(f"<{streams}I", *sizes)
    directory += struct.pack("<I", 0) * (64 * streams)
    count = -(-len(directory) // page)
    head = MAGIC + struct.pack("<IIIIII", page, 1, 3 + count, len(directory), 0, 2)
    numbers = struct.pack(f"<{count}I", *range(3, 3 + count))
    data = head.ljust(2 * page, b"\0") + numbers.ljust(page, b"\0") + directory.ljust(count * page, b"\0")
    with pytest.raises(PdbError, match="more bytes than the file"):
        opened(data)


def test_what_is_no_pdb() -> None:
    old = io.BytesIO(b"Microsoft C/C++ program database 2.00\r\n\x1aJG\0\0" + bytes(4096)).getvalue()
    for data in (b"", b"MZ", old):
        with pytest.raises(PdbError, match="is not a PDB of version 7"):
            opened(data)
