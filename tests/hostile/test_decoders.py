# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Every module of a `decode` folder meets hostile bytes: undamaged inputs of a target run its functions."""

from __future__ import annotations

import ast
import collections
import pathlib
import sys
from types import FrameType
from typing import Dict, Set

import pytest

from tests.conftest import ROOT
from tests.hostile import decoders

LIBRARY = ROOT / "winstacks"
TAKES_NO_BYTES: Dict[str, str] = {
    "memory/decode/records.py": "it makes classes, when they are imported",
    "memory/decode/statuscodes.py": "a list of words, made when it is imported",
}
"""Modules that no target needs to run, and why."""


def _functions(path: pathlib.Path) -> Set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def _forget() -> None:
    """Empties the caches of decoders: what a test before has asked is computed again."""
    for name, module in list(sys.modules.items()):
        if name.startswith("winstacks.") and ".decode." in name:
            for known in vars(module).values():
                getattr(known, "cache_clear", bool)()


def _run_by_seeds() -> Dict[str, Set[str]]:
    """Returns the names of the functions that the first inputs of all targets run, by file."""
    seen: Dict[str, Set[str]] = collections.defaultdict(set)

    def called(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            seen[frame.f_code.co_filename].add(frame.f_code.co_name)

    _forget()
    before = sys.getprofile()
    for target in decoders.targets().values():
        seeds = target.seeds()
        sys.setprofile(called)
        try:
            for seed in seeds[:6]:
                target.decode(seed, b"")
        finally:
            sys.setprofile(before)
    return seen


@pytest.fixture(scope="module")
def left_out() -> Set[str]:
    """The modules without a function that is run."""
    seen = _run_by_seeds()
    paths = [path for path in sorted(LIBRARY.glob("*/decode/*.py")) if _functions(path)]
    return {str(path.relative_to(LIBRARY)) for path in paths if not _functions(path) & seen[str(path)]}


def test_every_decoder_is_a_target(left_out: Set[str]) -> None:
    assert not left_out - set(TAKES_NO_BYTES)


def test_exceptions_are_needed(left_out: Set[str]) -> None:
    assert set(TAKES_NO_BYTES) <= left_out
