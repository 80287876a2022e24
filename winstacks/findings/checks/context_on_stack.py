# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The check `context_on_stack`: a prepared CONTEXT whose instruction pointer is the entry of a function.

Code that sleeps encrypted has the system make the calls that it cannot make itself: it prepares contexts
whose instruction pointer is exactly the entry of NtContinue, VirtualProtect or the like. The instruction
pointer of a thread that ran lies within a function.
"""

from __future__ import annotations

import itertools
from typing import Dict, Iterator, Tuple

from ...columns.words import HIGH, LIKELY, USER, WOW64
from ...memory.decode.machine import Machine
from ...memory.decode.ranges import Extents
from ...process.userstacks import UserStacks
from ...stacklist.stack import StackRecord
from ...traps.decode.context import CpuContext
from ...traps.state import context_layouts, register_types
from ..facts import CheckFacts
from ..finding import NONE_KNOWN, Check, Finding, thread_finding

FUNCTIONS: Dict[str, Tuple[str, ...]] = {
    "ntdll": ("NtContinue", "ZwContinue", "NtContinueEx"),
    **dict.fromkeys(("kernel32", "kernelbase"), ("VirtualProtect", "VirtualProtectEx")),
    **dict.fromkeys(
        ("advapi32", "cryptsp", "cryptbase"),
        ("SystemFunction032", "SystemFunction040", "SystemFunction041"),
    ),
}
"""The functions, by module."""

MAX_STACK = 1 << 22
"""The most bytes of a stack that are searched."""

MAX_RAISED = 256
"""The most contexts of exceptions on one stack that are left out: no thread raises so many at a function's
entry."""

_MOST_PADDING = 16
_NOPS = (
    *((b"\x90", 1), (b"\xcc", 1), (b"\x66\x90", 2), (b"\x0f\x1f\x00", 3), (b"\x0f\x1f\x40\x00", 4)),
    *((b"\x0f\x1f\x44\x00\x00", 5), (b"\x0f\x1f\x80", 7), (b"\x0f\x1f\x84\x00", 8), (b"\x66\x66", 1)),
    *((b"\x66\x0f\x1f", 1), (b"\x66\x2e\x0f\x1f", 2)),
)
"""The first bytes of nops, and their lengths; a prefix by itself has length 1 (Intel's manual, volume 2,
NOP)."""

_BESIDE = 0x100
"""The bytes before and after a CONTEXT in which its EXCEPTION_RECORD lies, if it has one."""
_FAILURE = 1 << 31
"""The bit that is set in the codes of exceptions, warnings and errors (ntstatus.h)."""


def check_stack(stack: StackRecord, facts: CheckFacts) -> Iterator[Finding]:
    """Yields the first prepared context in the part of a stack that is in use."""
    thread, entry = stack.thread, stack.entry
    sp = None if entry is None else entry.registers.get("Rsp")
    if thread is None or not sp or not stack.space.layer_name:
        return
    limits = facts.image.service(UserStacks)
    ranges = limits.narrow(thread) if stack.kind == WOW64 else limits.native(thread)
    targets = _with_padding(stack, facts)
    for low, high in ranges:
        if not low <= sp <= high or not targets:
            continue
        extents = facts.image.memory(stack.space).load(sp, min(high - sp, MAX_STACK))
        for address, context, function in _contexts(extents, stack, targets, facts):
            evidence = f"CONTEXT {address:#x} with ContextFlags {context.flags:#x}, Rsp "
            evidence += (
                f"{context.registers['Rsp']:#x}; {facts.memory(stack.space, context.registers['Rip'])}"
            )
            rip = context.registers["Rip"]
            yield thread_finding(stack, thread, HIGH, LIKELY, evidence, NONE_KNOWN, rip, function)


def _with_padding(stack: StackRecord, facts: CheckFacts) -> Dict[int, str]:
    """Returns the functions by their entry addresses, and by the addresses of the padding before them."""
    functions = facts.entry_points(stack.space, FUNCTIONS)
    return {
        **{
            address: name
            for entry, name in functions.items()
            for address in range(_padded(stack, entry, facts), entry)
        },
        **functions,
    }


def _padded(stack: StackRecord, entry: int, facts: CheckFacts) -> int:
    """Returns the start of the padding before a function: nops of any length, or int 3."""
    known_module = facts.namer(stack.space).module_at(entry)
    if known_module is None:
        return entry
    before = facts.copies.read(stack.space, entry - _MOST_PADDING, _MOST_PADDING) or b""
    functions, base = known_module.image.functions, known_module.module.base
    for start in range(entry - len(before), entry):
        piece = None if functions is None else functions.find_entry(start - base)
        if piece is None and _is_padding(before[start - entry :]):
            return start
    return entry


def _is_padding(code: bytes) -> bool:
    """Returns whether bytes are complete nops, of any length, or int 3."""
    while code:
        length = next((size for start, size in _NOPS if code.startswith(start)), 0)
        if not 0 < length <= len(code):
            return False
        code = code[length:]
    return True


def _contexts(
    extents: Extents, stack: StackRecord, functions: Dict[int, str], facts: CheckFacts
) -> Iterator[Tuple[int, CpuContext, str]]:
    """Yields the address of the first context whose instruction pointer is a target, and the function."""
    machine = stack.space.machine
    size, raised = machine.pointer_size, 0
    forms = context_layouts(facts.image, machine)
    for start, data in extents.runs:
        # The 64-bit modules of a WoW64 process appear in no 32-bit CONTEXT.
        targets = [item for item in functions.items() if not item[0] >> 8 * size]
        for (target, function), form in itertools.product(targets, forms):
            for place in _places(data, target.to_bytes(size, "little"), size):
                address = start + place - form.fields["Rip"].offset
                bytes_ = extents.read(address, form.size)
                context = None if bytes_ is None else form.decode(bytes_)
                if context is None or context.registers.get("Rip") != target:
                    continue
                sp = context.registers["Rsp"]
                if sp % size or facts.vad(stack.space, sp) is None:
                    continue
                if raised < MAX_RAISED and _raised(extents, address, form.size, target, facts, machine):
                    raised += 1
                    continue
                yield address, context, function
                return


def _places(data: bytes, pattern: bytes, size: int) -> Iterator[int]:
    """Yields the offsets of bytes in data, at multiples of a size."""
    place = data.find(pattern)
    while place >= 0:
        if not place % size:
            yield place
        place = data.find(pattern, place + 1)


def _raised(
    extents: Extents, context: int, length: int, target: int, facts: CheckFacts, machine: Machine
) -> bool:
    """Returns whether an EXCEPTION_RECORD with the target address lies next to a context."""
    types, size = register_types(facts.image, machine), machine.pointer_size
    record = types.need("_EXCEPTION_RECORD64", "_EXCEPTION_RECORD")
    address, code = record.field("ExceptionAddress"), record.field("ExceptionCode")
    for start in (
        *range(context - _BESIDE, context, size),
        *range(context + length, context + length + _BESIDE, size),
    ):
        data = extents.read(start, record.size)
        if data is not None and address.value_in(data) == target and code.value_in(data) & _FAILURE:
            return True
    return False


CHECK = Check(
    "context_on_stack",
    "T1497.003, T1055.004",
    (USER, WOW64),
    "A CONTEXT on the stack of a thread has an instruction pointer that is exactly the entry of "
    "NtContinue, VirtualProtect or an encryption function, or in the padding before it. A running "
    "thread does not leave such a CONTEXT: it was prepared.",
    "high",
    "An exception at the entry of such a function: Windows puts an EXCEPTION_RECORD beside that "
    "CONTEXT, and the check leaves it out.",
    "Look at the other CONTEXTs near it, and at the memory to which their arguments point.",
    "no thread has a stack in user mode",
    head="a CONTEXT that leads to a function of sleep masks",
    of_stack=check_stack,
    intel=True,
)
