# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Finds the library of these plugins, the package `winstacks`, and imports it.

    options = winstacks_library.options(__file__)

The library lies beside the plugin folder, or it is installed; a copy beside the plugin folder is preferred.
Volatility goes on without a plugin that raises ImportError.
"""

import importlib
import importlib.util
import logging
import pathlib
import sys
import types
from typing import Iterator, Optional, Set

VERSION = "3.0.0"
"""Version of these plugins: the library must have the same."""

NAME = "winstacks"

vollog = logging.getLogger(__name__)

_said: Set[str] = set()
"""Reasons that the log has already."""


def options(plugin_file: str) -> types.ModuleType:
    """Returns the builders of options, `winstacks.options`, for a plugin.

    Args:
        plugin_file: the file of the plugin

    Raises:
        ImportError: the library is missing or cannot be used. The log gets the reason once
    """
    try:
        return _load(plugin_file)
    except (ImportError, SyntaxError) as error:
        reason = str(error)
        if reason not in _said:
            _said.add(reason)
            vollog.warning(reason)
        raise ImportError(reason) from error


def _load(plugin_file: str) -> types.ModuleType:
    if sys.version_info < (3, 9):
        raise ImportError(
            "The stack trace plugins are left out: their library winstacks needs Python 3.9, this is "
            "{}.{}".format(*sys.version_info[:2])
        )
    place = find(pathlib.Path(plugin_file).resolve())
    if place is None:
        raise ImportError(
            "The stack trace plugins are left out: their library is missing. Keep the folder winstacks "
            "beside the folder volatility3_plugins, or install it with 'pip install .'"
        )
    library = sys.modules.get(NAME)
    try:
        if library is None:
            library = _imported(place)
        if pathlib.Path(str(library.__file__)).resolve() != place:
            raise ImportError(
                "The stack trace plugins are left out: the library winstacks was already imported from "
                f"{library.__file__}, and theirs is {place}. Use one copy of the plugins at a time"
            )
        found = getattr(library, "VERSION", "of unknown version")
        if found != VERSION:
            raise ImportError(
                f"The stack trace plugins are left out: they have version {VERSION}, and the library at "
                f"{place.parent} is {found}. Take both from one copy"
            )
        return importlib.import_module(NAME + ".options")
    except SyntaxError as error:
        raise ImportError(
            f"The stack trace plugins are left out: {error.filename} cannot be read as Python (line "
            f"{error.lineno}). Install the plugins anew"
        ) from error


def find(plugin_file: pathlib.Path) -> Optional[pathlib.Path]:
    """Returns the `__init__.py` of the library that belongs to a plugin, None if there is none.

    Args:
        plugin_file: the file of the plugin, resolved
    """
    return next((place for place in _places(plugin_file) if place.is_file()), None)


def _places(plugin_file: pathlib.Path) -> Iterator[pathlib.Path]:
    # By its file: a checkout on sys.path would offer its other files as modules, too.
    folders = plugin_file.parents
    if len(folders) > 2:
        yield folders[2] / NAME / "__init__.py"
    # An installed plugin: site-packages/volatility3/plugins/windows/.
    if len(folders) > 3 and [folder.name for folder in folders[1:3]] == ["plugins", "volatility3"]:
        yield folders[3] / NAME / "__init__.py"
    if NAME not in sys.modules:
        spec = importlib.util.find_spec(NAME)
        installed = spec.origin if spec is not None else None
    else:
        installed = sys.modules[NAME].__file__
    if installed is not None:
        yield pathlib.Path(installed).resolve()


def _imported(place: pathlib.Path) -> types.ModuleType:
    """Imports the library from its file."""
    spec = importlib.util.spec_from_file_location(NAME, place, submodule_search_locations=[str(place.parent)])
    if spec is None or spec.loader is None:
        raise ImportError(f"The stack trace plugins are left out: {place} cannot be imported")
    library = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = library
    try:
        spec.loader.exec_module(library)
    except BaseException:
        del sys.modules[NAME]
        raise
    return library
