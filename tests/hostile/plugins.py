# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Our plugins and their options, found and not listed: a new plugin is attacked as soon as it exists."""

from __future__ import annotations

import importlib
import inspect
import pathlib
import random
from typing import Any, Dict, List, Type

from volatility3.framework import interfaces
from volatility3.framework.configuration import requirements

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "volatility3_plugins" / "windows"
TABLES = ROOT / "symbols" / "windows" / "stacktraces"

Plugin = Type[interfaces.plugins.PluginInterface]
Options = Dict[str, Any]

_NETWORK = "fetch_symbols"
_WORDS = ("weight", "baseline", "format")
"""Options that take a word of a few, or a file: nothing else gets as far as an image."""
_GLOBS = ("*!*", "nt!*", "*0x1*", "<*", "[!a-m]*")


def discover() -> List[Plugin]:
    """Returns our plugins, by name."""
    found: List[Plugin] = []
    for path in sorted(FOLDER.glob("*.py")):
        module = importlib.import_module(f"volatility3.plugins.windows.{path.stem}")
        for _, plugin in inspect.getmembers(module, inspect.isclass):
            own = plugin.__module__ == module.__name__
            if own and issubclass(plugin, interfaces.plugins.PluginInterface):
                found.append(plugin)
    return found


def full_name(plugin: Plugin) -> str:
    """Returns a plugin's name on the command line."""
    return f"windows.{plugin.__module__.rsplit('.', 1)[-1]}"


def options(plugin: Plugin, chance: random.Random) -> Options:
    """Returns some of a plugin's options, each now and then, never the one that uses the network."""
    chosen: Options = {}
    for requirement in plugin.get_requirements():
        if requirement.name == _NETWORK or chance.random() < 0.5:
            continue
        if isinstance(requirement, requirements.BooleanRequirement):
            chosen[requirement.name] = True
        elif isinstance(requirement, requirements.StringRequirement) and chance.random() < 0.3:
            chosen[requirement.name] = chance.choice(_GLOBS)
    return {name: value for name, value in chosen.items() if name not in _WORDS}


def switches(plugin: Plugin) -> Options:
    """Returns all switches of a plugin that only add to what it prints, set."""
    narrowing = {"unbacked", "dump", "fold", "held", "contended", "leaks", "summary", _NETWORK}
    return {
        requirement.name: True
        for requirement in plugin.get_requirements()
        if isinstance(requirement, requirements.BooleanRequirement) and requirement.name not in narrowing
    }


def has(plugin: Plugin, name: str) -> bool:
    """Returns whether a plugin has an option."""
    return any(requirement.name == name for requirement in plugin.get_requirements())


def arguments(chosen: Options) -> List[str]:
    """Returns options as the command line takes them."""
    words: List[str] = []
    for name, value in chosen.items():
        words.append("--" + name.replace("_", "-"))
        if isinstance(value, list):
            words += map(str, value)
        elif value is not True:
            words.append(str(value))
    return words
