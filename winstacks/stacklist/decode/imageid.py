# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""ImageId: an identifier of an image that is computed from its content.

It is the letter `i`, then in lower-case hexadecimal the first 16 bytes of the SHA-256 over these bytes:

1. the 27 bytes `stacktraces image version 1` in ASCII;
2. for each file, in the order of the arguments:
   its size (8 bytes), then its parts: the first MiB, the blocks that begin in this file, the last MiB;
3. SystemTime, and SystemTime minus InterruptTime, from KUSER_SHARED_DATA (FILETIMEs, 8 bytes each);
   0 for a time that is contradicted or cannot be read.

A part is its length (4 bytes) and its bytes; a part that cannot be read has the length 0 and no bytes. If a
file is shorter than one MiB, its first and its last MiB are each the whole file.

A block is a page of 4,096 bytes, or less at the end of its file. With T bytes in all files together, block k
(0 to 4,095) begins at byte k * T // 4096 of the concatenated files, rounded down to a page of its file.
Blocks that begin at the same byte count once. Numbers are little-endian.
"""

from __future__ import annotations

import hashlib
from typing import Iterator, Sequence, Tuple

from ...memory.decode.memory import ReadFile
from ...memory.decode.records import NamedTuple

MARK = b"stacktraces image version 1"
PREFIX = "i"
"""With a leading letter, no reader of partitions mistakes an all-digit name for a number."""

BLOCKS = 4096
BLOCK_SIZE = 4096
END_SIZE = 1 << 20
_KEPT = 16


class ImageContent(NamedTuple):
    """The content of a file as Volatility's layers read it: packed data is decompressed. `read` returns b""
    for a range that cannot be read."""

    size: int
    read: ReadFile


class ContentIdentity(NamedTuple):
    """An ImageId, and the number of parts that it lacks. `image_id` is the letter i and 32 hexadecimal
    digits."""

    image_id: str
    unread: int


def identify(files: Sequence[ImageContent], capture_time: int, counted: int) -> ContentIdentity:
    """Returns the ImageId of an image.

    Args:
        files: files of the image, in the order of the layers
        capture_time: SystemTime as a FILETIME, 0 if it cannot be read
        counted: SystemTime minus InterruptTime, 0 if it cannot be read
    """
    digest, unread = hashlib.sha256(MARK), 0
    total, before = sum(file.size for file in files), 0
    for file in files:
        digest.update(file.size.to_bytes(8, "little"))
        end = min(END_SIZE, file.size)
        ranges = [(0, end), *blocks(before, file.size, total), (file.size - end, end)]
        for offset, length in ranges:
            data = file.read(offset, length) if length else b""
            unread += bool(length) and not data
            digest.update(len(data).to_bytes(4, "little"))
            digest.update(data)
        before += file.size
    for time in (capture_time, counted):
        digest.update(time.to_bytes(8, "little"))
    return ContentIdentity(PREFIX + digest.hexdigest()[: 2 * _KEPT], unread)


def blocks(before: int, size: int, total: int) -> Iterator[Tuple[int, int]]:
    """Yields (offset, length) of the blocks that begin in a file, in order.

    Args:
        before: total bytes of the files before this one
        size: bytes of this file
        total: total bytes of all files
    """
    last = -1
    for number in range(BLOCKS if size else 0):
        place = number * total // BLOCKS - before
        offset = place - place % BLOCK_SIZE
        if 0 <= place < size and offset != last:
            last = offset
            yield offset, min(BLOCK_SIZE, size - offset)
