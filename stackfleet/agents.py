# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The command `mcp`: a server of the Model Context Protocol over a lake, for programs that ask.

This process speaks the protocol, and reads no lake; another one (`agent_child`) answers the questions, and is
ended when a question needs too much time or memory.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Any, Callable, Optional

from . import exits
from .arguments import port, seconds, size
from .child_process import ANSWERER, OFTEN, ChildProcess
from .lake import Lake
from .planning import WrongUseError

SDK = "mcp"
"""The package of the extra `mcp`."""
TOKEN = "STACKFLEET_MCP_TOKEN"
"""The environment variable with the token of the HTTP transport."""
LEAST_TOKEN = 16
"""The fewest letters of a token."""
MOST_LETTERS = 100_000
"""The most letters of the arguments of a tool."""


class AnswerError(Exception):
    """A tool gives no answer; the text gives the reason, and may quote an image."""


def add_to(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command to a command line."""
    command = add(
        "mcp", serve, "answer programs that ask about a lake, with the Model Context Protocol; read-only"
    )
    command.add_argument(
        "--http",
        type=port,
        metavar="PORT",
        help="serve HTTP on 127.0.0.1 instead of standard input and output; 0 for a free port. The "
        f"environment variable {TOKEN} has the token that clients must send; without it a new one is printed",
    )
    command.add_argument(
        "--timeout", type=seconds, default=60.0, help="time limit of an answer in seconds (default: 60)"
    )
    command.add_argument(
        "--memory", type=size, default=size("2G"), help="limit of resident memory of an answer (default: 2G)"
    )


def serve(options: argparse.Namespace) -> int:
    """Serves a lake until the client ends or Ctrl-C; returns the exit code."""
    if importlib.util.find_spec(SDK) is None:
        raise WrongUseError(f"the command mcp needs the package {SDK}: pip install '.[fleet,mcp]'")
    # Other commands must not need it.
    from . import agent_server

    lake = Lake(options.lake)
    with Answerer(lake.uri, options.timeout, options.memory) as answerer:
        server = agent_server.server(answerer.answer)
        _heed_signals(answerer)
        if options.http is None:
            agent_server.serve_pipes(server)
        else:
            given = os.environ.get(TOKEN, "")
            if given and (len(given) < LEAST_TOKEN or not given.isascii() or not given.isprintable()):
                raise WrongUseError(f"{TOKEN} needs {LEAST_TOKEN} or more printable ASCII characters")
            token = given or secrets.token_urlsafe(32)
            try:
                agent_server.serve_http(server, options.http, token, lambda url: _announce(url, given, token))
            except OSError as error:
                raise WrongUseError(f"--http {options.http}: {error.strerror}") from error
    return exits.DONE


def _heed_signals(answerer: Answerer) -> None:
    """Ends this process with Ctrl-C, also a job in the background of a shell, which ignores it until then.

    An orderly end would wait for the thread that reads standard input, and asyncio loses an exception at some
    places. The web server has handlers of its own, and passes the signal on when it has ended.
    """

    def end(*_: object) -> None:
        answerer.end()
        os.write(2, b"stackfleet: interrupted\n")
        os._exit(exits.INTERRUPTED)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _announce(url: str, given: str, token: str) -> None:
    shown = f"the token in {TOKEN}" if given else f"the token {token}"
    print(f"stackfleet: {url} needs {shown}: Authorization: Bearer TOKEN", file=sys.stderr, flush=True)


class Answerer:
    """The process that answers, and its limits (a context). Questions wait for each other.

    Args:
        seconds: time limit of an answer
        memory: the most bytes of resident memory
    """

    def __init__(self, lake: str, seconds: float, memory: int) -> None:
        self._lake, self._seconds, self._memory = lake, seconds, memory
        self._lock = threading.Lock()
        self._process: Optional[ChildProcess] = None

    def __enter__(self) -> Answerer:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def answer(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the answer of a tool.

        Raises:
            AnswerError: there is none
        """
        texts = "".join(value for value in arguments.values() if isinstance(value, str))
        if len(texts) > MOST_LETTERS:
            raise AnswerError(f"the arguments have more than {MOST_LETTERS:,} letters")
        if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in texts):
            raise AnswerError("the arguments have half of a letter, or a letter NUL")
        with self._lock:
            if self._process is None:
                self._folder = tempfile.TemporaryDirectory(prefix="stackfleet-")
                with os.fdopen(os.dup(2), "wb") as log:
                    self._process = ChildProcess(log, ANSWERER)
            question = {"lake": self._lake, "tool": tool, "arguments": dict(arguments)}
            self._process.send({**question, "folder": self._folder.name})
            message = self._hear(self._process)
        if "failed" in message:
            raise AnswerError(message["failed"])
        return dict(message["answer"])

    def _hear(self, process: ChildProcess) -> dict[str, Any]:
        """Returns the message of the process; ends it if it needs too much, and when it has failed."""
        end = time.monotonic() + self._seconds
        try:
            while True:
                message = process.hear(OFTEN)
                if message is not None and "ended" not in message:
                    return message
                if message is not None:
                    raise AnswerError("the process that answers has ended: ask again, or for less")
                if time.monotonic() > end:
                    raise AnswerError(f"the answer takes longer than {self._seconds:g} seconds: ask for less")
                if process.memory() > self._memory:
                    raise AnswerError(
                        f"the answer needs more than {self._memory >> 20:,} MiB of memory: ask for less"
                    )
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Ends the process, and removes its temporary files."""
        if self._process is not None:
            self._process.end()
            self._process = None
            self._folder.cleanup()
