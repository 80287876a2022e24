# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""System calls in which threads wait, by the names of ntdll's, win32u's and user32's stubs.

Source: the names of the exports; what each waits for is described by Microsoft or by System Informer's phnt.
"""

from __future__ import annotations

import re
from typing import Optional

from ...columns import words

_PREFIX = re.compile(r"(?:nt|zw)(?P<rest>\w+)\Z")

_KINDS = {
    "waitforsingleobject": words.OTHER_WAIT,
    "signalandwaitforsingleobject": words.OTHER_WAIT,
    "waitformultipleobjects": words.OBJECTS,
    "waitformultipleobjects32": words.OBJECTS,
    "delayexecution": words.SLEEP,
    "waitforkeyedevent": words.KEYED_EVENT,
    "releasekeyedevent": words.KEYED_EVENT,
    "waitforalertbythreadid": words.ALERT,
    "removeiocompletion": words.QUEUE,
    "removeiocompletionex": words.QUEUE,
    "waitforworkviaworkerfactory": words.QUEUE,
    "requestwaitreplyport": words.ALPC_REPLY,
    "alpcsendwaitreceiveport": words.PORT,
    "replywaitreceiveport": words.PORT,
    "replywaitreceiveportex": words.PORT,
    "replywaitreplyport": words.ALPC_REPLY,
    "listenport": words.PORT,
    "usergetmessage": words.INPUT,
    "userwaitmessage": words.INPUT,
    "usermsgwaitformultipleobjectsex": words.INPUT,
    "userrealinternalgetmessage": words.INPUT,
    "readfile": words.IO,
    "writefile": words.IO,
    "deviceiocontrolfile": words.IO,
    "fscontrolfile": words.IO,
    "notifychangedirectoryfile": words.IO,
}
"""Kinds of waits by the names of system calls without their prefix, in lower case."""

_NO_HANDLE = (words.OBJECTS, words.SLEEP, words.ALERT, words.INPUT)
"""Kinds of waits whose system calls begin with a count, a flag or an address."""

_SECOND = ("signalandwaitforsingleobject",)
"""System calls that wait for their second handle: they signal the first."""

_RETURNS = ("kifastsystemcallret", "kiintsystemcall")
"""Code of ntdll to which a system call returns on x86, in lower case: the stub called it."""


def kind_of(function: str) -> str:
    """Returns what the system call of a stub waits for, a word of `words.WAIT_KINDS`; empty if it does not
    wait. `function` is the name of a stub, with its module or without."""
    return _KINDS.get(_rest(function), "")


def handle_place(function: str) -> Optional[int]:
    """Returns which argument of a system call that waits is the handle waited for, 0 for the first; None if
    none is."""
    if kind_of(function) in _NO_HANDLE:
        return None
    return int(_rest(function) in _SECOND)


def is_return(function: str) -> bool:
    """Returns whether a function is the one by which the stubs of x86 make their system calls."""
    return function.rpartition("!")[2].lower() in _RETURNS


def _rest(function: str) -> str:
    found = _PREFIX.match(function.rpartition("!")[2].lower())
    return found["rest"] if found else ""
