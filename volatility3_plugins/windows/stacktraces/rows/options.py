# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The options that several plugins have, and what is made of them."""

from __future__ import annotations

import logging
from typing import Callable, Iterable, Iterator, List, Type, TypeVar

from volatility3.framework import interfaces
from volatility3.framework.configuration import requirements

from ..names.symbolizer import Symbolizer
from .selection import Selection

vollog = logging.getLogger(__name__)

DISABLED = "Disabled"
"""The column `File output` when no file was asked for, in Volatility's own words."""
FAILED = "Error outputting file"

_OFTEN = 4096

Item = TypeVar("Item")


def kernel() -> interfaces.configuration.RequirementInterface:
    """Returns the requirement of a Windows kernel."""
    return requirements.ModuleRequirement(
        name="kernel", description="Windows kernel", architectures=["Intel32", "Intel64"]
    )


def helpers(
    **components: Type[interfaces.configuration.VersionableInterface],
) -> List[interfaces.configuration.RequirementInterface]:
    """Returns the requirement of each of our own helpers, by a name for it."""
    return [
        requirements.VersionRequirement(name=name, component=component, version=(1, 0, 0))
        for name, component in components.items()
    ]


def pid(zero: str = "") -> interfaces.configuration.RequirementInterface:
    """Returns the option --pid.

    Args:
        zero: what process ID 0 stands for, where it stands for something
    """
    also = f", 0 for {zero}" if zero else ""
    return numbers("pid", f"Process IDs to include{also} (all other processes are excluded)")


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
        things: what has the stacks, in plural
    """
    return [
        requirements.StringRequirement(
            name="find",
            description=f"Show only {things} with a frame whose Symbol matches this glob",
            optional=True,
        ),
        switch("unbacked", f"Show only {things} with a frame in private or unmapped memory or no module"),
    ]


def fetch_symbols() -> interfaces.configuration.RequirementInterface:
    """Returns the option --fetch-symbols."""
    return switch("fetch_symbols", "Let Volatility download the symbols that it lacks")


def selection(plugin: interfaces.plugins.PluginInterface) -> Selection:
    """Returns what a plugin's --find and --unbacked ask for."""
    return Selection(plugin.config.get("find"), plugin.config.get("unbacked", False))


def symbolizer(plugin: interfaces.plugins.PluginInterface) -> Symbolizer:
    """Returns the symboliser for a plugin, which downloads only with --fetch-symbols."""
    return Symbolizer(
        plugin.context,
        plugin.config["kernel"],
        plugin.config_path,
        plugin.config.get("fetch_symbols", False),
        plugin._progress_callback,
    )


def with_progress(
    plugin: interfaces.plugins.PluginInterface, items: Iterable[Item], describe: Callable[[Item], str]
) -> Iterator[Item]:
    """Passes things on, and tells Volatility's progress callback what they are part of.

    Args:
        plugin: that works on them
        items: the things
        describe: what the work is on; told each time it changes, and now and then while it does not
    """
    before = ""
    for count, item in enumerate(items):
        now = describe(item)
        if now != before or not count % _OFTEN:
            plugin._progress_callback(0, now)
            before = now
        yield item


def write_file(plugin: interfaces.plugins.PluginInterface, name: str, pieces: Iterable[bytes]) -> str:
    """Writes a file where the user wants files to go.

    Returns:
        The cell for `File output`: the file's name, or that it cannot be written (the log says why).
    """
    safe_name = plugin.open.sanitize_filename(name)
    try:
        with plugin.open(safe_name) as file:
            for piece in pieces:
                file.write(piece)
            return str(file.preferred_filename)
    except OSError as error:
        vollog.error(f"{safe_name} cannot be written: {error}")
        return FAILED
