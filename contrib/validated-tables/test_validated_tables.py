# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Volatility starts whatever became of the list of valid tables, and a write takes its place at once."""

import json
import os

import pytest
from volatility3 import schemas


@pytest.fixture()
def path(monkeypatch, tmp_path):
    path = tmp_path / "valid_isf.hashcache"
    monkeypatch.setattr(schemas, "cached_validation_filepath", str(path))
    return path


@pytest.mark.parametrize("content", ["", '["one", "tw', "5"])
def test_half_a_list_is_no_list(path, content):
    path.write_text(content)
    assert schemas.load_cached_validations() == set()
    schemas.record_cached_validations({"one"})
    assert schemas.load_cached_validations() == {"one"}


def test_who_reads_while_a_list_is_written_finds_the_old_one(path, monkeypatch):
    schemas.record_cached_validations({"one"})
    found = []
    dump = json.dump

    def dumping(values, stream):
        dump(values, stream)
        found.append(schemas.load_cached_validations())

    monkeypatch.setattr(schemas.json, "dump", dumping)
    schemas.record_cached_validations({"one", "two"})
    assert found == [{"one"}]
    assert schemas.load_cached_validations() == {"one", "two"}


def test_a_write_that_ends_in_the_middle_leaves_the_old_list_and_no_other_file(path, monkeypatch):
    schemas.record_cached_validations({"one"})

    def interrupted(values, stream):
        stream.write('["on')
        stream.flush()
        raise KeyboardInterrupt

    monkeypatch.setattr(schemas.json, "dump", interrupted)
    with pytest.raises(KeyboardInterrupt):
        schemas.record_cached_validations({"one", "two"})
    assert schemas.load_cached_validations() == {"one"}
    assert os.listdir(path.parent) == [path.name]
