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
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import IO, Any, Callable, Optional

import psutil

from .job import HERE, Job, to_json

OFTEN = 0.2
"""Seconds between two looks at a process."""
MOST_LOG = 1 << 16
"""Bytes of the end of a log that manifests keep."""
MOST_WRITTEN = 1 << 28
"""Bytes of log at which a process is ended: it would fill the disk."""

PATIENCE = 5.0
"""Seconds in which a process that has said its last may end by itself."""

PROGRAM = str(HERE / "begin.py")
"""What a process of `stackfleet.child` runs. Of an installed copy and that of its parent it takes its
parent's."""


class StoppedError(Exception):
    """Nobody wants this attempt any more."""


@dataclasses.dataclass
class Outcome:
    """What became of an attempt.

    Attributes:
        facts: what the process said of the image when it was done; None if it failed
        image_id: under which the tables are; empty if that was not decided
        identified: what the image is; empty if it could not be opened
        reason: why it failed
        final: whether another attempt would fail, too
        seconds: how long it took
        memory: the most bytes that it held
        exit: how the process ended
        log: the end of what it logged
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
    """A limit that the process went over."""


class Attempt:
    """Runs the process that reads an image.

    Args:
        job: the image
        name: of the attempt
        decide: takes what the image is and `tick`, which it calls while it waits; returns the ImageId under
            which the tables are to be written, None if the process is not to go on
        wanted: tells whether the attempt is still wanted
        told: is told how it goes: seconds, memory, rows
    """

    def __init__(
        self,
        job: Job,
        name: str,
        decide: Callable[[dict[str, Any], Callable[[], None]], Optional[str]],
        wanted: Callable[[], bool],
        told: Callable[[dict[str, Any]], None],
    ) -> None:
        self._job, self._name = job, name
        self._decide, self._wanted, self._told = decide, wanted, told
        self._outcome = Outcome()
        self._rows = 0
        self._start = self._told_at = time.monotonic()

    def run(self) -> Outcome:
        """Runs it to its end, whatever that is.

        Raises:
            StoppedError: it is not wanted any more; its process has ended
        """
        message = {
            "path": self._job.path,
            "lake": self._job.lake,
            "attempt": self._name,
            "reading": to_json(self._job.reading),
        }
        with tempfile.TemporaryFile() as log:
            with Process(log) as process:
                self._process = process
                try:
                    process.tell(message)
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

    def tick(self) -> None:
        """Looks at the process and at who wants it; raises what ends the attempt."""
        limits, seconds = self._job.limits, time.monotonic() - self._start
        if not self._wanted():
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
            self._told({"seconds": round(seconds, 1), "memory": memory, "rows": self._rows})

    def _follow(self, process: Process) -> None:
        """Takes what the process says, until it has nothing more to say."""
        outcome = self._outcome
        while True:
            self.tick()
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
                outcome.reason = "its process ended before it was done"
                return
            else:
                outcome.identified = message["identified"]
                image_id = self._decide(outcome.identified, self.tick)
                if image_id is None:
                    return
                outcome.image_id = image_id
                process.tell({"image_id": image_id})


class Process:
    """A process of `stackfleet.child`, and the line to it (a context).

    It listens to a pipe whose other end only this process holds, so it ends when this one does.

    Args:
        log: where its log goes
    """

    def __init__(self, log: IO[bytes]) -> None:
        self._log = log
        self._child = subprocess.Popen(
            [sys.executable, PROGRAM, str(HERE.parent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(os.environ),
            start_new_session=True,
        )
        self._known = psutil.Process(self._child.pid)
        self._heard: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def tell(self, message: dict[str, Any]) -> None:
        """Sends a message; one that has ended gets none."""
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):
            self._child.stdin.write(json.dumps(message).encode() + b"\n")
            self._child.stdin.flush()

    def hear(self, seconds: Optional[float] = None) -> Optional[dict[str, Any]]:
        """Returns the next message, `ended` if there will be none; None if there was none in the time."""
        try:
            return self._heard.get(timeout=seconds)
        except queue.Empty:
            return None

    def memory(self) -> int:
        """Returns the bytes of resident memory of the process and of all that it has started."""
        total = 0
        for each in self._family():
            with contextlib.suppress(psutil.Error):
                total += each.memory_info().rss
        return total

    def written(self) -> int:
        """Returns the bytes of its log."""
        return os.fstat(self._log.fileno()).st_size

    def end(self, patience: float = 0) -> str:
        """Ends the process and all that it has started; returns how it ended.

        Args:
            patience: seconds in which it may end by itself
        """
        if self._child.returncode is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(patience)
            self._kill()
        code = self._child.returncode
        return f"signal {-code}" if code < 0 else f"{code}"

    def _kill(self) -> None:
        # Its number is its own until it was waited for; what it has started is in its group.
        if self._child.returncode is None:
            for each in reversed(self._family()):
                with contextlib.suppress(psutil.Error):
                    each.kill()
            if hasattr(os, "killpg"):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._child.pid, signal.SIGKILL)
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):
            self._child.stdin.close()
        self._child.wait()

    def _family(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            return [self._known, *self._known.children(recursive=True)]
        return []

    def _listen(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as stream:
            for line in stream:
                self._heard.put(json.loads(line))
        self._heard.put({"ended": True})


def environment(known: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a process: PYTHONPATH keeps its absolute folders only.

    Python takes an empty entry, such as an unset variable leaves, and a relative one for the current folder.

    Args:
        known: the environment of this process
    """
    made = dict(known)
    if "PYTHONPATH" in made:
        kept = filter(os.path.isabs, made["PYTHONPATH"].split(os.pathsep))
        made["PYTHONPATH"] = os.pathsep.join(kept)
    return made


def tail(log: IO[bytes]) -> str:
    """Returns the end of a log."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(size - MOST_LOG, 0))
    return log.read().decode("utf-8", "replace")
