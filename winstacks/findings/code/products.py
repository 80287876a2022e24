# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Hooks of products: a difference from other processes is weighed by where the product's DLL is loaded.

A product may hook some programs only, and may leave some out, whose page is a copy of their own all the same.
Two versions of its DLL may be in use until the next restart. In each case the DLL into which a hook leads is
loaded where the hook is, and is not loaded where the hook is missing. Who takes a hook out leaves the DLL
behind.
"""

from __future__ import annotations

from typing import FrozenSet, Optional, Tuple

from ...columns.words import HIGH, LOW, MEDIUM
from ...memory.decode.records import NamedTuple
from ...memory.decode.text import cell, counted, file_name
from ...memory.image import AddressSpace
from ...process.regions import mapped_path
from ...process.vads import regions
from ..facts import CheckFacts, list_in_words
from .relays import Hooked

ELSEWHERE = "most processes have a hook here, but the hook of this process leads into another module"
TAKEN_OUT = "the hook was taken out: this process has loaded"
LEFT_OUT = "a product that leaves this process out: it has not loaded"
FILES_OWN = "the bytes are the file's: others were changed, and not this process"
_LEADS = "into which most hooks here lead"
_UNFOLLOWED = "the bytes are the file's; where the hooks of the others lead is not in the image"
_OTHERS_HAVE = "other process that has loaded it", "other processes that have loaded it"


class Verdict(NamedTuple):
    """The verdict on a difference. `leads` are files of the modules into which the hooks lead."""

    severity: str
    innocent: str
    leads: FrozenSet[str]


def without_hook(space: AddressSpace, entry: int, facts: CheckFacts) -> Verdict:
    """Judges a function that is as in its file, where most other processes have something else."""
    hooked = Hooked(space, entry, facts)
    theirs = hooked.theirs
    if not theirs:
        severity, innocent = (MEDIUM, _UNFOLLOWED) if hooked.lost else (LOW, FILES_OWN)
        return Verdict(severity, innocent, theirs)
    named = f"{_named(theirs)}, {_LEADS}"
    if may_have_loaded(space, theirs, facts):
        return Verdict(HIGH, f"{TAKEN_OUT} {named}", theirs)
    return Verdict(LOW, f"{LEFT_OUT} {named}", theirs)


def product_left_out(space: AddressSpace, entry: int, facts: CheckFacts) -> Optional[Verdict]:
    """Returns why a function without a hook may differ from most processes, if the file's bytes are unknown.

    None unless most others have a hook of a product there, and this process has not loaded its DLL.
    """
    theirs = Hooked(space, entry, facts).theirs
    if not theirs or may_have_loaded(space, theirs, facts):
        return None
    return Verdict(MEDIUM, f"{LEFT_OUT} {_named(theirs)}, {_LEADS}", theirs)


def other_hook(space: AddressSpace, entry: int, facts: CheckFacts) -> Optional[Verdict]:
    """Judges a hook that leads into no module that the hooks of most processes lead into; None if it does."""
    hooked = Hooked(space, entry, facts)
    if not hooked.alone:
        return None
    leads = hooked.mine | hooked.theirs
    if not hooked.mine or may_have_loaded(space, hooked.theirs, facts):
        return Verdict(HIGH, ELSEWHERE, leads)
    severity, users = of_users(space, hooked, facts)
    innocent = f"{ELSEWHERE}: {_named(hooked.mine)}{users}; it has not loaded {_named(hooked.theirs)}"
    return Verdict(severity, innocent, leads)


def of_users(space: AddressSpace, hooked: Hooked, facts: CheckFacts) -> Tuple[str, str]:
    """Returns severity and words of a hook that not all processes have, by the others with its DLL.

    Any code has addresses of Windows' DLLs in its bytes.
    """
    modules = facts.namer(space).process.modules
    bases = [item.base for item in modules if item.file.lower() in hooked.mine]
    if not any(facts.vad(space, base) and not facts.of_windows(space, base) for base in bases):
        return HIGH, ""
    users = hooked.by_users
    if not users:
        return MEDIUM, ", which this process has loaded"
    return LOW, f"; so do the hooks of {counted(users, *_OTHERS_HAVE)}"


def may_have_loaded(space: AddressSpace, files: FrozenSet[str], facts: CheckFacts) -> bool:
    """Returns whether one of some files is mapped as an image, or whether that is unknown."""
    service = facts.image.service(regions)
    process = facts.namer(space).process
    if not process.vads_whole or any(item.file.lower() in files for item in process.modules):
        return True
    paths = [service.file_name(vad.control_area) for vad in process.vads if vad.image]
    return any(path is None or file_name(path).lower() in files for path in paths)


def in_words(space: AddressSpace, address: int, facts: CheckFacts) -> str:
    """Returns the module at an address and the file that is mapped there, in words."""
    known_module = facts.namer(space).module_at(address)
    path = mapped_path(facts.image.service(regions), facts.vad(space, address))
    file = "a file of unknown name" if path is None else f"the file {cell(path)}" if path else "no named file"
    return file if known_module is None else f"{cell(known_module.module.file)}, {file}"


def files_in_words(space: AddressSpace, leads: FrozenSet[str], facts: CheckFacts) -> str:
    """Returns the modules into which hooks lead: with their files, or as not loaded in the process."""
    bases = {item.file.lower(): item.base for item in facts.namer(space).process.modules}
    words = [
        in_words(space, bases[file], facts) if file in bases else f"{cell(file)}, not loaded here"
        for file in sorted(leads)
    ]
    return list_in_words(words)


def _named(files: FrozenSet[str]) -> str:
    return list_in_words(sorted(files))
