# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A run with other symbol directories neither forgets nor finds the tables of this one."""

import json
import zipfile

import pytest
import volatility3.symbols
from volatility3.framework import constants
from volatility3.framework.automagic import symbol_cache


def table(guid):
    windows = {"pdb": {"GUID": guid, "age": 1, "database": "nt.pdb", "machine_type": 34404}}
    return json.dumps({"metadata": {"windows": windows}, "user_types": {}, "symbols": {}, "enums": {}})


@pytest.fixture()
def one(tmp_path):
    (tmp_path / "one" / "windows").mkdir(parents=True)
    (tmp_path / "one" / "windows" / "a.json").write_text(table("A" * 32))
    with zipfile.ZipFile(tmp_path / "one" / "packed.zip", "w") as packed:
        packed.writestr("windows/b.json", table("B" * 32))
    return tmp_path / "one"


@pytest.fixture()
def other(tmp_path):
    (tmp_path / "other" / "windows").mkdir(parents=True)
    (tmp_path / "other" / "windows" / "a.json").write_text(table("A" * 32))
    return tmp_path / "other"


@pytest.fixture()
def search(monkeypatch, tmp_path):
    """Returns what a run with some symbol directories reads, and the identifiers that it then knows."""
    monkeypatch.setattr(constants, "OFFLINE", True)
    opened = []
    accessor = symbol_cache.resources.ResourceAccessor
    real = accessor.open

    def reading(self, url, *args, **kwargs):
        opened.append(url)
        return real(self, url, *args, **kwargs)

    monkeypatch.setattr(accessor, "open", reading)

    def run(*directories):
        monkeypatch.setattr(volatility3.symbols, "__path__", [str(each) for each in directories])
        opened.clear()
        cache = symbol_cache.SqliteCache(str(tmp_path / "identifier.cache"))
        cache.update()
        return len(opened), cache

    return run


def test_a_run_with_other_directories_takes_nothing_away(search, one, other):
    assert search(one)[0] == 2
    assert search(other)[0] == 1
    read, cache = search(one)
    assert read == 0
    assert len(cache.get_identifier_dictionary()) == 2


def test_what_lies_outside_of_the_directories_is_not_found(search, one, other):
    search(one)
    _, cache = search(other)
    (location,) = cache.get_identifier_dictionary().values()
    assert "/other/" in location
    assert len(cache.get_identifiers(None)) == 1
    assert "/other/" in cache.find_location(b"nt.pdb|" + b"A" * 32 + b"|1", None)
    assert cache.find_location(b"nt.pdb|" + b"B" * 32 + b"|1", None) is None


def test_a_file_that_is_gone_is_forgotten(search, one):
    search(one)
    (one / "windows" / "a.json").unlink()
    _, cache = search(one)
    assert [location.endswith("b.json") for location in cache.get_local_locations()] == [True]
