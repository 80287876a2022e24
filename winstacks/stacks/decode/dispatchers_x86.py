# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The registers that the kernel saves on a 32-bit user stack when it continues a thread in a dispatcher of
ntdll.

At the entry of KiUserExceptionDispatcher Esp is the address of two pointers: to an EXCEPTION_RECORD and,
above that, to the interrupted CONTEXT. At the entry of KiUserApcDispatcher the CONTEXT lies above the APC's
routine and its three arguments. The kernel puts all of these below the Esp in that CONTEXT.

Source: EXCEPTION_RECORD, CONTEXT and its flags: winnt.h, the same in every version. The stack of an APC:
described (ReactOS, KiInitializeUserApc). The content of each structure is checked, so that nothing else
passes for one.
"""

from __future__ import annotations

import re
from typing import Callable, Optional, Tuple

from ...memory.decode.memory import ReadMemory
from ...memory.decode.structure import Structures
from ...traps.decode.record import MAX_PARAMETERS
from .registers import Registers32

EXCEPTION = "KiUserExceptionDispatcher"
APC = "KiUserApcDispatcher"
CALLBACK = "KiUserCallbackDispatcher"
NAMES = frozenset((EXCEPTION, APC, CALLBACK))
"""The functions of ntdll that have no caller: the kernel continues a thread in them."""

Together = Callable[[int, int], bool]
"""(address, address) -> whether both are known to lie on one stack"""

_DECORATION = re.compile(r"^_+|@\d+$")

_NEEDED_FLAGS = 0x10007
_KNOWN_FLAGS = 0xF801007F
"""Flags of a CONTEXT that it must have (CONTEXT_i386 with control, integer and segment parts), and flags that
it may have (all parts, and the flags of exceptions)."""

_USER = 3
_EFLAGS_ALWAYS, _EFLAGS_NEVER = 0x2, 0x20000
_POINTER = 4
_PAIR = 2 * _POINTER
_APC_ARGUMENTS = 4 * _POINTER


def named(label: str) -> Optional[str]:
    """Returns the dispatcher that a label of ntdll names, None if it names another function."""
    plain = _DECORATION.sub("", label)
    return plain if plain in NAMES else None


class Contexts:
    """Finds the registers that an exception or an APC interrupted."""

    def __init__(
        self,
        types: Structures,
        read: ReadMemory,
        is_code: Callable[[int], bool],
        is_no_code: Callable[[int], bool],
    ) -> None:
        context, record = types["_CONTEXT"], types["_EXCEPTION_RECORD"]
        self._read = read
        self._is_code = is_code
        self._is_no_code = is_no_code
        self._context_size = context.size
        self._context = context.reader("ContextFlags", "Eip", "Esp", "Ebp", "SegCs", "EFlags")
        self._parameters_at = record.size - MAX_PARAMETERS * _POINTER
        self._record = record.reader("ExceptionAddress", "NumberParameters")

    def find_interrupted(self, name: str, entry: int, together: Together) -> Optional[Registers32]:
        """Returns the interrupted registers; None if the structures on the stack are not valid. `entry` is
        Esp at its first instruction."""
        found = self._behind_record(entry) if name == EXCEPTION else (None, entry + _APC_ARGUMENTS)
        if found is None:
            return None
        raised_at, context = found
        data = self._read(context, self._context_size) if context and together(entry, context) else None
        if data is None:
            return None
        flags, ip, sp, bp, cs, eflags = self._context(data, 0)
        if flags & _NEEDED_FLAGS != _NEEDED_FLAGS or flags & ~_KNOWN_FLAGS or cs & _USER != _USER:
            return None
        if not eflags & _EFLAGS_ALWAYS or eflags & _EFLAGS_NEVER:
            return None
        if sp < context + self._context_size or not together(entry, sp):
            return None
        # A call into no memory raised the exception there: the record must confirm it.
        if not self._is_code(ip) and not (raised_at == ip and self._is_no_code(ip)):
            return None
        return Registers32(ip, sp, bp)

    def _behind_record(self, entry: int) -> Optional[Tuple[int, int]]:
        """Returns ExceptionAddress and the address of the CONTEXT, if the record below that is valid."""
        pair = self._read(entry, _PAIR)
        if pair is None:
            return None
        record, context = (
            int.from_bytes(pair[offset : offset + _POINTER], "little") for offset in (0, _POINTER)
        )
        if (record | context) % _POINTER or not entry + _PAIR <= record < context:
            return None
        data = self._read(record, self._parameters_at)
        if data is None:
            return None
        raised_at, parameters = self._record(data, 0)
        if parameters > MAX_PARAMETERS or record + self._parameters_at + _POINTER * parameters > context:
            return None
        return raised_at, context
