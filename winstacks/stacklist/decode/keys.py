# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Keys of stacks: StackKey and ShapeKey, which are equal on every machine, and TraceId, unique in an image.

Both keys are the first 16 bytes of the SHA-256 of a UTF-8 text, as 32 lower-case hexadecimal digits.

The text of a StackKey has a line for each frame, innermost first. Each line ends with a line feed (0Ah):

    <module>,<TimeDateStamp>,<SizeOfImage>,<RVA>    an address in a module
    <module>,,,<RVA>                                the same, for a module whose stamp or size is unknown
    <Backing>                                       an address in no module: `<private>`, `<unmapped>`, ...
    <zero>, <fuzzy>                                 the values 0 and 0xffffffff, which are no addresses
    <unreadable>                                    an address that is not in the image

The name of the module is in lower case (`text.module_name` makes it from the file's name). The three numbers
are lower-case hexadecimal with at least 8 digits each. SizeOfImage is rounded up to whole pages of 4096
bytes, as the kernel does for drivers: a size above fffff000 has 9 digits.

The text of a ShapeKey has for each frame the name of its module in lower case, else the text of its line
above; several equal ones in a row are written once; `; ` separates them. The column Modules is the same text
for all frames of the stack.

Neither key includes frames with the How `scan`, nor frame 0 with the How `trap`: it shows where a thread was
interrupted or left the processor, and no recorded stack has such a frame. A stack without any frame has no
keys.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Iterable, List, Optional, Sequence

from ...columns.dictionary import STACK_SEPARATOR
from ...columns.words import EXACT, GUESSED, PARTIAL
from ...memory.decode.pagetable import round_to_pages
from ...memory.decode.records import NamedTuple

_BYTES = 16


class KeyPart(NamedTuple):
    """The part of a frame in the keys.

    Attributes:
        line: line of the frame in the text of StackKey, with its line feed
        label: text of the frame in ShapeKey
        whole: whether the line is complete, and the image does not contradict it
    """

    line: str
    label: str
    whole: bool = True


class StackKeys(NamedTuple):
    """The keys of a stack, their quality (a word of KEY_QUALITIES), and the text below ShapeKey.

    All are None if no frame is left for them.
    """

    stack: Optional[str] = None
    shape: Optional[str] = None
    quality: Optional[str] = None
    text: Optional[str] = None


NO_KEYS = StackKeys()


def in_module(
    name: str, stamp: Optional[int], size: Optional[int], rva: int, doubted: bool = False
) -> KeyPart:
    """Returns the key part of a frame in a module.

    Args:
        name: the module's name, in any case
        stamp: its TimeDateStamp, None if unknown
        size: its SizeOfImage, None if unknown
        doubted: whether the image contradicts the loader's entry of the module
    """
    name = name.lower()
    if stamp is None or size is None:
        return KeyPart(f"{name},,,{rva:08x}\n", name, False)
    # The kernel rounds SizeOfImage of drivers, the loader does not.
    return KeyPart(f"{name},{stamp:08x},{round_to_pages(size):08x},{rva:08x}\n", name, not doubted)


def elsewhere(place: str, whole: bool = True) -> KeyPart:
    """Returns the key part of a frame in no module.

    Args:
        place: its Backing; `zero` or `fuzzy` for a value that is no address
        whole: whether the lists from which the Backing follows are complete
    """
    return KeyPart(f"<{place}>\n", f"<{place}>", whole)


UNREADABLE = KeyPart("<unreadable>\n", "<unreadable>", False)
"""The key part of a frame whose address is not in the image."""


def stack_keys(parts: Sequence[KeyPart], guessed: bool = False, incomplete: bool = False) -> StackKeys:
    """Returns the keys of a stack.

    Args:
        parts: key parts of the frames that count, innermost first
        guessed: whether a frame of the stack is a guess or was found through a guess
        incomplete: whether frames are missing, or may be
    """
    if not parts:
        return NO_KEYS
    quality = PARTIAL if incomplete else EXACT
    lines = []
    for line, _, whole in parts:
        lines.append(line)
        if not whole:
            quality = PARTIAL
    stack, text = digest("".join(lines)), merged(parts)
    return StackKeys(stack, _shape(text), GUESSED if guessed else quality, text)


def merged(parts: Iterable[KeyPart]) -> str:
    """Returns the modules and Backings of frames, joined with `; `, several equal ones in a row once."""
    labels: List[str] = []
    before = None
    for _, label, _ in parts:
        if label != before:
            labels.append(label)
            before = label
    return STACK_SEPARATOR.join(labels)


def digest(text: str) -> str:
    """Returns the first 16 bytes of the SHA-256 of a text, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[: 2 * _BYTES]


_shape = functools.lru_cache(maxsize=4096)(digest)
"""The cached digest of a ShapeKey: most stacks share a few shapes."""


def trace_id(kind: str, process: int, owner: int, arch: str, piece: str, *numbers: int) -> str:
    """Returns the key of a stack in its image, which depends neither on options nor on other stacks.

    Args:
        process: address of the _EPROCESS, 0 for the kernel
        owner: address of the thread, database, heap, lock or object; the handle
        piece: part of the owner's stacks; empty if the owner has one part only
        numbers: numbers that distinguish the stack within the piece: index, entry, sequence
    """
    shown = ".".join(f"{number:x}" for number in numbers)
    return f"{kind}:{process:x}:{owner:x}:{arch}:{piece}:{shown}"
