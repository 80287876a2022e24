# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The x86 function that returns to an address on the stack, as the call before it and code prove."""

from __future__ import annotations

from typing import Optional, Sequence

from . import clues_x86
from .effects_x86 import COPY, OURS
from .frames import FindImage
from .functions_x86 import Functions

_NEAR_CODE = 0x4000
"""Distance behind a function's start within which an address is assumed to be in the function."""

CHAINED = (OURS, COPY)
"""Values of Ebp with which the chain of frame pointers leads to the caller."""


class Callees:
    """Compares the targets of calls with the functions of instructions, in one address space."""

    def __init__(self, functions: Functions, find_image: FindImage) -> None:
        self._functions = functions
        self._find_image = find_image

    def proven(self, address: int, ip: int, interrupted: bool) -> Optional[int]:
        """Returns the start of the function of `ip` if code proves that it returns to the address above Ebp.

        The proof is the target of the call before that address or, if the target is unknown, that the
        function has set up its frame.
        """
        functions = self._functions
        targets = functions.targets(address) if address else []
        # The code behind a call that never returns may be another function.
        spots = [ip] if interrupted else functions.calls(ip) or [ip]
        for start in targets:
            near = is_near(start, ip) and not functions.has_border(start, ip)
            places = [] if near and not interrupted else [functions.place(start, spot) for spot in spots]
            if near and not any(places) and not self._begins_behind(start, ip, spots):
                return start
            if any(self._has_frame(start, spot, near) for spot in spots):
                return start
        for start in functions.tails(targets):
            if any(self._has_frame(start, spot, False) for spot in spots):
                return start
        if targets or (not interrupted and functions.behind_set_up(ip)):
            return None
        owns = map(functions.containing, spots)
        return next(
            (function.start for function in owns if function is not None and function.place.ebp in CHAINED),
            None,
        )

    def is_part(self, start: int, ip: int) -> bool:
        """Returns whether a distant instruction is in the function that starts at an address."""
        image = self._find_image(start)
        if image is not None and not (0 <= ip - image.base < image.size and image.executable(ip)):
            return False
        return self._functions.flow(start).proves(ip) is True

    def _has_frame(self, start: int, ip: int, near: bool) -> bool:
        """Returns whether the function that starts at an address has set up its frame at an instruction."""
        place = self._functions.place(start, ip)
        if place is None or place.ebp not in CHAINED:
            return False
        uneven = self._functions.flow(start).proves(ip) is False
        return (near and not uneven) or self.is_part(start, ip)

    def _begins_behind(self, start: int, ip: int, spots: Sequence[int]) -> bool:
        """Returns whether code shows that an instruction is in another function, which begins behind the one
        that starts at an address: not all compilers put padding between functions."""
        code = self._functions.code(start, ip - start + clues_x86.LONGEST_BEGIN)
        if not clues_x86.begins_behind_end(code, start):
            return False
        owns = map(self._functions.containing, spots)
        return any(function is not None and function.start > start for function in owns)


def is_near(start: int, ip: int) -> bool:
    """Returns whether an address may be in the function that starts at another, by its distance."""
    return 0 <= ip - start < _NEAR_CODE
