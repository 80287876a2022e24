# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Runs a command and writes what it cost to a file: `python3 launch.py FILE COMMAND...`.

A process counts what its parent held when it was started as its own memory, so the parent must be small: this
imports nothing that it does not need.
"""

import json
import os
import sys

if __name__ == "__main__":
    file, *command = sys.argv[1:]
    process = os.posix_spawn(command[0], command, os.environ)
    _, status, usage = os.wait4(process, 0)
    cost = {
        "code": os.waitstatus_to_exitcode(status),
        "seconds": usage.ru_utime + usage.ru_stime,
        "memory": usage.ru_maxrss / 1024,
    }
    with open(file, "w", encoding="utf-8") as written:
        json.dump(cost, written)
