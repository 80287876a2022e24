# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads an image once and writes all its tables."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any, Callable

from volatility3.framework import interfaces
from volatility3.plugins.windows.stacktraces.base.image import Image
from volatility3.plugins.windows.stacktraces.base.processlist import ProcessList
from volatility3.plugins.windows.stacktraces.findings.registry import Findings
from volatility3.plugins.windows.stacktraces.flat.decode.schema import SCHEMA
from volatility3.plugins.windows.stacktraces.flat.imagefacts import Totals, Warnings, gather, identity
from volatility3.plugins.windows.stacktraces.flat.stack import FlatWanted
from volatility3.plugins.windows.stacktraces.flat.tables import FlatTables, image_values
from volatility3.plugins.windows.stacktraces.flat.traces import FlatTraces
from volatility3.plugins.windows.stacktraces.names.symbolizer import Symbolizer
from volatility3.plugins.windows.stacktraces.rows import findings as finding_rows
from volatility3.plugins.windows.stacktraces.rows.plugin import collector_paused
from volatility3.plugins.windows.stacktraces.rows.traps import TrapRows
from volatility3.plugins.windows.stacktraces.traps.lister import TrapStates

from .job import Reading
from .layout import FINDINGS, IMAGE, TRAP_FRAMES
from .writer import StackWriter, TableFiles

_OFTEN = 1.0
"""Seconds between two reports of how many rows there are."""


class ImageTables:
    """The tables of an image.

    Args:
        plugin: a plugin that is built on the image
        reading: how it is read
    """

    def __init__(self, plugin: Any, reading: Reading) -> None:
        self._reading = reading
        self._image = Image(plugin.context, plugin.config["kernel"], plugin.config_path)
        if reading.scan_processes:
            self._image.part(ProcessList).scan()

    def identity(self) -> dict[str, Any]:
        """Returns what the image is called, and the files of which it consists."""
        known = self._image.part(identity)
        files = [{"path": file.path, "size": file.size, "local": file.local} for file in known.files]
        return {"image_id": known.image_id, "files": files}

    def rename(self, image_id: str) -> None:
        """Gives the image another ImageId than its own, because another image has that."""
        known = self._image.part(identity)
        self._image.set_part(identity, known._replace(image_id=image_id))

    def write(self, files: TableFiles, warnings: Warnings, told: Callable[[int], None]) -> dict[str, Any]:
        """Writes all tables.

        Args:
            files: where they go
            warnings: those that were logged since the image was opened
            told: is told the number of rows now and then

        Returns:
            What the manifest says of the image.
        """
        image, reading, totals = self._image, self._reading, Totals()
        symbolizer = Symbolizer(image, reading.fetch_symbols)
        tables = FlatTables(image)
        writer = StackWriter(tables, files)
        findings = Findings(symbolizer, scan=reading.scan_threads, around=collector_paused)
        wanted = FlatWanted(
            carve=reading.carve,
            scan_stacks=reading.scan_stacks,
            scan_threads=reading.scan_threads,
            processors=reading.processors,
        )
        last = time.monotonic()
        for stack in FlatTraces(symbolizer, collector_paused).list_stacks(wanted, totals):
            findings.see(stack)
            writer.add(stack)
            if time.monotonic() - last > _OFTEN:
                last = time.monotonic()
                told(sum(files.rows.values()))
        findings.end()
        writer.finish()
        files.write_rows(FINDINGS, _plain(finding_rows.rows(image, findings.found())))
        files.write_rows(TRAP_FRAMES, self._trap_frames(symbolizer))
        facts = gather(image, totals, warnings, reading.sha256)
        files.write_rows(IMAGE, [image_values(facts)])
        files.close()
        return {"files": json.loads(facts.files), "warnings": warnings.count, "texts": warnings.texts}

    def _trap_frames(self, symbolizer: Symbolizer) -> Iterator[tuple[object, ...]]:
        rows, image_id = TrapRows(symbolizer), self._image.part(identity).image_id
        states = TrapStates.list_states(
            self._image,
            symbolizer,
            scan_stacks=self._reading.scan_stacks,
            scan_threads=self._reading.scan_threads,
            processors=self._reading.processors,
        )
        for state in states:
            yield (image_id, SCHEMA, *_values(rows.row(state)))


def _plain(rows: Iterable[tuple[int, tuple[object, ...]]]) -> Iterator[list[object]]:
    for _, cells in rows:
        yield _values(cells)


def _values(cells: Iterable[object]) -> list[object]:
    """Returns cells in plain values: what is absent is None."""
    return [None if isinstance(cell, interfaces.renderers.BaseAbsentValue) else cell for cell in cells]
