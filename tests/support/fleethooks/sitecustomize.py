# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""In a process that reads an image: an image that begins with a certain word hangs it, or eats its memory.

Python imports this at its start where the folder is in PYTHONPATH. Everything else is the real thing: the
process hangs in a call that lets no other thread run, or it really holds the memory.
"""

import re
import sys

_HANG, _WAIT, _EAT = b"HANG", b"WAIT", b"EATS"


def _watch() -> None:
    import time

    from volatility3.framework.layers import physical

    opened = physical.FileLayer.__init__

    def watched(self: object, *arguments: object, **named: object) -> None:
        opened(self, *arguments, **named)
        word = self._file.read(4)  # type: ignore[attr-defined]
        if word == _HANG:
            # One search that takes years, and holds Python's lock all the time.
            re.match(r"(a|aa)+$", "a" * 200 + "b")
        if word == _WAIT:
            time.sleep(3600)
        held = []
        while word == _EAT:
            held.append(bytearray(1 << 24))

    physical.FileLayer.__init__ = watched


if any("stackfleet.child" in each for each in getattr(sys, "orig_argv", ())):
    _watch()
