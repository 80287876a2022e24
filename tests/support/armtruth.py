# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Recorded points of real ARM64 code, and the binaries that they belong to."""

from __future__ import annotations

import functools
import importlib.util
import json
import lzma
import pathlib
import subprocess
import sys
import tempfile
from types import ModuleType
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Union

import pytest

from tests.support.only import only
from winstacks.names.decode.functiontable_arm64 import FunctionTableArm64
from winstacks.names.decode.unwindinfo import ReadRva
from winstacks.stacks.decode.frames import CodeImage
from winstacks.stacks.decode.registers_arm64 import KEPT, RegistersArm64

BINARIES = pathlib.Path(tempfile.gettempdir()) / "winstacks-arm64-binaries"


class Point(NamedTuple):
    """A point at which the code stood.

    Attributes:
        pc, registers, stack: the state
        frames: the callers' rows of the truth, innermost first
        position: P prologue, B body, E epilogue, L no record
    """

    pc: int
    registers: RegistersArm64
    stack: bytes
    frames: List[List[Any]]
    position: str


def tool(shared: pathlib.Path, name: str) -> ModuleType:
    """Returns a module that lies beside the truth."""
    spec = importlib.util.spec_from_file_location(f"arm64_{name}", shared / "arm64" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.lru_cache(maxsize=None)
def binaries(shared: pathlib.Path) -> Dict[str, pathlib.Path]:
    """Returns the binaries by name; skips the test where they cannot be had."""
    wanted = json.loads((shared / "arm64" / "binaries64a.json").read_text())
    found = {pathlib.PurePosixPath(entry["path"]).name: BINARIES for entry in wanted}
    if not all((folder / name).is_file() for name, folder in found.items()):
        command = [sys.executable, str(shared / "arm64" / "fetch64a.py"), str(BINARIES)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if result.returncode or "OTHER" in result.stdout:
            pytest.skip("the ARM64 binaries cannot be had: " + (result.stdout + result.stderr)[-300:])
    return {name: folder / name for name, folder in found.items()}


def reader(data: Union[bytes, bytearray]) -> ReadRva:
    """Reads the bytes of an image by RVA."""

    def read(rva: int, length: int) -> Optional[bytes]:
        return bytes(data[rva : rva + length]) if 0 <= rva <= len(data) - length else None

    return read


class Truth:
    """A file of recorded points.

    Attributes:
        name, file: file name of the module, and its file
        images: the module, and the program that called into it
        low, high: the stack
    """

    def __init__(self, shared: pathlib.Path, path: pathlib.Path) -> None:
        self._path = path
        with lzma.open(path, "rt") as lines:
            header = json.loads(next(lines))[1]
        module = only(header["modules"])
        self._d = header["d"]
        self.name: str = module["name"]
        self.file = binaries(shared)[module["name"]]
        self.low, self.high = header["stack"]
        mapped = tool(shared, "armimg").Img(str(binaries(shared)[module["name"]]), module["base"])
        if mapped.sha256 != module["sha256"]:
            pytest.skip(f"{module['name']} is another build")
        start, size = mapped.dirs[3]
        program = bytearray(0x4000)
        tool(shared, "run64a_app").fill(program)
        self.images = [
            self._image(mapped.base, bytes(mapped.bytes), start, size, tuple(mapped.code_ranges())),
            self._image(header["app"], bytes(program), 0x3000, 8, ((0x1000, 0x2000),)),
        ]

    @staticmethod
    def _image(base: int, data: bytes, start: int, size: int, code: Any) -> CodeImage:
        read = reader(data)
        table = FunctionTableArm64.from_bytes(data[start : start + size], read)
        return CodeImage(base, len(data), read, table, code, True)

    def find_image(self, address: int) -> Optional[CodeImage]:
        """Returns the image that holds an address."""
        return next((image for image in self.images if 0 <= address - image.base < image.size), None)

    def points(self) -> Iterator[Point]:
        """Yields the points."""
        callers: Dict[int, List[Any]] = {}
        stack = bytearray(self.high - self.low)
        with lzma.open(self._path, "rt") as lines:
            next(lines)
            for line in lines:
                kind, *row = json.loads(line)
                if kind == "F":
                    callers[row[0]] = row
                elif kind == "R":
                    stack = bytearray(self.high - self.low)
                else:
                    pc, sp, general, vectors, words, frames, position = row[:7]
                    for offset, value in words:
                        place = len(stack) + offset
                        stack[place : place + 8] = value.to_bytes(8, "little")
                    known = dict(zip((*KEPT, "Lr"), general))
                    for number, text in enumerate(vectors or self._d, 8):
                        known[f"D{number}"] = int(text, 16)
                    registers = RegistersArm64.from_known(pc, sp, known)
                    yield Point(pc, registers, bytes(stack), [callers[frame] for frame in frames], position)

    def caller(self, row: List[Any]) -> RegistersArm64:
        """Returns the registers that a caller's frame must have; lr is unknown there."""
        known = dict(zip(KEPT, row[4]))
        for number, text in enumerate(row[5] or self._d, 8):
            known[f"D{number}"] = int(text, 16)
        return RegistersArm64.from_known(row[1], row[2], known)
