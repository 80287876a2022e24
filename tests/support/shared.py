# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The tables of an image, as the process of stackfleet writes them that reads it."""

from __future__ import annotations

import pathlib

from volatility3.plugins.windows import traces

from stackfleet.job import Reading
from stackfleet.reading import ImageTables
from stackfleet.writer import TableFiles
from tests.forge.context import Opened
from winstacks.stacklist.imagefacts import Warnings


def written(opened: Opened, lake: pathlib.Path, reading: Reading) -> TableFiles:
    """Writes the tables of an image that is open."""
    with Warnings() as warnings:
        tables = ImageTables(opened.construct(traces.StackTraces), reading)
        lake.mkdir(exist_ok=True)
        files = TableFiles(lake)
        tables.write(files, warnings, lambda rows: None)
    return files
