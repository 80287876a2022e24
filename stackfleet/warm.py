# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The process that imports what a reader of images imports, and forks a process for each image.

Its standard input is a socket. Each message has four files: input, output and error of the new process, and
a socket. Through this it sends the process ID, and later the exit code; when the other end is closed, it ends
the process and forgets it. It ends when no message can come and its last process is forgotten, or when
nobody has asked for a process for a while: the worker of a cluster does not hear that a client was killed. It
opens no image, and no process has a file of another.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from typing import Any

from winstacks.memory.collector import freeze
from winstacks.memory.workers import end_with_parent

from . import child
from .forking import NUMBER
from .job import reading

_MODULES = (
    *("pyarrow.dataset", "stackfleet.reading"),
    *(f"volatility3.plugins.{name}.traces" for name in ("minidump", "windows")),
    *("winstacks.handles.lister", "winstacks.minidump.smalldump", "winstacks.stacks.cpu_x64"),
    "winstacks.stacks.decode.walk_x64",
)
"""Modules that most images need. Those that register layers of one kind of image are left to its process."""

IDLE = 5.0
"""Seconds without a process and without a message after which it ends."""


def load(job: dict[str, Any]) -> None:
    """Imports what a reader with these options imports, as far as that is the same for all images."""
    options = reading(job["reading"])
    child.use_cache(options.cache_path, job["lake"])
    from .opening import prepare

    prepare(options)
    for name in _MODULES:
        importlib.import_module(name)
    from volatility3 import framework
    from volatility3.framework import automagic, layers

    from winstacks.findings import registry

    for package in (automagic, layers):
        framework.import_files(package)
    for name in registry.CHECKS:
        registry.check_named(name)


def threads() -> int:
    """Returns the number of threads of this process."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


class Forks:
    """The processes that were forked, and the sockets through which they are asked for."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        # A signal is a byte in here, which ends the wait for messages.
        self._signals, self._signalled = socket.socketpair()
        for file in (self._signals, self._signalled):
            file.setblocking(False)
        self._running: dict[socket.socket, int] = {}
        self._ended: dict[socket.socket, int] = {}
        self._forgotten: set[int] = set()

    def serve(self) -> None:
        """Forks for each message until no more can come, or none came for `IDLE`; waits for its processes."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._signalled.fileno())
        listened = {self._requests, self._signals}
        while self._requests in listened or self._running or self._ended:
            waited_for = [*listened, *self._running, *self._ended]
            found = select.select(waited_for, [], [], None if self._running or self._ended else IDLE)[0]
            if not found:
                break
            for ready in found:
                if ready is self._signals:
                    ready.recv(1 << 12)
                    self._look()
                elif ready is not self._requests:
                    self._forget(ready)
                elif not self._fork():
                    listened.remove(ready)

    def _fork(self) -> bool:
        """Forks for a message; returns False if no more can come."""
        _, files, _, _ = socket.recv_fds(self._requests, 1, 4)
        if not files:
            return False
        control = socket.socket(fileno=files.pop())
        parent = os.getpid()
        with contextlib.suppress(OSError):
            pid = os.fork()
            if not pid:
                self._become(files, control, parent)
            self._running[control] = pid
            control.send(NUMBER.pack(pid))
        for file in files:
            os.close(file)
        if control not in self._running:
            control.close()
        return True

    def _become(self, files: list[int], control: socket.socket, parent: int) -> None:
        """Reads an image, in the new process."""
        try:
            os.setsid()
            end_with_parent()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            for other in (control, self._signals, self._signalled, *self._running, *self._ended):
                other.close()
            self._requests.detach()
            if os.getppid() == parent:
                child.perform()
        finally:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def _look(self) -> None:
        """Sends the exit codes of ended processes, whose IDs stay theirs until they are forgotten."""
        for control, pid in list(self._running.items()):
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is not None:
                self._ended[control] = self._running.pop(control)
                exited = found.si_code == os.CLD_EXITED
                with contextlib.suppress(OSError):
                    control.send(NUMBER.pack(found.si_status if exited else -found.si_status))
        self._forgotten = {pid for pid in self._forgotten if not os.waitpid(pid, os.WNOHANG)[0]}

    def _forget(self, control: socket.socket) -> None:
        """Ends a process for which nobody waits any more, and all that it started."""
        pid = self._running.pop(control, 0) or self._ended.pop(control)
        control.close()
        for end in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(pid, signal.SIGKILL)
        self._forgotten.add(pid)
        self._look()


def main() -> None:
    """Imports everything, and forks until the parent process closes the socket."""
    end_with_parent()
    child.refuse_pandas()
    load(json.loads(sys.argv[3]))
    if threads() == 1:
        gc.collect()
        freeze()
        Forks(socket.socket(fileno=0)).serve()
