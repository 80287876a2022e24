# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Where the symbols of PDBs come from: what Volatility has, and nothing else unless it is asked for."""

from __future__ import annotations

import json
import logging
import lzma
import pathlib
from typing import Iterator, List

import pytest
import volatility3.symbols
from volatility3.framework import constants, exceptions
from volatility3.framework.automagic import symbol_cache
from volatility3.framework.symbols.windows import pdbutil

from tests.support import bare
from winstacks.names import pdbsymbols
from winstacks.names.decode.pe import CodeView
from winstacks.names.pdbsymbols import PdbSymbols

PDB = CodeView("0123456789ABCDEF0123456789ABCDEF", 2, "wntdll.pdb")
SYMBOLS = {"NtClose": {"address": 0x1000}, "ZwClose": {"address": 0x1000}, "Inner": {"address": 0x1040}}


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A private symbol folder, with no identifier cache."""
    monkeypatch.setattr(volatility3.symbols, "__path__", [str(tmp_path)])
    monkeypatch.setattr(constants, "CACHE_PATH", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> Iterator[List[CodeView]]:
    """Records what Volatility would have been asked to download."""
    code_views: List[CodeView] = []

    def download(context: object, guid: str, age: int, pdb_name: str, progress: object = None) -> None:
        code_views.append(CodeView(guid, age, pdb_name))

    monkeypatch.setattr(pdbutil.PDBUtility, "download_pdb_isf", download)
    yield code_views


def install(path: pathlib.Path) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps({"symbols": SYMBOLS}).encode()
    path.write_bytes(lzma.compress(data) if path.suffix == ".xz" else data)
    return path


@pytest.mark.parametrize("suffix", [".json", ".json.xz"])
def test_a_table_in_a_symbol_folder(folder: pathlib.Path, downloads: List[CodeView], suffix: str) -> None:
    install(folder / "windows" / "wntdll.pdb" / f"{PDB.guid}-2{suffix}")
    found = PdbSymbols(bare.image(), fetch_symbols=True).find_symbols(PDB)
    assert found is not None
    assert (found.rvas, found.names) == ([0x1000, 0x1040], ["NtClose", "Inner"])
    assert (found.rva_of("ZwClose"), found.rva_of("Absent")) == (0x1000, None)
    assert not downloads


def test_a_table_that_volatilitys_cache_knows(folder: pathlib.Path) -> None:
    path = install(folder / "elsewhere" / "any name.json")
    cache = symbol_cache.SqliteCache(str(folder / "cache" / constants.IDENTIFIERS_FILENAME))
    identifier = symbol_cache.WindowsIdentifier.generate(PDB.pdb_name, PDB.guid, PDB.age)
    statement = (
        "INSERT INTO cache (location, identifier, operating_system, local) VALUES (?, ?, 'windows', 1)"
    )
    cache._database.execute(statement, (path.as_uri(), identifier))
    cache._database.commit()
    assert PdbSymbols(bare.image()).find_symbols(PDB) is not None
    path.unlink()
    assert PdbSymbols(bare.image()).find_symbols(PDB) is None


def test_a_remote_table_is_not_fetched(folder: pathlib.Path) -> None:
    cache = symbol_cache.SqliteCache(str(folder / "cache" / constants.IDENTIFIERS_FILENAME))
    identifier = symbol_cache.WindowsIdentifier.generate(PDB.pdb_name, PDB.guid, PDB.age)
    statement = (
        "INSERT INTO cache (location, identifier, operating_system, local) VALUES (?, ?, 'windows', 0)"
    )
    cache._database.execute(statement, ("http://localhost:9/a.json", identifier))
    cache._database.commit()
    assert not list(pdbsymbols.local_urls(PDB))


def test_what_is_missing_is_said_once_and_leaves_nothing_behind(
    folder: pathlib.Path, downloads: List[CodeView], caplog: pytest.LogCaptureFixture
) -> None:
    before = sorted(folder.rglob("*"))
    symbols = PdbSymbols(bare.image())
    with caplog.at_level(logging.INFO, logger=pdbsymbols.__name__):
        assert symbols.find_symbols(PDB) is None
        assert symbols.find_symbols(PDB) is None
    assert [record.message for record in caplog.records] == [f"No symbols for wntdll.pdb {PDB.guid}-2"]
    assert not downloads
    assert sorted(folder.rglob("*")) == before


def test_the_first_missing_table_is_a_warning(
    folder: pathlib.Path, downloads: List[CodeView], caplog: pytest.LogCaptureFixture
) -> None:
    symbols = PdbSymbols(bare.image(), advise=True)
    with caplog.at_level(logging.INFO, logger=pdbsymbols.__name__):
        for age in (2, 2, 3, 4):
            assert symbols.find_symbols(PDB._replace(age=age)) is None
    first, *others = caplog.records
    assert first.levelno == logging.WARNING
    assert first.message.startswith(f"No symbols for wntdll.pdb {PDB.guid}-2: ")
    assert "-v" in first.message
    assert "--fetch-symbols" in first.message
    assert [(other.levelno, other.message) for other in others] == [
        (logging.INFO, f"No symbols for wntdll.pdb {PDB.guid}-{age}") for age in (3, 4)
    ]


def test_who_fetches_is_not_told_to(
    folder: pathlib.Path, downloads: List[CodeView], caplog: pytest.LogCaptureFixture
) -> None:
    assert PdbSymbols(bare.image(), fetch_symbols=True, advise=True).find_symbols(PDB) is None
    assert downloads
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_fetching_is_left_to_volatility(
    folder: pathlib.Path, downloads: List[CodeView], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PdbSymbols(bare.image(), fetch_symbols=True).find_symbols(PDB) is None
    assert downloads == [PDB]

    def arrive(*_: object) -> None:
        install(folder / "windows" / "wntdll.pdb" / f"{PDB.guid}-2.json.xz")

    monkeypatch.setattr(pdbutil.PDBUtility, "download_pdb_isf", arrive)
    assert PdbSymbols(bare.image(), fetch_symbols=True).find_symbols(PDB) is not None


@pytest.mark.parametrize("fault", [exceptions.OfflineException("x", "offline"), TypeError(), OSError()])
def test_a_failed_download_is_only_logged(
    folder: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: Exception,
) -> None:
    def fail(*_: object) -> None:
        raise fault

    monkeypatch.setattr(pdbutil.PDBUtility, "download_pdb_isf", fail)
    assert PdbSymbols(bare.image(), fetch_symbols=True).find_symbols(PDB) is None
    assert "cannot be fetched" in caplog.text


@pytest.mark.parametrize("name", ["../../etc/passwd", "a\\b.pdb", "C:x.pdb", "x\n.pdb", "", "..", "a" * 300])
def test_a_name_that_is_no_plain_file_name_is_not_looked_for(
    folder: pathlib.Path, downloads: List[CodeView], caplog: pytest.LogCaptureFixture, name: str
) -> None:
    with caplog.at_level(logging.DEBUG):
        assert PdbSymbols(bare.image(), fetch_symbols=True).find_symbols(PDB._replace(pdb_name=name)) is None
    assert not downloads
    assert not caplog.records


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"symbols": {"a": {}}}', b"\xfd7zXZ\0garbage"])
def test_a_damaged_table_is_no_table(folder: pathlib.Path, data: bytes) -> None:
    for suffix in (".json", ".json.xz"):
        path = folder / ("table" + suffix)
        path.write_bytes(data)
        assert pdbsymbols.from_url(path.as_uri()) is None
