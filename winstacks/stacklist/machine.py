# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads the machine's facts from the kernel: build, clock, time zone; and the computer's name.

    clock = machine.clock(image)
    name = machine.computer_name(image, spaces)

The clock and the time zone are in KUSER_SHARED_DATA (places, members and units: ntddk.h). KeBootTime,
NtBuildLab and NtBuildNumber are variables of the kernel (public symbols). The computer's name is in the
environment that Windows gives to services (COMPUTERNAME, described in Microsoft's documentation).
"""

from __future__ import annotations

import collections
from typing import Counter, Iterable, Iterator, List, Optional, Protocol, Tuple

from ..columns.words import BOOT_TIME, INTERRUPT_TIME, MEMORY_IMAGE, PARTIAL_DUMPS, PRODUCTS
from ..memory import bulk
from ..memory.decode.memory import Memory
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, StatusItem, contradicted, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.structure import signed
from ..memory.decode.text import SECOND, cell, is_time, printable
from ..memory.decode.view import View
from ..memory.image import AddressSpace, Image
from ..process.processors import MAX_PROCESSORS

_TIMES = {"InterruptTime": 0x08, "SystemTime": 0x14, "TimeZoneBias": 0x20}
"""Offsets of these KSYSTEM_TIMEs in KUSER_SHARED_DATA, equal in every version and bitness (ntddk.h). ImageId
is computed from two of them: it must be the same without symbols, and with symbols of another build."""
_LOW, _HIGH, _AGAIN = range(0, 12, 4)
"""Offsets of LowPart, High1Time and High2Time in a KSYSTEM_TIME."""

_MINUTE = 60 * SECOND
_MAX_BIAS = 24 * 60

BUILD_MASK = 0xFFFF
"""The bits of NtBuildNumber below the kind of build (free or checked)."""
MAX_BUILD_LAB = 128

SYSTEM_PROCESSES = frozenset(
    (
        "smss.exe", "csrss.exe", "wininit.exe", "winlogon.exe", "services.exe", "lsass.exe", "lsm.exe",
        "svchost.exe", "spoolsv.exe",
    )
)  # fmt: skip
"""Programs that Windows itself runs in session 0."""

_FILLER = int.from_bytes(b"PAGE", "little")

_VARIABLE = "COMPUTERNAME="
_MAX_NAME = 63
"""The length of a label of a DNS name; a NetBIOS name has 15 characters."""
_MAX_ENVIRONMENT = 0x10000
"""The most bytes of an environment that are read: its limit before Vista, and rarely exceeded since."""


class Clock(NamedTuple):
    """The kernel's clock. Times are FILETIMEs (100 ns since 1601, UTC), None if unknown.

    Attributes:
        capture_time: SystemTime: time of the clock when its page was acquired
        source: source of `boot_time`: BOOT_TIME or INTERRUPT_TIME, empty without one
        counted_by: boot time as SystemTime minus InterruptTime, which needs no symbol of the kernel; None if
            either is unknown or wrong
        bias: minutes by which local time is behind UTC
        status: names of the values that contradict each other, or cannot be read
    """

    capture_time: Optional[int]
    boot_time: Optional[int]
    source: str
    counted_by: Optional[int]
    bias: Optional[int]
    status: Status


class Kernel(NamedTuple):
    """The kernel of an image.

    Attributes:
        build: NtBuildNumber without its highest bits; None if it cannot be read
        build_lab: NtBuildLab, such as `19041.1.amd64fre.vb_release.191206-1406`; empty if it cannot be read
        product: one of PRODUCTS, empty if unknown
        processors: KeNumberProcessors; None if the value is impossible or cannot be read
    """

    build: Optional[int]
    build_lab: str
    product: str
    processors: Optional[int]


class Input(NamedTuple):
    """The kind of input from which the machine is known.

    Attributes:
        kind: one of INPUT_KINDS
        completeness: one of COMPLETENESSES, empty if unknown
        bug_check: code with which Windows stopped; None if the input is no crash dump
        parameters: the four parameters of the bug check; none without one
        exception: ExceptionCode for which a process was dumped, None without one
    """

    kind: str
    completeness: str
    bug_check: Optional[int] = None
    parameters: Tuple[int, ...] = ()
    exception: Optional[int] = None
    exception_parameters: Tuple[int, ...] = ()


class ComputerName(NamedTuple):
    """The name of the computer, from the environments of system processes.

    Attributes:
        name: the name that most system processes have, empty if none has one
        status: whether the processes disagree
    """

    name: str
    status: Status


class MachineFacts(Protocol):
    """Provides the facts about the machine of an input."""

    def clock(self) -> Clock:
        """Returns the machine's clock."""

    def kernel(self) -> Kernel:
        """Returns the Windows kernel that ran on the machine."""

    def computer_name(self, spaces: Iterable[AddressSpace]) -> ComputerName:
        """Returns the machine's name; `spaces` are the address spaces of the input."""

    def input(self) -> Input:
        """Returns the kind of input, and its completeness."""


def machine_facts(image: Image) -> MachineFacts:
    """Returns the facts from the kernel and its processes, for `image.service(machine_facts)`."""
    return KernelFacts(image)


class KernelFacts:
    """The machine facts that a kernel in memory provides: the kernel's provider of `machine_facts`."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def clock(self) -> Clock:
        """Returns the kernel's clock."""
        return clock(self._image)

    def kernel(self) -> Kernel:
        """Returns the kernel's build, product and processors."""
        return kernel(self._image)

    def computer_name(self, spaces: Iterable[AddressSpace]) -> ComputerName:
        """Returns the computer's name in the environment of the system processes."""
        return computer_name(self._image, spaces)

    def input(self) -> Input:
        """Returns the kind of an image, and which memory of the machine a bitmap dump leaves out.

        Other missing data is noticed only where it is read.
        """
        crash = bulk.crash_dump(self._image.context, self._image.layer)
        if crash is None:
            return Input(MEMORY_IMAGE, "")
        completeness = PARTIAL_DUMPS.get(crash.dump_type, "")
        # Tools that convert an image of a running machine leave 0, or the fill bytes of the header.
        if crash.bug_check in (0, _FILLER):
            return Input(MEMORY_IMAGE, completeness)
        return Input(MEMORY_IMAGE, completeness, crash.bug_check, crash.parameters)


def clock(image: Image) -> Clock:
    shared = _SharedData(image)
    now, up, bias = (shared.time(name) for name in ("SystemTime", "InterruptTime", "TimeZoneBias"))
    wrong = list(shared.torn)
    if now is not None and not is_time(now):
        now = None
        wrong.append("SystemTime")
    counted = None if now is None or up is None else now - up
    # A kernel whose clock is set has counted time: InterruptTime cannot be 0.
    if counted is not None and not 0 < counted < (now or 0):
        counted = None
        wrong.append("InterruptTime")
    boot, source = counted, "" if counted is None else INTERRUPT_TIME
    boot_variable = image.memory(image.kernel).number(image.symbol("KeBootTime"), 8)
    if boot_variable and is_time(boot_variable) and boot_variable <= (now or boot_variable):
        boot, source = boot_variable, BOOT_TIME
    elif boot_variable:
        wrong.append("KeBootTime")
    minutes = None if bias is None else _minutes(bias)
    if bias is not None and minutes is None:
        wrong.append("TimeZoneBias")
    clock_status = status(
        StatusCode.SHARED_DATA_UNREADABLE if shared.unreadable else None,
        contradicted(*wrong),
    )
    return Clock(now, boot, source, counted, minutes, clock_status)


def kernel(image: Image) -> Kernel:
    """Returns the kernel's build, product and processors."""
    shared = _SharedData(image)
    number = _number(image, "NtBuildNumber")
    if number is None:
        number = shared.number("NtBuildNumber")
    address = image.require_symbol("NtBuildLab")
    lab = b"" if address is None else _string(image.memory(image.kernel), address)
    count = _number(image, "KeNumberProcessors")
    return Kernel(
        build=None if number is None else number & BUILD_MASK,
        build_lab=printable(lab.decode("latin-1")),
        product=PRODUCTS.get(shared.number("NtProductType") or 0, ""),
        processors=count if count is not None and 0 < count <= MAX_PROCESSORS else None,
    )


def computer_name(image: Image, spaces: Iterable[AddressSpace]) -> ComputerName:
    """Returns the computer's name, from the environment of the system processes of session 0."""
    names: Counter[str] = collections.Counter()
    for space in spaces:
        if space.process.lower() in SYSTEM_PROCESSES and space.layer_name and space.peb and not space.wow64:
            name = _named_by(image, space)
            names.update([name] if name else ())
    commonest = names.most_common(1)
    name_status = status(StatusItem(StatusCode.COMPUTER_NAMES, len(names))) if len(names) > 1 else NOTHING
    return ComputerName(commonest[0][0] if commonest else "", name_status)


class _SharedData:
    """KUSER_SHARED_DATA, the page that the kernel shares with every process. `torn` names the times that were
    being written during the acquisition."""

    def __init__(self, image: Image) -> None:
        self.unreadable = False
        self.torn: List[str] = []
        self._shared = image.at("_KUSER_SHARED_DATA", image.machine.shared_data)
        if not self._shared.structure.known:
            image.lacks("_KUSER_SHARED_DATA")
        self._memory = image.memory(image.kernel)
        self._address = image.machine.shared_data

    def number(self, path: str) -> Optional[int]:
        """Returns a member; None if the structure lacks it, or it cannot be read."""
        value = self._shared[path]
        self.unreadable = self.unreadable or (value is None and self._shared.structure.has(path))
        return value

    def time(self, name: str) -> Optional[int]:
        """Returns a KSYSTEM_TIME; its upper half is stored twice, so that a torn value is noticed."""
        place = self._address + _TIMES[name]
        low, high, again = (self._memory.number(place + part, 4) for part in (_LOW, _HIGH, _AGAIN))
        if low is None or high is None or again is None:
            self.unreadable = True
            return None
        if high != again:
            self.torn.append(name)
            return None
        return signed(high << 32 | low, 64)


def _minutes(bias: int) -> Optional[int]:
    minutes = bias // _MINUTE
    return minutes if abs(minutes) <= _MAX_BIAS else None


def _number(image: Image, name: str) -> Optional[int]:
    """Returns the value of a variable that every kernel has."""
    return image.memory(image.kernel).number(image.require_symbol(name), 4)


def _string(memory: Memory, address: int) -> bytes:
    """Returns the bytes of a string up to its end; empty if the end is not found."""
    text, end, _ = b"".join(_pieces(memory, address, MAX_BUILD_LAB)).partition(b"\0")
    return text if end else b""


def _pieces(memory: Memory, address: int, most: int) -> Iterator[bytes]:
    """Yields the bytes at an address page by page, up to a page that is not in the image."""
    for start, data in memory.pages(address, address + most):
        if start != address:
            return
        yield data
        address += len(data)


def _named_by(image: Image, space: AddressSpace) -> str:
    """Returns the computer's name in the environment of a process of session 0, else an empty text."""
    memory, types = image.memory(space), image.types
    peb = View(memory, types.find("_PEB"), space.peb, image.lacks)
    if peb["SessionId"] != 0:
        return ""
    block = types.find("_RTL_USER_PROCESS_PARAMETERS")
    start = View(memory, block, peb["ProcessParameters"], image.lacks)["Environment"]
    for variable in _environment(memory, start or 0):
        if variable.upper().startswith(_VARIABLE):
            return cell(variable[len(_VARIABLE) :], _MAX_NAME)
    return ""


def _environment(memory: Memory, address: int) -> Iterator[str]:
    """Yields the variables of an environment, up to its end or to the first unreadable byte."""
    rest = ""
    for data in _pieces(memory, address, _MAX_ENVIRONMENT) if address else ():
        *variables, rest = (rest + data.decode("utf-16-le", "replace")).split("\0")
        for variable in variables:
            if not variable:
                return
            yield variable
