# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The tables of an image that one process has read, and those that several have."""

from __future__ import annotations

import pathlib
from typing import Any, Callable, Dict

import pyarrow.parquet as pq
from volatility3.plugins.windows import traces

from stackfleet.job import Reading
from stackfleet.layout import piece_file
from stackfleet.reading import ImageTables
from stackfleet.shares import WHOLE
from stackfleet.writer import TableFiles
from tests.forge.context import Opened
from winstacks.flat.imagefacts import Warnings

Tables = Dict[str, Any]


def _silent(rows: int) -> None:
    pass


def written(opened: Opened, lake: pathlib.Path, reading: Reading) -> TableFiles:
    """Writes the tables as one process does that lists everything at once."""
    with Warnings() as warnings:
        tables = ImageTables(opened.construct(traces.StackTraces), reading)
        files = TableFiles(str(lake), tables.identity()["image_id"], "whole")
        writer = tables.writer(files, warnings, _silent)
        for share in WHOLE:
            writer.read(share)
        writer.finish()
    return files


def whole(opened: Opened, lake: pathlib.Path, reading: Reading) -> Tables:
    """The tables that `written` writes."""
    return _read(written(opened, lake, reading))


def shared(open_image: Callable[[], Opened], lake: pathlib.Path, reading: Reading, helpers: int) -> Tables:
    """The tables as one process writes them that reads one share, then takes one of each helper, and so on.

    The helpers read theirs from the last one on, as they do in a run.
    """
    with Warnings() as warnings:
        lead = ImageTables(open_image().construct(traces.StackTraces), reading)
        image_id, shares = lead.identity()["image_id"], lead.shares(0)
    mine = range(0, len(shares), helpers + 1)
    for helper in range(1, helpers + 1):
        twin = ImageTables(open_image().construct(traces.StackTraces), reading, lead.scanned())
        twin.rename(image_id)
        reader = twin.reader(_silent)
        for number in reversed(range(helper, len(shares), helpers + 1)):
            reader.piece(shares[number], piece_file(lake, number))
    with warnings:
        files = TableFiles(str(lake), image_id, "shared")
        writer = lead.writer(files, warnings, _silent)
        for number, share in enumerate(shares):
            if number in mine:
                writer.read(share)
            else:
                writer.take(piece_file(lake, number))
        writer.finish()
    return _read(files)


def _read(files: TableFiles) -> Tables:
    return {name: pq.ParquetFile(path).read() for name, path in files.paths.items()}
