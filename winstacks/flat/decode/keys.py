# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Keys of stacks: StackKey and ShapeKey, which are equal on every machine, and TraceId, unique in an image.

Both keys are the first 16 bytes of a SHA-256, as 32 lower-case hexadecimal digits. It goes over a UTF-8 text.

The text of a StackKey has a line for each frame, innermost first. Each line ends with a line feed (0Ah):

    <module>,<TimeDateStamp>,<SizeOfImage>,<RVA>    an address in a module
    <module>,,,<RVA>                                the same, of a module of which no more is known
    <Backing>                                       an address in no module: `<private>`, `<unmapped>`, ...
    <zero>, <fuzzy>                                 the values 0 and 0xffffffff, which are no addresses
    <unreadable>                                    an address that is not in the image

The name of the module is in lower case (`text.module_name` makes it of the file's name). The three
numbers have at least 8 lower-case hexadecimal digits each. SizeOfImage is rounded up to whole pages of 4096
bytes, as the kernel rounds those of drivers: one above fffff000 has 9 digits.

The text of a ShapeKey has of each frame the name of its module in lower case, else what its line in the other
text is; several equal ones in a row stand once; `; ` stands between them. The column Modules is the same text
of all frames of the stack.

Neither key has frames with the How `scan`, nor frame 0 with the How `trap`: that is where a thread was
interrupted or went off the processor, which no recorded stack has. Without any frame there are no keys.

ImageId is a name for an image that follows from its content.

It is `i` and the first 16 bytes, in lower-case hexadecimal, of the SHA-256 over these bytes:

1. the 27 bytes `stacktraces image version 1` in ASCII;
2. of each file, in the order in which they are given:
   its size (8 bytes), then its parts: the first MiB, the blocks that begin in this file, the last MiB;
3. SystemTime, and SystemTime less InterruptTime, as KUSER_SHARED_DATA has them (FILETIMEs, 8 bytes each);
   0 for a time that is contradicted or cannot be read.

A part is its length (4 bytes) and its bytes; a part that cannot be read has the length 0 and no bytes. Of a
file below one MiB, the first and the last MiB are each the whole file.

A block is a page of 4,096 bytes, less where its file ends before. With T bytes in all files together, block k
(0 to 4,095) begins at byte k * T // 4096 of the files, one behind the other, rounded down to a page of its
file. Blocks that begin at the same byte are one. Numbers are little-endian.
"""

from __future__ import annotations

import functools
import hashlib
from operator import attrgetter
from typing import Callable, Iterable, Iterator, NamedTuple, Optional, Sequence, Tuple

from .schema import EXACT, GUESSED, PARTIAL

PAGE_SIZE = 0x1000

_BYTES = 16


class KeyPart(NamedTuple):
    """What a frame adds to the keys.

    Attributes:
        line: to the text of StackKey, with its line feed
        label: to that of ShapeKey
        whole: whether all is known that belongs in the line, and nothing contradicts it
    """

    line: str
    label: str
    whole: bool = True


class StackKeys(NamedTuple):
    """The keys of a stack, what they are worth (a word of KEY_QUALITIES), and the text below ShapeKey."""

    stack: str
    shape: str
    quality: str
    text: str


def in_module(
    name: str, stamp: Optional[int], size: Optional[int], rva: int, doubted: bool = False
) -> KeyPart:
    """Returns the part of a frame in a module.

    Args:
        name: the module's name, in any case
        stamp: its TimeDateStamp, None if that is not known
        size: its SizeOfImage, None if that is not known
        rva: the address relative to the module's base
        doubted: whether the image contradicts what the loader says of the module
    """
    name = name.lower()
    if stamp is None or size is None:
        return KeyPart(f"{name},,,{rva:08x}\n", name, False)
    return KeyPart(f"{name},{stamp:08x},{rounded(size):08x},{rva:08x}\n", name, not doubted)


def elsewhere(said: str) -> KeyPart:
    """Returns the part of a frame in no module.

    Args:
        said: its Backing; `zero` or `fuzzy` for a value that is no address
    """
    return KeyPart(f"<{said}>\n", f"<{said}>")


UNREADABLE = KeyPart("<unreadable>\n", "<unreadable>", False)
"""The part of a frame whose address is not in the image."""


def rounded(size: int) -> int:
    """Returns a SizeOfImage in whole pages: the kernel rounds those of drivers, the loader rounds none."""
    return -(-size // PAGE_SIZE) * PAGE_SIZE


def of(parts: Sequence[KeyPart], guessed: bool = False, incomplete: bool = False) -> Optional[StackKeys]:
    """Returns the keys of a stack, None if no frame is left for them.

    Args:
        parts: those of the frames that count, innermost first
        guessed: whether a frame of the stack is a guess or was found by way of one
        incomplete: whether frames are missing, or may be
    """
    if not parts:
        return None
    quality = PARTIAL if incomplete or not all(map(_whole, parts)) else EXACT
    stack, text = digest("".join(map(_line, parts))), merged(parts)
    return StackKeys(stack, _shape(text), GUESSED if guessed else quality, text)


def merged(parts: Iterable[KeyPart]) -> str:
    """Returns the modules and Backings of frames, several equal ones in a row once, with `; ` between."""
    labels = list(map(_label, parts))
    return "; ".join([label for label, before in zip(labels, (None, *labels)) if label != before])


def digest(text: str) -> str:
    """Returns the first 16 bytes of the SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()[:_BYTES].hex()


_shape = functools.lru_cache(maxsize=4096)(digest)
"""Few shapes make most stacks."""


def trace_id(kind: str, process: int, owner: int, arch: str, piece: str, *numbers: int) -> str:
    """Returns the key of a stack in its image. Nothing in it depends on options, nor on other stacks.

    Args:
        kind: as the column Kind
        process: address of the _EPROCESS, 0 for the kernel
        owner: address of the thread, database, heap, lock or object; the handle
        arch: as the column Arch
        piece: which part of what the owner has; empty if there is one only
        numbers: what the image has to tell it from others of the same piece: index, entry, sequence
    """
    shown = ".".join(f"{number:x}" for number in numbers)
    return f"{kind}:{process:x}:{owner:x}:{arch}:{piece}:{shown}"


_line, _label, _whole = attrgetter("line"), attrgetter("label"), attrgetter("whole")


MARK = b"stacktraces image version 1"
PREFIX = "i"
"""With a letter in front, no reader of partitions takes a name without letters for a number."""

BLOCKS = 4096
BLOCK_SIZE = 4096
END_SIZE = 1 << 20
_KEPT = 16


class Content(NamedTuple):
    """A file, as Volatility's layers read it: what is packed is unpacked.

    Attributes:
        size: in bytes
        read: takes an offset and a length that lie in the file; returns the bytes, None if they cannot be
            read
    """

    size: int
    read: Callable[[int, int], Optional[bytes]]


class Identified(NamedTuple):
    """An ImageId.

    Attributes:
        image_id: the letter i and 32 hexadecimal digits
        unread: how many parts of the files could not be read
    """

    image_id: str
    unread: int


def identify(files: Sequence[Content], capture_time: int, counted: int) -> Identified:
    """Returns the ImageId of an image.

    Args:
        files: those that the image consists of, in the order of the layers
        capture_time: SystemTime, 0 where it cannot be read
        counted: that less InterruptTime, 0 where it cannot be read
    """
    digest, unread = hashlib.sha256(MARK), 0
    total, before = sum(file.size for file in files), 0
    for file in files:
        digest.update(file.size.to_bytes(8, "little"))
        end = min(END_SIZE, file.size)
        ranges = [(0, end), *blocks(before, file.size, total), (file.size - end, end)]
        for offset, length in ranges:
            data = (file.read(offset, length) if length else b"") or b""
            unread += bool(length) and not data
            digest.update(len(data).to_bytes(4, "little"))
            digest.update(data)
        before += file.size
    for time in (capture_time, counted):
        digest.update(time.to_bytes(8, "little"))
    return Identified(PREFIX + digest.hexdigest()[: 2 * _KEPT], unread)


def blocks(before: int, size: int, total: int) -> Iterator[Tuple[int, int]]:
    """Yields (offset, length) of the blocks that begin in a file, in order.

    Args:
        before: bytes of all files before this one
        size: its bytes
        total: bytes of all files
    """
    last = -1
    for number in range(BLOCKS if size else 0):
        place = number * total // BLOCKS - before
        offset = place - place % BLOCK_SIZE
        if 0 <= place < size and offset != last:
            last = offset
            yield offset, min(BLOCK_SIZE, size - offset)
