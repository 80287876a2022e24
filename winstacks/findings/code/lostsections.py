# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Stacks whose frames are in doubt, in modules whose image section is lost.

The names and the unwind data of a module are mostly in pages of its section: without them the walk guesses,
and the functions have no names. A check that needs either then finds nothing, and must say so.
"""

from __future__ import annotations

import functools
from typing import List

from ...columns.words import IMAGE, MODULE
from ...memory.decode.status import has_status
from ...memory.decode.statuscodes import words_that
from ...memory.decode.statusmeanings import Means
from ...memory.image import AddressSpace
from ...process.sections import ImageSections
from ...stacklist.stack import StackRecord
from ..facts import CheckFacts
from ..finding import frame_places

NO_SECTION = "the image section of a module cannot be read, or ends before the module"
"""Reason why a check did not examine all frames of a stack."""

_GUESSED = words_that(Means.FRAMES_MISSING)


def leave_out_sections(check: str, stack: StackRecord, facts: CheckFacts) -> None:
    """Notes the modules on a stack whose section is lost, if the walk guessed or a function has no name.
    `check` is the name of the check for which `facts.left_out` reports the modules."""
    find = functools.partial(_lost_modules, stack, facts)
    for module in facts.find_once_of_stack(__name__, stack, find):
        facts.leave_out(check, NO_SECTION, module)


def _lost_modules(stack: StackRecord, facts: CheckFacts) -> List[str]:
    """Returns the modules of frames in doubt whose section is lost."""
    guessed = has_status(stack.status, *_GUESSED)
    return [
        place.frame.details.module or place.name.symbol
        for place in frame_places(stack, IMAGE)
        if (guessed or place.name.source == MODULE)
        and facts.is_user(place.at)
        and _lacks_section(stack.space, place.at, facts)
    ]


def leave_out_section(check: str, space: AddressSpace, at: int, module: str, facts: CheckFacts) -> None:
    """Notes a module in which a check found nothing, if its section is lost."""
    if _lacks_section(space, at, facts):
        facts.leave_out(check, NO_SECTION, module)


def _lacks_section(space: AddressSpace, at: int, facts: CheckFacts) -> bool:
    return facts.image.service(ImageSections).lacks_pages(facts.vad(space, at))
