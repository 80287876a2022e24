# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs the real `stackfleet`, and looks at the processes that it starts."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import psutil
from deltalake import DeltaTable

from stackfleet import cli
from stackfleet.child_process import PROGRAM
from stackfleet.database import Database
from stackfleet.lake import Lake
from tests.conftest import ROOT
from tests.forge import warm
from tests.support import warmfleet, warmreader

HOOKS = ROOT / "tests" / "support" / "fleethooks"
COMMAND = (sys.executable, "-m", "stackfleet")
PATIENCE = 120.0
"""Seconds after which no process that reads an image may be left. On an idle machine they end at once."""

ENDLESS = 300
"""Seconds after which a test that hangs is ended: far more than a busy machine takes for any of them."""


MARK = f"{os.getpid()}"
"""Tells the processes of these tests from those of others that run at the same time."""


def environment() -> Dict[str, str]:
    """The environment of a run in which some images hang: see `fleethooks`."""
    path = os.pathsep.join(filter(None, (str(HOOKS), str(ROOT), os.environ.get("PYTHONPATH"))))
    return dict(os.environ, PYTHONPATH=path, STACKFLEET_TEST=MARK)


def fleet(
    *arguments: object,
    timeout: float = ENDLESS,
    variables: Optional[Dict[str, str]] = None,
    command: Tuple[str, ...] = COMMAND,
    code: Optional[int] = None,
) -> "subprocess.CompletedProcess[str]":
    """Runs `stackfleet` to its end.

    Its imports, and those of the processes that read images, are made before where that changes nothing: see
    `warm`. With variables, plugins of its own, or another command it is started as a user starts it.

    Args:
        code: the exit code that must come, without a traceback; None for any
    """
    if command == COMMAND and not variables and "--plugin-dirs" not in arguments and hasattr(os, "fork"):
        readers = {warmfleet.READERS: warm.server(warmreader.__name__)}
        words = ["stackfleet", *map(str, arguments)]
        known = {**environment(), **readers}
        done = warm.call([sys.executable, *words], known, str(ROOT), timeout, warmfleet.__name__)
    else:
        done = subprocess.run(
            [*command, *map(str, arguments)],
            cwd=ROOT,
            env={**environment(), **(variables or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    _require(code, done)
    return done


def ask(*arguments: object, code: int = 0, said: str = "") -> List[Dict[str, Any]]:
    """The rows that a command prints; `said` is a part of what it says besides."""
    done = called(*arguments, "--format", "jsonl", code=code)
    assert said in done.stderr
    return list(map(json.loads, done.stdout.splitlines()))


def measured(*arguments: object) -> Tuple[int, str, int]:
    """Runs a command on Linux; returns its code, its errors, and the most megabytes that its process held."""
    code = (
        "import sys; from stackfleet import cli; code = cli.main(); "
        "print(open('/proc/self/status').read()); sys.exit(code)"
    )
    words = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr, int(done.stdout.partition("VmHWM:")[2].split()[0]) >> 10


@dataclasses.dataclass
class Ran:
    """What a command line came to: exit code and output."""

    returncode: int
    stdout: str
    stderr: str


def _require(code: Optional[int], done: Any) -> None:
    __tracebackhide__ = True
    assert code in (None, done.returncode), done.stderr
    assert code is None or "Traceback" not in done.stderr, done.stderr


def called(*arguments: object, seconds: int = ENDLESS, code: Optional[int] = None) -> Ran:
    """Runs `stackfleet` in this process, which is ended if it takes longer; see `fleet`."""
    out, errors = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    if hasattr(signal, "alarm"):
        signal.alarm(seconds)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            ended = cli.main(list(map(str, arguments)))
    finally:
        if hasattr(signal, "alarm"):
            signal.alarm(0)
    out.flush()
    errors.flush()
    done = Ran(ended, *(stream.buffer.getvalue().decode() for stream in (out, errors)))
    _require(code, done)
    return done


@contextlib.contextmanager
def started(
    *arguments: object, command: Tuple[str, ...] = COMMAND, variables: Optional[Dict[str, str]] = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """Starts `stackfleet`, or another program, and ends it with all that it has started."""
    with subprocess.Popen(
        [*command, *map(str, arguments)],
        cwd=ROOT,
        env={**environment(), **(variables or {})},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # A program under `nohup` inherits an ignored SIGHUP.
        preexec_fn=None if os.name == "nt" else _heed_hangup,
    ) as process:
        try:
            yield process
        finally:
            kill(process.pid)


def _heed_hangup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def kill(pid: int) -> None:
    """Kills a process and all that it has started."""
    with contextlib.suppress(psutil.Error):
        whole = psutil.Process(pid)
        for process in [*whole.children(recursive=True), whole]:
            with contextlib.suppress(psutil.Error):
                process.kill()


def children() -> List[int]:
    """The processes that read images, of these tests."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        with contextlib.suppress(psutil.Error):
            alive = process.info["status"] != psutil.STATUS_ZOMBIE
            if alive and PROGRAM in (process.info["cmdline"] or ()):
                if process.environ().get("STACKFLEET_TEST") == MARK:
                    found.append(process.info["pid"])
    return found


def gone(pid: int) -> Callable[[], bool]:
    """A condition for `wait`: a process has ended, whether or not its parent has asked for its result."""

    def condition() -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return condition


def wait(condition: Any, seconds: float = ENDLESS) -> None:
    """Waits until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.1)


def manifests(lake: pathlib.Path) -> Dict[str, Dict[str, Any]]:
    """The manifests of a lake by the name of the file of the image."""
    found = Lake(str(lake)).manifests()
    return {pathlib.Path(manifest["path"]).name: manifest for manifest in found}


def runs(lake: pathlib.Path) -> List[Dict[str, Any]]:
    """The records of runs, as any reader of Delta sees them."""
    found = DeltaTable(str(lake)).to_pyarrow_table(filters=[("Table", "=", "runs")], columns=["Manifest"])
    return list(map(json.loads, found.column(0).to_pylist()))


def rows(lake: pathlib.Path, table: str) -> List[Tuple[Any, ...]]:
    """All rows of a view of a lake, sorted."""
    with Database(Lake(str(lake))) as database:
        found = database.table(f"SELECT * FROM {table} ORDER BY ALL")
    return list(zip(*(column.to_pylist() for column in found.columns)))
