# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Opens a file with Volatility, like its command line.

Volatility has its folders of plugins, symbols and cache, and whether it may use the network, once for a
process: what is set here holds for all files that the process opens later.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import sys
import types
from typing import List, Mapping, Optional, Sequence, Set, Union

import volatility3.plugins
import volatility3.symbols
from volatility3 import framework
from volatility3.framework import automagic, constants, contexts, exceptions, interfaces, plugins
from volatility3.framework.symbols.windows import extensions

from ..memory.decode.records import NamedTuple
from ..options import KINDS_OF_DUMPS, begins_as_a_dump, why_no_input

Path = Union[str, "os.PathLike[str]"]

PLUGIN = "StackTraces"
"""The class of windows.traces and minidump.traces: it has the requirements of all that is listed here."""

_NO_LAYER = "layer_name"
"""Name of a requirement that is not met where a file has no kernel, and is met where only symbols lack."""

_TREE = pathlib.Path(__file__).resolve().parents[2] / "volatility3_plugins"
"""The plugins beside the library in its source tree. Installed plugins are in Volatility's own folder."""

_NO_SYMBOLS = (
    "Volatility has no symbols of the Windows kernel in the file: symbol_dirs names folders that have them"
)

_FOR_DUMPS = ("symbols_from", "kernel_symbols")
"""Options that plugins for images lack."""


class InputError(Exception):
    """A file cannot be opened, or cannot have what was asked for; the text is a sentence for users."""


class Settings(NamedTuple):
    """Settings that Volatility keeps for the whole process.

    Attributes:
        symbol_dirs: folders of symbol tables (ISF), which are searched before those known already
        cache: Volatility's cache folder; None leaves it as it is
        offline: whether Volatility must not use the network; False leaves this as it is
    """

    symbol_dirs: Sequence[Path] = ()
    cache: Optional[Path] = None
    offline: bool = False

    def apply(self) -> None:
        """Gives Volatility these settings, and the folder of this project's plugins. Raises InputError if a
        folder is absent or cannot be made."""
        for folder in self.symbol_dirs:
            if not os.path.isdir(folder):
                raise InputError(f"There is no folder '{os.fspath(folder)}' with symbols")
        if self.cache is not None:
            try:
                os.makedirs(self.cache, exist_ok=True)
            except OSError as error:
                raise InputError(f"The cache cannot be in '{os.fspath(self.cache)}': {error}") from error
            constants.CACHE_PATH = os.path.abspath(self.cache)
        if self.offline:
            constants.OFFLINE = True
        _put_first(volatility3.symbols, list(map(os.path.abspath, self.symbol_dirs)))
        if _TREE.is_dir():
            _put_first(volatility3.plugins, [str(_TREE)])
            # A package that is imported already has the folders of that time.
            for folder in _TREE.iterdir():
                package = sys.modules.get(f"{volatility3.plugins.__name__}.{folder.name}")
                if package is not None:
                    _put_first(package, [str(folder)])


def _put_first(package: types.ModuleType, folders: Sequence[str]) -> None:
    """Puts folders before the others in which Python looks for modules and files of a package."""
    known = list(package.__path__)
    if not set(folders) <= set(known):
        package.__path__ = [*folders, *(folder for folder in known if folder not in folders)]


class _Context(contexts.Context):
    """A context that knows its clones: Volatility opens the file for one, and leaves it open."""

    def __init__(self) -> None:
        super().__init__()
        self.clones: List[interfaces.context.ContextInterface] = []

    def clone(self) -> interfaces.context.ContextInterface:
        # A clone is a deep copy, and open files have none.
        earlier, self.clones = self.clones, []
        clone = super().clone()
        self.clones = [*earlier, clone]
        return clone


def let_go(context: interfaces.context.ContextInterface) -> None:
    """Closes the files of a context, and empties the caches of Volatility's methods, which keep contexts."""
    kinds: Set[type] = {extensions.EPROCESS}
    for layer in list(context.layers.values()):
        layer.destroy()
        kinds.update(type(layer).__mro__)
    for method in (method for kind in kinds for method in vars(kind).values()):
        if hasattr(method, "cache_clear"):
            method.cache_clear()


def construct(path: Path, options: Mapping[str, object]) -> interfaces.plugins.PluginInterface:
    """Returns windows.traces built on an image, or minidump.traces built on a dump of a process or crash.
    `options` are values of options of the plugin, by name; empty values are left out. Raises InputError if
    Volatility finds no Windows kernel in the file, or cannot read it; or an option is for dumps, and the file
    is an image."""
    framework.require_interface_version(2, 0, 0)
    # To open a pipe would wait for a writer.
    if not (os.path.isfile(path) or os.path.isdir(path)):
        raise InputError(f"There is no file '{os.fspath(path)}'")
    context = _Context()
    context.config["automagic.LayerStacker.single_location"] = pathlib.Path(path).resolve().as_uri()
    dump, lack = begins_as_a_dump(context), why_no_input(context)
    if lack:
        raise InputError(f"The file {lack}")
    given = {name: value for name, value in options.items() if value}
    for name in _FOR_DUMPS:
        if name in given and not dump:
            raise InputError(f"{name} is for dumps of one process and small kernel dumps, not for images")
    folder = "minidump" if dump else "windows"
    for name, value in given.items():
        context.config[interfaces.configuration.path_join("plugins", PLUGIN, name)] = value
    try:
        # Volatility knows our layers once their module is imported.
        importlib.import_module(f"volatility3.plugins.minidump.{'layer' if dump else 'bitmaplayer'}")
        plugin_class = getattr(importlib.import_module(f"volatility3.plugins.{folder}.traces"), PLUGIN)
    except ImportError as error:
        raise InputError(f"The plugins cannot be imported: {error}") from error
    magics = automagic.choose_automagic(automagic.available(context), plugin_class)
    # Files that plugins write are discarded: nothing here writes one.
    files = interfaces.plugins.FileHandlerInterface
    try:
        return plugins.construct_plugin(context, magics, plugin_class, "plugins", None, files)
    except exceptions.UnsatisfiedException as error:
        if dump:
            raise InputError(f"The file begins as {KINDS_OF_DUMPS[dump]} and is not one") from error
        if any(name.endswith(_NO_LAYER) for name in error.unsatisfied):
            raise InputError("Volatility finds no Windows kernel in the file") from error
        raise InputError(_NO_SYMBOLS) from error
    except (exceptions.VolatilityException, OSError, EOFError) as error:
        raise InputError(f"Volatility cannot open the file: {error}") from error
    finally:
        for clone in context.clones:
            let_go(clone)
