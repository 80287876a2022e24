# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Keys of stacks: test vectors, which docs/flat-tables.md quotes, and what the keys tell apart."""

from __future__ import annotations

import hashlib
import sys
from types import FrameType
from typing import List, Optional, Tuple

import pytest

from tests.conftest import ROOT
from tests.support import bare
from winstacks.columns.words import EXACT, EXPORT, GUESSED, IMAGE, PARTIAL, STD
from winstacks.names.places import Name
from winstacks.process.presentcode import CodeHere
from winstacks.stacklist.decode import keys
from winstacks.stacklist.decode.keys import KeyPart
from winstacks.stacklist.frames import FrameDetails, NamedFrame
from winstacks.stacklist.stack import StackRecord

NTDLL = ("ntdll", 0x5F641E35, 0x1F5000)
KERNEL32 = ("KERNEL32", 0x0A1B2C3D, 0xBE000)


def frame(module: Tuple[str, Optional[int], Optional[int]], rva: int) -> KeyPart:
    return keys.in_module(*module, rva)


VECTORS = [
    (
        "modules",
        [frame(NTDLL, 0x9D7E4), frame(KERNEL32, 0x17034), frame(NTDLL, 0x52651)],
        "ntdll,5f641e35,001f5000,0009d7e4\nkernel32,0a1b2c3d,000be000,00017034\n"
        "ntdll,5f641e35,001f5000,00052651\n",
        "ntdll; kernel32; ntdll",
        EXACT,
    ),
    (
        "no module",
        [keys.elsewhere("private"), keys.elsewhere("private"), frame(NTDLL, 0x52651)],
        "<private>\n<private>\nntdll,5f641e35,001f5000,00052651\n",
        "<private>; ntdll",
        EXACT,
    ),
    (
        "a module known by name",
        [frame(("hidden", None, None), 0x1234), frame(NTDLL, 0x52651)],
        "hidden,,,00001234\nntdll,5f641e35,001f5000,00052651\n",
        "hidden; ntdll",
        PARTIAL,
    ),
    (
        "a module that the image contradicts",
        [keys.in_module(*NTDLL, 0x9D7E4, doubted=True), frame(NTDLL, 0x52651)],
        "ntdll,5f641e35,001f5000,0009d7e4\nntdll,5f641e35,001f5000,00052651\n",
        "ntdll",
        PARTIAL,
    ),
    (
        "the largest size",
        [frame(("BIG", 1, 0xFFFFF001), 0xFFFFFFFF)],
        "big,00000001,100000000,ffffffff\n",
        "big",
        EXACT,
    ),
    ("not in the image", [keys.UNREADABLE], "<unreadable>\n", "<unreadable>", PARTIAL),
    (
        "no address",
        [keys.elsewhere("zero"), keys.elsewhere("fuzzy")],
        "<zero>\n<fuzzy>\n",
        "<zero>; <fuzzy>",
        EXACT,
    ),
]


@pytest.mark.parametrize(
    ("parts", "text", "modules", "quality"),
    [vector[1:] for vector in VECTORS],
    ids=[vector[0] for vector in VECTORS],
)
def test_vectors(parts: List[KeyPart], text: str, modules: str, quality: str) -> None:
    stack_keys = keys.stack_keys(parts)
    assert stack_keys.stack == hashlib.sha256(text.encode()).digest()[:16].hex()
    assert stack_keys.shape == hashlib.sha256(modules.encode()).hexdigest()[:32]
    assert (keys.merged(parts), stack_keys.text, stack_keys.quality) == (modules, modules, quality)
    guessed = keys.stack_keys(parts, guessed=True)
    assert guessed == stack_keys._replace(quality=GUESSED)


def test_a_stack_whose_frames_are_missing() -> None:
    parts = [frame(NTDLL, 0x9D7E4)]
    whole, cut = keys.stack_keys(parts), keys.stack_keys(parts, incomplete=True)
    assert cut == whole._replace(quality=PARTIAL)
    assert keys.stack_keys(parts, guessed=True, incomplete=True) == whole._replace(quality=GUESSED)


def test_no_frame_no_key() -> None:
    assert keys.stack_keys([]) == keys.stack_keys([], guessed=True) == (None,) * 4


def test_case_and_unrounded_size_do_not_matter() -> None:
    one = keys.stack_keys([keys.in_module("Ntfs", 1, 0x7F80, 0x10)])
    other = keys.stack_keys([keys.in_module("NTFS", 1, 0x8000, 0x10)])
    assert one == other


@pytest.mark.parametrize(
    "other",
    [("ntdlm", 1, 0x1000, 5), ("ntdll", 2, 0x1000, 5), ("ntdll", 1, 0x2000, 5), ("ntdll", 1, 0x1000, 6)],
)
def test_all_four_matter(other: Tuple[str, int, int, int]) -> None:
    first, second = (
        keys.stack_keys([keys.in_module("ntdll", 1, 0x1000, 5)]),
        keys.stack_keys([keys.in_module(*other)]),
    )
    assert first.stack != second.stack
    assert (first.shape == second.shape) == (other[0] == "ntdll")


def test_trace_ids() -> None:
    assert keys.trace_id("std", 0xFFFF8001, 0x2000, "x64", "", 7, 0x2040) == "std:ffff8001:2000:x64::7.2040"
    assert keys.trace_id("kernel", 0, 0, "x86", "2") == "kernel:0:0:x86:2:"


def test_the_vector_of_the_documentation() -> None:
    page = (ROOT / "docs" / "flat-tables.md").read_text(encoding="utf-8")
    example = page.partition("Three frames, with their texts and keys:")[2].split("```")[1]
    text, _, faults = example.partition("\n\n")
    parts = [frame(NTDLL, 0x9D7E4), frame(KERNEL32, 0x17034), keys.elsewhere("private")]
    stack_keys = keys.stack_keys(parts)
    assert "".join(part.line for part in parts) == text[len("text\n") :] + "\n"
    assert dict(line.split(maxsplit=1) for line in faults.splitlines() if line) == {
        "StackKey": stack_keys.stack,
        "text": stack_keys.text,
        "ShapeKey": stack_keys.shape,
    }


class Facts:
    """Finds the part of each frame, and notes the addresses that it was asked for."""

    def __init__(self) -> None:
        self.asked: List[Optional[int]] = []

    def part(self, named: NamedFrame) -> KeyPart:
        self.asked.append(named.address)
        return frame(NTDLL, named.address or 0)

    def details(self, named: NamedFrame) -> FrameDetails:
        raise NotImplementedError

    def code(self, named: NamedFrame) -> CodeHere:
        raise NotImplementedError


def test_the_part_of_a_frame_is_found_once_and_then_costs_no_call() -> None:
    facts, calls = Facts(), []
    named = [NamedFrame(rva, Name("ntdll!a", EXPORT, (), IMAGE), "ntdll!a", facts) for rva in range(1, 31)]
    stack = StackRecord(STD, "key", bare.image(8).kernel, None, None, named, ())
    first = stack.keys()

    def note(called: FrameType, event: str, argument: object) -> None:
        if event == "call":
            calls.append(called.f_code.co_name)

    sys.setprofile(note)
    try:
        again = stack.keys()
    finally:
        sys.setprofile(None)
    assert again == first == keys.stack_keys([frame(NTDLL, rva) for rva in range(1, 31)])
    assert facts.asked == list(range(1, 31))
    assert len(calls) < 10, calls
