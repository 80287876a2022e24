# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The functions in which threads begin: the outermost frame of a whole stack is in one of these."""

from __future__ import annotations

from ..columns.words import KERNEL
from ..memory.decode.status import has_status
from ..memory.decode.statuscodes import words_that
from ..memory.decode.statusmeanings import Means
from ..names.decode.grounds import ENTRIES, GROUND, GROUND_MODULES, KERNEL_MODULES, is_ground
from ..stacklist.stack import StackRecord

__all__ = ["ENTRIES", "GROUND", "GROUND_MODULES", "ends_in_ground", "in_ground_module", "may_end_in_ground"]

_EXPORTS_LOST = words_that(Means.EXPORTS_LOST)


def ends_in_ground(stack: StackRecord) -> bool:
    """Returns whether the outermost frame of a stack is in a function in which threads begin."""
    return (
        bool(stack.frames)
        and in_ground_module(stack)
        and is_ground(stack.frames[-1].details.function, stack.kind == KERNEL)
    )


def may_end_in_ground(stack: StackRecord) -> bool:
    """Returns whether a stack ends in such a function, or in one of their module whose names are not in the
    image."""
    if ends_in_ground(stack):
        return True
    return (
        bool(stack.frames)
        and in_ground_module(stack)
        and has_status(stack.frames[-1].details.status, *_EXPORTS_LOST)
    )


def in_ground_module(stack: StackRecord) -> bool:
    """Returns whether a stack ends in a module with such functions: other modules could copy their names."""
    module = (stack.frames[-1].details.module or "").lower()
    return module in (KERNEL_MODULES if stack.kind == KERNEL else GROUND_MODULES)
