# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Volatility's list of valid symbol tables may be half written, by a process that writes or was killed."""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Iterator

import pytest
from volatility3 import schemas
from volatility3.framework import constants

from stackfleet import validated


@pytest.fixture()
def listed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """The path of the list in a cache folder of the test's own."""
    with monkeypatch.context() as patch:
        patch.setattr(constants, "CACHE_PATH", str(tmp_path))
        yield tmp_path / "valid_isf.hashcache"
    importlib.reload(schemas)


def test_who_finds_half_a_list_waits_until_it_is_whole(
    listed: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed.write_text('["one", "tw')
    pauses = []

    def written_meanwhile(seconds: float) -> None:
        pauses.append(seconds)
        listed.write_text('["one", "two"]')

    monkeypatch.setattr(validated.time, "sleep", written_meanwhile)
    validated.load()
    assert schemas.cached_validations == {"one", "two"}
    assert len(pauses) == 1
    assert listed.exists()
    assert not capsys.readouterr().err


@pytest.mark.parametrize("content", ["", '["one", "tw', "5", "[[1]]", "[" * 100_000])
def test_a_list_that_stays_unreadable_is_removed_and_said(
    content: str, listed: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed.write_text(content)
    # Those of another folder, which was set when the process began.
    monkeypatch.setattr(schemas, "cached_validations", {"other"})
    monkeypatch.setattr(validated.time, "sleep", lambda seconds: None)
    validated.load()
    assert not listed.exists()
    assert str(listed) in capsys.readouterr().err
    assert schemas.cached_validations == set()
