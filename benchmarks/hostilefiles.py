# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What the worst files of 1 MB cost: dumps whose parts share, repeat or contradict each other.

The goals are 10 s of processor time and 300 MB for each command.
"""

from __future__ import annotations

import os
import pathlib
import struct
import subprocess
import sys
from typing import Callable, Dict, List, Tuple

from tests.forge.minidump import Writer, WrittenThread
from tests.forge.vol import REPOSITORY

from . import results
from .results import Line

_MOST_SECONDS, _MOST_MEGABYTES = 10, 300
_CODE, _STACK, _TEB = 0x10000000, 0x200000, 0x7FFD0000
_PAGE = 0x1000
_VOL = pathlib.Path(sys.executable).parent / "vol"


def _begun(architecture: int = 9) -> Writer:
    writer = Writer()
    writer.system_info(architecture)
    writer.misc_info(4312)
    return writer


def handles() -> bytes:
    """31,000 handles whose names are one text of 64 KB."""
    writer = _begun()
    text, count = writer.string("x" * 0x7FFF), 31_000
    rows = b"".join(struct.pack("<QIIIIII", 4 * number, text, text, 0, 1, 1, 2) for number in range(count))
    writer.stream(12, struct.pack("<IIII", 16, 32, count, 0) + rows)
    return writer.bytes()


def threads() -> bytes:
    """20,000 threads with one CONTEXT of 64 KB."""
    writer = _begun()
    place = writer.put(bytes(48) + struct.pack("<I", 0x10001F) + bytes(0x10000 - 52))
    stack, count = writer.put(bytes(0x100)), 20_000
    rows = b"".join(
        struct.pack("<IIIIQQ", 4 + 4 * number, 0, 32, 0, 0x7FF000000000 + 0x2000 * number, 0x10000 * number)
        + struct.pack("<IIII", 0x100, stack, 0x10000, place)
        for number in range(count)
    )
    writer.stream(3, struct.pack("<I", count) + rows)
    return writer.bytes()


def code() -> bytes:
    """A stack of x86 whose return addresses lie in 240 pages of code without an end."""
    count, body = 240, b"\x40"
    head, tail = b"\xc3\x41" * 12, b"\xff\xd0" + body * 14
    page = head + body * (_PAGE - len(head) - len(tail)) + tail
    memory = page * count + body * 2 * _PAGE + b"\xc3"
    place = _PAGE - len(tail) + 2
    stack = b"".join(struct.pack("<II", 0, _CODE + _PAGE * number + place) for number in range(count))
    stack += bytes(64)
    context = bytearray(716)
    struct.pack_into("<I", context, 0, 0x1007F)
    struct.pack_into("<IIIIII", context, 0xB4, 0, _CODE + place, 0x1B, 0x202, _STACK, 0x23)
    teb = bytearray(_PAGE)
    struct.pack_into("<III", teb, 4, _STACK + len(stack), _STACK, 0)
    struct.pack_into("<I", teb, 0x18, _TEB)
    writer = _begun(architecture=0)
    writer.threads([WrittenThread(100, _TEB, (_STACK, stack), bytes(context))])
    parts = (_STACK, stack, 4), (_CODE, memory, 0x40), (_TEB, bytes(teb), 4)
    writer.memory_infos(
        [(at, at, kind, -(-len(data) // _PAGE) * _PAGE, _PAGE, kind, 0x20000) for at, data, kind in parts]
    )
    writer.memory64([(at, data) for at, data, _ in parts])
    return writer.bytes()


FILES: Dict[str, Tuple[Callable[[], bytes], Tuple[str, ...]]] = {
    "handles with one text": (handles, ("info", "handletraces")),
    "threads with one CONTEXT": (threads, ("info", "callstacks", "traces")),
    "x86 code without an end": (code, ("callstacks", "tracefindings")),
}


def lines(folder: pathlib.Path) -> List[Line]:
    """Measures each command with each file."""
    found = []
    for name, (make, commands) in FILES.items():
        path = folder / "file.dmp"
        path.write_bytes(make())
        size = f"{path.stat().st_size / 1e6:.2f} MB"
        for command in commands:
            seconds, megabytes = _cost(path, f"minidump.{command}")
            what = f"`minidump.{command}`, {name}, {size}"
            found.append(Line(what, "seconds", seconds, _MOST_SECONDS, results.AT_MOST, "s of processor"))
            found.append(results.memory(what, "memory", megabytes, _MOST_MEGABYTES))
    return found


def _cost(path: pathlib.Path, plugin: str) -> Tuple[float, float]:
    """Returns processor time in seconds, and the largest resident size in megabytes."""
    words = [
        str(_VOL),
        "-q",
        "--offline",
        "-p",
        str(REPOSITORY / "volatility3_plugins"),
        "-f",
        str(path),
        plugin,
    ]
    running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, used = os.wait4(running.pid, 0)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
