# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""In a process that reads an image: an image that begins with a certain word hangs it, or eats its memory.

With STACKFLEET_FULL a file cannot become larger than a few kilobytes, as on a disk that is full.

Python imports this at its start where the folder is in PYTHONPATH. Everything else is the real thing: the
process hangs in a call that lets no other thread run, or it really holds the memory.
"""

import os
import re
import sys
import time
from collections.abc import Sequence

_MOST = 1 << 11
_HANG, _WAIT, _EAT = b"HANG", b"WAIT", b"EATS"


def watch() -> None:
    """Has files that begin with such a word do what it says."""
    from volatility3.framework.layers import physical

    opened = physical.FileLayer.__init__

    def watched(self: object, *arguments: object, **named: object) -> None:
        opened(self, *arguments, **named)
        word = self._file.read(4)  # type: ignore[attr-defined]
        if word == _HANG:
            # One search that takes years, and holds Python's lock all the time.
            _hang()
        if word == _WAIT:
            time.sleep(3600)
        held = []
        while word == _EAT:
            held.append(bytearray(1 << 24))

    physical.FileLayer.__init__ = watched


def _hang() -> None:
    re.match(r"(a|aa)+$", "a" * 200 + "b")


def _fill() -> None:
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST, _MOST))


def _command() -> Sequence[str]:
    if sys.version_info >= (3, 10):
        return sys.orig_argv
    import psutil

    found: Sequence[str] = psutil.Process().cmdline()
    return found


if any(text.endswith(os.path.join("stackfleet", "begin.py")) for text in _command()):
    watch()
    if "STACKFLEET_FULL" in os.environ:
        _fill()
