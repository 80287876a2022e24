# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Processes that read images, forked from one that has imported everything: its imports are made once.

The process of `warm.py` is started for the first image of a run. It opens nothing, has one thread, and ends
with the process that started it, as those do that it forked.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import threading
from typing import IO, Any, Callable, Optional

from winstacks.memory.workers import can_fork

NUMBER = struct.Struct("<i")
"""The form of a process ID and of an exit code."""
PATIENCE = 60.0
"""Seconds in which the process must have imported everything, and have forked."""
LAST = 5.0
"""Seconds for which the end of a run waits for the end of the process."""

VARIABLES = {"OMP_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""With these the imports of NumPy and PyArrow start no thread. A fork copies one thread and the locks of all:
nobody would release a lock that another thread holds."""


class Forked:
    """A forked process, with the members of a Popen that `ChildProcess` uses.

    Args:
        control: socket to the process that forked it. That sends the exit code, and keeps the process ID from
            being reused until this end is closed
    """

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes], control: socket.socket) -> None:
        self.pid, self.stdin, self.stdout, self._control = pid, stdin, stdout, control
        self.returncode: Optional[int] = None

    def wait(self, timeout: Optional[float] = None) -> int:
        """Waits for its end; raises subprocess.TimeoutExpired after so many seconds."""
        if self.returncode is None:
            self._control.settimeout(timeout)
            try:
                data = self._control.recv(NUMBER.size)
            except (TimeoutError, BlockingIOError) as error:
                raise subprocess.TimeoutExpired("a process that reads an image", timeout or 0) from error
            except ConnectionError:
                data = b""
            # Without its parent process the kernel has ended it.
            (self.returncode,) = NUMBER.unpack(data) if data else (-signal.SIGKILL,)
            self._control.close()
        return self.returncode


class Warm:
    """The process that forks.

    Args:
        start: function that starts it with a file as its standard input

    Attributes:
        used: whether it has forked at all
    """

    def __init__(self, start: Callable[[socket.socket], subprocess.Popen[bytes]]) -> None:
        self._requests, theirs = socket.socketpair()
        self.used = False
        # Linux ends the process with the thread that started it: a thread of Dask may end before the run.
        self._thread = threading.Thread(target=self._keep, args=(start, theirs), daemon=True)
        self._thread.start()

    def runs(self) -> bool:
        """Returns whether the process has not ended."""
        return self._thread.is_alive()

    def fork(self, log: IO[bytes]) -> Optional[Forked]:
        """Returns a new process with a log as its standard error; None if none can be forked."""
        its_input, to_it = os.pipe()
        from_it, its_output = os.pipe()
        control, theirs = socket.socketpair()
        control.settimeout(PATIENCE)
        data = b""
        with contextlib.suppress(OSError):
            files = [its_input, its_output, log.fileno(), theirs.fileno()]
            try:
                socket.send_fds(self._requests, [b"f"], files)
            finally:
                os.close(its_input)
                os.close(its_output)
                theirs.close()
            data = control.recv(NUMBER.size)
        stdin, stdout = os.fdopen(to_it, "wb"), os.fdopen(from_it, "rb")
        if not data:
            for file in (stdin, stdout, control):
                file.close()
            return None
        self.used = True
        return Forked(NUMBER.unpack(data)[0], stdin, stdout, control)

    def close(self, patience: float = 0) -> None:
        """Has the process end after its last reader.

        Args:
            patience: seconds in which it may end
        """
        with contextlib.suppress(OSError):
            self._requests.shutdown(socket.SHUT_WR)
        self._thread.join(patience)

    def _keep(self, start: Callable[[socket.socket], subprocess.Popen[bytes]], theirs: socket.socket) -> None:
        with contextlib.suppress(OSError):
            with theirs:
                process = start(theirs)
            process.wait()


class Readers:
    """Forks processes for the images of a run, and replaces the process that forks if it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key = ""
        self._warm: Optional[Warm] = None

    def fork(
        self,
        job: dict[str, Any],
        log: IO[bytes],
        start: Callable[[str, socket.socket], subprocess.Popen[bytes]],
    ) -> Optional[Forked]:
        """Returns a new process that reads an image; None if it must be started in another way.

        In Windows there is no fork, and in macOS libraries of the system do not survive it.

        Args:
            job: the options for reading, and the lake
            start: function that starts the process that forks, for such a job as text
        """
        if not can_fork():
            return None
        with self._lock:
            key = json.dumps({name: job[name] for name in ("reading", "lake")})
            warm = self._warm
            if warm is None or key != self._key or (warm.used and not warm.runs()):
                if warm is not None:
                    warm.close()
                warm = Warm(lambda file: start(key, file))
                self._key, self._warm = key, warm
        # Another one would not fork, either, if this one has ended and never did.
        return warm.fork(log)

    def close(self, patience: float = 0) -> None:
        """Has the process that forks end; see `Warm.close`."""
        with self._lock:
            warm, self._warm = self._warm, None
        if warm is not None:
            warm.close(patience)


READERS = Readers()
"""Those of this process."""
