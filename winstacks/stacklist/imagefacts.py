# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The identity of an image and how much of it could be read: the row of `windows.traceimage`.

    with Warnings() as warnings:
        totals = Totals()
        ...                                    # a walk over all stacks that counts in `totals`
        facts = gather(image, totals, warnings)

A plugin that walks the stacks of an image counts them in `Totals`, so that the image is walked once.
"""

from __future__ import annotations

import logging
from typing import Any, Dict, Hashable, List, Optional, Tuple

from volatility3.framework import constants

from .. import VERSION
from ..columns import jsoncells
from ..columns.dictionary import SCHEMA, WARNING_SEPARATOR
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, StatusItem, has_status, status
from ..memory.decode.statuscodes import StatusCode, words_that
from ..memory.decode.statusmeanings import Means
from ..memory.decode.text import printable
from ..memory.image import Image
from ..process.processlist import process_list
from ..process.spaces import AddressSpaces
from . import machine
from .clockcheck import NewestTime, merged
from .container import file_length
from .crash import Crash, crash_of
from .decode import imageid
from .decode.bugchecks import bug_check
from .frames import stack_text
from .imagefiles import ImageFile, content, image_files, sha256
from .stack import StackRecord

LOGGERS = ("volatility3", __name__.partition(".")[0])
"""The loggers whose warnings are counted: Volatility's and the library's."""

MAX_WARNINGS = 256
MAX_WARNING = 1000
"""The most warnings whose text is kept, and the most characters of each."""


vollog = logging.getLogger(__name__)

MAX_ABSENT = 1 << 16
"""The most pairs of a structure and a status word that are counted."""

ABSENT = words_that(Means.ABSENT)
"""Status words of a structure that was looked for and is not in the image."""


class Totals:
    """Numbers of stacks, counted while they are walked.

    Attributes:
        walked_threads, walked_databases: whether any threads, any databases were requested
        threads: number of threads whose stacks were requested
        stacks: number of threads' stacks
        incomplete: number of these that are incomplete
        databases: number of stack trace databases and trace logs, including those that cannot be read
        known: number of stacks that are known to exist, by kind: the stacks in the image, and missing stacks
            that a row stands for
        read: number of the stacks in the image, by kind
        absent: number of processes, threads, lists or stacks with a status of ABSENT, by status word
        newest: the newest time of the walked threads
        crash: the first stack that begins where its thread crashed, None without one
    """

    def __init__(self) -> None:
        self.walked_threads = self.walked_databases = False
        self.threads = self.stacks = self.incomplete = self.databases = 0
        self.known: Dict[str, int] = {}
        self.read: Dict[str, int] = {}
        self.absent: Dict[str, int] = {}
        self.newest = NewestTime()
        self.crash: Optional[StackRecord] = None
        self._counted_absences: Dict[Tuple[Hashable, StatusCode], StatusItem] = {}
        self._cut = False

    def count_kind(self, kind: str, here: bool, missing: int) -> None:
        """Counts a stack of any kind that the image holds, or the stacks that are missing. `here` says
        whether the image holds the stack."""
        self.known[kind] = self.known.get(kind, 0) + here + missing
        self.read[kind] = self.read.get(kind, 0) + here

    def lacks(self, what: Hashable, lack: Status) -> None:
        """Counts status words for data that is not in the image, each word once for a structure.

        At most MAX_ABSENT pairs are counted; a warning reports the limit.
        """
        for item in lack:
            if item.code in ABSENT and (what, item.code) not in self._counted_absences:
                if len(self._counted_absences) >= MAX_ABSENT:
                    if not self._cut:
                        vollog.warning(f"Only the first {MAX_ABSENT} absent structures are counted")
                    self._cut = True
                    continue
                self._counted_absences[what, item.code] = item
                word = item.code.value.replace("{} ", "")
                self.absent[word] = self.absent.get(word, 0) + (item.number or 1)

    def stack(self, incomplete: bool) -> None:
        self.stacks += 1
        self.incomplete += incomplete

    def add(self, other: Totals) -> None:
        """Adds the numbers of stacks that were walked after these."""
        self.walked_threads = self.walked_threads or other.walked_threads
        self.walked_databases = self.walked_databases or other.walked_databases
        self.threads += other.threads
        self.stacks += other.stacks
        self.incomplete += other.incomplete
        self.databases += other.databases
        for kind, known in other.known.items():
            self.known[kind] = self.known.get(kind, 0) + known
            self.read[kind] = self.read.get(kind, 0) + other.read[kind]
        for (what, _), item in other._counted_absences.items():
            self.lacks(what, (item,))
        self.newest.add(other.newest)
        self.crash = self.crash or other.crash


class Warnings(logging.Handler):
    """Counts the warnings of Volatility and of this library while used as `with Warnings() as warnings`.
    `texts` are texts of the warnings, each once, safe to print; at most MAX_WARNINGS."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0
        self._texts: Dict[str, None] = {}

    @property
    def texts(self) -> List[str]:
        return list(self._texts)

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        text = printable(record.getMessage(), MAX_WARNING)
        if len(self._texts) < MAX_WARNINGS:
            self._texts[text] = None

    def __enter__(self) -> Warnings:
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(self)


class Identity(NamedTuple):
    """The identity of an image. `status` says which parts of the files could not be read."""

    image_id: str
    files: List[ImageFile]
    clock: machine.Clock
    status: Status


Facts = Dict[str, Any]
"""The facts about an image, by the columns of `tables.IMAGE`. Times are FILETIMEs.

An unknown value is None or has no entry, an unknown text may be empty.
"""


def _crash_facts(crash: Optional[Crash]) -> Facts:
    """Returns the facts about a crash; empty without one."""
    if crash is None:
        return {}
    facts = {
        "CrashCode": crash.code,
        "CrashName": crash.name,
        "CrashParameters": " ".join(f"{value:#x}" for value in crash.parameters),
    }
    stack, place, driver = crash.stack, crash.place, crash.driver
    if stack is None:
        return facts
    return {
        **facts,
        "CrashAddress": None if place is None else f"{place.address:#x}",
        "CrashSymbol": None if place is None else place.shown,
        "CrashModule": None if place is None else place.details.module,
        "CrashDriver": None if driver is None else driver.frame.details.module,
        "CrashPID": stack.space.pid,
        "CrashProcess": stack.space.known_name,
        "CrashTID": stack.tid,
        "CrashTraceId": stack.trace_id,
        "CrashKey": stack.keys().stack,
        "CrashStack": stack_text(stack.frames),
    }


def identity(image: Image) -> Identity:
    """Returns the identity of an image, for `image.service(identity)`: each row has its ImageId."""
    files, clock = image_files(image), image.service(machine.machine_facts).clock()
    contents = [content(image.context, file) for file in files]
    identified = imageid.identify(contents, clock.capture_time or 0, clock.counted_by or 0)
    unread = StatusItem(StatusCode.FILE_PARTS_UNREADABLE, identified.unread) if identified.unread else None
    return Identity(identified.image_id, files, clock, status(unread, clock.status))


def gather(image: Image, totals: Totals, warnings: Warnings, hashes: bool = False) -> Facts:
    """Returns the facts about an image, and the counts of a walk over it. Call this after the walk. `hashes`
    says whether to read all files for their SHA-256."""
    length = image.service(file_length)
    identity_facts, facts = image.service(identity), image.service(machine.machine_facts)
    kernel, input_facts = facts.kernel(), facts.input()
    process_statuses = [process.status for process in image.service(process_list).processes()]
    spaces = [space for space in AddressSpaces.list_spaces(image) if not space.kernel and not space.wow64]
    name = facts.computer_name(spaces)
    digests = [sha256(file) if hashes else None for file in identity_facts.files]
    unhashed = digests.count(None) if hashes else 0
    totals.newest.add_processes(image, spaces)
    clock_status = totals.newest.contradiction(
        identity_facts.clock.capture_time, input_facts.bug_check is not None
    )
    image_status = status(
        merged(identity_facts.status, clock_status),
        image.service(process_list).status,
        name.status,
        StatusItem(StatusCode.FILE_NOT_HASHED, unhashed) if unhashed else NOTHING,
        StatusItem(StatusCode.FILE_CUT, length.share) if length.truncated else NOTHING,
    )
    # A process whose _EPROCESS cannot be read has no address space.
    readable = sum(bool(space.layer_name) for space in spaces)
    return {
        "ImageId": identity_facts.image_id,
        "Schema": SCHEMA,
        "Files": _files(identity_facts.files, digests),
        "VolatilityVersion": constants.PACKAGE_VERSION,
        "PluginVersion": VERSION,
        "KernelBuild": kernel.build,
        "BuildLab": kernel.build_lab,
        "Product": kernel.product,
        "Arch": image.arch,
        "Processors": kernel.processors,
        "CaptureTime": identity_facts.clock.capture_time,
        "BootTime": identity_facts.clock.boot_time,
        "BootTimeSource": identity_facts.clock.source,
        "TimeZoneBias": identity_facts.clock.bias,
        "ComputerName": name.name,
        "Processes": len(process_statuses),
        "ProcessesFoundOtherwise": sum(
            has_status(process, StatusCode.NOT_IN_THE_PROCESS_LIST) for process in process_statuses
        ),
        "ProcessesUnreadable": max(len(process_statuses) - readable, 0),
        "Threads": totals.threads if totals.walked_threads else None,
        "Stacks": totals.stacks if totals.walked_threads else None,
        "StacksIncomplete": totals.incomplete if totals.walked_threads else None,
        "Databases": totals.databases if totals.walked_databases else None,
        "StacksKnown": jsoncells.counts_text(totals.known),
        "StacksRead": jsoncells.counts_text(totals.read),
        "StructuresAbsent": jsoncells.counts_text(totals.absent),
        "Warnings": warnings.count,
        "WarningText": WARNING_SEPARATOR.join(warnings.texts),
        "Status": image_status,
        "InputKind": input_facts.kind,
        "Completeness": input_facts.completeness,
        "BugCheckCode": input_facts.bug_check,
        "BugCheck": "" if input_facts.bug_check is None else bug_check(input_facts.bug_check).name,
        "BugCheckParameters": " ".join(f"{parameter:#x}" for parameter in input_facts.parameters),
        "Truncated": length.truncated,
        "MissingShare": length.share,
        **_crash_facts(crash_of(input_facts, totals.crash)),
    }


def _files(files: List[ImageFile], digests: List[Optional[str]]) -> str:
    listed = zip(files, digests)
    return jsoncells.files_text(
        [jsoncells.FileCell(file.shown, file.size, digest) for file, digest in listed]
    )
