# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads an image once and writes all its tables."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any, Callable

from volatility3.framework import interfaces

from winstacks.columns import tables
from winstacks.columns.dictionary import ADDRESS, SCHEMA
from winstacks.columns.words import PROCESS_DUMP, TRUNCATED
from winstacks.findings.registry import Findings
from winstacks.memory.collector import paused_by_group
from winstacks.names.symbolizer import Symbolizer
from winstacks.process.processlist import process_list
from winstacks.rows import findings as finding_rows
from winstacks.rows import requested
from winstacks.rows.traps import TrapRows
from winstacks.stacklist.frames import NamedFrames
from winstacks.stacklist.imagefacts import Totals, Warnings, gather, identity
from winstacks.stacklist.machine import machine_facts
from winstacks.stacklist.stack import StackFilter, StackRecord
from winstacks.stacklist.tables import FlatTables, image_values
from winstacks.stacklist.threadwaits import ThreadWaits
from winstacks.stacklist.traces import StackCollector
from winstacks.traps.lister import TrapStates

from .job import Reading
from .layout import FINDINGS, IMAGE, TRAP_FRAMES, WAITS
from .writer import StackWriter, TableFiles

_OFTEN = 1.0
"""Seconds between two reports of the number of rows."""


class ImageTables:
    """The tables of an image."""

    def __init__(self, plugin: Any, reading: Reading) -> None:
        self._reading = reading
        self._image = requested.open_image(plugin)
        requested.give_files(self._image, reading.binaries)
        self._dump = self._image.service(machine_facts).input().kind == PROCESS_DUMP
        if reading.scan_processes and not self._dump and not self._image.threads_only:
            self._image.service(process_list).scan()

    def identity(self) -> dict[str, Any]:
        """Returns the ImageId and the files of the image."""
        image_identity = self._image.service(identity)
        files = [{"path": file.path, "size": file.size, "local": file.local} for file in image_identity.files]
        return {"image_id": image_identity.image_id, "files": files}

    def rename(self, image_id: str) -> None:
        """Replaces the ImageId, because another image has the image's own."""
        image_identity = self._image.service(identity)
        self._image.providing(identity)(image_identity._replace(image_id=image_id))

    def write(
        self, files: TableFiles, warnings: Warnings, on_progress: Callable[[int], None]
    ) -> dict[str, Any]:
        """Reads the image and writes all of its tables; returns the manifest's facts about the image.

        Args:
            warnings: warnings logged since the image was opened
            on_progress: function that is called with the number of rows regularly
        """
        image, reading = self._image, self._reading
        totals, flat_tables = Totals(), FlatTables(image)
        symbolizer = Symbolizer(image, reading.fetch_symbols)
        frames = NamedFrames(symbolizer)
        waits = ThreadWaits(symbolizer, frames)
        collector = StackCollector(symbolizer, frames, waits.add)
        stacks, findings = StackWriter(flat_tables, files), Findings(symbolizer, scan=reading.scan_threads)
        last = time.monotonic()
        stack_filter = StackFilter(
            carve=reading.carve,
            scan_stacks=reading.scan_stacks,
            scan_threads=reading.scan_threads,
            processors=reading.processors,
        )
        for stack in paused_by_group(collector.list_stacks(stack_filter, totals), _process):
            findings.check_stack(stack)
            stacks.add(stack)
            if time.monotonic() - last > _OFTEN:
                last = time.monotonic()
                on_progress(sum(files.rows.values()))
        findings.finish()
        stacks.finish()
        files.write_rows(WAITS, map(flat_tables.wait, waits.rows()))
        if not self._dump:
            files.write_rows(TRAP_FRAMES, self._trap_frames(symbolizer))
        found = (cells for _, cells in finding_rows.rows(image, findings.found()))
        files.write_rows(FINDINGS, map(self._plain("tracefindings"), found))
        facts = gather(image, totals, warnings, reading.sha256)
        files.write_rows(IMAGE, [image_values(facts)])
        return {
            "tables": files.close(),
            "files": [
                {**shown, "path": file.path}
                for shown, file in zip(json.loads(facts["Files"]), self._image.service(identity).files)
            ],
            "warnings": warnings.count,
            "texts": warnings.texts,
            "truncated": facts["Completeness"] == TRUNCATED if facts["Completeness"] else facts["Truncated"],
            "missing_share": facts["MissingShare"],
        }

    def _trap_frames(self, symbolizer: Symbolizer) -> Iterator[list[object]]:
        image_id, rows = self._image.service(identity).image_id, TrapRows(NamedFrames(symbolizer))
        plain = self._plain("trapframes")
        states = TrapStates.list_states(
            self._image,
            symbolizer,
            scan_stacks=self._reading.scan_stacks,
            scan_threads=self._reading.scan_threads,
            processors=self._reading.processors,
        )
        for state in states:
            yield [image_id, SCHEMA, *plain(rows.row(state))]

    def _plain(self, plugin: str) -> Callable[[Iterable[object]], list[object]]:
        """Returns a function that turns cells into plain values: an absent value becomes None.

        Addresses become canonical, as in the flat tables; ProcessOffset stays in Volatility's form.
        """
        canonical = self._image.machine.canonical
        addresses = [
            column.type == ADDRESS and column.name != "ProcessOffset" for column in tables.TABLES[plugin]
        ]

        def plain(cells: Iterable[object]) -> list[object]:
            return [
                None
                if isinstance(cell, interfaces.renderers.BaseAbsentValue)
                else canonical(int(cell))  # type: ignore[call-overload]
                if address and cell is not None
                else cell
                for cell, address in zip(cells, addresses)
            ]

        return plain


def _process(stack: StackRecord) -> int:
    return stack.space.eprocess
