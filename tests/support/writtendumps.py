# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Processes of forged images as dumps that `windows.minidump` writes, and others' readers to open them."""

from __future__ import annotations

import logging
import pathlib
import re
import shutil
import subprocess
from typing import Dict, List, NamedTuple, Optional, Sequence

import pytest
from minidump.minidumpfile import MinidumpFile

from tests.forge.context import Opened
from tests.support.only import only
from winstacks.memory.decode.machine import Machine
from winstacks.minidump.processdump import ProcessDump
from winstacks.names.symbolizer import Symbolizer
from winstacks.process.threads import Process, processes

# Its wheel for Python 3.13 is installed on newer ones, too, which cannot load it.
udmp_parser = pytest.importorskip("udmp_parser")

LLDB = shutil.which("lldb")
needs_lldb = pytest.mark.skipif(LLDB is None, reason="there is no lldb here (Debian's package lldb)")


def process_of(opened: Opened, pid: int) -> Process:
    """Returns a process of an image."""
    return only(processes(opened.image, [pid]))


def write_dump(
    opened: Opened, process: Process, path: pathlib.Path, machine: Optional[Machine] = None
) -> ProcessDump:
    """Writes the dump of a process; udmp-parser, PyPI's minidump and LLDB open each."""
    dump = ProcessDump(
        opened.image, Symbolizer(opened.image), process, machine or process.space.machine, "custody"
    )
    with path.open("wb") as file:
        file.write(dump.head)
        file.writelines(dump.memory.content())
    assert taken_by_others(path) == len(dump.threads)
    return dump


def taken_by_others(path: pathlib.Path) -> int:
    """Opens a dump with udmp-parser, PyPI's minidump and, where it is there, LLDB.

    Returns:
        the number of threads, on which they agree
    """
    parser = udmp_parser.UserDumpParser()
    assert parser.Parse(path), path
    count = len(parser.Threads())
    # PyPI's minidump also wants an environment in the PEB, which is not forged.
    logging.disable(logging.ERROR)
    try:
        found = MinidumpFile.parse(str(path))
    finally:
        logging.disable(logging.NOTSET)
    assert len(found.threads.threads) == count
    if LLDB is not None:
        printed = debug(path, ["thread list"])
        assert "was loaded" in printed[f"target create --core {path}"]
        assert len(re.findall(r"^[* ] thread #\d+: ", printed["thread list"], re.M)) == count
    return count


class DebuggedThread(NamedTuple):
    """A thread as LLDB shows it: its registers, and its frames as `module`function + offset`."""

    registers: Dict[str, int]
    frames: List[str]


def debug(path: pathlib.Path, commands: Sequence[str], before: Sequence[str] = ()) -> Dict[str, str]:
    """Returns what LLDB prints for each of some commands on a dump, by the command.

    Args:
        path: the dump
        commands: LLDB's, each once
        before: commands before the dump is opened
    """
    assert LLDB is not None
    words = [LLDB, "--no-lldbinit", "-b"]
    for command in (*before, f"target create --core {path}", *commands):
        words += ["-o", command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    # Each command is printed before what it prints.
    parts = re.split(r"^\(lldb\) (.*)\n", done.stdout, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def _frames(printed: str) -> List[str]:
    """Returns the frames of a backtrace. LLDB may print in its midst where a thread stopped."""
    found: List[str] = []
    for number, frame in re.findall(r"frame #(\d+): 0x[0-9a-f]+ ?(.*)", printed):
        if int(number) == len(found):
            found.append(frame)
    return found


def debugged_threads(path: pathlib.Path, count: int, before: Sequence[str] = ()) -> List[DebuggedThread]:
    """Returns the threads of a dump, in its order."""
    # A command that is given twice would be found once: spaces tell them apart.
    commands = []
    for number in range(1, count + 1):
        commands += [f"thread select {number}", f"register read{' ' * number}", f"thread backtrace {number}"]
    printed = debug(path, commands, before)
    return [
        DebuggedThread(
            {
                name: int(value, 16)
                for name, value in re.findall(r"^ *(\w+) = (0x[0-9a-f]+)", printed[registers], re.M)
            },
            _frames(printed[stack]),
        )
        for registers, stack in zip(commands[1::3], commands[2::3])
    ]
