# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A table that is in its place stays there when a download of it fails."""

import json
import lzma

import pytest
import volatility3.symbols
from volatility3.framework import constants, contexts, exceptions
from volatility3.framework.symbols.windows import pdbconv
from volatility3.framework.symbols.windows.pdbutil import PDBUtility

GUID, AGE, PDB = "0123456789ABCDEF0123456789ABCDEF", 1, "ntkrnlmp.pdb"


@pytest.fixture()
def place(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, "OFFLINE", True)
    monkeypatch.setattr(volatility3.symbols, "__path__", [str(tmp_path)])
    folder = tmp_path / "windows" / PDB
    folder.mkdir(parents=True)
    return folder / f"{GUID}-{AGE}.json.xz"


def download():
    PDBUtility.download_pdb_isf(contexts.Context(), GUID, AGE, PDB)


def test_offline_a_table_stays_as_it_is(place):
    place.write_bytes(lzma.compress(b"a table of which the cache does not know"))
    before = place.read_bytes()
    with pytest.raises(exceptions.OfflineException):
        download()
    assert place.read_bytes() == before
    assert list(place.parent.iterdir()) == [place]


def test_a_table_stays_if_its_download_breaks_off(place, monkeypatch):
    place.write_bytes(lzma.compress(b"a table of which the cache does not know"))
    before = place.read_bytes()

    def breaks_off(self, guid, file_name, progress_callback=None):
        raise OSError("the connection was closed")

    monkeypatch.setattr(pdbconv.PdbRetreiver, "retreive_pdb", breaks_off)
    with pytest.raises(OSError, match="closed"):
        download()
    assert place.read_bytes() == before
    assert list(place.parent.iterdir()) == [place]


def test_a_download_replaces_what_is_there_once_it_is_whole(place, monkeypatch, tmp_path):
    class Reader:
        def __init__(self, context, location, pdb_name, progress_callback):
            assert place.read_bytes() == b"before"

        def get_json(self):
            return {"symbols": {}}

    pdb = tmp_path / "downloaded.pdb"
    pdb.write_bytes(b"PDB")
    place.write_bytes(b"before")
    monkeypatch.setattr(pdbconv.PdbRetreiver, "retreive_pdb", lambda self, *_, **__: str(pdb))
    monkeypatch.setattr(pdbconv, "PdbReader", Reader)
    download()
    assert json.loads(lzma.decompress(place.read_bytes())) == {"symbols": {}}
    assert list(place.parent.iterdir()) == [place]
