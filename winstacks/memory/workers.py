# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Divides work among processes that are forked from this one, and returns the results in order.

    workers = Workers(prepare, work, count)
    for number, result in workers.results(300): ...     # results of portion 0, of portion 1, ...

A worker takes the next portion when it has done one. It sends each result at once. Results of portions
that come later in the order are kept, up to MOST_KEPT bytes; then the workers of such portions wait.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import struct
import sys
import traceback
from collections import deque
from multiprocessing import connection
from typing import (
    Any,
    Callable,
    Deque,
    Dict,
    Generator,
    Iterable,
    Iterator,
    List,
    Optional,
    Set,
    Tuple,
    Type,
)

from .collector import freeze
from .decode.records import NamedTuple

MOST_KEPT = 64 << 20
"""Bytes of results that are kept until it is their turn."""

_END_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""

_LEAST_SHARE = 1 << 30
_PATIENCE = 1.0
"""Seconds in which a worker that closed its pipe must end."""

_NUMBER = struct.Struct("<I")
_HEADER = struct.Struct("<IB")
_BEGIN, _RESULT, _END, _ERROR, _MEMORY = range(5)
_DONE, _FAILED, _TOO_LARGE = range(3)
"""Exit codes of a worker: no portion is left; it failed; a portion needed too much memory."""


class Ended(NamedTuple):
    """The result of a portion whose worker ended before it had sent all: why, as the end of a sentence."""

    reason: str


def can_fork() -> bool:
    """Returns whether processes can be forked safely: in macOS, libraries of the system do not survive it."""
    return hasattr(os, "fork") and sys.platform != "darwin"


def processors() -> int:
    """Returns the number of processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if affinity is None else len(affinity(0))


def memory_share(workers: int) -> int:
    """Returns the bytes of memory that each worker may take beyond what it has at its start."""
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return max(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // workers, _LEAST_SHARE)
    return _LEAST_SHARE


class _Worker:
    """A worker. `number` is the number of the portion that it works on, None if it has none."""

    def __init__(self, process: Any, results: connection.Connection) -> None:
        self.process, self.results = process, results
        self.number: Optional[int] = None

    def end(self) -> int:
        """Ends the process if it still runs, and returns its exit code: of a signal the negative number."""
        self.process.kill()
        self.process.join()
        self.results.close()
        code: int = self.process.exitcode
        return code


class Workers:
    """Divides work among forked processes.

    Args:
        prepare: called once in each worker at its start
        work: called in a worker with the number of a portion; yields the results, which must be picklable
        share: bytes of memory that a worker may take beyond what it has at its start; None for no limit
        raised: errors of `work` that are raised in this process, too. After any other error the worker ends
    """

    def __init__(
        self,
        prepare: Callable[[], None],
        work: Callable[[int], Iterable[object]],
        count: int,
        share: Optional[int] = None,
        raised: Tuple[Type[BaseException], ...] = (),
    ) -> None:
        self._prepare, self._work, self._count, self._share = prepare, work, count, share
        self._raised = raised
        self._context = multiprocessing.get_context("fork")
        self._workers: List[_Worker] = []
        self._taken = self._given = -1
        self._left: Deque[int] = deque()
        self._unbegun: Set[int] = set()
        self._kept: Dict[int, Deque[Tuple[int, bytes]]] = {}
        self._bytes = 0

    def results(self, portions: int) -> Generator[Tuple[int, object], None, None]:
        """Yields (number of the portion, result), portion by portion.

        The last result of a portion is an `Ended` if its worker ended, or lacked memory.

        Raises one of the errors that `raised` names if `work` raised it.
        """
        self._left, self._unbegun = deque(range(portions)), set(range(portions))
        self._kept = {number: deque() for number in range(portions)}
        # Numbers of portions go through one pipe, from which the workers take them. In chunks of four bytes
        # a read takes a whole number, or nothing.
        self._taken, self._given = os.pipe()
        os.set_blocking(self._given, False)
        try:
            for _ in range(min(self._count, portions)):
                self._start()
            for number in range(portions):
                for result in self._of_portion(number):
                    yield number, result
        finally:
            self._close()

    def _of_portion(self, number: int) -> Iterator[object]:
        kept = self._kept[number]
        while True:
            while not kept:
                self._receive(number)
            kind, data = kept.popleft()
            self._bytes -= len(data)
            if kind == _END:
                del self._kept[number]
                return
            result = pickle.loads(data)
            if kind == _ERROR:
                raise result
            yield result

    def _receive(self, current: int) -> None:
        """Waits for messages of the workers, or for their end, and keeps the results."""
        self._give()
        readable = {
            worker.results: worker
            for worker in self._workers
            if self._bytes < MOST_KEPT or worker.number in (None, current)
        }
        if not readable:
            # Its worker ended between taking the number and saying so: workers take the numbers in order.
            self._lose(current, "it ended at once")
        for ready in connection.wait(list(readable)) if readable else ():
            worker = readable[ready]  # type: ignore[index]
            try:
                message = worker.results.recv_bytes()
            except (EOFError, OSError):
                self._replace(worker)
                continue
            number, kind = _HEADER.unpack_from(message)
            if kind == _BEGIN:
                worker.number = number
                self._unbegun.discard(number)
            elif kind == _MEMORY:
                worker.number = None
                self._lose(number, f"it needed more than {(self._share or 0) >> 20} MiB more memory")
            else:
                worker.number = None if kind == _END else number
                self._keep(number, kind, message[_HEADER.size :])

    def _keep(self, number: int, kind: int, data: bytes = b"") -> None:
        self._bytes += len(data)
        self._kept[number].append((kind, data))

    def _lose(self, number: int, reason: str) -> None:
        self._unbegun.discard(number)
        self._keep(number, _RESULT, pickle.dumps(Ended(reason)))
        self._keep(number, _END)

    def _give(self) -> None:
        """Puts as many numbers into the pipe as it takes."""
        with contextlib.suppress(BlockingIOError):
            while self._left:
                os.write(self._given, _NUMBER.pack(self._left[0]))
                self._left.popleft()
        if not self._left and self._given >= 0:
            os.close(self._given)
            self._given = -1

    def _start(self) -> None:
        mine, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=self._run, args=(theirs, mine, os.getpid()), daemon=True)
        process.start()
        theirs.close()
        self._workers.append(_Worker(process, mine))

    def _replace(self, worker: _Worker) -> None:
        """Accounts for a worker that has ended; starts another if there is work that no worker has begun."""
        self._workers.remove(worker)
        # All that it sent was received: its end of the pipe is closed, so it has ended or is about to.
        worker.process.join(_PATIENCE)
        code = worker.end()
        if worker.number is not None:
            self._lose(worker.number, f"signal {-code}" if code < 0 else f"exit code {code}")
        if self._unbegun and code != _DONE:
            self._start()

    def _close(self) -> None:
        for worker in self._workers:
            worker.end()
        self._workers.clear()
        for descriptor in (self._taken, self._given):
            if descriptor >= 0:
                os.close(descriptor)
        self._taken = self._given = -1

    # In the worker.

    def _run(self, results: connection.Connection, other: connection.Connection, parent: int) -> None:
        # Ctrl-C reaches all processes of a terminal: the first ends the others.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        end_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        other.close()
        for worker in self._workers:
            worker.results.close()
        if self._given >= 0:
            os.close(self._given)
        code = _FAILED
        try:
            self._prepare()
            limit_memory(self._share)
            freeze()
            code = self._serve(results)
        except (BrokenPipeError, ConnectionError):
            # There is nobody left to send results to.
            code = _DONE
        finally:
            if code == _FAILED:
                traceback.print_exc()
            os._exit(code)

    def _serve(self, results: connection.Connection) -> int:
        """Does portions until none is left; returns the exit code."""
        while True:
            taken = os.read(self._taken, _NUMBER.size)
            if not taken:
                return _DONE
            (number,) = _NUMBER.unpack(taken)
            results.send_bytes(_HEADER.pack(number, _BEGIN))
            try:
                for result in self._work(number):
                    data = pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
                    results.send_bytes(_HEADER.pack(number, _RESULT) + data)
            except MemoryError:
                results.send_bytes(_HEADER.pack(number, _MEMORY))
                # The unfinished work still takes its memory.
                return _TOO_LARGE
            except self._raised as error:
                # Few runs need this import, which takes longer than the rest of this module.
                from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]

                data = pickle.dumps(ExceptionWithTraceback(error, error.__traceback__))
                results.send_bytes(_HEADER.pack(number, _ERROR) + data)
                return _DONE
            results.send_bytes(_HEADER.pack(number, _END))


def limit_memory(share: Optional[int]) -> None:
    """Limits the memory of this process to what it has and a share in bytes; None for no limit."""
    if share is None:
        return
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = size + share if hard == resource.RLIM_INFINITY else min(size + share, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def end_with_parent() -> None:
    """Asks Linux to end this process together with the thread that started it.

    Code that holds Python's global lock, such as one long regular expression search, keeps threads that watch
    the parent from running. In other systems a worker ends at its next result.
    """
    if sys.platform == "linux":
        # Only workers need this import.
        import ctypes

        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
