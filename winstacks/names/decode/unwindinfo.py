# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads UNWIND_INFO of x64: how the prologue of a function moved the stack pointer and saved registers.

Source: Microsoft, "x64 exception handling" (struct UNWIND_INFO, struct UNWIND_CODE), for version 1; for
version 2 (UWOP_EPILOG, since the compilers of Windows 8) the `UWOP_EPILOG` of the public SDK headers and the
MIT-licensed unwinder of CoreCLR.
"""

from __future__ import annotations

import struct
from typing import Callable, Iterator, Optional, Tuple, Union

from ...memory.decode.records import NamedTuple
from ...memory.decode.statuscodes import StatusCode

Bytes = Union[bytes, memoryview]
ReadRva = Callable[[int, int], Optional[Bytes]]
"""Takes an RVA and a length; returns the bytes of the image there, or None if any of them is missing."""

RUNTIME_FUNCTION_SIZE = 12

LONGEST = 4 + 2 * 255 + 2 + RUNTIME_FUNCTION_SIZE
"""Maximum bytes of an UNWIND_INFO that are read."""

EHANDLER, UHANDLER, CHAININFO = 1, 2, 4  # bits of Flags

# Operations of unwind codes: UWOP_PUSH_NONVOL and so on.
PUSH_NONVOL = 0
ALLOC_LARGE = 1
ALLOC_SMALL = 2
SET_FPREG = 3
SAVE_NONVOL = 4
SAVE_NONVOL_FAR = 5
EPILOG = 6
SPARE = 7
SAVE_XMM128 = 8
SAVE_XMM128_FAR = 9
PUSH_MACHFRAME = 10

OPERATIONS = {
    PUSH_NONVOL: "PUSH_NONVOL",
    ALLOC_LARGE: "ALLOC_LARGE",
    ALLOC_SMALL: "ALLOC_SMALL",
    SET_FPREG: "SET_FPREG",
    SAVE_NONVOL: "SAVE_NONVOL",
    SAVE_NONVOL_FAR: "SAVE_NONVOL_FAR",
    EPILOG: "EPILOG",
    SPARE: "SPARE",
    SAVE_XMM128: "SAVE_XMM128",
    SAVE_XMM128_FAR: "SAVE_XMM128_FAR",
    PUSH_MACHFRAME: "PUSH_MACHFRAME",
}


class UnwindDataError(Exception):
    """Unwind data cannot be used; `code` says whether it is unreadable or invalid."""

    def __init__(self, code: StatusCode) -> None:
        super().__init__(code.value)
        self.code = code


class RuntimeFunction(NamedTuple):
    """RUNTIME_FUNCTION: an entry of the function table, which describes a piece of code. `unwind` is
    UnwindData, the RVA of the UNWIND_INFO; with bit 0 set, of another RUNTIME_FUNCTION."""

    begin: int
    end: int
    unwind: int


class Code(NamedTuple):
    """An unwind code: an action of the prologue.

    Attributes:
        offset: offset in the prologue behind the instruction, in bytes
        operation: UnwindOp, one of `OPERATIONS`
        info: OpInfo, such as a register number
        value: size or displacement in bytes, 0 if the operation has none
    """

    offset: int
    operation: int
    info: int
    value: int


class Epilog(NamedTuple):
    """An epilogue (its pops and its return or jump) as version 2 describes it. `distance` counts the bytes
    from its start to the end of the function."""

    distance: int
    size: int


class UnwindInfo(NamedTuple):
    """A parsed UNWIND_INFO.

    Attributes:
        frame_register: number of the frame register, 0 if there is none
        frame_offset: distance of the frame register from the stack pointer, in bytes
        codes: unwind codes, the last action of the prologue first; without UWOP_EPILOG
        epilogs: epilogues (version 2)
        chained: entry to which this one is chained, None without CHAININFO
    """

    version: int
    flags: int
    prolog_size: int
    frame_register: int
    frame_offset: int
    codes: Tuple[Code, ...]
    epilogs: Tuple[Epilog, ...]
    chained: Optional[RuntimeFunction]


def need(read_rva: ReadRva, rva: int, length: int) -> Bytes:
    """Returns bytes of unwind data. Raises UnwindDataError if some of them cannot be read."""
    data = read_rva(rva, length)
    if data is None:
        raise UnwindDataError(StatusCode.UNWIND_DATA_UNREADABLE)
    return data


def read_runtime_function(read_rva: ReadRva, rva: int) -> RuntimeFunction:
    """Returns the RUNTIME_FUNCTION at an RVA. Raises UnwindDataError if it is not readable."""
    return RuntimeFunction(*struct.unpack("<III", need(read_rva, rva, RUNTIME_FUNCTION_SIZE)))


def read_unwind_info(read_rva: ReadRva, rva: int) -> UnwindInfo:
    """Returns the parsed UNWIND_INFO at an RVA. At most LONGEST bytes are read. Raises UnwindDataError if the
    data is not readable, or has an unknown version, an unknown operation or an incomplete code."""
    head = need(read_rva, rva, 4)
    version, flags = head[0] & 7, head[0] >> 3
    if version not in (1, 2):
        raise UnwindDataError(StatusCode.UNWIND_DATA_INVALID)
    codes = tuple(_codes(bytes(need(read_rva, rva + 4, 2 * head[2])), version))
    chained = None
    if flags & CHAININFO:
        chained = read_runtime_function(read_rva, rva + 4 + 2 * (head[2] + head[2] % 2))
    return UnwindInfo(
        version,
        flags,
        head[1],
        head[3] & 0xF,
        (head[3] >> 4) * 16,
        tuple(code for code in codes if code.operation != EPILOG),
        _epilogs(codes) if version == 2 else (),
        chained,
    )


def length_of(head: Optional[Bytes]) -> int:
    """Returns how many bytes of an UNWIND_INFO are read. `head` has the first four bytes of the UNWIND_INFO,
    None if they are missing."""
    if head is None:
        return 4
    chained = RUNTIME_FUNCTION_SIZE if head[0] >> 3 & CHAININFO else 0
    return 4 + 2 * (head[2] + head[2] % 2) + chained


def _codes(slots: bytes, version: int) -> Iterator[Code]:
    """Yields the codes in an array of 16-bit slots, in their order: the last action of the prologue comes
    first.

    In version 1 the operations 6 and 7 are UWOP_SAVE_XMM and UWOP_SAVE_XMM_FAR with two and three slots. No
    released compiler uses them, and they do not move the stack pointer.
    """
    position = 0
    while position < len(slots):
        offset, operation, info = slots[position], slots[position + 1] & 0xF, slots[position + 1] >> 4
        extra = _extra_slots(operation, info, version)
        operand = slots[position + 2 : position + 2 + 2 * extra]
        if len(operand) != 2 * extra:
            raise UnwindDataError(StatusCode.UNWIND_DATA_INVALID)
        yield Code(offset, operation, info, _value(operation, info, int.from_bytes(operand, "little")))
        position += 2 + 2 * extra


def _extra_slots(operation: int, info: int, version: int) -> int:
    """Returns how many operand slots follow a code."""
    if (operation == ALLOC_LARGE and info > 1) or operation not in OPERATIONS:
        raise UnwindDataError(StatusCode.UNWIND_DATA_INVALID)
    if operation == EPILOG:
        return 0 if version == 2 else 1
    if operation in (SAVE_NONVOL, SAVE_XMM128):
        return 1
    if operation in (SAVE_NONVOL_FAR, SAVE_XMM128_FAR, SPARE):
        return 2
    return 1 + info if operation == ALLOC_LARGE else 0


def _value(operation: int, info: int, operand: int) -> int:
    """Returns a code's size or displacement in bytes: only short forms store it divided by 8 or 16."""
    if operation == ALLOC_SMALL:
        return info * 8 + 8
    if operation == SAVE_NONVOL or (operation == ALLOC_LARGE and info == 0):
        return operand * 8
    return operand * 16 if operation == SAVE_XMM128 else operand


def _epilogs(codes: Tuple[Code, ...]) -> Tuple[Epilog, ...]:
    """Returns the epilogues that version 2 codes describe.

    The first code gives the size of all epilogues; bit 0 of its info is set if an epilogue is at the end of
    the function. Each further code gives the distance of an epilogue's start from the function's end; a
    distance of 0 is padding.
    """
    epilog_codes = [code for code in codes if code.operation == EPILOG]
    if not epilog_codes:
        return ()
    size = epilog_codes[0].offset
    distances = [size] if epilog_codes[0].info & 1 else []
    distances += [code.offset | code.info << 8 for code in epilog_codes[1:]]
    return tuple(Epilog(distance, size) for distance in distances if distance)
