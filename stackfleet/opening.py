# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Opens an image with Volatility, like its command line: only in the process that reads the image."""

from __future__ import annotations

import importlib
import pathlib
import sqlite3
from typing import Any

import volatility3.plugins
import volatility3.symbols
from volatility3 import framework
from volatility3.framework import automagic, constants, contexts, exceptions, interfaces, plugins

from .child import CacheError
from .job import Reading, plugin_folders
from .manifests import cut_text


class NotOpenedError(Exception):
    """The image cannot be opened, and another attempt would fail, too."""


def prepare(reading: Reading) -> None:
    """Sets Volatility's folders of plugins, symbols and cache. Call this before plugins are imported."""
    # An interface that is too old would fail in many places; this fails once, with a clear message.
    framework.require_interface_version(2, 0, 0)
    volatility3.plugins.__path__ = [*plugin_folders(reading.plugin_dirs), *constants.PLUGINS_PATH]
    volatility3.symbols.__path__ = [*reading.symbol_dirs, *constants.SYMBOL_BASEPATHS]
    if reading.offline:
        constants.OFFLINE = True


def opened(path: str) -> Any:
    """Returns windows.traces built on an image, or minidump.traces built on a dump of a process or crash.

    The plugin's context and configuration belong to the input.

    Raises:
        NotOpenedError: Volatility finds no Windows kernel in the file, or cannot read it
    """
    # The module imports plugins, which must not happen before `prepare` has set their folders.
    from winstacks.options import KINDS_OF_DUMPS, begins_as_a_dump, why_no_input

    context = contexts.Context()
    location = pathlib.Path(path).resolve().as_uri()
    context.config["automagic.LayerStacker.single_location"] = location
    dump = begins_as_a_dump(context)
    # Volatility knows our layers once their module is imported, as on its command line.
    importlib.import_module(f"volatility3.plugins.minidump.{'layer' if dump else 'bitmaplayer'}")
    folder = "minidump" if dump else "windows"
    plugin_class = importlib.import_module(f"volatility3.plugins.{folder}.traces").StackTraces
    magics = automagic.choose_automagic(automagic.available(context), plugin_class)
    # Files that plugins write are discarded: this program calls no plugin that writes one.
    try:
        return plugins.construct_plugin(
            context, magics, plugin_class, "plugins", None, interfaces.plugins.FileHandlerInterface
        )
    except exceptions.UnsatisfiedException as error:
        unsatisfied = ", ".join(sorted(error.unsatisfied))
        if dump:
            raise NotOpenedError(f"It begins as {KINDS_OF_DUMPS[dump]} and is not one") from error
        lack = why_no_input(context)
        if lack:
            raise NotOpenedError(f"The file {lack}") from error
        reason = f"Volatility finds no Windows kernel, or has no symbols of it ({unsatisfied})"
        raise NotOpenedError("; ".join(filter(None, (_crash_dump(path), reason)))) from error
    except (exceptions.VolatilityException, OSError, EOFError) as error:
        raise NotOpenedError(f"Volatility cannot open it: {error}") from error


def _crash_dump(path: str) -> str:
    """Returns in words what the header of a crash dump says of a file that cannot be opened: how much of a
    full dump is missing behind the end of the file, the type of another dump; empty for other files.

    Source: DUMP_HEADER64 as Volatility's layer `crash` reads it: DumpType, and the number of pages in the
    PhysicalMemoryBlock.
    """
    from winstacks.options import SMALL_DUMPS

    with open(path, "rb") as stream:
        header = stream.read(_HEADER)
        size = stream.seek(0, 2)
    place, length = SMALL_DUMPS.get(header[:8], (0, 0))
    if not place or len(header) < length:
        return ""
    kind = int.from_bytes(header[place : place + 4], "little")
    if kind != _FULL or length < _HEADER:
        return f"the file is a crash dump of type {kind}"
    expected = _HEADER + 4096 * int.from_bytes(header[_PAGES : _PAGES + 8], "little")
    missing = max(expected - size, 0)
    return cut_text(bool(missing), -(-100 * missing // expected))


_HEADER, _PAGES, _FULL = 0x2000, 0x90, 1


def warm_cache() -> None:
    """Lets Volatility index its symbol tables once, before many processes want to do so at the same time.

    Raises:
        CacheError: the index cannot be written
    """
    context = contexts.Context()
    try:
        for automagic_class in automagic.available(context):
            if type(automagic_class).__name__ == "SymbolCacheMagic":
                automagic_class(context, "automagic", None, None)
    except sqlite3.Error as error:
        raise CacheError(constants.CACHE_PATH, error) from error
