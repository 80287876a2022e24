# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Requirements and command-line options of the plugins, and the objects that are made from their values.

`Asked` says why there is nothing to show: it is not there, no option lets it through, or it could not be
read.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterator, List, Set, Type

from volatility3.framework import exceptions, interfaces
from volatility3.framework.configuration import requirements
from volatility3.plugins.windows import psscan

from ..base import tables
from ..base.image import ARCHES, Image
from ..base.processlist import ProcessList
from ..base.spaces import AddressSpaces
from ..names.symbolizer import Symbolizer
from ..threads.lister import Threads


def helpers(
    **components: Type[interfaces.configuration.VersionableInterface],
) -> List[interfaces.configuration.RequirementInterface]:
    """Returns the requirements of a Windows kernel and of our own helpers.

    Args:
        components: the plugin's helpers besides AddressSpaces, each by a name for its requirement
    """
    components = {"spaces": AddressSpaces, **components}
    return [
        requirements.ModuleRequirement(
            name="kernel", description="Windows kernel", architectures=["Intel32", "Intel64"]
        ),
        *(version(name, component) for name, component in components.items()),
        version("psscan", psscan.PsScan),
        switch("scan_processes", "Add the processes that only a pool scan finds"),
    ]


def version(
    name: str, component: Type[interfaces.configuration.VersionableInterface]
) -> interfaces.configuration.RequirementInterface:
    """Returns the requirement that a helper has version 2."""
    return requirements.VersionRequirement(name=name, component=component, version=(2, 0, 0))


def pid(zero_means: str = "") -> interfaces.configuration.RequirementInterface:
    """Returns the option --pid.

    Args:
        zero_means: what the plugin takes process ID 0 for; empty where 0 has no meaning of its own
    """
    also = f", 0 for {zero_means}" if zero_means else ""
    return numbers("pid", f"Process IDs to include{also} (all other processes are excluded)")


def tid() -> interfaces.configuration.RequirementInterface:
    """Returns the option --tid."""
    return numbers("tid", "Thread IDs to include (all other threads are excluded)")


def numbers(name: str, description: str) -> interfaces.configuration.RequirementInterface:
    """Returns an option that takes a list of numbers."""
    return requirements.ListRequirement(name=name, element_type=int, description=description, optional=True)


def offset() -> interfaces.configuration.RequirementInterface:
    """Returns the option --offset."""
    return requirements.IntRequirement(
        name="offset",
        description="Virtual or physical address of an _EPROCESS that no list holds",
        optional=True,
    )


def switch(name: str, description: str) -> interfaces.configuration.RequirementInterface:
    """Returns an option that is on or off."""
    return requirements.BooleanRequirement(name=name, description=description, default=False, optional=True)


def selecting(things: str) -> List[interfaces.configuration.RequirementInterface]:
    """Returns the options --find and --unbacked.

    Args:
        things: what the plugin lists, in plural, such as `events`
    """
    return [
        requirements.StringRequirement(
            name="find",
            description=f"Show only {things} with a frame whose Symbol matches this glob; "
            "one without ! is tried as *!GLOB too",
            optional=True,
        ),
        switch("unbacked", f"Show only {things} with a frame that no image and no mapped file backs"),
    ]


def fetch_symbols() -> interfaces.configuration.RequirementInterface:
    """Returns the option --fetch-symbols."""
    return switch("fetch_symbols", "Let Volatility download the symbols that it lacks")


def fold() -> interfaces.configuration.RequirementInterface:
    """Returns the option --fold."""
    return switch("fold", "Show no frame rows, but each stack in one string (column Stack)")


def brief() -> interfaces.configuration.RequirementInterface:
    """Returns the option --brief."""
    return switch(
        "brief",
        "Show only keys, Symbol or Stack, and Status, in 120 columns with -r pretty; what is long is "
        "cut, except with -r json and -r jsonl",
    )


def check(plugin: interfaces.plugins.PluginInterface) -> None:
    """Raises RenderException, of which Volatility prints the text, when an option has no meaning."""
    if plugin.config.get("find") == "":
        raise exceptions.RenderException("--find is empty: it takes a glob for Symbol, such as 'nt!Nt*'")
    for name in ("frames_to_skip", "frames_to_capture"):
        value = plugin.config.get(name)
        if value is not None and value < 0:
            option = name.replace("_", "-")
            raise exceptions.RenderException(f"--{option} is {value}: it takes a number of frames, 0 or more")


def check_tables(plugin: interfaces.plugins.PluginInterface) -> None:
    """Raises RenderException, of which Volatility prints the text, when one of our tables is missing."""
    module = plugin.context.modules[plugin.config["kernel"]]
    wide = plugin.context.layers[module.layer_name].bits_per_register == 64
    try:
        for pointer_size in (8, 4) if wide else (4,):
            tables.check(ARCHES[pointer_size])
    except tables.MissingTableError as error:
        raise exceptions.RenderException(str(error)) from error


def image(plugin: interfaces.plugins.PluginInterface) -> Image:
    """Returns the image that a plugin runs on."""
    made = Image(plugin.context, plugin.config["kernel"], plugin.config_path)
    if plugin.config.get("scan_processes", False) or plugin.config.get("scan", False):
        made.part(ProcessList).scan()
    return made


def symbolizer(plugin: interfaces.plugins.PluginInterface, image: Image) -> Symbolizer:
    """Returns what names addresses for a plugin; it downloads only with --fetch-symbols."""
    fetch = plugin.config.get("fetch_symbols", False)
    return Symbolizer(image, fetch, plugin._progress_callback)


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
        """Tells whether an option asks for nothing that is there."""
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
