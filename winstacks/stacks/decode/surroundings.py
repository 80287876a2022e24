# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Knowledge of a walk about an address space beside its modules and its memory."""

from __future__ import annotations

from typing import Callable, Optional, Tuple

from ...memory.decode.records import NamedTuple
from ...memory.decode.statuscodes import StatusCode

IsFirst = Callable[[int], bool]
"""address -> whether the code there is of a function in which threads begin."""

IsStart = Callable[[int], bool]
"""address -> whether a function with a name begins exactly there."""

IsMapped = Callable[[int], Optional[bool]]
"""address outside all modules -> whether a memory region holds it; None if that is unknown."""

IsExecutable = Callable[[int], bool]
"""address outside all modules -> whether a memory region there is known to hold code."""

FindStack = Callable[[int], Optional[Tuple[int, int]]]
"""address -> (low, high) of the memory there if a program may use it as a stack, else None."""


def _no(_address: int) -> bool:
    return False


def _unknown(_address: int) -> None:
    return None


class Surroundings(NamedTuple):
    """Answers about the addresses of an address space; the defaults know nothing."""

    is_first: IsFirst = _no
    is_start: IsStart = _no
    is_mapped: IsMapped = _unknown
    is_executable: IsExecutable = _no
    find_stack: FindStack = _unknown
    no_code: StatusCode = StatusCode.CODE_IN_NO_MODULE
    """Why no code is known for an address that a walk comes to."""


UNKNOWN = Surroundings()
