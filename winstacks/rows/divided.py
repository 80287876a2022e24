# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A command whose address spaces are read by several processes: the option --workers.

`memory/workers.py` divides the work and forks. Here is what a command adds: each worker sends its rows, or
the steps where the first process joins them; then what it counted (`Command.take`) and what it logged.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, cast

from volatility3.framework import constants, exceptions

from ..memory.collector import collector_paused
from ..memory.decode.records import NamedTuple
from ..memory.image import Image
from ..memory.reopening import reopen_files, unknown_layers
from ..memory.tables import MissingTableError
from ..memory.workers import Ended, Workers, can_fork, memory_share, processors
from ..stacklist.imagefacts import LOGGERS

vollog = logging.getLogger(__name__)

_AT_ONCE = 1024
"""Rows, or steps, in a message of a worker."""

NO_FORK = "--workers: this system does not fork processes safely, so one process reads all address spaces"
_OTHER_LAYERS = "--workers: one process reads all address spaces, since no other can open the layer {}"
_RAISED = (exceptions.VolatilityException, MissingTableError)
"""Errors whose text the user sees, whichever process meets them."""
_LOST = "The worker that read {} ended ({}): rows are missing"


class WorkerPortion(NamedTuple):
    """Steps of a command that one worker does.

    Attributes:
        text: what the progress shows while they are done
        whose: whose they are, in a message
        steps: makes the steps; called in the worker
        lost: makes the rows, or steps, that stand for the unsent ones of an ended worker
    """

    text: str
    whose: str
    steps: Callable[[], Iterable[Any]]
    lost: Callable[[], Iterable[Any]]


def workers_wanted(image: Image, asked: Optional[int]) -> int:
    """Returns how many workers are to read an image; 0: this process alone reads it.

    A message says so if the user wants workers and cannot have them. `asked` is the value of --workers, None
    without it.
    """
    if asked is None and constants.PARALLELISM is constants.Parallelism.Multiprocessing:
        asked = 0
    if asked in (None, 1):
        return 0
    if not can_fork():
        vollog.warning(NO_FORK)
        return 0
    unknown = unknown_layers(image.context)
    if unknown:
        vollog.warning(_OTHER_LAYERS.format(unknown))
        return 0
    return asked or processors()


class _Message(NamedTuple):
    """A log record as a worker sends it. `unless_said` is the text that is logged instead if a process logged
    such a record before; empty for none."""

    logger: str
    level: int
    text: str
    unless_said: str = ""


class _Notebook(logging.Handler):
    """Collects what a worker logs: all that some handler of the first process takes."""

    def __init__(self) -> None:
        super().__init__(min((handler.level for handler in _handlers()), default=logging.WARNING))
        self.messages: List[_Message] = []
        for logger in _loggers():
            logger.handlers = []
        logging.getLogger().addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        unless_said = str(getattr(record, "unless_said", ""))
        self.messages.append(_Message(record.name, record.levelno, record.getMessage(), unless_said))

    def take(self) -> List[_Message]:
        """Returns the messages, and forgets them."""
        taken, self.messages = self.messages, []
        return taken


def _loggers() -> List[logging.Logger]:
    return [logging.getLogger(), *map(logging.getLogger, LOGGERS)]


def _handlers() -> List[logging.Handler]:
    return [handler for logger in _loggers() for handler in logger.handlers]


class Log(logging.Filter):
    """The log of all processes, while used as `with Log() as log`.

    A process says a thing once, because it keeps what it has found, and each worker finds it anew. So what
    two processes say is logged once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sayer = os.getpid()
        self._first: Dict[Tuple[str, int, str], int] = {}
        self._said: Dict[str, str] = {}

    def tell(self, worker: int, messages: Iterable[_Message]) -> None:
        """Logs the messages of a worker, which is known by its process ID."""
        own, self._sayer = self._sayer, worker
        for message in messages:
            level, text = message.level, message.text
            if message.unless_said and self._said.setdefault(message.logger, text) != text:
                level, text = logging.INFO, message.unless_said
            logging.getLogger(message.logger).log(level, "%s", text)
        self._sayer = own

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether no other process has said this."""
        if record.levelno < logging.INFO:
            return True
        text = record.getMessage()
        if hasattr(record, "unless_said") and self._said.setdefault(record.name, text) != text:
            return False
        return self._first.setdefault((record.name, record.levelno, text), self._sayer) == self._sayer

    def __enter__(self) -> Log:
        self._filtered = _handlers()
        for handler in self._filtered:
            handler.addFilter(self)
        return self

    def __exit__(self, *_: object) -> None:
        for handler in self._filtered:
            handler.removeFilter(self)


class _Done(NamedTuple):
    """The last result of a portion: the worker's process ID, what the command counted, what was logged."""

    worker: int
    counted: Any
    messages: List[_Message]


class Divided:
    """Lets workers do the portions of a command.

    Args:
        prepare: called in each worker at its start, after it opened the files anew
        rows: makes what is sent of a step's portion: rows, or steps; called in a worker
        take: returns what was counted in a worker and forgets it
        merge: adds, in this process, what a worker counted
    """

    def __init__(
        self,
        image: Image,
        prepare: Callable[[], None],
        rows: Callable[[Iterable[Any]], Iterable[Any]],
        take: Callable[[], Any],
        merge: Callable[[Any], None],
    ) -> None:
        self._image, self._prepare, self._rows, self._take, self._merge = image, prepare, rows, take, merge
        self._notebook: _Notebook

    def parts(
        self, portions: Sequence[WorkerPortion], workers: int, log: Log, progress: Callable[[int], None]
    ) -> Iterator[Iterable[Any]]:
        """Yields what the portions sent, in their order. `progress` is called with the number of each portion
        when it is its turn."""
        work = functools.partial(self._work, portions)
        count = min(workers, len(portions))
        divided = Workers(self._begin, work, count, memory_share(count), _RAISED)
        progress(0)
        with contextlib.closing(divided.results(len(portions))) as results:
            for number, result in results:
                if not isinstance(result, (_Done, Ended)):
                    yield cast(List[Any], result)
                    continue
                if isinstance(result, _Done):
                    self._merge(result.counted)
                    log.tell(result.worker, result.messages)
                else:
                    vollog.warning(_LOST.format(portions[number].whose, result.reason))
                    yield portions[number].lost()
                if number + 1 < len(portions):
                    progress(number + 1)

    # In a worker.

    def _begin(self) -> None:
        reopen_files(self._image.context)
        self._notebook = _Notebook()
        self._prepare()
        self._take()

    def _work(self, portions: Sequence[WorkerPortion], number: int) -> Iterator[object]:
        with collector_paused():
            rows = iter(self._rows(portions[number].steps()))
            while True:
                some = list(itertools.islice(rows, _AT_ONCE))
                if not some:
                    break
                yield some
        yield _Done(os.getpid(), self._take(), self._notebook.take())
