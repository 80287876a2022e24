# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The facts of an image for the checks: the VAD and page behind an address, runtimes, function tables."""

from __future__ import annotations

import functools
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
    TypeVar,
)

from volatility3.framework.layers import intel

from ..columns.words import IMAGE, MAPPED, PRIVATE
from ..memory import bulk
from ..memory.decode import pagetable
from ..memory.decode.machine import Machine
from ..memory.decode.memo import Memo
from ..memory.decode.ranges import span_at
from ..memory.decode.records import NamedTuple
from ..memory.decode.text import ShortText, short_of
from ..memory.image import AddressSpace
from ..memory.pagetables import PageTables
from ..names import registeredtables
from ..names.imagereader import ImageReader
from ..names.registeredtables import CodeRange
from ..names.symbolizer import AddressNamer, Symbolizer
from ..process.dynamictables import dynamic_tables
from ..process.regions import Region
from ..process.spaces import AddressSpaces
from ..process.thread import Thread
from ..process.windowsfolder import WindowsFolders
from ..tracedb.finder import Databases
from ..waits.lister import WaitLister
from ..waits.records import ThreadWait
from .code.codelists import CodeLists
from .code.copies import NO_IMAGE, SectionCopies
from .loststacks import LostStacks

SWITCHING = (
    *("clr", "coreclr", "mscorwks", "jvm", "j9vm", "mono", "mono-2.0-sgen", "mono-2.0-bdwgc", "v8", "mozjs"),
    *("chakracore", "chakra", "luajit", "lua51", "beam.smp", "j9jit"),
)
"""Modules of runtimes that generate code in private memory, and may switch stacks."""

RUNTIMES = (*SWITCHING, "d3d10warp", "vk_swiftshader", "opengl32sw", "mpengine")
"""Modules that generate code in private memory: runtimes, software renderers, and Defender's engine, which
translates the code that it examines. V8 is usually linked into the program."""

PROGRAMS = (
    *("chrome", "msedge", "libcef", "electron", "node", "libnode", "xul", "qt5webenginecore"),
    *("qt6webenginecore", "libglesv2", "edgehtml", "jscript9", "nw", "deno", "bun"),
)
"""Modules that may contain a runtime, in addition to RUNTIMES."""

NO_VAD = "the VADs cannot all be read, and none of the others has the code"
"""Reason why a check that compares an image with its file left out code."""

_BYTES = 8
_MAX_KEPT = 1 << 16
_PROCESSES = 64
"""The most processes whose function tables are stored."""
_NAMED = 4
"""The number of left-out things that a reason names."""

_PROGRAM = ".exe"
_VERSION = "0123456789.-_"
"""Characters of the version after names such as `j9vm29` and `mozjs-115`."""

Made = TypeVar("Made")


def runtime_named(stem: str) -> str:
    """Returns the name in RUNTIMES of a module's file, with or without a version behind it; "" if none."""
    plain = stem.rstrip(_VERSION)
    return stem if stem in RUNTIMES else plain if plain in RUNTIMES else ""


def list_in_words(found: Sequence[str]) -> str:
    """Returns the first of several things in words, and the number of the others."""
    more = len(found) - _NAMED
    return ", ".join(found[:_NAMED]) + (f" and {more} more" if more > 0 else "")


class Page(NamedTuple):
    """A page as it is now: its page table entry (valid or in transition), or in a dump its protection.

    Attributes:
        entry: the page table entry; 0 in a dump of one process
        protection: the present protection; empty in an image
    """

    executable: bool
    entry: int = 0
    protection: str = ""


class CheckNotes(NamedTuple):
    """Notes of the checks about stacks; the members are named as in `CheckFacts`."""

    untold: Dict[int, Tuple[Optional[int], str]]
    left_out: Dict[str, Dict[str, Dict[str, None]]]
    lost: LostStacks


class CheckFacts:
    """The facts of an image.

    Args:
        scan: whether a pool scan has added processes and threads
        names: names of processes that were asked for beside the PIDs

    Attributes:
        untold: processes whose function tables are not all in the image, if a finding depended on them: their
            PIDs and the missing data, by _EPROCESS
        lost: stacks that no check could examine
    """

    def __init__(
        self,
        symbolizer: Symbolizer,
        pids: Optional[Tuple[int, ...]] = None,
        scan: bool = False,
        names: Sequence[str] = (),
    ) -> None:
        self._symbolizer = symbolizer
        self.image = symbolizer.image
        self.pids = pids
        self.scan = scan
        self._names = names
        self.untold: Dict[int, Tuple[Optional[int], str]] = {}
        self.lost = LostStacks()
        self._tables: Memo[AddressSpace, registeredtables.FunctionTables] = Memo(self._registered, _PROCESSES)
        self._listed: Memo[AddressSpace, Tuple[List[CodeRange], Set[int]]] = Memo(self._of_lists, _PROCESSES)
        self._runtimes: Memo[AddressSpace, List[Tuple[str, str]]] = Memo(self._loaded)
        self._pages: Memo[Tuple[str, int], Optional[Page]] = Memo(self._page, _MAX_KEPT)
        self._reasons: Memo[Tuple[AddressSpace, int], str] = Memo(self._described, _MAX_KEPT)
        self._entries: Tuple[object, Dict[int, str]] = (None, {})
        self._left_out: Dict[str, Dict[str, Dict[str, None]]] = {}
        self._kept: Dict[str, Tuple[str, Dict[int, Any]]] = {}
        self._of_stack: Tuple[object, Dict[str, Any]] = (None, {})
        self._waits: Memo[AddressSpace, Dict[int, ThreadWait]] = Memo(self._waiting, _PROCESSES)

    @property
    def selects_kernel(self) -> bool:
        return self.pids is None or 0 in self.pids

    @functools.cached_property
    def nothing_selected(self) -> str:
        """Why nothing is checked: no process has a PID or name, or none is selected; empty if one has."""
        if self.pids is None or any(True for _ in AddressSpaces.list_spaces(self.image, self.pids)):
            return ""
        asked = (("ID", self.pids), ("name", self._names))
        wanted = [f"the {word} {' or '.join(map(str, values))}" for word, values in asked if values]
        return f"no process has {' or '.join(wanted)}" if wanted else "no process is selected"

    def namer(self, space: AddressSpace) -> AddressNamer:
        return self._symbolizer.for_space(space)

    def is_user(self, address: int) -> bool:
        return 0 < address < self._symbolizer.halves.user_end

    def has_no_execute(self, space: AddressSpace) -> bool:
        """Returns whether the page tables, or the regions of a dump, may show that execution is forbidden.

        A 32-bit process without Data Execution Prevention runs code in pages of any protection. Windows then
        changes the page table entry, and not what VirtualQuery returns.
        """
        layer = self.image.layer_of(space)
        if not isinstance(layer, intel.Intel):
            return space.machine is not Machine.I386 and not self.image.table_name
        return PageTables(self.image.context, layer).entry_size == 8

    def vad(self, space: AddressSpace, address: int) -> Optional[Region]:
        """Returns the VAD that holds an address of a process; None if there is none."""
        return self.namer(space).vad_at(address)

    def vads_whole(self, space: AddressSpace) -> bool:
        """Returns whether all VADs of a process could be read."""
        return self.namer(space).process.vads_whole

    def lacks_modules(self, space: AddressSpace) -> bool:
        """Returns whether modules of a process may be in neither of its lists: the loader's, and the VADs."""
        process = self.namer(space).process
        return bool(self.image.table_name) and not process.lists_whole and not process.vads_whole

    def lacks_vad(self, space: AddressSpace, address: int) -> bool:
        """Returns whether an address is in no known VAD of a process, while others cannot be read."""
        listed = bool(self.image.table_name)
        return listed and self.vad(space, address) is None and not self.vads_whole(space)

    def untold_regions(self) -> Iterator[str]:
        """Yields that a dump does not list all regions of its process, if so."""
        if self.image.table_name:
            return
        native = next(iter(AddressSpaces.list_spaces(self.image)), None)
        if native is not None and not self.vads_whole(native):
            yield (
                "the dump does not list all memory regions (MemoryInfoListStream): the protection of the "
                "others is unknown"
            )

    def page(self, space: AddressSpace, address: int) -> Optional[Page]:
        """Returns the page of an address; None if it is not in memory, or the dump does not list it."""
        if not self.image.table_name:
            vad = self.vad(space, address)
            pages = None if vad is None else span_at(vad.pages, address)
            return None if pages is None else Page(pages.executable, protection=pages.protection_name)
        return self._pages[str(self.image.layer_of(space).name), address // pagetable.PAGE_SIZE]

    def _page(self, key: Tuple[str, int]) -> Optional[Page]:
        layer, address = self.image.context.layers[key[0]], key[1] * pagetable.PAGE_SIZE
        if not isinstance(layer, intel.Intel) or not self.image.machine.is_canonical(address):
            return None
        found = self.image.page_tables(layer).entry(bulk.masked(layer, address))
        if found is None or not pagetable.leads(found[0]):
            return None
        return Page(pagetable.executable(*found), found[0])

    def of_windows(self, space: AddressSpace, address: int) -> bool:
        """Returns whether an image of Windows itself, from Windows' folder, is mapped at an address."""
        return self.image.service(WindowsFolders).has_image(space, self.vad(space, address))

    def of_windows_dll(self, space: AddressSpace, address: int) -> bool:
        """Returns whether an image of Windows itself that is no program is mapped at an address."""
        known_module = self.namer(space).module_at(address)
        program = known_module is not None and known_module.module.file.lower().endswith(_PROGRAM)
        return not program and self.of_windows(space, address)

    def executable(self, space: AddressSpace, address: int) -> Optional[bool]:
        """Returns whether memory of a process is executable: by its page, else its VAD's first protection.

        None if the protection is unknown: no stream of the dump describes the memory.
        """
        page, vad = self.page(space, address), self.vad(space, address)
        if page is not None and (self.has_no_execute(space) or (page.protection and page.executable)):
            return page.executable
        return False if vad is None else vad.executable

    def code_range(self, space: AddressSpace, address: int) -> Optional[CodeRange]:
        """Returns the range around an address in which a runtime stores its code, or None.

        Either the process registered a function table for the range, or the runtime's own list contains it.
        """
        if space.kernel or not space.layer_name:
            return None
        tables = self._tables_of(space)
        tabled = None if tables is None else span_at(tables.ranges, address)
        return tabled or span_at(self._listed[space][0], address)

    def lacks_list(self, space: AddressSpace, address: int) -> bool:
        """Returns whether the own list of the runtime at an address, in 32-bit code, may be missing from the
        image. Other code has function tables: see `lacks_tables`."""
        known_module = self.namer(space).module_at(address)
        lacks = known_module is not None and known_module.module.base in self._listed[space][1]
        return lacks and space.machine is Machine.I386

    def _of_lists(self, space: AddressSpace) -> Tuple[List[CodeRange], Set[int]]:
        """Returns the ranges in the runtimes' own lists, and the bases of runtimes with incomplete lists."""
        names = self.namer(space)
        lists = CodeLists(self.image.memory(space), names, names.process.vads, PROGRAMS)
        return lists.ranges(), lists.lost

    def lacks_tables(self, space: AddressSpace) -> bool:
        """Returns whether function tables of a process may be missing from the image.

        If so, the process is added to `untold`.
        """
        tables = self._tables_of(space)
        if tables is None or not tables.missing:
            return False
        self.untold.setdefault(space.eprocess, (space.pid, tables.missing))
        return True

    def _tables_of(self, space: AddressSpace) -> Optional[registeredtables.FunctionTables]:
        """Returns the function tables of a process; None if it can have none: on x86 and in the kernel."""
        if space.kernel or space.machine is Machine.I386 or not space.layer_name:
            return None
        return self._tables[space]

    def _registered(self, space: AddressSpace) -> registeredtables.FunctionTables:
        names = self.namer(space)
        listed = self.image.service(dynamic_tables).list_tables(space)
        original = functools.partial(self.copies.original, space)
        return registeredtables.registered(
            self.image.memory(space), self.image, names, names.process.vads, listed, original
        )

    def entry_points(
        self, space: AddressSpace, names_by_module: Mapping[str, Tuple[str, ...]]
    ) -> Dict[int, str]:
        """Returns functions of a process by address, named as in Symbol."""
        key = (space.layer_name, space.eprocess, tuple(names_by_module.items()))
        if self._entries[0] != key:
            names, found = self.namer(space), {}
            for module, functions in names_by_module.items():
                for known_module in names.modules(module):
                    for function in functions:
                        rva = known_module.image.names.rva_of(function)
                        if rva is not None:
                            found[known_module.module.base + rva] = f"{known_module.module.name}!{function}"
            self._entries = key, found
        return self._entries[1]

    def runtimes(self, space: AddressSpace, names: Tuple[str, ...] = RUNTIMES) -> List[str]:
        """Returns the files of the runtimes that a process has loaded."""
        return sorted(file for file, name in self._runtimes[space] if name in names)

    def _loaded(self, space: AddressSpace) -> List[Tuple[str, str]]:
        """Returns the files of all of RUNTIMES that a process has loaded, with their names."""
        listed = self.namer(space).process.modules
        names = {candidate.file: runtime_named(candidate.stem) for candidate in listed}
        return [(file, name) for file, name in names.items() if name]

    @functools.cached_property
    def copies(self) -> SectionCopies:
        """The comparison of mapped images with the copies in other processes."""
        return SectionCopies(self.image, self.vad, self._with_file)

    def _with_file(self, space: AddressSpace, address: int) -> Optional[ImageReader]:
        """Returns the module at an address of a process, if the examiner provided its file."""
        known_module = self.namer(space).module_at(address)
        if known_module is None or known_module.open_reader is None or known_module.image.file is None:
            return None
        return known_module.open_reader()

    def wait_of(self, thread: Thread) -> Optional[ThreadWait]:
        """Returns what a thread waits for, as windows.waits shows it; None if it is unknown."""
        return None if thread.tid is None else self._waits[thread.space].get(thread.tid)

    def _waiting(self, space: AddressSpace) -> Dict[int, ThreadWait]:
        ntdlls = Databases(self.image, self._symbolizer.indexes).ntdlls
        processes = WaitLister(self.image, self._symbolizer, ntdlls).list_waits(None, space.eprocess or None)
        found = (wait for process in self.image.possible(processes) for wait in process.waits)
        return {wait.thread.tid or 0: wait for wait in found}

    def find_once(self, check: str, space: AddressSpace, address: int, make: Callable[[], Made]) -> Made:
        """Returns a check's result for an address of a process, cached until another process follows."""
        cached = self._kept.get(check)
        if cached is None or cached[0] != space.layer_name or len(cached[1]) >= _MAX_KEPT:
            cached = self._kept[check] = space.layer_name, {}
        if address not in cached[1]:
            cached[1][address] = make()
        result: Made = cached[1][address]
        return result

    def find_once_of_stack(self, name: str, stack: object, make: Callable[[], Made]) -> Made:
        """Returns a result about a whole stack, cached until another stack follows.

        Many frames of a stack may need the same result, and a stack may have `MAX_FRAMES` of them.
        """
        if self._of_stack[0] is not stack:
            self._of_stack = stack, {}
        cached = self._of_stack[1]
        if name not in cached:
            cached[name] = make()
        result: Made = cached[name]
        return result

    def leave_out(self, check: str, reason: str, what: str) -> None:
        """Notes data that a check could not examine, and the reason, for `left_out`."""
        things = self._left_out.setdefault(check, {}).setdefault(reason, {})
        if len(things) < _MAX_KEPT:
            things[what] = None

    def leave_out_code(self, check: str, reason: str, space: AddressSpace, address: int, module: str) -> None:
        """Notes the code of a module that could not be compared, by the module; by its process if its VAD may
        be among those that cannot be read. `reason` belongs to the comparison; empty if all of the code was
        compared."""
        if reason not in ("", NO_IMAGE):
            self.leave_out(check, reason, module)
        elif reason and self.lacks_vad(space, address):
            self.leave_out(check, NO_VAD, space.process)

    def take_notes(self) -> CheckNotes:
        """Returns the notes about stacks, and forgets them."""
        taken = CheckNotes(self.untold, self._left_out, self.lost)
        self.untold, self._left_out, self.lost = {}, {}, LostStacks()
        return taken

    def merge_notes(self, other: CheckNotes) -> None:
        """Adds notes that another process made about the stacks that follow."""
        for eprocess, missing in other.untold.items():
            self.untold.setdefault(eprocess, missing)
        for check, reasons in other.left_out.items():
            for reason, things in reasons.items():
                for what in things:
                    self.leave_out(check, reason, what)
        self.lost.merge(other.lost)

    def left_out(self, check: str) -> Iterator[str]:
        """Yields each reason why a check left data out, with the data."""
        for reason, things in sorted(self._left_out.get(check, {}).items()):
            yield ShortText(f"{reason}: {list_in_words(sorted(things))}", short_of(reason))

    def memory(self, space: AddressSpace, address: int) -> str:
        """Returns the memory at an address in words: its VAD, its page, its first bytes.

        The short form has the start of the VAD, and the page if the VAD does not describe it.
        """
        return self._reasons[space, address]

    def _described(self, key: Tuple[AddressSpace, int]) -> str:
        space, address = key
        parts, short = [], []
        vad = self.vad(space, address) if self.is_user(address) else None
        if self.is_user(address):
            if vad is None:
                missing = "no VAD" if self.vads_whole(space) else "no known VAD"
                parts.append(missing)
                short.append(missing)
            else:
                kind = IMAGE if vad.image else MAPPED if vad.control_area else PRIVATE
                source, comma = ("VAD", "") if vad.protection is not None else ("memory", ",")
                extent = f"{vad.start:#x}-{vad.end - 1:#x}"
                parts.append(f"{source} {extent} {kind}{comma} {vad.protection_name}")
                also = "" if kind == PRIVATE and not comma else f" {kind}{comma}"
                short.append(f"{source} {vad.start:#x}{also} {vad.protection_name}")
        data = self.image.memory(space).read(address, _BYTES)
        page = self.page(space, address)
        # Without a kernel there are no page tables, which would show that a page is absent.
        if page is None and (self.image.table_name or data is None):
            parts.append("page not in memory")
            short.append("page not in memory")
        elif page is not None and page.protection:
            if vad is None or page.protection != vad.protection_name:
                parts.append(f"now {page.protection}")
                short.append(f"now {page.protection}")
        elif page is not None:
            executable = "executable" if page.executable else "not executable"
            against = (
                ", against its VAD" if not page.executable and vad is not None and vad.executable else ""
            )
            parts.append(f"PTE {page.entry:#x} {executable}{against}")
            if not page.executable or not short:
                short.append(f"page {executable}{against}")
        if data is not None:
            parts.append(f"bytes {data.hex(' ')}")
        return ShortText(", ".join(parts), ", ".join(short))
