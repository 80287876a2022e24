# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The CPU and the size of a CONTEXT in a minidump, from its own bytes.

A CONTEXT of a CPU has one size. XSTATE behind it (CONTEXT_XSTATE in ContextFlags) makes it longer, by as
much as the thread needs: contexts of one dump may have several sizes.

Source: "winnt.h" (CONTEXT, CONTEXT_EX, CONTEXT_XSTATE). Measured: 1,407 bytes of x64 (22000, Crashpad) and
1,147 of x86 (22631, dbgcore). CONTEXT_EX.All.Length names all but the last 3 to 19, which align the area.
"""

from __future__ import annotations

from typing import Iterable, Optional, Tuple

from ...memory.decode.records import NamedTuple

_XSTATE = 0x40


class Form(NamedTuple):
    """The CONTEXT of a CPU: its size, the offset of ContextFlags, the flag of the CPU."""

    machine: int
    size: int
    flags: int
    cpu: int

    def flags_of(self, data: bytes) -> int:
        """Returns ContextFlags of a CONTEXT."""
        return int.from_bytes(data[self.flags : self.flags + 4], "little")


FORMS = (
    Form(0x8664, 1232, 0x30, 0x100000),
    Form(0xAA64, 912, 0, 0x400000),
    Form(0x14C, 716, 0, 0x10000),
)
"""IMAGE_FILE_MACHINE_* and its CONTEXT, the longest first."""

DECISIVE_BYTES = max(form.size for form in FORMS) + 4
"""Number of the first bytes of a CONTEXT that `sizes_agree` reads: CONTEXT, and CONTEXT_EX.All.Offset."""

_OF_A_CPU = 0x7F0000
"""The flags of the CPUs of "winnt.h" (CONTEXT_i386, CONTEXT_AMD64, CONTEXT_ARM, CONTEXT_ARM64 and others)."""


def machine_of_context(data: bytes) -> Optional[int]:
    """Returns the IMAGE_FILE_MACHINE_* of a CONTEXT; None if the bytes are no CONTEXT of a known CPU."""
    form = _form(data)
    return None if form is None else form.machine


def _form(data: bytes) -> Optional[Form]:
    for form in FORMS:
        if len(data) >= form.size:
            flags = form.flags_of(data)
            if flags & _OF_A_CPU == form.cpu and flags & 0xFF:
                return form
    return None


def _is_extended(form: Form, data: bytes) -> bool:
    """Returns whether XSTATE follows a CONTEXT: ContextFlags say so, or CONTEXT_EX there leads back to it."""
    behind = data[form.size : form.size + 4]
    leads_back = len(behind) == 4 and int.from_bytes(behind, "little", signed=True) == -form.size
    return len(data) > form.size and (bool(form.flags_of(data) & _XSTATE) or leads_back)


def sizes_agree(contexts: Iterable[Tuple[int, bytes]]) -> bool:
    """Returns whether the sizes of the contexts of a dump are possible together.

    A context without XSTATE has the size of its CPU's CONTEXT, and these are equal. `contexts` has DataSize
    of each, and at least its first DECISIVE_BYTES.
    """
    plain = set()
    known = False
    for size, data in contexts:
        form = _form(data)
        known = known or form is not None
        if form is None or not _is_extended(form, data):
            plain.add(size)
    # The sizes of other CPUs are not known here.
    right = not known or plain.issubset(form.size for form in FORMS)
    return len(plain) < 2 and right
