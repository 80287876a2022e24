# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs a function in a child process that cannot run away: what it costs, what it gives, how it dies.

A fork inherits an opened image at no cost and takes everything with it when it ends (Volatility never frees a
context); so this needs a system that forks.
"""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import resource
import signal
import tempfile
from typing import Any, Callable, Iterator, List, NamedTuple, Sequence, Tuple

import psutil

CPU_SECONDS = 60
WALL_SECONDS = 600
ADDRESS_SPACE = 2 << 30
"""Bytes beyond those that the process has when it is forked."""

PYTHONS_THRESHOLD = (700, 10, 10)
"""How often Python looks for garbage by itself: what a child takes is what a command takes."""

_CONTEXT = multiprocessing.get_context("fork")


class RanAway(BaseException):
    """The child used up its time: its traceback says where it was."""


class Violation(NamedTuple):
    """A run that did what none may do.

    Attributes:
        number: with the seed makes it happen again
        what: it did
        slow: it took too long. This depends on what else the machine does, so that only
            `python3 -m tests.hostile` fails by it, and the tests count instead
    """

    number: int
    what: str
    slow: bool = False


class Report(NamedTuple):
    """What became of a child.

    Attributes:
        value: what the function returned, None if it did not
        error: why it did not: a traceback, or how the process ended
        seconds: of CPU
        megabytes: the peak of resident memory
    """

    value: Any
    error: str
    seconds: float
    megabytes: float


def call(function: Callable[[], Any], cpu_seconds: int = CPU_SECONDS) -> Report:
    """Calls a function in a child."""
    receiver, sender = _CONTEXT.Pipe(duplex=False)
    with tempfile.NamedTemporaryFile(prefix="hostile-", suffix=".err") as errors:
        child = _CONTEXT.Process(target=_run, args=(function, sender, errors.name, cpu_seconds))
        child.start()
        sender.close()
        received = None
        try:
            if receiver.poll(WALL_SECONDS):
                received = receiver.recv()
        except EOFError:
            received = None
        if received is None and child.is_alive():
            child.join(1)
            child.kill()
        child.join()
        receiver.close()
        if received is not None:
            return Report(received[0], "", *received[1:])
        output = pathlib.Path(errors.name).read_text("utf-8", "replace")
    return Report(None, output or f"the process ended with {child.exitcode}", 0.0, 0.0)


def spread(parts: Sequence[Callable[[], List[Any]]], jobs: int) -> Iterator[List[Any]]:
    """Makes parts of a tier in processes of their own, so many at a time; yields what each found."""
    waiting = list(reversed(parts))
    running: List[Tuple[Any, Any]] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            receiver, sender = _CONTEXT.Pipe(duplex=False)
            child = _CONTEXT.Process(target=_part, args=(waiting.pop(), sender))
            child.start()
            sender.close()
            running.append((receiver, child))
        ready = multiprocessing.connection.wait([receiver for receiver, _ in running])
        for receiver, child in [pair for pair in running if pair[0] in ready]:
            try:
                yield receiver.recv()
            except EOFError:
                yield [Violation(-1, "the harness itself failed: see above")]
            child.join()
            running.remove((receiver, child))


def _part(part: Callable[[], List[Violation]], sender: Any) -> None:
    sender.send(part())


def _run(function: Callable[[], Any], sender: Any, errors: str, cpu_seconds: int) -> None:
    gc.set_threshold(*PYTHONS_THRESHOLD)
    # To look for garbage in what was inherited would copy all of it.
    gc.freeze()
    file = os.open(errors, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 2)
    signal.signal(signal.SIGXCPU, _stop)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 10))
    limit = psutil.Process().memory_info().vms + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    value = function()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    sender.send((value, usage.ru_utime + usage.ru_stime, megabytes()))


def megabytes() -> float:
    """Returns the peak of this process' resident memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _stop(number: int, frame: Any) -> None:
    raise RanAway
