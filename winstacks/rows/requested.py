# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The objects that the options of a plugin describe, made from their values.

`RequestedIds` explains an empty result: the named IDs do not exist, no row passes the options, or data could
not be read.
"""

from __future__ import annotations

import difflib
import fnmatch
import logging
import os
from typing import Callable, Collection, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, cast

from volatility3.framework import exceptions, interfaces

from ..columns.words import MEMORY_IMAGE, PROCESS_DUMP
from ..memory import bulk, tables
from ..memory.decode.machine import Machine, UnsupportedMachineError, machines_of
from ..memory.decode.status import text
from ..memory.image import AddressSpace, Image
from ..memory.imagelayer import ImageLayer
from ..minidump.decode.dumpfile import OtherSystemError
from ..names.kernelmodules import KernelModules
from ..names.modulefiles import GivenFiles, module_files
from ..names.pdbfiles import GivenPdbs, pdb_files
from ..options import DUMP
from ..process.processlist import process_list
from ..process.spaces import AddressSpaces
from ..process.threads import Threads

vollog = logging.getLogger(__name__)


def check(plugin: interfaces.plugins.PluginInterface) -> None:
    """Raises RenderException, whose text Volatility prints, if an option has no meaning."""
    if plugin.config.get("find") == "":
        raise exceptions.RenderException("--find is empty: give a glob for Symbol, such as 'nt!Nt*'")
    for option in ("binaries", "symbols_from"):
        for folder in plugin.config.get(option, None) or ():
            if not os.path.isdir(folder):
                shown = option.replace("_", "-")
                raise exceptions.RenderException(f"--{shown}: there is no folder '{folder}'")
    for name in ("frames_to_skip", "frames_to_capture"):
        value = plugin.config.get(name)
        if value is not None and value < 0:
            option = name.replace("_", "-")
            raise exceptions.RenderException(f"--{option} is {value}: it takes a number of frames, 0 or more")


def check_words(option: str, words: Iterable[str], known: Collection[str]) -> None:
    """Raises RenderException if an option has a word that does not exist."""
    unknown = [word for word in words if word not in known]
    if unknown:
        choices = ", ".join(known)
        raise exceptions.RenderException(
            f"--{option}: unknown value {', '.join(unknown)}; choose from {choices}"
        )


def check_tables(plugin: interfaces.plugins.PluginInterface) -> None:
    """Raises RenderException, whose text Volatility prints, if one of this project's tables is missing."""
    try:
        for machine_or_half in machines_of(machine(plugin)):
            tables.check(machine_or_half.arch)
    except (tables.MissingTableError, UnsupportedMachineError, OtherSystemError) as error:
        raise exceptions.RenderException(str(error)) from error


def machine(plugin: interfaces.plugins.PluginInterface) -> Machine:
    """Returns the machine of a plugin's input.

    Raises:
        UnsupportedMachineError: the machine is not supported
        OtherSystemError: the input is a dump of a process of another system than Windows
    """
    dump = plugin.config.get(DUMP, None)
    if dump is not None:
        return _dump_layer(plugin, dump).machine()
    module = plugin.context.modules[plugin.config["kernel"]]
    return bulk.machine_of(plugin.context.layers[module.layer_name])


def _dump_layer(plugin: interfaces.plugins.PluginInterface, name: str) -> ImageLayer:
    return cast(ImageLayer, plugin.context.layers[name])


def input_kind(plugin: interfaces.plugins.PluginInterface) -> str:
    """Returns the kind of input that a plugin reads, a word of `words.INPUT_KINDS`; nothing is opened."""
    return MEMORY_IMAGE if plugin.config.get(DUMP, None) is None else PROCESS_DUMP


def open_image(plugin: interfaces.plugins.PluginInterface, where: str = " (see minidump.info)") -> Image:
    """Returns the image that a plugin runs on: a kernel's memory, or the dump of a process.

    Warns of the faults of a dump as a whole. `where` follows them: where rows have them. Raises
    RenderException if the machine is not supported, or the input is of another system than Windows.
    """
    dump = plugin.config.get(DUMP, None)
    try:
        if dump is not None:
            named = plugin.config.get("kernel_symbols", None)
            layer = _dump_layer(plugin, dump)
            opened, faults = layer.open_image(plugin.config_path, named), layer.faults()
            if faults:
                vollog.warning(f"Rows may be missing or wrong: {text(faults)}{where}")
        else:
            opened = Image(plugin.context, plugin.config["kernel"], plugin.config_path)
            opened.service(KernelModules).check_kernel()
    except (UnsupportedMachineError, OtherSystemError, tables.KernelSymbolsError) as error:
        raise exceptions.RenderException(str(error)) from error
    give_files(opened, plugin.config.get("binaries") or ())
    pdb_folders = plugin.config.get("symbols_from", None)
    if pdb_folders:
        opened.providing(pdb_files)(GivenPdbs(pdb_folders))
    if dump is not None:
        return opened
    if plugin.config.get("scan_processes", False) or plugin.config.get("scan", False):
        opened.service(process_list).scan()
    return opened


def give_files(image: Image, folders: Sequence[str]) -> None:
    """Makes the files in some folders available to the modules of an image; called before it is read."""
    if folders:
        image.providing(module_files)(GivenFiles(folders))


_SELECTING = ("address", "find", "unbacked", "leaks", "held", "contended", "index", "handle")
"""Options that leave out a part of a plugin's list."""

_MISSING: Dict[str, Callable[[str], str]] = {
    "pid": "There is no process {} in this image".format,
    "tid": "There is no thread {} in the processes that are shown".format,
    "index": "There is no back trace with the index {}".format,
    "handle": "There is no event of the handle {}".format,
}
_LONGEST_NAME = 14
"""Characters of a process's name that _EPROCESS.ImageFileName keeps: it has 15 bytes and ends with a 0."""
_SUGGESTED = 3
"""Names that are suggested for one that no process has."""
UNREAD = "No result, but some data could not be read: the column Status and the warnings name it"


class RequestedIds:
    """The IDs that the options of a plugin name, and which of them exist. `kernel` says whether PID 0 stands
    for the kernel."""

    def __init__(self, config: interfaces.configuration.HierarchicalDict, kernel: bool) -> None:
        self._config = config
        self._kernel = kernel
        self._seen: Dict[str, Set[int]] = {name: set() for name in _MISSING}
        self._named: Set[int] = set()
        self._unnamed: List[str] = []

    def processes(self, image: Callable[[], Image]) -> Optional[Tuple[int, ...]]:
        """Returns the IDs of the processes that --pid and --process select, 0 for the kernel; None for all.

        They are empty if no process has a name that --process gives, and --pid is not used.
        `unnamed` says which names no process has. `image` opens the image, which --process needs.
        """
        ids, globs = self.requested_ids("pid"), self._config.get("process") or ()
        if not globs:
            return tuple(sorted(ids)) or None
        spaces = list(AddressSpaces.list_spaces(image(), None, self._config.get("offset")))
        self._unnamed = []
        for glob in globs:
            found = [
                space for space in spaces if (self._kernel or not space.kernel) and _has_name(space, glob)
            ]
            if not found:
                self._unnamed.append(_no_process(glob, {space.process for space in spaces if space.eprocess}))
            for space in found:
                if space.pid is None:
                    self._unnamed.append(
                        f"The ID of process {space.process} is not in the image: "
                        f"--offset {space.eprocess:#x} shows the process"
                    )
                else:
                    self._named.add(space.pid)
        return tuple(sorted(ids | self._named))

    def requested_ids(self, option: str) -> Set[int]:
        """Returns the IDs that an option names; an empty set without the option."""
        return set(self._config.get(option) or ())

    def mark_seen(self, option: str, value: object) -> None:
        """Records that an ID exists."""
        if isinstance(value, int):
            self._seen[option].add(value)

    def take(self) -> Dict[str, Set[int]]:
        """Returns the IDs that were seen since the last call, and forgets them."""
        taken, self._seen = self._seen, {name: set() for name in _MISSING}
        return taken

    def merge(self, seen: Dict[str, Set[int]]) -> None:
        """Adds IDs that another process saw."""
        for name, ids in seen.items():
            self._seen[name] |= ids

    def missing(self, image: Callable[[], Image]) -> Dict[str, List[int]]:
        """Returns the IDs that do not exist, by option; processes and threads are looked up in the image."""
        lost = {name: self.requested_ids(name) - self._seen[name] for name in _MISSING}
        offset = self._config.get("offset")
        if lost["pid"]:
            spaces = AddressSpaces.list_spaces(image(), lost["pid"], offset)
            lost["pid"] -= {space.pid for space in spaces if self._kernel or not space.kernel}
        if lost["tid"]:
            scan = self._config.get("scan_threads", False)
            threads = Threads.list_threads(image(), self.processes(image), offset, lost["tid"], scan)
            lost["tid"] -= {thread.tid for thread in threads if thread.tid is not None}
        return {name: sorted(ids) for name, ids in lost.items() if ids}

    def all_missing(self, lost: Dict[str, List[int]]) -> bool:
        """Returns whether an option names only IDs or processes that do not exist."""
        if self._unnamed and not self._named and not self.requested_ids("pid"):
            return True
        return any(self.requested_ids(name) == set(ids) for name, ids in lost.items())

    def unnamed(self) -> List[str]:
        """Returns a sentence for each name of --process that selects nothing."""
        return self._unnamed

    def nothing_passes(self, things: str, wider: str, nearest: Sequence[str] = ()) -> str:
        """Returns the sentence that the options leave out everything; empty if none of these options is used.
        `wider` is the second glob that was tried for --find, empty for none."""
        used = []
        for name in _SELECTING:
            value = self._config.get(name)
            if name == "find" and value:
                used.append(f"--find '{value}'" + (f" (or '{wider}')" if wider else ""))
            elif value:
                used.append(f"--{name}")
        names = f"; nearest names: {', '.join(nearest)}" if nearest else ""
        return f"No {things} match {' and '.join(used)}{names}" if used else ""


def _has_name(space: AddressSpace, glob: str) -> bool:
    """Returns whether the name of a process matches a glob, with or without `.exe`; case does not matter."""
    name, wanted = space.process.lower(), glob.lower()
    ends = [wanted, f"{wanted}.exe"]
    return any(
        fnmatch.fnmatchcase(name, end)
        or (len(name) >= _LONGEST_NAME and len(end) > len(name) and end.startswith(name))
        for end in ends
    )


def _no_process(glob: str, names: Set[str]) -> str:
    """Returns the sentence that no process has a name, with the nearest names."""
    by_text = {name.lower(): name for name in sorted(names)}
    typed = glob.lower().replace("*", "")
    within = [text for text in by_text if typed and typed in text]
    similar = difflib.get_close_matches(typed, by_text, _SUGGESTED, 0.5)
    nearest = [by_text[text] for text in dict.fromkeys([*within, *similar])][:_SUGGESTED]
    names_text = f"; nearest names: {', '.join(nearest)}" if nearest else ""
    return f"There is no process with the name {glob} in this image{names_text}"


def sentences(lost: Dict[str, List[int]]) -> Iterator[str]:
    """Yields a sentence for each option that names IDs that do not exist."""
    for name, ids in lost.items():
        shown = (f"{number:#x}" if name == "handle" else f"{number}" for number in ids)
        yield _MISSING[name](", ".join(shown))
