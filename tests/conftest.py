# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Fixtures that all tests share. Our plugins come from the checkout, in front of any installed copy."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import logging
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
from typing import Any, Iterator, List, Optional

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHARED = pathlib.Path(os.environ.get("STACKTRACES_SHARED", str(ROOT.parent / "shared")))

# It hides from the programs that the tests start that Python keeps what it could not write.
os.environ.pop("PYTHONUNBUFFERED", None)
# Lines are as long as where there is no terminal.
os.environ.pop("COLUMNS", None)

# Volatility creates its cache folder when it is imported, and finds symbol tables there: the tests have their
# own. Each worker has a folder in that of the process that has started it, because whoever imports Volatility
# while another writes the list of valid tables finds half a list, and ends.
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
if WORKER is None:
    CACHE = tempfile.mkdtemp(prefix="stacktraces-cache-")
    atexit.register(shutil.rmtree, CACHE, ignore_errors=True)
else:
    CACHE = os.path.join(os.environ["XDG_CACHE_HOME"], WORKER)
os.environ["XDG_CACHE_HOME"] = os.environ["APPDATA"] = CACHE

import hypothesis  # noqa: E402
import psutil  # noqa: E402
import volatility3.plugins  # noqa: E402
import volatility3.symbols  # noqa: E402
from volatility3.framework import constants  # noqa: E402

volatility3.plugins.__path__ = [str(ROOT / "volatility3_plugins"), *constants.PLUGINS_PATH]

from tests.support import checkedrows, deep, remembered  # noqa: E402

checkedrows.install()

# To look through opened images for garbage as often as Python does takes a tenth of the time.
gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def own_symbols() -> None:
    """Gives Volatility the tests' own symbol folder before a test replaces its folders for a while."""
    from tests.forge import context

    context.symbol_directory()


@pytest.fixture(autouse=True)
def settings_of_volatility(own_symbols: None) -> Iterator[None]:
    """Takes back what a test changes of Volatility's settings, which hold for the whole process."""
    folders, cache, offline = volatility3.symbols.__path__, constants.CACHE_PATH, constants.OFFLINE
    yield
    volatility3.symbols.__path__ = folders
    constants.CACHE_PATH, constants.OFFLINE = cache, offline


def pytest_configure(config: pytest.Config) -> None:
    deep.configure(config.option.markexpr)
    # A job in the background of a shell ignores the signal of Ctrl-C, and so would all that tests start.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # How long an example takes depends on what else the machine does. No change is refused for an example
    # that was drawn at random: a release tries new ones.
    hypothesis.settings.register_profile(
        "untimed", deadline=None, max_examples=deep.rounds(100), derandomize=not deep.everything()
    )
    hypothesis.settings.load_profile("untimed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    deep.mark(items)
    if SHARED.is_dir():
        return
    skip = pytest.mark.skip(reason=f"the reference data is not at {SHARED}")
    for item in items:
        if "shared" in item.keywords:
            item.add_marker(skip)


_SHARES = re.compile(r'scope="(?:module|session)"')


@functools.lru_cache(maxsize=None)
def unit_of(file: str) -> Optional[str]:
    """Returns the file, or its folder, whose tests one worker runs; None if any may run each of them.

    So what these tests share is made once.

    Args:
        file: its path in the checkout
    """
    path = ROOT / file
    if _SHARES.search(path.read_text(encoding="utf-8")):
        return file
    beside = path.with_name("conftest.py")
    if beside != pathlib.Path(__file__) and beside.exists() and "fixture" in beside.read_text("utf-8"):
        return str(path.parent)
    return None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives one worker all tests of a unit, and all others each to whoever has nothing to do."""
    if config.getoption("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid.partition("::")[0]) or nodeid

    return Units(config, log)


def pytest_sessionfinish() -> None:
    """Writes the figures measured so far, and takes objects out of pytest's last garbage collections.

    That is for `dev.py coverage`: a worker that takes long to end is killed.
    """
    remembered.forget()
    gc.freeze()
    atexit.register(gc.unfreeze)
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


_MORE_BYTES = 100 << 20
_MORE_BLOCKS = 1_500_000
"""By how much a process may grow before it looks for what it can forget.

Blocks are those of Python's allocator. It keeps memory that is free again, so that bytes alone would say ever
later that there is much to forget; bytes are those of large objects, too.
"""

_bytes = _blocks = 0


def pytest_collection_finish() -> None:
    """Takes what is imported by now out of all later searches for garbage: it stays to the end."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logfinish() -> None:
    """Lets go of images that are done with: what is in memory makes each fork and search for garbage dear."""
    global _bytes, _blocks
    process = psutil.Process()
    blocks = sys.getallocatedblocks()
    _blocks = min(_blocks or blocks, blocks)
    if blocks > _blocks + _MORE_BLOCKS or process.memory_info().rss > _bytes + _MORE_BYTES:
        remembered.forget()
        _collect()
        _give_back()
        _bytes, _blocks = process.memory_info().rss, sys.getallocatedblocks()


_EACH = 2
_collections = 0


def _collect() -> None:
    """Searches for garbage among what is new since the last search, each second time among all.

    Most of what a search leaves stays long: parsed symbol tables, images that the tests of a module share.
    """
    global _collections
    _collections += 1
    if not _collections % _EACH:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


def _give_back() -> None:
    """Returns memory that is free to the system: glibc keeps it for itself, up to the largest need so far."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(autouse=True)
def level_of_logs() -> None:
    """Gives logging Python's own level: Volatility's command line, once it has run, has all be logged."""
    logging.getLogger().setLevel(logging.WARNING)
