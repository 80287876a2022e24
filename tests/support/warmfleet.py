# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The program `stackfleet` for a server of `warm`. The processes that read its images are forked, too."""

from __future__ import annotations

import gc
import importlib
import os
import subprocess
import sys
import threading
import types
from typing import Any, Dict, List, Optional

from tests.forge import ask

READERS = "STACKFLEET_READERS"
"""The variable with the socket of the server whose program is `warmreader`."""


_IMPORTED = (
    *("deltalake", "pandas", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "rich.table"),
    *("stackfleet.cli", "stackfleet.engine", "stackfleet.report", "stackfleet.task"),
)


def load() -> None:
    """Imports all that the commands of `stackfleet` import."""
    for name in _IMPORTED:
        importlib.import_module(name)


def run() -> None:
    """Does what the program `stackfleet` does."""
    from stackfleet import child_process, cli, engine

    # Those of the server would take a pipe for the file that they were opened for.
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
    # Where no scheduler answers, a command waits as long as this.
    engine.CONNECT = 2
    readers = os.environ.pop(READERS)

    child_process.subprocess = types.SimpleNamespace(  # type: ignore[assignment]
        Popen=lambda command, *, stdin, stderr, env, **_: Reader(readers, command, stdin, stderr, env),
        PIPE=subprocess.PIPE,
        DEVNULL=subprocess.DEVNULL,
        TimeoutExpired=subprocess.TimeoutExpired,
    )
    code = cli.main()
    # DuckDB reports all that is not freed at the end.
    gc.unfreeze()
    sys.exit(code)


class Reader:
    """A process that reads images, or forks such processes, with the members of a Popen that are used of it.

    Attributes:
        pid: its process ID
        stdin: pipe to it
        stdout: pipe from it
        returncode: its exit code, negative for a signal; None while it runs
    """

    def __init__(self, server: str, command: List[str], stdin: Any, log: Any, env: Dict[str, str]) -> None:
        its_input, to_it = os.pipe()
        from_it, its_output = os.pipe()
        with open(os.devnull, "wb") as none:
            files = [
                its_input if stdin == subprocess.PIPE else stdin.fileno(),
                its_output,
                (none if log == subprocess.DEVNULL else log).fileno(),
            ]
            self._command = ask.Command(server, command[1:], files, env, os.getcwd())
        for file in (its_input, its_output):
            os.close(file)
        self.pid = self._command.pid
        self.stdin, self.stdout = os.fdopen(to_it, "wb"), os.fdopen(from_it, "rb")
        self.returncode: Optional[int] = None
        self._code: Optional[int] = None
        self._waiter = threading.Thread(target=self._wait, daemon=True)
        self._waiter.start()

    def _wait(self) -> None:
        self._code = self._command.wait()

    def wait(self, timeout: Optional[float] = None) -> int:
        """Waits for its end; raises subprocess.TimeoutExpired after so many seconds."""
        self._waiter.join(timeout)
        if self._code is None:
            raise subprocess.TimeoutExpired("a process that reads an image", timeout or 0)
        self.returncode = self._code
        return self._code
