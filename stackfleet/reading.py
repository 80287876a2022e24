# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Reads an image once and writes all its tables, share by share."""

from __future__ import annotations

import json
import pathlib
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable, Optional

from winstacks.columns.dictionary import SCHEMA
from winstacks.columns.words import PROCESS_DUMP
from winstacks.findings.registry import Findings
from winstacks.flat.frames import NamedFrames
from winstacks.flat.imagefacts import Totals, Warnings, gather, identity
from winstacks.flat.machine import machine_facts
from winstacks.flat.stack import FlatStack, FlatWanted
from winstacks.flat.tables import FlatTables, image_values
from winstacks.flat.traces import FlatTraces
from winstacks.memory.collector import paused_by_group
from winstacks.memory.image import Image
from winstacks.names.symbolizer import Symbolizer
from winstacks.process.processlist import ProcessList
from winstacks.rows import requested
from winstacks.rows.traps import TrapRows
from winstacks.traps.lister import TrapStates

from . import foundrows, shares
from .foundrows import FoundRows
from .job import Reading
from .layout import FINDINGS, IMAGE, TRAP_FRAMES
from .pieces import Piece, PieceFiles
from .shares import Share
from .writer import StackWriter, TableFiles, Tables

_OFTEN = 1.0
"""Seconds between two reports of how many rows there are."""

Told = Callable[[int], None]
"""Is told the number of rows now and then."""


class ImageTables:
    """The tables of an image.

    Args:
        plugin: a plugin that is built on the image
        reading: how it is read
        scanned: addresses of processes that a pool scan has found; None if this process is to scan
    """

    def __init__(self, plugin: Any, reading: Reading, scanned: Optional[Iterable[int]] = None) -> None:
        self._reading = reading
        self._image = requested.image(plugin)
        self._dump = _of_one_process(self._image)
        if scanned is not None:
            self._image.service(ProcessList).take(scanned)
        elif reading.scan_processes and not self._dump:
            self._image.service(ProcessList).scan()

    def identity(self) -> dict[str, Any]:
        """Returns what the image is called, and the files of which it consists."""
        known = self._image.service(identity)
        files = [{"path": file.path, "size": file.size, "local": file.local} for file in known.files]
        return {"image_id": known.image_id, "files": files}

    def rename(self, image_id: str) -> None:
        """Gives the image another ImageId than its own, because another image has that."""
        known = self._image.service(identity)
        self._image.provide(identity, known._replace(image_id=image_id))

    def shares(self, least: int) -> Sequence[Share]:
        """Returns the shares of the image; two if it has less than so many threads, or is of one process."""
        few = self._dump or shares.threads(self._image) < least
        return shares.WHOLE if few else shares.plan(self._image, self._reading)

    def scanned(self) -> list[int]:
        """Returns the addresses of the processes that only the pool scan has found."""
        return self._image.service(ProcessList).scanned()

    def reader(self, told: Told) -> ShareReader:
        """Returns what reads the shares of the image."""
        return ShareReader(self._image, self._reading, told)

    def writer(self, files: TableFiles, warnings: Warnings, told: Told) -> TableWriter:
        """Returns what writes the tables.

        Args:
            files: where they go
            warnings: those that were logged since the image was opened
            told: is told the number of rows now and then
        """
        return TableWriter(self._image, self._reading, files, warnings, told)


class ShareReader:
    """Reads shares of an image.

    Args:
        image: the image
        reading: how it is read
        told: is told the number of rows now and then
    """

    def __init__(self, image: Image, reading: Reading, told: Told) -> None:
        self.image = image
        self.tables = FlatTables(image)
        self._reading = reading
        self._told = told
        self._last = time.monotonic()
        self._symbolizer = Symbolizer(image, reading.fetch_symbols)
        self._traces = FlatTraces(self._symbolizer)
        self.findings = Findings(self._symbolizer, scan=reading.scan_threads)
        self._trap_rows = TrapRows(NamedFrames(self._symbolizer))
        self._helper = uuid.uuid4().hex

    def read(self, share: Share, writer: StackWriter, files: Tables, totals: Totals) -> None:
        """Reads a share.

        Args:
            share: the share
            writer: takes its stacks
            files: take its trap frames
            totals: counts threads, their stacks, and databases
        """
        if share.traps:
            files.write_rows(TRAP_FRAMES, self._trap_frames(share))
            return
        reading = self._reading
        wanted = FlatWanted(
            kinds=share.kinds,
            carve=reading.carve,
            scan_stacks=reading.scan_stacks,
            scan_threads=reading.scan_threads,
            processors=reading.processors,
            only=share.only,
        )
        for stack in paused_by_group(self._traces.list_stacks(wanted, totals), _process):
            self.findings.see(stack)
            writer.add(stack)
            if time.monotonic() - self._last > _OFTEN:
                self._last = time.monotonic()
                self._told(sum(files.rows.values()))

    def piece(self, share: Share, path: pathlib.Path) -> None:
        """Reads a share for another process.

        Args:
            share: the share
            path: where that process looks for it
        """
        image, totals, files = self.image, Totals(), PieceFiles(path)
        before = image.pages_wanted, image.pages_missing
        with Warnings() as warnings:
            writer = StackWriter(self.tables, files)
            self.read(share, writer, files, totals)
            writer.finish()
        pages = image.pages_wanted - before[0], image.pages_missing - before[1]
        files.publish(
            {
                "totals": totals.numbers(),
                "pages": pages,
                "warnings": warnings.counts,
                "helper": self._helper,
                "found": foundrows.said(image, self.findings),
            }
        )

    def _trap_frames(self, share: Share) -> Iterator[tuple[object, ...]]:
        if _of_one_process(self.image):
            return
        image_id = self.image.service(identity).image_id
        states = TrapStates.list_states(
            self.image,
            self._symbolizer,
            scan_stacks=self._reading.scan_stacks,
            scan_threads=self._reading.scan_threads,
            processors=self._reading.processors,
            only=share.only,
        )
        for state in states:
            yield (image_id, SCHEMA, *foundrows.values(self._trap_rows.row(state)))


class TableWriter:
    """Writes the tables of an image, whose shares come in their order.

    The arguments are those of `ImageTables.writer`.
    """

    def __init__(
        self, image: Image, reading: Reading, files: TableFiles, warnings: Warnings, told: Told
    ) -> None:
        self._image = image
        self._hashes = reading.sha256
        self._files = files
        self._warnings = warnings
        self._reader = ShareReader(image, reading, told)
        self._stacks = StackWriter(self._reader.tables, files)
        self._found = FoundRows()
        self._others: dict[str, Counter[str]] = {}
        self._totals = Totals()
        self._totals.walked_threads = self._totals.walked_databases = True

    def read(self, share: Share) -> None:
        """Reads a share."""
        self._reader.read(share, self._stacks, self._files, self._totals)

    def take(self, path: pathlib.Path) -> None:
        """Takes a share that another process has read."""
        self._find()
        piece = Piece(path)
        self._stacks.take(piece.batches())
        facts, image = piece.facts, self._image
        self._found.add(facts["found"])
        self._totals.take(facts["totals"])
        self._others.setdefault(facts["helper"], Counter()).update(facts["warnings"])
        image.pages_wanted += facts["pages"][0]
        image.pages_missing += facts["pages"][1]

    def finish(self) -> dict[str, Any]:
        """Writes what is said of the whole image, and ends all tables.

        Returns:
            What the manifest says of the image.
        """
        image, files, findings = self._image, self._files, self._reader.findings
        findings.end()
        self._find()
        self._stacks.finish()
        files.write_rows(FINDINGS, self._found.rows(image, findings))
        for counts in self._others.values():
            self._warnings.take(counts)
        facts = gather(image, self._totals, self._warnings, self._hashes)
        files.write_rows(IMAGE, [image_values(facts)])
        files.close()
        return {
            "files": json.loads(facts.files),
            "warnings": self._warnings.count,
            "texts": self._warnings.texts,
        }

    def _find(self) -> None:
        """Takes what was found in the shares that were read here since the last one that was not."""
        self._found.add(foundrows.said(self._image, self._reader.findings))


def _of_one_process(image: Image) -> bool:
    """Returns whether an image is the dump of a process: it has neither other processes nor trap frames."""
    return image.service(machine_facts).input().kind == PROCESS_DUMP


def _process(stack: FlatStack) -> int:
    return stack.space.eprocess
