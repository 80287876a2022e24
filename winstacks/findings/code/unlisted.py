# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Code of the kernel in no module, where a list of modules may lack one: severity and explanation."""

from __future__ import annotations

from typing import Optional, Tuple

from ...columns.words import LOW, MEDIUM
from ...memory.decode.status import has_status, status
from ...memory.decode.statuscodes import StatusCode
from ...names.places import Name

_DAMAGED = "a module that the damaged list of modules lacks"
_TAKEN_OFF = (
    "a driver that was being loaded or unloaded; code that a driver loads itself (VirtualBox's VMMR0)"
)


def of_unlisted(name: Name) -> Optional[Tuple[str, str]]:
    """Returns severity and explanation of such code; None if the lists are whole and no driver is there.

    The status of the name shows that a list of modules, loaded or unloaded, is incomplete.
    """
    # A driver's headers are there, and the list of modules is whole.
    if name.status == status(StatusCode.IN_NO_MODULE_LIST):
        return MEDIUM, _TAKEN_OFF
    # Somebody wrote to a list that is contradicted; one that is only absent has lost its pages.
    if has_status(name.status, StatusCode.CONTRADICTED):
        return MEDIUM, _DAMAGED
    return (LOW, _DAMAGED) if name.status else None
