# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Opens an image with Volatility, as its command line does: only in the process that reads the image."""

from __future__ import annotations

import importlib
import logging
import pathlib
from typing import Any

import volatility3.plugins
import volatility3.symbols
from volatility3 import framework
from volatility3.framework import automagic, constants, contexts, exceptions, interfaces, plugins

from .job import Reading, plugin_folders

vollog = logging.getLogger("stackfleet")


class NotOpenedError(Exception):
    """The image cannot be opened; another attempt would find the same."""


def prepare(reading: Reading) -> None:
    """Tells Volatility where plugins, symbols and its cache are. Call it before plugins are imported."""
    # An interface that is too old would fail in many places; this says so in one.
    framework.require_interface_version(2, 0, 0)
    volatility3.plugins.__path__ = [*plugin_folders(reading.plugin_dirs), *constants.PLUGINS_PATH]
    volatility3.symbols.__path__ = [*reading.symbol_dirs, *constants.SYMBOL_BASEPATHS]
    if reading.offline:
        constants.OFFLINE = True


def opened(path: str) -> Any:
    """Returns windows.traces, built on an image, or minidump.traces, built on a dump of a process or crash.

    Its context and configuration are those of the input.

    Args:
        path: the image or dump

    Raises:
        NotOpenedError: Volatility finds no Windows kernel in it, or cannot read it
    """
    # It imports plugins, which must not be done before `prepare` has said where these are.
    from winstacks.options import KINDS_OF_DUMPS, begins_as_a_dump

    context = contexts.Context()
    location = pathlib.Path(path).resolve().as_uri()
    context.config["automagic.LayerStacker.single_location"] = location
    dump = begins_as_a_dump(context)
    # Volatility knows a layer of ours when its module is imported, as its command line does.
    importlib.import_module(f"volatility3.plugins.minidump.{'layer' if dump else 'bitmaplayer'}")
    folder = "minidump" if dump else "windows"
    found = importlib.import_module(f"volatility3.plugins.{folder}.traces").StackTraces
    magics = automagic.choose_automagic(automagic.available(context), found)
    # The files that plugins write go nowhere: this program calls none that writes.
    try:
        return plugins.construct_plugin(
            context, magics, found, "plugins", None, interfaces.plugins.FileHandlerInterface
        )
    except exceptions.UnsatisfiedException as error:
        wanted = ", ".join(sorted(error.unsatisfied))
        if dump:
            raise NotOpenedError(f"It begins as {KINDS_OF_DUMPS[dump]} and is none") from error
        raise NotOpenedError(
            f"Volatility finds no Windows kernel of which it has symbols ({wanted})"
        ) from error
    except (exceptions.VolatilityException, OSError, EOFError) as error:
        raise NotOpenedError(f"Volatility cannot open it: {error}") from error


def warm_cache() -> None:
    """Lets Volatility index its symbol tables, once, before many processes want to do so at the same time."""
    context = contexts.Context()
    for each in automagic.available(context):
        if type(each).__name__ == "SymbolCacheMagic":
            each(context, "automagic", None, None)
