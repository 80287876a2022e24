# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Asks a server of `warm` for a command: `ask.py SOCKET ARGUMENTS...` is `vol ARGUMENTS...`.

It imports little, so that it starts at once, and nothing of this project: it is run by its path, too.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import List, Mapping, Optional, Sequence


class Command:
    """A command that the server runs.

    Args:
        path: the server's socket
        argv: the command's words, that of the program first
        files: its standard input, output and errors
        environment: its environment
        cwd: the folder in which it runs

    Attributes:
        pid: its process
    """

    def __init__(
        self, path: str, argv: Sequence[str], files: List[int], environment: Mapping[str, str], cwd: str
    ) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(path)
        socket.send_fds(self._connection, [b"\0"], files)
        requests = {"argv": list(argv), "cwd": cwd, "environment": dict(environment)}
        self._connection.sendall(json.dumps(requests).encode())
        self._connection.shutdown(socket.SHUT_WR)
        self._answers = self._connection.makefile("r", encoding="ascii")
        self.pid = int(self._answers.readline())

    def wait(self, seconds: Optional[float] = None) -> Optional[int]:
        """Returns the exit code, negative for a signal; None if it was killed after so many seconds."""
        self._connection.settimeout(seconds)
        try:
            code = int(self._answers.readline())
        except socket.timeout:
            os.kill(self.pid, signal.SIGKILL)
            return None
        finally:
            self._connection.close()
        return code


if __name__ == "__main__":
    here = Command(sys.argv[1], ["vol", *sys.argv[2:]], [0, 1, 2], os.environ, os.getcwd())
    code = here.wait()
    sys.exit(code if code is not None and code >= 0 else 1)
