# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""One attempt at an image: a process of its own, watched for time, memory, and whether it is still wanted."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import IO, Any, Callable, Optional, Union

import psutil

from .forking import READERS, VARIABLES, Forked
from .job import HERE, Job

OFTEN = 0.2
"""Seconds between two checks of a process."""
SELDOM = 1.0
"""Seconds between two lists of the processes that a process started."""
MOST_LOG = 1 << 16
"""Bytes at the end of a log that manifests keep."""
MOST_WRITTEN = 1 << 28
"""The most bytes of a log; a process that writes more is ended, because it would fill the disk."""

PATIENCE = 5.0
"""Seconds in which a process may end by itself after its last message."""

PROGRAM = str(HERE / "begin.py")
"""The program of a child process. If there are an installed copy of the package and the parent's own copy,
the process uses the parent's."""
READER, ANSWERER, WARM = "stackfleet.child", "stackfleet.agent_child", "stackfleet.warm"
"""The modules that a child process can run."""


class StoppedError(Exception):
    """This attempt is no longer wanted."""


@dataclasses.dataclass
class Outcome:
    """The result of an attempt.

    Attributes:
        facts: facts about the image from the process; None if the attempt failed
        image_id: ImageId under which the tables are stored; empty if it was not decided
        identified: own ImageId and files of the image; empty if it could not be opened
        final: whether another attempt would fail, too
        memory: the most bytes of resident memory
        exit: how the process ended
        log: end of the process's log
    """

    facts: Optional[dict[str, Any]] = None
    image_id: str = ""
    identified: dict[str, Any] = dataclasses.field(default_factory=dict)
    reason: str = ""
    final: bool = False
    seconds: float = 0.0
    memory: int = 0
    exit: str = ""
    log: str = ""


class _LimitError(Exception):
    """The process exceeded a limit."""


class Attempt:
    """Runs the process that reads an image.

    Args:
        folder: empty folder for the rows of the image
        decide: function of the image's identity and `poll`, which it calls while it waits; returns the
            ImageId under which the tables are stored, None to stop the process
        on_progress: function that is called with the progress: seconds, memory, rows
    """

    def __init__(
        self,
        job: Job,
        folder: str,
        decide: Callable[[dict[str, Any], Callable[[], None]], Optional[str]],
        is_wanted: Callable[[], bool],
        on_progress: Callable[[dict[str, Any]], None],
    ) -> None:
        self._job, self._folder = job, folder
        self._decide, self._is_wanted, self._on_progress = decide, is_wanted, on_progress
        self._outcome = Outcome()
        self._rows = 0
        self._start = self._told_at = time.monotonic()

    def run(self) -> Outcome:
        """Runs the attempt to its end, successful or not.

        Raises:
            StoppedError: the attempt is no longer wanted; its process has ended
        """
        message = {
            "path": self._job.path,
            "lake": self._job.lake,
            "folder": self._folder,
            "reading": dataclasses.asdict(self._job.reading),
        }
        with tempfile.TemporaryFile() as log:
            with ChildProcess(log, job=message) as process:
                self._process = process
                try:
                    process.send(message)
                    self._follow(process)
                except _LimitError as error:
                    process.end()
                    self._outcome.facts, self._outcome.reason = None, str(error)
                finally:
                    ended = self._outcome.facts is not None or bool(self._outcome.reason)
                    self._outcome.exit = process.end(PATIENCE if ended else 0)
            self._outcome.seconds = round(time.monotonic() - self._start, 3)
            self._outcome.log = tail(log)
        return self._outcome

    def poll(self) -> None:
        """Checks the process and whether the attempt is wanted; raises an exception to end the attempt."""
        limits, seconds = self._job.limits, time.monotonic() - self._start
        if not self._is_wanted():
            raise StoppedError
        memory, written = self._process.memory(), self._process.written()
        self._outcome.memory = max(self._outcome.memory, memory)
        if limits.seconds is not None and seconds > limits.seconds:
            raise _LimitError(f"killed: it took longer than {limits.seconds:g} seconds (--timeout)")
        if limits.memory is not None and memory > limits.memory:
            raise _LimitError(
                f"killed: it held {memory >> 20} MiB, more than {limits.memory >> 20} MiB (--memory)"
            )
        if written > MOST_WRITTEN:
            raise _LimitError(f"killed: its log was longer than {MOST_WRITTEN >> 20} MiB")
        if time.monotonic() - self._told_at > 1:
            self._told_at = time.monotonic()
            self._on_progress({"seconds": round(seconds, 1), "memory": memory, "rows": self._rows})

    def _follow(self, process: ChildProcess) -> None:
        """Processes the messages of the process until its last one."""
        outcome = self._outcome
        while True:
            self.poll()
            message = process.hear(OFTEN)
            if message is None:
                continue
            if "rows" in message:
                self._rows = message["rows"]
            elif "failed" in message:
                outcome.reason, outcome.final = message["failed"]["reason"], message["failed"]["final"]
                return
            elif "done" in message:
                outcome.facts = message["done"]
                return
            elif "ended" in message:
                outcome.reason = "its process ended before the image was done"
                return
            else:
                outcome.identified = message["identified"]
                image_id = self._decide(outcome.identified, self.poll)
                if image_id is None:
                    return
                outcome.image_id = image_id
                process.send({"image_id": image_id})


class ChildProcess:
    """A child process, and the message channel to it (a context).

    The process reads from a pipe whose other end only this process holds, so it ends when this process does.

    Args:
        module: the module that the process runs
        job: its job, if it reads an image: it is forked where that is possible
    """

    def __init__(self, log: IO[bytes], module: str = READER, job: Optional[dict[str, Any]] = None) -> None:
        self._log = log
        forked = None if job is None else READERS.fork(job, log, _warm)
        pipe = subprocess.PIPE
        self._child: Union[Forked, subprocess.Popen[bytes]] = forked or _started(
            [module], {}, pipe, pipe, log
        )
        self._known: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            self._known = [psutil.Process(self._child.pid)]
        self._members: list[psutil.Process] = []
        self._listed_at = -SELDOM
        self._heard: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message; a process that has ended gets none."""
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):
            self._child.stdin.write(json.dumps(message).encode() + b"\n")
            self._child.stdin.flush()

    def hear(self, seconds: Optional[float] = None) -> Optional[dict[str, Any]]:
        """Returns the next message, `ended` if no more will come; None if none came in the time."""
        try:
            return self._heard.get(timeout=seconds)
        except queue.Empty:
            return None

    def memory(self) -> int:
        """Returns the resident memory in bytes of the process and all processes that it started.

        To list these, psutil reads a file of each process of the machine: only every `SELDOM` seconds.
        """
        if time.monotonic() - self._listed_at >= SELDOM:
            self._listed_at, self._members = time.monotonic(), self._family()
        total = 0
        for member in self._members:
            with contextlib.suppress(psutil.Error):
                total += member.memory_info().rss
        return total

    def written(self) -> int:
        """Returns the size of its log in bytes."""
        return os.fstat(self._log.fileno()).st_size

    def end(self, patience: float = 0) -> str:
        """Ends the process and all processes that it started; returns how it ended.

        Args:
            patience: seconds in which the process may end by itself
        """
        if self._child.returncode is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(patience)
            self._kill()
        code = self._child.wait()
        return f"signal {-code}" if code < 0 else f"{code}"

    def _kill(self) -> None:
        # The process ID is not reused until it was waited for; the processes that it started are in its
        # group.
        if self._child.returncode is None:
            for member in reversed(self._family()):
                with contextlib.suppress(psutil.Error):
                    member.kill()
            if hasattr(os, "killpg"):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._child.pid, signal.SIGKILL)
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):
            self._child.stdin.close()
        self._child.wait()

    def _family(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            return [member for known in self._known for member in (known, *known.children(recursive=True))]
        return []

    def _listen(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as stream:
            for line in stream:
                self._heard.put(json.loads(line))
        self._heard.put({"ended": True})


def _started(
    words: list[str], variables: dict[str, str], stdin: Any, stdout: int, stderr: Any
) -> subprocess.Popen[bytes]:
    """Starts a process that runs a module, which is the first of the words."""
    return subprocess.Popen(
        [sys.executable, PROGRAM, str(HERE.parent), *words],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env={**environment(os.environ), **variables},
        start_new_session=True,
    )


def _warm(job: str, requests: socket.socket) -> subprocess.Popen[bytes]:
    """Starts the process that forks readers."""
    return _started([WARM, job], VARIABLES, requests, subprocess.DEVNULL, subprocess.DEVNULL)


def environment(known: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a process: of PYTHONPATH only the absolute folders are kept.

    Python takes an empty entry, as an unset variable leaves it, or a relative one as the current folder.
    """
    variables = dict(known)
    if "PYTHONPATH" in variables:
        absolute_folders = filter(os.path.isabs, variables["PYTHONPATH"].split(os.pathsep))
        variables["PYTHONPATH"] = os.pathsep.join(absolute_folders)
    return variables


def tail(log: IO[bytes]) -> str:
    """Returns the end of a log."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(size - MOST_LOG, 0))
    return log.read().decode("utf-8", "replace")
