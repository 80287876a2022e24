# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Fixtures that all tests share. Our plugins come from the checkout, in front of any installed copy."""

from __future__ import annotations

import gc
import os
import pathlib
import sys
import tempfile
from typing import List, Optional

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHARED = pathlib.Path(os.environ.get("STACKTRACES_SHARED", str(ROOT.parent / "shared")))

# Volatility creates its cache folder when it is imported: never in the home of who runs the tests.
os.environ.setdefault("XDG_CACHE_HOME", tempfile.mkdtemp(prefix="stacktraces-cache-"))

import hypothesis  # noqa: E402
import volatility3.plugins  # noqa: E402
from volatility3.framework import constants  # noqa: E402

volatility3.plugins.__path__ = [str(ROOT / "volatility3_plugins"), *constants.PLUGINS_PATH]


# Opened images stay in memory: to look through all of them for garbage as often as Python does takes a tenth of
# the time.
gc.set_threshold(50_000, 20, 20)

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    for item in items:
        group = _group(item)
        if group is not None and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))
    if SHARED.is_dir():
        return
    skip = pytest.mark.skip(reason=f"the reference data is not at {SHARED}")
    for item in items:
        if "shared" in item.keywords:
            item.add_marker(skip)


def _group(item: pytest.Item) -> Optional[str]:
    """Returns what the tests have in common that one worker should run: what they share is then made once."""
    known = getattr(item, "_fixtureinfo", None)
    for definitions in known.name2fixturedefs.values() if known is not None else ():
        fixture = definitions[-1]
        module = fixture.func.__module__
        if module == __name__ or not module.startswith("tests."):
            continue
        if fixture.scope == "session":
            return str(module)
        if fixture.scope == "module":
            return item.location[0]
    return None


def pytest_sessionfinish() -> None:
    """Writes what `dev.py coverage` has measured so far: a worker that takes long to end is killed."""
    module = sys.modules.get("coverage")
    measuring = module.Coverage.current() if module else None
    if measuring is not None:
        measuring.save()


@pytest.fixture(scope="session")
def shared_dir() -> pathlib.Path:
    """The folder of reference data (real databases, trap frames, symbol tables)."""
    if not SHARED.is_dir():
        pytest.skip(f"the reference data is not at {SHARED}")
    return SHARED
