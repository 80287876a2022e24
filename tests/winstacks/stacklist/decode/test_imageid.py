# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""ImageId, byte by byte as its documentation says."""

from __future__ import annotations

import hashlib
from typing import List, Tuple

import hypothesis
import pytest
from hypothesis import strategies

from tests.conftest import ROOT
from winstacks.stacklist.decode import imageid
from winstacks.stacklist.decode.imageid import ImageContent, identify

MIB = 1 << 20
CAPTURE, BOOT = 0x01DA6B05_12345678, 0x01DA6B04_00000001


def content(data: bytes) -> ImageContent:
    return ImageContent(len(data), lambda offset, length: data[offset : offset + length])


def u32(number: int) -> bytes:
    return number.to_bytes(4, "little")


def u64(number: int) -> bytes:
    return number.to_bytes(8, "little")


def named(message: bytes) -> str:
    return "i" + hashlib.sha256(message).hexdigest()[:32]


def test_a_small_file() -> None:
    part = u32(5) + b"image"
    message = b"stacktraces image version 1" + u64(5) + 3 * part + u64(CAPTURE) + u64(BOOT)
    assert identify([content(b"image")], CAPTURE, BOOT).image_id == named(message)


def test_two_files_and_no_times() -> None:
    """The files have 8,197 bytes: block k begins at byte k * 8197 // 4096, and a page of its file."""
    first, second = bytes(range(256)) * 32, b"image"
    message = b"stacktraces image version 1"
    message += u64(8192) + u32(8192) + first
    message += u32(4096) + first[:4096] + u32(4096) + first[4096:]
    message += u32(8192) + first
    message += u64(5) + 3 * (u32(5) + second) + u64(0) + u64(0)
    assert identify([content(first), content(second)], 0, 0).image_id == named(message)


@pytest.mark.parametrize(
    ("sizes", "image_id"),
    [
        ((), "i9cfc2e1e63a02e1dd5d3642402a36185"),
        ((0,), "i5df670abc033b9d43e94c2f0da36851a"),
        ((1,), "i5231e3fa0887cf5959a4954563877cc4"),
        ((17 * MIB + 3,), "i221b55577339f573583b63e85fb90d51"),
        ((4096 * MIB, 100000), "ib25044438ba23f81053b2f43e281cee0"),
    ],
)
def test_vectors(sizes: Tuple[int, ...], image_id: str) -> None:
    """Files whose byte at the offset n is n // 4096 % 251; both times 0. The vectors stand in docs, too."""
    files = [ImageContent(size, _numbered) for size in sizes]
    assert identify(files, 0, 0).image_id == image_id
    shown = ", ".join(map(str, sizes)) or "none"
    page = (ROOT / "docs" / "traceimage.md").read_text(encoding="utf-8")
    assert f"| {shown} | `{image_id}` |" in page


def _numbered(offset: int, length: int) -> bytes:
    pages = range(offset // 4096, (offset + length - 1) // 4096 + 1)
    data = b"".join(bytes((page % 251,)) * 4096 for page in pages)
    return data[offset % 4096 :][:length]


def test_a_part_that_cannot_be_read_has_no_bytes() -> None:
    data = bytes(3 * MIB)

    def read(offset: int, length: int) -> bytes:
        return b"" if offset == 4096 else data[offset : offset + length]

    found = identify([ImageContent(len(data), read)], 0, 0)
    assert found.unread == 1
    assert found.image_id != identify([content(data)], 0, 0).image_id


@pytest.mark.parametrize("place", [0, 5000, MIB - 1, 7 * MIB + 4097, 16 * MIB - 1])
def test_of_a_file_up_to_16_mib_each_byte_counts(place: int) -> None:
    data = bytearray(16 * MIB)
    before = identify([content(bytes(data))], 0, 0).image_id
    data[place] = 1
    assert identify([content(bytes(data))], 0, 0).image_id != before


def test_of_a_larger_file_the_sampled_pages_count() -> None:
    size = 64 * MIB
    sampled = [offset for offset, _ in imageid.blocks(0, size, size)]
    assert len(sampled) == 4096
    skipped = next(page for page in range(2 * MIB, size, 4096) if page not in set(sampled))

    def changed(place: int) -> str:
        def read(offset: int, length: int) -> bytes:
            return bytes(length) if not offset <= place < offset + length else b"\1" * length

        return identify([ImageContent(size, read)], 0, 0).image_id

    unchanged = changed(-1)
    assert changed(sampled[2000]) != unchanged
    assert changed(skipped) == unchanged


def test_times_sizes_and_the_order_of_files_count() -> None:
    one, two = content(b"one"), content(b"two")
    ids = {
        identify([one, two], CAPTURE, BOOT).image_id,
        identify([two, one], CAPTURE, BOOT).image_id,
        identify([one, two], CAPTURE + 1, BOOT).image_id,
        identify([one, two], CAPTURE, BOOT + 1).image_id,
        identify([content(b"onetwo")], CAPTURE, BOOT).image_id,
    }
    assert len(ids) == 5
    assert all(image_id[0] == "i" and len(image_id) == 33 for image_id in ids)


@hypothesis.given(strategies.lists(strategies.integers(0, 40 * MIB), min_size=1, max_size=4))
def test_the_blocks_of_all_files_are_in_order_and_inside(sizes: List[int]) -> None:
    before, count = 0, 0
    for size in sizes:
        found = list(imageid.blocks(before, size, sum(sizes)))
        offsets = [offset for offset, _ in found]
        assert offsets == sorted(set(offsets))
        assert all(offset % 4096 == 0 and 0 < length <= 4096 for offset, length in found)
        assert all(offset + length <= size for offset, length in found)
        count += len(found)
        before += size
    assert count <= 4096
    assert count or not sum(sizes)
