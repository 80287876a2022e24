# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""An image or a dump that is open: its processes, threads, stacks, locks, waits, heaps and findings.

    with open("memory.dmp") as opened:
        for stack in opened.stacks(kinds=["kernel", "user"]):
            print(stack.space.process, stack.tid, [frame.symbol for frame in stack.listed()])

Every method lists anew from the file. What cannot be read is listed too: as a record with a status.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import Collection, Iterable, Iterator, List, Optional, Sequence, Tuple, TypeVar

from volatility3.framework import exceptions

from ..columns.words import KINDS, THREAD_KINDS
from ..findings.registry import Findings, Outcome
from ..heaps.decode.contents import HeapContents
from ..heaps.lister import Heaps
from ..locks.lister import LockLister
from ..locks.lock import Listed
from ..memory.decode.records import NamedTuple
from ..memory.image import AddressSpace, Image
from ..names.places import Name
from ..names.symbolizer import Symbolizer
from ..options import CHECKS
from ..process.spaces import AddressSpaces
from ..process.thread import Thread
from ..process.threads import Process, Threads, processes
from ..rows import requested
from ..rows.command import NO_RECORDS
from ..stacklist.crash import Crash, crash_of
from ..stacklist.frames import NamedFrame, NamedFrames
from ..stacklist.machine import Input, machine_facts
from ..stacklist.stack import StackFilter, StackRecord
from ..stacklist.traces import StackCollector
from ..tracedb.decode.recorded import RecordedStack
from ..tracedb.finder import Databases
from ..waits.lister import ProcessWaits, WaitLister
from .volatility import InputError, Path, Settings, construct, let_go

Item = TypeVar("Item")


class ProcessHeaps(NamedTuple):
    """The heaps of one half of a process that record who allocates. `contents` has the heaps, and blocks by
    trace; its status says what is missing."""

    space: AddressSpace
    contents: HeapContents


class Opened:
    """An open image or dump. Addresses are canonical. PID 0 is the kernel.

    An argument that selects (`pids`, `tids`, `kinds`, `checks`) selects all if it is None, and nothing if it
    is empty. One with an unknown word, or with an ID that is no number, raises InputError, and so does all
    that is asked for after `close`. `fetch_symbols` says whether Volatility may download symbols of modules.
    """

    def __init__(self, image: Image, fetch_symbols: bool = False) -> None:
        self._image, self._symbolizer = image, Symbolizer(image, fetch_symbols)
        self._closed = False

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the files; nothing can be listed from then on."""
        self._closed = True
        let_go(self._image.context)

    def _check_open(self) -> None:
        if self._closed:
            raise InputError("The file is closed")

    @property
    def image(self) -> Image:
        """The image, for what this class does not list."""
        self._check_open()
        return self._image

    @property
    def symbolizer(self) -> Symbolizer:
        """The names of the addresses."""
        self._check_open()
        return self._symbolizer

    @property
    def input(self) -> Input:
        """The kind of the file: `kind` is a word of `words.INPUT_KINDS`; with the code of a crash."""
        return self.image.service(machine_facts).input()

    @cached_property
    def _frames(self) -> NamedFrames:
        return NamedFrames(self.symbolizer)

    @cached_property
    def _databases(self) -> Databases:
        return Databases(self.image, self.symbolizer.indexes)

    def processes(self, pids: Optional[Collection[int]] = None) -> Iterator[Process]:
        """Yields processes: the native address space, and the 32-bit half of a WoW64 process."""
        return self._listed(processes(self.image, _ids(pids)))

    def threads(
        self, pids: Optional[Collection[int]] = None, tids: Optional[Collection[int]] = None
    ) -> Iterator[Thread]:
        """Yields threads by process, and a record for each damaged list of threads."""
        return self._listed(Threads.list_threads(self.image, _ids(pids), None, _ids(tids)))

    def stacks(
        self,
        kinds: Optional[Collection[str]] = None,
        pids: Optional[Collection[int]] = None,
        tids: Optional[Collection[int]] = None,
        carve: bool = False,
        scan_stacks: bool = False,
        scan_threads: bool = False,
        processors: bool = False,
    ) -> Iterator[StackRecord]:
        """Yields stacks, and a record without `counted` for those that cannot be read; see `StackFilter`.
        Raises InputError if there is no such kind of stacks."""
        _check_words("kind of stacks", kinds, KINDS)
        chosen = StackFilter(kinds, _ids(pids), _ids(tids), carve, scan_stacks, scan_threads, processors)
        return self._listed(StackCollector(self.symbolizer, self._frames).list_stacks(chosen))

    def locks(self, pids: Optional[Collection[int]] = None) -> Iterator[Listed]:
        """Yields locks, and a Gap where locks may be missing. `recorded` names the creator's stack. Raises
        InputError if the input is a small kernel dump, which has no locks."""
        self._check_records()
        return self._listed(self._list_locks(_ids(pids)))

    def _list_locks(self, pids: Optional[Collection[int]]) -> Iterator[Listed]:
        lister = LockLister(self.image, self._databases)
        for space in AddressSpaces.list_spaces(self.image, pids):
            yield from lister.list_created(space)

    def waits(self, pids: Optional[Collection[int]] = None) -> Iterator[ProcessWaits]:
        """Yields the waiting threads of each process, and what they wait for; `Chains` follows the owners."""
        locks = LockLister(self.image, self._databases)
        lister = WaitLister(self.image, self.symbolizer, self._databases.ntdlls, locks.list_locks)
        return self._listed(lister.list_waits(_ids(pids)))

    def heaps(self, pids: Optional[Collection[int]] = None) -> Iterator[ProcessHeaps]:
        """Yields the heaps, with each block, of the processes whose heaps record who allocates. Raises
        InputError if the input is a small kernel dump, which has no heaps."""
        self._check_records()
        return self._listed(self._list_heaps(_ids(pids)))

    def _list_heaps(self, pids: Optional[Collection[int]]) -> Iterator[ProcessHeaps]:
        heaps = Heaps(self.image, self._databases)
        for space in AddressSpaces.list_spaces(self.image, pids):
            contents = heaps.read(space, keep=True)
            if contents is not None:
                yield ProcessHeaps(space, contents)

    def findings(
        self, checks: Optional[Collection[str]] = None, pids: Optional[Collection[int]] = None
    ) -> List[Outcome]:
        """Returns the findings, worst first, and an outcome without a finding for what could not be checked.
        Raises InputError if there is no such check."""
        _check_words("check", checks, CHECKS)
        found = Findings(self.symbolizer, checks, _ids(pids))
        for _ in found.examine():
            pass
        return found.found()

    def crash(self) -> Optional[Crash]:
        """Returns the crash that the input is of, with the stack that begins there; None if it is of none."""
        if self.input.bug_check is None and self.input.exception is None:
            return None
        stacks = self.stacks(kinds=THREAD_KINDS)
        return crash_of(self.input, next((stack for stack in stacks if stack.crashed and stack.frames), None))

    def name(self, space: AddressSpace, address: int) -> Name:
        """Returns the name of a code address of an address space."""
        return self.symbolizer.for_space(space).name(address)

    def recorded(self, space: AddressSpace, stack: RecordedStack) -> Sequence[NamedFrame]:
        """Returns the named frames of a stack that Windows recorded: of a lock, or of blocks of a heap."""
        self._check_open()
        return self._frames.for_space(space).name_recorded(stack)

    def _listed(self, found: Iterable[Item]) -> Iterator[Item]:
        """Yields what is possible of a list while the file is open; raises InputError behind `close`."""
        self._check_open()
        for item in self.image.possible(found):
            yield item
            self._check_open()

    def _check_records(self) -> None:
        if self.image.threads_only:
            raise InputError(NO_RECORDS)


def _ids(given: Optional[Collection[int]]) -> Optional[Tuple[int, ...]]:
    """Returns IDs of processes or threads; none would have one that is a text. Raises InputError if they are
    no list of numbers."""
    if given is None:
        return None
    if not isinstance(given, Collection) or not all(isinstance(each, int) for each in given):
        raise InputError(f"A list of numbers is needed: {given!r} is none")
    return tuple(given)


def _check_words(what: str, words: Optional[Collection[str]], known: Collection[str]) -> None:
    unknown = [word for word in ([words] if isinstance(words, str) else words or ()) if word not in known]
    if isinstance(words, str) or unknown:
        named = "a list of words is needed" if not unknown else f"there is no {what} '{unknown[0]}'"
        raise InputError(f"{named[0].upper()}{named[1:]}: the words are {', '.join(known)}")


def open(
    path: Path,
    *,
    symbol_dirs: Sequence[Path] = (),
    binaries: Sequence[Path] = (),
    symbols_from: Sequence[Path] = (),
    kernel_symbols: Optional[Path] = None,
    fetch_symbols: bool = False,
    offline: bool = False,
    cache: Optional[Path] = None,
    scan_processes: bool = False,
) -> Opened:
    """Opens a memory image, a dump of one process, or a small kernel dump.

    Args:
        symbol_dirs: folders of symbol tables (ISF), searched before Volatility's own
        binaries: folders with files of modules, plain or laid out as a symbol server's
        symbols_from: folders with PDBs for the modules of a dump
        kernel_symbols: symbol table (ISF) of the kernel of a small kernel dump
        fetch_symbols: whether Volatility may download missing symbols of modules
        offline: whether Volatility must not use the network, from now on and in the whole process. Without
            it, Volatility downloads symbols of the kernel of an image if it has none
        cache: Volatility's cache folder, from now on and in the whole process
        scan_processes: whether a pool scan adds processes of an image that are in no list

    Raises:
        InputError: the file cannot be opened, or an argument cannot be used
    """
    lists = {"symbol_dirs": symbol_dirs, "binaries": binaries, "symbols_from": symbols_from}
    for name, folders in lists.items():
        if isinstance(folders, (str, os.PathLike)):
            raise InputError(f"{name} is a list of folders: ['{os.fspath(folders)}']")
    Settings(symbol_dirs, cache, offline).apply()
    options = {
        "binaries": [str(folder) for folder in binaries],
        "symbols_from": [str(folder) for folder in symbols_from],
        "kernel_symbols": None if kernel_symbols is None else str(kernel_symbols),
        "scan_processes": scan_processes,
    }
    plugin = construct(path, options)
    try:
        requested.check(plugin)
        image = requested.open_image(plugin)
        requested.check_tables(plugin)
    except exceptions.RenderException as error:
        raise InputError(str(error)) from error
    return Opened(image, fetch_symbols)
