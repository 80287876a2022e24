# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs `vol ARGUMENTS` in this process, and writes what it and its workers cost as JSON.

    python divided.py COST VOL ARGUMENTS

`before` are the processor seconds of the first process until it forks, `after` its seconds from then on,
`workers` the seconds of all processes that it forked, `clock` all of it by the clock.
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import sys
import time

_BEGIN = time.monotonic()
_FORK = os.fork
_before = 0.0


def _seconds(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def _forked() -> int:
    global _before
    if not _before:
        _before = _seconds(resource.RUSAGE_SELF)
    return _FORK()


def main() -> None:
    cost, program = sys.argv[1:3]
    sys.argv = sys.argv[2:]
    os.fork = _forked
    code = 0
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        code = int(bool(end.code))
    own = _seconds(resource.RUSAGE_SELF)
    figures = {
        "code": code,
        "clock": time.monotonic() - _BEGIN,
        "before": _before or own,
        "after": own - (_before or own),
        "workers": _seconds(resource.RUSAGE_CHILDREN),
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    with open(cost, "w", encoding="utf-8") as file:
        json.dump(figures, file)


if __name__ == "__main__":
    main()
