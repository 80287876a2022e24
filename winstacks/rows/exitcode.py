# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The exit code of `vol` where a file, the rows themselves or messages could not be written.

Volatility ends with 0 unless an exception passes through the renderer, and an exception would cost the rows
that a renderer prints last.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import logging
import os
import select
import sys
import types
from typing import Optional, TextIO, Type

from volatility3.framework import exceptions

vollog = logging.getLogger(__name__)

FAILURE = 1
"""The exit code of Volatility's own errors."""

_LOST = "standard output cannot be written: {}"


def fail_at_exit() -> None:
    """Makes the process end with 1, after everything else that it does at its end."""
    atexit.unregister(_fail)
    atexit.register(_fail)


def report_lost_output() -> None:
    """Makes the process end with 1, and with a message, if the last rows do not reach standard output.

    When the program `vol` is over, Python flushes standard output and ignores the error. Text that is longer
    than the buffer of the file is lost then, and the process ends with 0. With this, text goes into that
    buffer at once: the renderer's own writing fails, or the rest stays there until `_check_output`. Raises
    RenderException if standard output cannot take what was written before, BrokenPipeError if nobody reads.

    PYTHONUNBUFFERED takes the buffer away, and the rest of a text is lost without an error if the file takes
    a part. Then standard output gets a buffer, which each end of a line empties.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        if isinstance(sys.stdout.buffer, io.RawIOBase):
            form = (sys.stdout.encoding, sys.stdout.errors)
            sys.stdout = open(sys.stdout.fileno(), "w", 1, *form, closefd=False)  # noqa: SIM115
        try:
            sys.stdout.reconfigure(write_through=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            _discard(sys.stdout)
            raise exceptions.RenderException(_LOST.format(error.strerror)) from error
        atexit.unregister(_check_output)
        atexit.register(_check_output)


def end_without_reader() -> None:
    """Makes the process end with 0, and without a traceback, if the reader of a pipe (as `head`) stops."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _end


def keep_exit_code() -> None:
    """Makes the process end with its own exit code if messages do not reach standard error.

    Python flushes standard error last of all, and if that fails the process ends with 120. Nothing
    can report that messages were lost; the rows are complete without them.
    """
    if isinstance(sys.stderr, io.TextIOWrapper):
        atexit.unregister(_check_messages)
        atexit.register(_check_messages)


def _end(kind: Type[BaseException], error: BaseException, trace: Optional[types.TracebackType]) -> None:
    if not (issubclass(kind, BrokenPipeError) and _lacks_reader()):
        sys.__excepthook__(kind, error, trace)
        return
    _discard(sys.stdout)
    raise SystemExit(0)


def _lacks_reader() -> bool:
    """Returns whether nobody reads standard output: another pipe or socket may have broken."""
    if sys.platform == "win32":
        return True
    poll = select.poll()
    poll.register(sys.stdout.fileno(), select.POLLOUT)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _check_messages() -> None:
    try:
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def _check_output() -> None:
    try:
        sys.stdout.flush()
    except OSError as error:
        _discard(sys.stdout)
        # The reader of a pipe may close it after the first lines.
        if not isinstance(error, BrokenPipeError):
            vollog.error(_LOST.format(error.strerror))
            _fail()


def _discard(stream: TextIO) -> None:
    """Lets what is left go nowhere: Python and Volatility would fail again when they flush it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _fail() -> None:
    atexit.unregister(_fail)
    # Python offers no way to set the code at this point, so this ends the process itself.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(FAILURE)
