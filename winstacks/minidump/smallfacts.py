# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The facts of the machine in a small kernel dump, and empty services for data that such a dump lacks."""

from __future__ import annotations

from typing import Iterable, List, Optional, Tuple

from ..columns.words import PRODUCTS, SMALL_DUMP, SOME, SYSTEM_UP_TIME, TRUNCATED
from ..memory.decode.status import NOTHING, contradicted, has_status, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.text import is_time, printable
from ..memory.image import AddressSpace, Image
from ..process.regions import Region
from ..stacklist.machine import BUILD_MASK, MAX_BUILD_LAB, Clock, ComputerName, Input, Kernel
from .decode.triage import TriageDump, memory_ranges


class SmallDumpFacts:
    """The provider of `machine_facts`. A small dump does not name its computer."""

    def __init__(self, image: Image, dump: TriageDump) -> None:
        self._image = image
        self._dump = dump

    def clock(self) -> Clock:
        """Returns the time of the crash, and the boot time."""
        header = self._dump.header
        now, up = header.SystemTime or 0, header.SystemUpTime or 0
        crashed = now if is_time(now) else None
        counted = now - up if crashed is not None and 0 < up < now else None
        wrong = tuple(
            name
            for name, value, usable in (("SystemTime", now, crashed), ("SystemUpTime", up, counted))
            if value and usable is None
        )
        faults = contradicted(*wrong)
        return Clock(crashed, counted, SYSTEM_UP_TIME if counted else "", counted, None, faults)

    def kernel(self) -> Kernel:
        header = self._dump.header
        build, count = header.MinorVersion, header.NumberProcessors
        return Kernel(
            None if build is None else build & BUILD_MASK,
            self._build_lab(),
            PRODUCTS.get(header.ProductType or 0, ""),
            count if count and count <= 4096 else None,
        )

    def _build_lab(self) -> str:
        """Returns NtBuildLab, empty if the dump lacks its memory."""
        address = self._dump.debugger_data.NtBuildLab
        if not address:
            return ""
        memory = self._image.memory(self._image.kernel)
        data = memory.read(self._dump.canonical(address), MAX_BUILD_LAB)
        found, end, _ = bytes(data or b"").partition(b"\0")
        return printable(found.decode("latin-1")) if end else ""

    def computer_name(self, spaces: Iterable[AddressSpace]) -> ComputerName:
        return ComputerName("", NOTHING)

    def input(self) -> Input:
        """Returns the kind of input, a small dump, whether it is complete, and the bug check."""
        _, faults = memory_ranges(self._dump)
        cut = has_status(
            status(self._dump.status, faults), StatusCode.BEYOND_THE_FILE, StatusCode.HEADER_ONLY
        )
        header = self._dump.header
        return Input(SMALL_DUMP, TRUNCATED if cut else SOME, header.BugCheckCode, header.BugCheckParameters)


class NoRegions:
    """The provider of `regions`: the dump lacks the memory map of its process."""

    def list_regions(self, space: AddressSpace) -> Tuple[List[Region], bool]:
        """Returns an empty, incomplete list."""
        return [], False

    def file_name(self, control_area: int) -> Optional[str]:
        """Returns None: the path is unknown."""
        return None
