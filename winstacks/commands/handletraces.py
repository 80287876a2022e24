# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.handletraces`."""

from __future__ import annotations

from functools import cached_property
from typing import Iterable, List, Sequence

from ..handles.events import HandleEvent, HandleEvents, Listed, handle_events, is_selected
from ..handles.lister import ActingSpaces
from ..memory.decode.status import has_status
from ..memory.decode.statuscodes import StatusCode
from ..memory.image import AddressSpace
from ..rows.databasecommand import DatabaseCommand
from ..rows.entries import OBJECT, ShownEntry, object_cells
from ..rows.grid import Grid
from ..stacklist.frames import NamedFrame


class HandleTraces(DatabaseCommand[AddressSpace, HandleEvent]):
    """The work of `windows.handletraces`."""

    grid = Grid.for_plugin("handletraces")
    key = ("Handle", "Event", "Sequence", *OBJECT)
    recorded = True
    things = "events"
    to_enable = (
        "No handle traces: a process has them after '!htrace -enable', under Application Verifier's Handles, "
        "or after NtSetInformationProcess(ProcessHandleTracing); creators of handles are kept on 32-bit XP "
        "and 2003 when NtGlobalFlag has +kst 0x2000, of objects with +otl 0x4000 as well"
    )
    kernel = False

    @cached_property
    def _lister(self) -> HandleEvents:
        return self.image.service(handle_events)(self.databases)

    @cached_property
    def _natives(self) -> List[AddressSpace]:
        return self._lister.list_spaces()

    @cached_property
    def _acting(self) -> ActingSpaces:
        return ActingSpaces(self.image, self._natives)

    def steps(self) -> List[AddressSpace]:
        return self._natives

    def describe(self, step: AddressSpace) -> str:
        return f"Reading the handle traces of process {step.pid_text}"

    def items(self, step: AddressSpace) -> Iterable[Listed]:
        for event in self._lister.list_events(step):
            if not is_selected(event, step, self.pids):
                continue
            if isinstance(event, HandleEvent):
                self.requested.mark_seen("handle", event.handle)
            yield event

    def selects(self, item: HandleEvent) -> bool:
        """Returns whether an event passes --handle and --leaks."""
        handles = self.requested.requested_ids("handle")
        # Every close is traced: if the close of an open handle is missing, the ring may have lost it.
        leak = item.leak or has_status(item.status, StatusCode.NO_LONGER_OPEN)
        return (not handles or item.handle in handles) and (leak or not self.option("leaks"))

    def frames(self, item: HandleEvent) -> Sequence[NamedFrame]:
        return self.frames_of(self._acting.space_of(item)).name_recorded(item.stack)

    def entry(self, item: HandleEvent) -> ShownEntry:
        cells = {
            **object_cells(item.object),
            "Handle": item.handle,
            "Event": item.event or None,
            "Sequence": item.sequence,
            "ByPID": item.by_pid,
            "ByTID": item.by_tid,
        }
        return ShownEntry(item.space, item.status, cells)
