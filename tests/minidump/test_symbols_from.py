# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""--symbols-from: names from PDBs of the dump's own modules, through the real command line and offline."""

from __future__ import annotations

import pathlib
import struct
from typing import Dict, List, Tuple

import pytest

from tests.forge import vol
from tests.forge.minidump import Module, Writer, WrittenThread
from tests.support.processdumps import ARCHITECTURES
from tests.winstacks.names.decode.test_pdb import ARCHES, files, opened, symbols
from winstacks.memory.decode.machine import Machine

pytestmark = pytest.mark.cli

BASE = {"x64": 0x140000000, "x86": 0x400000}
MACHINES = {"x64": Machine.AMD64, "x86": Machine.I386}


def registers(arch: str, ip: int, sp: int) -> bytes:
    """Returns a CONTEXT with two registers."""
    if arch == "x64":
        data = bytearray(1232)
        struct.pack_into("<I", data, 0x30, 0x10000B)
        struct.pack_into("<H", data, 0x38, 0x33)
        struct.pack_into("<Q", data, 0x98, sp)
        struct.pack_into("<Q", data, 0xF8, ip)
        return bytes(data)
    data = bytearray(716)
    struct.pack_into("<I", data, 0, 0x10007)
    struct.pack_into("<II", data, 0xB8, ip, 0x1B)
    struct.pack_into("<I", data, 0xC4, sp)
    return bytes(data)


def dump(
    arch: str, path: pathlib.Path, stamped: bool = True, recorded: bool = True
) -> Dict[int, Tuple[int, str]]:
    """Writes a dump with a thread in each function, and returns RVA and name of the function by thread.

    Args:
        arch: the program
        path: where the dump is written
        stamped: whether the program has a TimeDateStamp; otherwise it is 0
        recorded: whether the list of modules has the RSDS record of the program
    """
    made = files(arch)
    pdb, base = opened(made["app.pdb"]), BASE[arch]
    functions = {8 + 4 * number: symbol for number, symbol in enumerate(symbols(made["app.pdb"])[:6])}
    writer = Writer()
    writer.system_info(ARCHITECTURES[MACHINES[arch]])
    writer.misc_info(4312)
    guid = pdb.guid
    dashed = "-".join((guid[:8], guid[8:12], guid[12:16], guid[16:20], guid[20:]))
    at = made["app.exe"].index(b"PE\0\0")
    stamp, size = (struct.unpack_from("<I", made["app.exe"], at + place)[0] for place in (8, 0x50))
    record = (dashed, pdb.age, "C:\\build\\app.pdb") if recorded else None
    writer.modules([Module(base, size, stamp if stamped else 0, "C:\\app\\app.exe", record)])
    writer.threads(
        [
            WrittenThread(
                tid,
                0,
                (0x10000 * tid, bytes(64)),
                registers(arch, base + rva + 2, 0x10000 * tid),
            )
            for tid, (rva, _) in functions.items()
        ]
    )
    path.write_bytes(writer.bytes())
    return functions


def run(
    path: pathlib.Path, folder: pathlib.Path, *options: str
) -> Tuple[Dict[int, Dict[str, str]], vol.Result]:
    """Runs minidump.callstacks, and returns the first frame of each thread."""
    (folder / "isf").mkdir(exist_ok=True)
    result = vol.run(path, "minidump.callstacks", *options, symbols=folder / "isf", cwd=folder)
    frames = {row["TID"]: row["__children"][0] for row in result.rows}
    return frames, result


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("layout", ["plain", "symbol server", "two tiers"])
def test_names_of_all_functions(arch: str, layout: str, tmp_path: pathlib.Path) -> None:
    functions = dump(arch, tmp_path / "app.dmp")
    made = files(arch)
    pdb = opened(made["app.pdb"])
    places = {
        "plain": "App.PDB",
        "symbol server": f"app.pdb/{pdb.guid}{pdb.age:x}/app.pdb",
        "two tiers": f"ap/app.pdb/{pdb.guid}{pdb.age:x}/app.pdb",
    }
    file = tmp_path / "symbols" / places[layout]
    file.parent.mkdir(parents=True)
    file.write_bytes(made["app.pdb"])
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "app.exe").write_bytes(made["app.exe"])
    binaries = ["--binaries", str(tmp_path / "files")]
    plain, _ = run(tmp_path / "app.dmp", tmp_path, *binaries)
    assert {frame["Source"] for frame in plain.values()} == {"module"}
    found, _ = run(tmp_path / "app.dmp", tmp_path, *binaries, "--symbols-from", str(tmp_path / "symbols"))
    assert {tid: frame["Symbol"] for tid, frame in found.items()} == {
        tid: f"app!{name}+0x2" for tid, (_, name) in functions.items()
    }
    assert {frame["Source"] for frame in found.values()} == {"pdb"}
    # The dump has no code and no headers; the RSDS record of its list names the PDB.
    found, _ = run(tmp_path / "app.dmp", tmp_path, "--symbols-from", str(tmp_path / "symbols"))
    assert [frame["Symbol"] for frame in found.values()] == [
        f"app!{name}+0x2" for _, name in functions.values()
    ]


def test_another_pdb_of_the_name_is_refused(tmp_path: pathlib.Path) -> None:
    dump("x64", tmp_path / "app.dmp")
    (tmp_path / "symbols").mkdir()
    (tmp_path / "symbols" / "app.pdb").write_bytes(files("x86")["app.pdb"])
    found, result = run(tmp_path / "app.dmp", tmp_path, "--symbols-from", str(tmp_path / "symbols"))
    assert {frame["Source"] for frame in found.values()} == {"module"}
    assert "is not used as app.pdb" in result.stderr
    other = opened(files("x86")["app.pdb"])
    assert f"it has the ID {other.guid}-1" in result.stderr


def test_a_folder_that_is_not_there(tmp_path: pathlib.Path) -> None:
    dump("x64", tmp_path / "app.dmp")
    (tmp_path / "isf").mkdir()
    names: List[str] = ["--symbols-from", str(tmp_path / "nowhere")]
    result = vol.run(tmp_path / "app.dmp", "minidump.callstacks", *names, symbols=tmp_path / "isf")
    assert result.returncode != 0
    assert "nowhere" in result.stderr + result.stdout
