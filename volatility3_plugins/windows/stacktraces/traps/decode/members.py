# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What the decoders of trap frames share: member layouts, validities, facts from outside the frame."""

from __future__ import annotations

from typing import Dict, Mapping, NamedTuple, Tuple

from ...base.decode.field import Field

SYSCALL = "syscall"
SERVICE = "service"
INTERRUPT = "interrupt"
EXCEPTION = "exception"

SAVED = "saved"  # the register's value at the entry
COMPUTED = "computed"  # a value of the kernel's own that stands for the register (a constant, a link)
REUSED = "reused"  # the slot holds something else than its name says
REUSED_UNSURE = "reused, unsure"  # or not written at all
PARTIAL = "partial"  # only the low word was written
UNSURE = "unsure"  # the frame does not tell whether it was written
UNWRITTEN = "not saved"  # what the stack held before

EFLAGS_IF = 0x200
EFLAGS_VM = 0x20000
CS_KERNEL = 0x10
CS_USER = 0x33
CS_USER_32 = 0x23


class Layout(NamedTuple):
    """A structure as the image's own symbols describe it; `arch` is x64 or x86."""

    arch: str
    size: int
    members: Mapping[str, Field]


class Verdict(NamedTuple):
    """How much a member's value is worth, and what it is where that is not its name."""

    validity: str
    note: str = ""


class Facts(NamedTuple):
    """What is known of a frame from outside its own bytes; everything may be left out.

    handler: the function in which the return address just below the frame lies (KiPageFault…), no module
    dispatcher: the same for the return address just below the exception frame
    service_linkage: address of nt!KiServiceLinkage, 0 if unknown
    saves_arguments: the kernel has KiSystemCall64Shadow: its system calls always save Rax, Rcx and Rdx
    debug_active: _DISPATCHER_HEADER.DebugActive of the thread, as it is now
    system_call_return: KUSER_SHARED_DATA.SystemCallReturn (x86), 0 if unknown
    clears_dr7: an x86 kernel that zeroes the Dr7 slot when no debug registers are in use (5.2 and later)
    """

    handler: str = ""
    dispatcher: str = ""
    service_linkage: int = 0
    saves_arguments: bool = False
    debug_active: int = 0
    system_call_return: int = 0
    clears_dr7: bool = False


NO_FACTS = Facts()
Verdicts = Dict[str, Verdict]


def number(layout: Layout, data: bytes, member: str) -> int:
    """Returns a member as an unsigned number; 0 if the bytes end before it."""
    offset, size = layout.members[member][:2]
    return int.from_bytes(data[offset : offset + size], "little")


def words(text: str) -> Tuple[str, ...]:
    """Returns the words of a text: names of members, written without a quote around each."""
    return tuple(text.split())


def mark(verdicts: Verdicts, validity: str, names: str, note: str = "") -> None:
    """Gives the members named (separated by blanks) one validity."""
    verdict = Verdict(validity, note)
    for name in words(names):
        verdicts[name] = verdict


def debug_registers_plausible(dr7: int) -> bool:
    """Tells whether a Dr7 can be one that enables something: low word not 0, reserved bits as they must be.

    Source: Intel SDM volume 3, 17.2.4: bits 11 (outside TSX), 12, 14 and 15 and the upper half are 0.
    """
    return bool(dr7 & 0xFFFF) and dr7 < 1 << 32 and not dr7 & 0xD000
