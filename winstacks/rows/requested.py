# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What the options of a plugin ask for: the objects that are made from their values.

`Asked` says why there is nothing to show: it is not there, no option lets it through, or it could not be
read.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, Iterator, List, Sequence, Set, cast

from volatility3.framework import exceptions, interfaces

from ..memory import bulk, tables
from ..memory.decode.machine import Machine, UnsupportedMachineError, machines_of
from ..memory.image import Image, ImageLayer
from ..minidump.kernelsymbols import KernelSymbolsError
from ..names.modulefiles import GivenFiles, ModuleFiles, module_files
from ..options import DUMP
from ..process.processlist import ProcessList
from ..process.spaces import AddressSpaces
from ..process.threads import Threads


def check(plugin: interfaces.plugins.PluginInterface) -> None:
    """Raises RenderException, of which Volatility prints the text, when an option has no meaning."""
    if plugin.config.get("find") == "":
        raise exceptions.RenderException("--find is empty: it takes a glob for Symbol, such as 'nt!Nt*'")
    for folder in plugin.config.get("binaries") or ():
        if not os.path.isdir(folder):
            raise exceptions.RenderException(f"--binaries: there is no folder '{folder}'")
    for name in ("frames_to_skip", "frames_to_capture"):
        value = plugin.config.get(name)
        if value is not None and value < 0:
            option = name.replace("_", "-")
            raise exceptions.RenderException(f"--{option} is {value}: it takes a number of frames, 0 or more")


def check_tables(plugin: interfaces.plugins.PluginInterface) -> None:
    """Raises RenderException, of which Volatility prints the text, when one of our tables is missing."""
    try:
        for machine in machines_of(_machine(plugin)):
            tables.check(machine.arch)
    except (tables.MissingTableError, UnsupportedMachineError) as error:
        raise exceptions.RenderException(str(error)) from error


def _machine(plugin: interfaces.plugins.PluginInterface) -> Machine:
    """Returns the machine of what a plugin runs on.

    Raises:
        UnsupportedMachineError: it is not supported
    """
    dump = plugin.config.get(DUMP, None)
    if dump is not None:
        return _dump_layer(plugin, dump).machine()
    module = plugin.context.modules[plugin.config["kernel"]]
    return bulk.machine_of(plugin.context.layers[module.layer_name])


def _dump_layer(plugin: interfaces.plugins.PluginInterface, name: str) -> ImageLayer:
    return cast(ImageLayer, plugin.context.layers[name])


def image(plugin: interfaces.plugins.PluginInterface) -> Image:
    """Returns the image that a plugin runs on: that of a kernel, or the dump of a process.

    Raises:
        RenderException: its machine is not supported
    """
    dump = plugin.config.get(DUMP, None)
    try:
        if dump is not None:
            named = plugin.config.get("kernel_symbols", None)
            made = _dump_layer(plugin, dump).open_image(plugin.config_path, named)
        else:
            made = Image(plugin.context, plugin.config["kernel"], plugin.config_path)
    except (UnsupportedMachineError, KernelSymbolsError) as error:
        raise exceptions.RenderException(str(error)) from error
    give_files(made, plugin.config.get("binaries") or ())
    if dump is not None:
        return made
    if plugin.config.get("scan_processes", False) or plugin.config.get("scan", False):
        made.service(ProcessList).scan()
    return made


def give_files(image: Image, folders: Sequence[str]) -> None:
    """Lets modules of an image have the files that are in some folders; before anything is read of it."""
    if folders:
        files: ModuleFiles = GivenFiles(folders)
        image.provide(module_files, files)


_SELECTING = ("find", "unbacked", "leaks", "held", "contended", "index", "handle")
"""The options that leave out some of what a plugin lists."""

_MISSING: Dict[str, Callable[[str], str]] = {
    "pid": "There is no process {} in this image".format,
    "tid": "There is no thread {} in the processes that are shown".format,
    "index": "There is no back trace with the index {}".format,
    "handle": "There is no event of the handle {}".format,
}
UNREAD = "Nothing is found, but not all could be read: the column Status and the warnings say what"


class Asked:
    """What the options of a plugin ask for, and what of it is there.

    Args:
        config: the plugin's configuration
        kernel: whether PID 0 stands for the kernel
    """

    def __init__(self, config: interfaces.configuration.HierarchicalDict, kernel: bool) -> None:
        self._config = config
        self._kernel = kernel
        self._seen: Dict[str, Set[int]] = {name: set() for name in _MISSING}

    def wanted(self, option: str) -> Set[int]:
        """Returns the IDs that an option asks for; none if it is not given."""
        return set(self._config.get(option) or ())

    def saw(self, option: str, value: object) -> None:
        """Takes note that there is something with an ID."""
        if isinstance(value, int):
            self._seen[option].add(value)

    def lost(self, image: Callable[[], Image]) -> Dict[str, List[int]]:
        """Returns the IDs by option that are not there; processes and threads are looked for in the image.

        Args:
            image: opens the image
        """
        lost = {name: self.wanted(name) - self._seen[name] for name in _MISSING}
        pids, offset = self._config.get("pid"), self._config.get("offset")
        if lost["pid"]:
            spaces = AddressSpaces.list_spaces(image(), lost["pid"], offset)
            lost["pid"] -= {space.pid for space in spaces if self._kernel or not space.kernel}
        if lost["tid"]:
            scan = self._config.get("scan_threads", False)
            threads = Threads.list_threads(image(), pids, offset, lost["tid"], scan)
            lost["tid"] -= {thread.tid for thread in threads if thread.tid is not None}
        return {name: sorted(ids) for name, ids in lost.items() if ids}

    def in_vain(self, lost: Dict[str, List[int]]) -> bool:
        """Returns whether an option asks for nothing that is there."""
        return any(self.wanted(name) == set(ids) for name, ids in lost.items())

    def nothing_passes(self, things: str, wider: str) -> str:
        """Returns the sentence that all is left out by options; empty if none of these is given.

        Args:
            things: what the plugin lists, in plural
            wider: the glob that was tried besides that of --find, empty for none
        """
        given = []
        for name in _SELECTING:
            value = self._config.get(name)
            if name == "find" and value:
                given.append(f"--find '{value}'" + (f" (or '{wider}')" if wider else ""))
            elif value:
                given.append(f"--{name}")
        return f"None of the {things} passes {' and '.join(given)}" if given else ""


def sentences(lost: Dict[str, List[int]]) -> Iterator[str]:
    """Yields a sentence for each option that asks for what is not there."""
    for name, ids in lost.items():
        shown = (f"{each:#x}" if name == "handle" else f"{each}" for each in ids)
        yield _MISSING[name](", ".join(shown))
