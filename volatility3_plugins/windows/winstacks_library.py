# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds the package `winstacks`, the library of these plugins, and imports it.

    options = winstacks_library.options(__file__)

The library lies next to the plugin folder (`winstacks` beside `volatility3_plugins`), or it is installed; the
first is preferred. It is imported from its file: no folder is added to `sys.path`, where the other files in
it would become importable. A folder `winstacks` in the current directory is never taken for an installed
library, because it may have come with the evidence.

Volatility continues without a plugin that raises ImportError, so every fault of the library is raised as one.
"""

import functools
import importlib
import importlib.machinery
import importlib.util
import logging
import os
import sys
import types
from typing import Any, Callable, Optional, Set, Tuple

VERSION = "4.0.0"
"""Version of these plugins; the library must have the same version."""

NAME = "winstacks"

_AGAIN = "install the plugins anew"
_SPAWNED = "winstacks_spawned"
_FAILURES = (ImportError, SyntaxError, OSError, EOFError, ValueError)
"""Exceptions of reading and compiling a damaged or unreadable module."""

vollog = logging.getLogger(__name__)

_logged: Set[str] = set()
"""Reasons already in the log."""


class RefusedError(ImportError):
    """No library can be used; the message gives the reason and the remedy."""


def options(plugin_file: str) -> types.ModuleType:
    """Returns the builders of options, `winstacks.options`, for a plugin.

    Args:
        plugin_file: the file of the plugin, in any plugin folder of this project

    Raises:
        ImportError: the library is missing or unusable. The reason is logged once, as a warning
    """
    try:
        return _options(_beside(plugin_file))
    except _FAILURES as error:
        reason = f"The stack trace plugins are left out: {_reason(error)}"
        if reason not in _logged:
            _logged.add(reason)
            vollog.warning(reason)
        raise ImportError(reason) from error


def spawned() -> Tuple[Callable[..., Any], Tuple[Any, ...]]:
    """Returns the initializer of a spawned worker, and its arguments: the worker finds the same library.

    A spawned process, unlike a forked one, imports the modules of unpickled objects by name, and does not
    know the plugin folders: `Pool(initializer=initializer, initargs=arguments)`.
    """
    import runpy

    return runpy.run_path, (os.path.realpath(__file__), None, _SPAWNED)


def _beside(plugin_file: str) -> str:
    """Returns the folder that has the plugin folder of a plugin, which may be reached by symbolic links."""
    return _up(os.path.realpath(plugin_file), 3)


def find(beside: str) -> Optional[importlib.machinery.ModuleSpec]:
    """Returns the location of the library that belongs to a plugin folder, None if there is none.

    Args:
        beside: the folder that has the plugin folder
    """
    # An installed plugin lies in volatility3/plugins/windows/ of the folder of packages.
    folders = [beside, _up(beside, 1)] if os.path.basename(beside) == "volatility3" else [beside]
    for folder in folders:
        place = os.path.join(folder, NAME, "__init__.py")
        if os.path.isfile(place):
            return importlib.util.spec_from_file_location(
                NAME, place, submodule_search_locations=[os.path.dirname(place)]
            )
    return _installed()


def _installed() -> Optional[importlib.machinery.ModuleSpec]:
    """Returns the location from which Python would import the library, ignoring the current directory."""
    try:
        here = os.path.realpath(os.curdir)
    except OSError:  # it is gone
        here = ""
    path = [
        entry for entry in sys.path if isinstance(entry, str) and entry and os.path.realpath(entry) != here
    ]
    for finder in sys.meta_path:
        ask = getattr(finder, "find_spec", None)
        spec = ask(NAME, path) if ask is not None else None
        # A folder without an `__init__.py` has no origin.
        if spec is not None and spec.origin is not None and spec.loader is not None:
            found: importlib.machinery.ModuleSpec = spec
            return found
    return None


def _up(path: str, count: int) -> str:
    for _ in range(count):
        path = os.path.dirname(path)
    return path


@functools.lru_cache(maxsize=None)
def _options(beside: str) -> types.ModuleType:
    """Finds the library and imports its options, once for all plugins of a plugin folder."""
    if sys.version_info < (3, 9):
        raise RefusedError(
            "their library winstacks needs Python 3.9 or newer, and this is Python {}.{}; run Volatility "
            "with a newer Python".format(*sys.version_info[:2])
        )
    spec = find(beside)
    if spec is None:
        raise RefusedError(
            "their library is missing; keep the folder winstacks beside the folder volatility3_plugins, or "
            "install it with 'pip install .'"
        )
    place = os.path.realpath(str(spec.origin))
    library = sys.modules.get(NAME)
    ours = library is None
    if library is None:
        library = _imported(spec)
    imported = getattr(library, "__file__", None)
    if imported is None or not _same(imported, place):
        raise RefusedError(
            f"the library winstacks was already imported from {imported or 'elsewhere'}, and theirs is "
            f"{place}; use one copy of the plugins at a time"
        )
    version = getattr(library, "VERSION", "of an unknown version")
    if version != VERSION:
        if ours:
            del sys.modules[NAME]
        raise RefusedError(
            f"they have version {VERSION}, and the library at {os.path.dirname(place)} is {version}; take "
            "both from one copy"
        )
    return importlib.import_module(NAME + ".options")


def _same(one: str, other: str) -> bool:
    """Returns whether two paths name the same file."""
    return os.path.normcase(os.path.realpath(one)) == os.path.normcase(os.path.realpath(other))


def _imported(spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
    """Imports the library from its location."""
    library = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = library
    try:
        spec.loader.exec_module(library)  # type: ignore[union-attr]
    except BaseException:
        del sys.modules[NAME]
        raise
    return library


def _reason(error: BaseException) -> str:
    if isinstance(error, RefusedError):
        return str(error)
    if isinstance(error, SyntaxError):
        return f"{error.filename} cannot be read as Python (line {error.lineno}); {_AGAIN}"
    return f"their library cannot be imported ({type(error).__name__}: {error}); {_AGAIN}"


if __name__ == _SPAWNED:
    _options(_beside(__file__))
