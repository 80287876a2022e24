# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What an image is, and how complete what is said of it can be: the row of `windows.traceimage`.

    with Warnings() as warnings:
        totals = Totals()
        ...                                    # a walk over all stacks that counts in `totals`
        row = ImageFacts.gather(image, totals, warnings)

Whatever walks the stacks of an image counts in `Totals`, so that the image is walked once.
"""

from __future__ import annotations

import json
import logging
import types
from typing import Dict, List, NamedTuple, Optional, Type

from volatility3.framework import constants

from .. import VERSION
from ..columns.dictionary import SCHEMA, WARNING_SEPARATOR
from ..memory.decode.status import NOTHING, Said, Status, Word, says, status
from ..memory.decode.text import printable
from ..memory.image import Image
from ..process.processlist import ProcessList
from ..process.spaces import AddressSpaces
from . import machine
from .decode import imageid
from .imagefiles import ImageFile, content, image_files, sha256

LOGGERS = ("volatility3", __name__.partition(".")[0])
"""The loggers above all that say something of an image: Volatility's and the library's."""

MAX_WARNINGS = 256
MAX_WARNING = 1000
"""Warnings whose text is kept, and the characters of each."""


class Totals:
    """How many stacks there are, counted by whoever walks them.

    Attributes:
        walked_threads, walked_databases: whether any were asked for
        threads: threads whose stacks were asked for
        stacks: stacks of threads
        incomplete: how many of these are incomplete
        databases: stack trace databases and trace logs, those that cannot be read among them
    """

    def __init__(self) -> None:
        self.walked_threads = self.walked_databases = False
        self.threads = self.stacks = self.incomplete = self.databases = 0

    def stack(self, incomplete: bool) -> None:
        """Counts a stack of a thread."""
        self.stacks += 1
        self.incomplete += incomplete


class Warnings(logging.Handler):
    """Counts the warnings of Volatility and of this set while it is in use (`with Warnings() as warnings`).

    Attributes:
        count: how many there were
        texts: their texts, each once, safe to print; at most MAX_WARNINGS
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0
        self._texts: Dict[str, None] = {}

    @property
    def texts(self) -> List[str]:
        return list(self._texts)

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        said = printable(record.getMessage(), MAX_WARNING)
        if len(self._texts) < MAX_WARNINGS:
            self._texts[said] = None

    def __enter__(self) -> Warnings:
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[types.TracebackType],
    ) -> None:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(self)


class Identity(NamedTuple):
    """Which image it is.

    Attributes:
        image_id: the ImageId
        files: the files of which it is made
        clock: what the kernel's clock says
        status: what of the files could not be read
    """

    image_id: str
    files: List[ImageFile]
    clock: machine.Clock
    status: Status


class ImageFacts(NamedTuple):
    """What an image is. The fields are the columns of `tables.IMAGE` in their order.

    Times are FILETIMEs. What is not known is None, a text that is not known empty.
    """

    image_id: str
    schema: int
    files: str
    volatility_version: str
    plugin_version: str
    kernel_build: Optional[int]
    build_lab: str
    product: str
    arch: str
    processors: Optional[int]
    capture_time: Optional[int]
    boot_time: Optional[int]
    boot_time_source: str
    time_zone_bias: Optional[int]
    computer_name: str
    processes: int
    processes_found_otherwise: int
    processes_unreadable: int
    threads: Optional[int]
    stacks: Optional[int]
    stacks_incomplete: Optional[int]
    databases: Optional[int]
    pages_wanted: int
    pages_missing: int
    warnings: int
    warning_text: str
    status: Status
    input_kind: str
    completeness: str


def identity(image: Image) -> Identity:
    """Returns which image it is, made as `image.service(identity)`: its ImageId stands in each row."""
    files, clock = image_files(image), image.service(machine.machine_facts).clock()
    contents = [content(image.context, file) for file in files]
    found = imageid.identify(contents, clock.capture_time or 0, clock.counted or 0)
    said = Said(Word.FILE_PARTS_UNREADABLE, found.unread) if found.unread else None
    return Identity(found.image_id, files, clock, status(said, clock.status))


def gather(image: Image, totals: Totals, warnings: Warnings, hashes: bool = False) -> ImageFacts:
    """Returns what an image is, and what a walk over it has met. Call it behind the walk.

    Args:
        image: the image
        totals: what the walk counted
        warnings: those that were logged meanwhile
        hashes: whether to read all files for their SHA-256
    """
    known, facts = image.service(identity), image.service(machine.machine_facts)
    kernel, given = facts.kernel(), facts.input()
    listed = [each.status for each in image.service(ProcessList).processes()]
    spaces = [space for space in AddressSpaces.list_spaces(image) if not space.kernel and not space.wow64]
    name = facts.computer_name(spaces)
    digests = [sha256(file) if hashes else None for file in known.files]
    unhashed = digests.count(None) if hashes else 0
    said = status(
        known.status,
        image.service(ProcessList).status,
        name.status,
        Said(Word.FILE_NOT_HASHED, unhashed) if unhashed else NOTHING,
    )
    # A process whose _EPROCESS cannot be read has no space.
    readable = sum(bool(space.layer_name) for space in spaces)
    return ImageFacts(
        image_id=known.image_id,
        schema=SCHEMA,
        files=_files(known.files, digests),
        volatility_version=constants.PACKAGE_VERSION,
        plugin_version=VERSION,
        kernel_build=kernel.build,
        build_lab=kernel.build_lab,
        product=kernel.product,
        arch=image.arch,
        processors=kernel.processors,
        capture_time=known.clock.capture_time,
        boot_time=known.clock.boot_time,
        boot_time_source=known.clock.source,
        time_zone_bias=known.clock.bias,
        computer_name=name.name,
        processes=len(listed),
        processes_found_otherwise=sum(says(each, Word.NOT_IN_THE_PROCESS_LIST) for each in listed),
        processes_unreadable=max(len(listed) - readable, 0),
        threads=totals.threads if totals.walked_threads else None,
        stacks=totals.stacks if totals.walked_threads else None,
        stacks_incomplete=totals.incomplete if totals.walked_threads else None,
        databases=totals.databases if totals.walked_databases else None,
        pages_wanted=image.pages_wanted,
        pages_missing=image.pages_missing,
        warnings=warnings.count,
        warning_text=WARNING_SEPARATOR.join(warnings.texts),
        status=said,
        input_kind=given.kind,
        completeness=given.completeness,
    )


def _files(files: List[ImageFile], digests: List[Optional[str]]) -> str:
    """Returns the column Files."""
    listed = zip(files, digests)
    return json.dumps([{"path": file.shown, "size": file.size, "sha256": digest} for file, digest in listed])
