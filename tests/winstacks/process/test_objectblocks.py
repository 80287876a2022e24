# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The pool block of an object contradicts what a write to its header hides or invents."""

from __future__ import annotations

import pathlib
from typing import Optional, Tuple

import pytest

from tests.forge import context, kernels
from tests.forge.handles import header_of, named
from tests.forge.kernel import Kernel
from tests.forge.obj import Obj
from tests.forge.pool import tag_of
from winstacks.memory.decode.status import text
from winstacks.process.objectheaders import Objects

CREATOR = (1000, 7)
EVENT = tag_of("Event")
OPTIONAL = [(None, None), ("Ready", None), (None, CREATOR), ("Ready", CREATOR)]


def kernel_with_object(
    name: str, label: Optional[str], creator: Optional[Tuple[int, int]]
) -> Tuple[Kernel, Obj, Obj]:
    """A kernel, and an object of it with its header."""
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    body = named(kernel, "_KEVENT", "Event", label, creator)
    return kernel, body, Obj(kernel.space, kernel.isf, "_OBJECT_HEADER", header_of(body))


def description(kernel: Kernel, header: Obj, folder: pathlib.Path) -> Tuple[str, Optional[str], bool]:
    """What is said of an object, its name, and whether it has a creator."""
    folder.mkdir()
    opened = context.open_image(kernel.image(), folder)
    objects = opened.image.service(Objects)
    info, creator = objects.describe(header.address), objects.creator(header.address)
    return text(info.status), info.name, creator is not None and creator.back_trace_index > 0


@pytest.mark.parametrize(("label", "creator"), OPTIONAL)
@pytest.mark.parametrize("name", ["win10-x64", "win10-x86", "win7-x64", "win7-x86"])
def test_every_info_mask(
    name: str, label: Optional[str], creator: Optional[Tuple[int, int]], tmp_path: pathlib.Path
) -> None:
    """Each value of InfoMask that hides the name or the creator, or invents one, is said."""
    kernel, _, header = kernel_with_object(name, label, creator)
    right = header["InfoMask"]
    assert description(kernel, header, tmp_path / "whole") == ("", label, creator is not None)
    for number, mask in enumerate(
        (0, 1, 2, 3, 4, 8, 9, 0x0A, 0x10, 0x20, 0x41, 0x42, 0x80, 0x82, 0xC0, 0xFF)
    ):
        if mask == right:
            continue
        header["InfoMask"] = mask
        status, found, has_creator = description(kernel, header, tmp_path / str(number))
        same = (found, has_creator) == (label, creator is not None)
        assert same or "contradicted" in status, hex(mask)


@pytest.mark.parametrize(("label", "creator"), OPTIONAL)
@pytest.mark.parametrize("member", ["Flags", "NameInfoOffset"])
def test_distances_up_to_vista(
    member: str, label: Optional[str], creator: Optional[Tuple[int, int]], tmp_path: pathlib.Path
) -> None:
    kernel, _, header = kernel_with_object("xp-x86", label, creator)
    right = header[member]
    assert description(kernel, header, tmp_path / "whole") == ("", label, creator is not None)
    for number, value in enumerate((0, 4, 0x10, 0x18, 0x20, 0x30, 0x41, 0xFF)):
        if value == right:
            continue
        header[member] = value
        status, found, has_creator = description(kernel, header, tmp_path / str(number))
        same = (found, has_creator) == (label, creator is not None)
        assert same or "contradicted" in status, hex(value)


@pytest.mark.parametrize("part", ["_OBJECT_HEADER_HANDLE_INFO", "_OBJECT_HEADER_QUOTA_INFO"])
@pytest.mark.parametrize("name", ["win10-x64", "win7-x64"])
def test_a_part_that_infomask_hides_takes_room(name: str, part: str, tmp_path: pathlib.Path) -> None:
    """Neither the name nor the creator is hidden, so only the size of the pool block tells."""
    bit = {"_OBJECT_HEADER_HANDLE_INFO": 4, "_OBJECT_HEADER_QUOTA_INFO": 8}[part]
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options())
    isf = kernel.isf
    head = isf.size(part)
    start = kernel.pool.allocate(head + isf.offset("_OBJECT_HEADER", "Body") + isf.size("_KEVENT"), EVENT)
    header = Obj(kernel.space, isf, "_OBJECT_HEADER", start + head)
    header.put(PointerCount=1, HandleCount=1, InfoMask=bit)
    kernel.pool.set_type(header, "Event")
    assert description(kernel, header, tmp_path / "whole") == ("", None, False)
    header["InfoMask"] = 0
    assert description(kernel, header, tmp_path / "hidden") == ("contradicted: InfoMask", None, False)


def test_an_object_without_a_pool_header_is_believed(tmp_path: pathlib.Path) -> None:
    """Objects of a page and more have none, nor has special pool."""
    kernel, _, header = kernel_with_object("win10-x64", "Ready", None)
    block = header.address - kernel.isf.size("_OBJECT_HEADER_NAME_INFO") - kernel.isf.size("_POOL_HEADER")
    kernel.space.write(block, bytes(kernel.isf.size("_POOL_HEADER")))
    assert description(kernel, header, tmp_path / "whole") == ("", "Ready", False)
