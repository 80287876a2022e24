# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Ctrl-C: it ends the program at once where nothing is to be ended in order, and when it comes again.

What a lake has is whole at each moment, and the processes that read images end with this one.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Optional

from . import exits


def end_at_once() -> None:
    """Makes Ctrl-C end the program, without a traceback; a program that ignores it goes on to do so."""
    _handle(_end)


def end_in_order() -> None:
    """Makes Ctrl-C raise KeyboardInterrupt, once; the next one ends the program."""
    _handle(_interrupt)
    sys.unraisablehook = _unraisable


def _handle(handler: signal._HANDLER) -> None:
    # A job in the background of a shell ignores it.
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _end, _interrupt):
        signal.signal(signal.SIGINT, handler)


def _interrupt(number: int, frame: Optional[FrameType]) -> None:
    end_at_once()
    raise KeyboardInterrupt


def _unraisable(fault: sys.UnraisableHookArgs) -> None:
    """Ends the program where Python would print KeyboardInterrupt and go on: in Dask's callback of gc."""
    if fault.exc_type is KeyboardInterrupt:
        _end(signal.SIGINT, None)
    sys.__unraisablehook__(fault)


def _end(number: int, frame: Optional[FrameType]) -> None:
    os.write(2, b"stackfleet: interrupted\n")
    os._exit(exits.INTERRUPTED)
