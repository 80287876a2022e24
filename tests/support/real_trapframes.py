# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The measured trap frames of real kernels, as the reference data beside the checkout holds them."""

from __future__ import annotations

import functools
import json
import pathlib
import tarfile
from typing import Any, Dict, List, NamedTuple, Tuple

BUILDS = ("5.2.3790.3959up-x64", "5.1.2600.5512up-x86", "5.2.3790.3959pa-x86")
NESTED = ("5.2.3790.3959up-x64", "5.1.2600.5512up-x86")


class RealMember(NamedTuple):
    """One member: `status` is saved, computed, partial or unwritten; `source` the register it came from."""

    offset: int
    size: int
    value: int
    status: str
    source: str


class RealFrame(NamedTuple):
    """One entry of a real kernel: the frame, the poisoned stack around it, and every register at entry."""

    build: str
    name: str
    arch: str
    kind: str
    mode: str
    debug_active: bool
    address: int
    data: bytes
    stack_address: int
    stack: bytes
    members: Dict[str, RealMember]
    registers: Dict[str, int]
    ist: int
    entry: str
    entry_rva: int
    kernel_base: int
    dispatcher: str
    dispatched: bool

    @property
    def label(self) -> str:
        return f"{self.build}/{self.name}"


class NestedStack(NamedTuple):
    """Four entries one below the other on one stack, outermost first."""

    build: str
    stack_address: int
    stack: bytes
    frames: Tuple[Tuple[int, str], ...]


class Crash(NamedTuple):
    """A real crash of 10.0.19041.804: one true frame, its CONTEXT, and every block of the dump."""

    address: int
    truth: Dict[str, Any]
    frame: bytes
    stack_address: int
    stack: bytes
    blocks: Tuple[Tuple[int, bytes], ...]


def _members(path: pathlib.Path) -> Dict[str, bytes]:
    with tarfile.open(path, "r:xz") as archive:
        files = ((info, archive.extractfile(info)) for info in archive.getmembers() if info.isfile())
        return {pathlib.PurePath(info.name).name: file.read() for info, file in files if file is not None}


def _number(value: Any) -> int:
    return int(value, 16) if isinstance(value, str) else int(value)


def _frame(build: str, name: str, files: Dict[str, bytes]) -> RealFrame:
    entry = json.loads(files[name + ".json"])
    dispatch = entry["exception_dispatch"] or {}
    return RealFrame(
        build,
        name,
        build[-3:],
        entry["kind"],
        entry["mode"],
        entry["debug_active"],
        _number(entry["frame_va"]),
        files[name + ".bin"],
        _number(entry["stack_va"]),
        files[name + ".stack.bin"],
        {
            member: RealMember(
                facts["offset"],
                facts["size"],
                _number(facts["value"]),
                facts["status"],
                facts.get("source", ""),
            )
            for member, facts in entry["members"].items()
        },
        {register: _number(value) for register, value in entry["registers"].items()},
        entry.get("ist", 0),
        entry["entry"],
        _number(entry["entry_rva"]),
        _number(entry["kernel_base"]),
        dispatch.get("dispatcher", ""),
        bool(dispatch),
    )


@functools.lru_cache(maxsize=None)
def load(shared: pathlib.Path, build: str) -> List[RealFrame]:
    """Returns every frame of one build, in the order of their names."""
    files = _members(shared / "real_trapframes" / f"{build}.tar.xz")
    names = sorted(name[: -len(".json")] for name in files if name.endswith(".json"))
    return [_frame(build, name, files) for name in names]


def load_nested(shared: pathlib.Path) -> List[NestedStack]:
    """Returns the stacks with four nested entries."""
    files = _members(shared / "real_trapframes" / "nested.tar.xz")
    stacks = []
    for build in NESTED:
        entry = json.loads(files[build + ".json"])
        frames = tuple(
            (_number(frame["frame_va"]), frame["kind"]) for frame in entry["frames_outermost_first"]
        )
        stacks.append(NestedStack(build, _number(entry["stack_va"]), files[build + ".stack.bin"], frames))
    return stacks


def load_crash(shared: pathlib.Path) -> Crash:
    """Returns the real crash."""
    files = _members(shared / "real_trapframes" / "triage_19041.tar.xz")
    truth = json.loads(files["truth.json"])
    blocks = tuple(
        (_number(address), files["blocks.bin"][offset : offset + size])
        for address, offset, size in json.loads(files["blocks.json"])
    )
    return Crash(
        _number(truth["frame_va"]),
        truth,
        files["frame.bin"],
        _number(truth["stack_va"]),
        files["stack.bin"],
        blocks,
    )
