# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A server that has imported a program, and forks for each of its commands that `ask` sends.

Each command runs in a process of its own. Only the imports, most of the time of a short command, come before.
The server ends with the process that has started it. This module is the program `vol` with all plugins, too;
other programs are modules with the same two functions `load` and `run`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import pathlib
import pkgutil
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, Optional

from . import ask

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "volatility3_plugins"


_SERVERS: List["subprocess.Popen[bytes]"] = []
"""The server of this process. Nothing is written to its standard input, which ends when this process does."""


@functools.lru_cache(maxsize=None)
def server(program: str = __name__) -> str:
    """Returns the socket of this process's server of a program, which is started at the first call.

    Args:
        program: name of the module that loads and runs it
    """
    path = os.path.join(tempfile.mkdtemp(prefix="vol-"), "socket")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen()
    command = [sys.executable, "-m", __name__, program, str(listening.fileno())]
    _SERVERS.append(subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[listening.fileno()]))
    listening.close()
    return path


def call(
    command: List[str], environment: Dict[str, str], cwd: str, timeout: float, program: str = __name__
) -> "subprocess.CompletedProcess[str]":
    """Runs a command as `subprocess.run` does that captures its output as text.

    Args:
        command: Python, the path of the program, its arguments
        environment: its environment
        cwd: the folder in which it runs
        timeout: seconds; subprocess.TimeoutExpired after these
        program: name of the module that loads and runs the program
    """
    with contextlib.ExitStack() as stack:
        out, errors = (stack.enter_context(tempfile.TemporaryFile("r+")) for _ in range(2))
        none = stack.enter_context(open(os.devnull))
        files = [file.fileno() for file in (none, out, errors)]
        code = ask.Command(server(program), command[1:], files, environment, cwd).wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(command, timeout)
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), errors.read())


class Job:
    """A command that was asked for, in the process that is to run it."""

    def __init__(self, requests: Dict[str, Any], files: List[int]) -> None:
        self._asked = requests
        self._files = files

    def run(self, program: Any) -> None:
        """Runs the program with the command's words, files, folder and environment."""
        for number, file in enumerate(self._files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(self._asked["cwd"])
        os.environ.clear()
        os.environ.update(self._asked["environment"])
        sys.argv = self._asked["argv"]
        program.run()


def serve(listening: socket.socket) -> Optional[Job]:
    """Forks for each command; returns it in the process that is to run it, and None when the server ends."""
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        if sys.stdin in ready:
            return None
        connection, _ = listening.accept()
        if os.fork():
            connection.close()
            _reap()
            continue
        _, files, _, _ = socket.recv_fds(connection, 1, 3)
        with connection.makefile("rb") as stream:
            requests = json.loads(stream.read())
        pid = os.fork()
        if not pid:
            listening.close()
            connection.close()
            return Job(requests, files)
        for file in files:
            os.close(file)
        connection.sendall(f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        try:
            connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
        finally:
            os._exit(0)


def _reap() -> None:
    """Lets processes go that have waited for the end of a command."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def load() -> None:
    """Imports all that `vol` imports."""
    sys.argv = ["vol"]
    importlib.import_module("volatility3.cli")
    load_plugins()


def load_plugins() -> None:
    """Imports Volatility and all plugins; rows are checked from here on."""
    import volatility3.plugins
    from volatility3 import framework
    from volatility3.framework import automagic, constants, layers

    from . import opener

    opener.share()
    volatility3.plugins.__path__ = [str(PLUGINS), *constants.PLUGINS_PATH]
    framework.import_files(volatility3.plugins, True)
    for package in (automagic, layers):
        framework.import_files(package)
    from tests.support import checkedrows

    checkedrows.install()
    load_library()


def load_library() -> None:
    """Imports what the plugins import of the library when they run, and opens a file as Volatility does."""
    from volatility3.framework.layers import resources

    import winstacks

    for module in pkgutil.walk_packages(winstacks.__path__, "winstacks."):
        importlib.import_module(module.name)
    resources.ResourceAccessor().open(pathlib.Path(__file__).as_uri()).close()


def run() -> None:
    """Does what the program `vol` does; `--cache-path` is among its words."""
    from volatility3 import cli

    use_cache(sys.argv[sys.argv.index("--cache-path") + 1])
    cli.main()


def use_cache(folder: str) -> None:
    """Sets Volatility's cache: when `schemas` is imported, it reads which tables are known to be valid."""
    from volatility3 import schemas
    from volatility3.framework import constants

    constants.CACHE_PATH = folder
    importlib.reload(schemas)


def main() -> None:
    name, file = sys.argv[1:]
    listening = socket.socket(fileno=int(file))
    path = listening.getsockname()
    program = importlib.import_module(name)
    program.load()
    from winstacks.memory.collector import freeze

    freeze()
    job = serve(listening)
    if job is None:
        shutil.rmtree(os.path.dirname(path))
    else:
        job.run(program)


if __name__ == "__main__":
    main()
