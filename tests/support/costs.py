# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Counts the work of a plugin's run, in numbers that are the same on every machine."""

from __future__ import annotations

import collections
import functools
import shutil
from typing import Any, Callable, Counter, Dict, List, Tuple

import pytest
from volatility3.framework.interfaces import layers as containers
from volatility3.framework.layers import intel, physical
from volatility3.framework.objects import templates
from volatility3.framework.symbols import intermed
from volatility3.plugins.windows import pslist

from benchmarks.images import Image
from winstacks.memory import pagetables
from winstacks.names import kernelmodules, loaderlists, moduleindex, usermodules
from winstacks.process import vads
from winstacks.stacks.decode import calls_x64, prologue_x64, walk_x64

from ..forge import context

Counts = Dict[str, int]

COUNTED: Tuple[Tuple[str, Any, str], ...] = (
    ("reads", physical.FileLayer, "read"),
    ("cached reads", containers.TranslationLayerInterface, "read"),
    ("page walks", intel.Intel, "_translate"),
    ("page tables", pagetables.PageTables, "_read"),
    ("objects", templates.ObjectTemplate, "__call__"),
    ("layers", containers.LayerContainer, "add_layer"),
    ("symbol tables", intermed.IntermediateSymbolTable, "__init__"),
    ("process lists", pslist.PsList, "list_processes"),
    ("module lists", usermodules.UserModules, "list_modules"),
    ("kernel module lists", kernelmodules.KernelModules, "list_modules"),
    ("VAD trees", vads.Vads, "_walk"),
    ("loader lists", loaderlists.LoaderLists, "_read"),
    ("modules", moduleindex.ModuleIndexes, "_build"),
    ("unwind rules", calls_x64, "_derived"),
    ("prologues", prologue_x64, "agrees"),
    ("call sites", walk_x64.Walker64, "_looked_at"),
)
"""What is counted, and the function that does it each time. Volatility keeps what "cached reads" returned."""

_WITH_BYTES = {"reads": "bytes", "cached reads": "cached bytes"}


class Opened:
    """An image that has been opened, and what its runs cost."""

    def __init__(self, image: Image) -> None:
        shutil.copytree(image.symbols, context.symbol_directory(), dirs_exist_ok=True)
        self._opened = context.open_file(image.file)

    def cost(self, plugin: Any, **options: Any) -> Counts:
        """Returns how often a run of a plugin does what is COUNTED, how many bytes it reads, and its rows."""
        counts: Counter[str] = collections.Counter(
            dict.fromkeys([*(name for name, _, _ in COUNTED), *_WITH_BYTES.values()], 0)
        )
        with pytest.MonkeyPatch.context() as patch:
            for name, owner, function in COUNTED:
                patch.setattr(owner, function, _counting(owner.__dict__[function], counts, name))
            counts["rows"] = len(self._opened.rows(plugin, **options))
        return dict(counts)

    def construct(self, plugin: Any, **options: Any) -> Any:
        """Returns a plugin that is ready to run on the image."""
        return self._opened.construct(plugin, **options)

    def progress_texts(self, plugin: Any, **options: Any) -> List[str]:
        """Returns what a plugin tells the progress callback."""
        messages: List[str] = []
        new_plugin = self.construct(plugin, **options)
        new_plugin._progress_callback = lambda _, text: messages.append(text)
        new_plugin.run().populate()
        return messages


def _counting(function: Any, counts: Counter[str], name: str) -> Any:
    if isinstance(function, classmethod):
        return classmethod(_counted(function.__func__, counts, name))
    return _counted(function, counts, name)


def _counted(function: Callable[..., Any], counts: Counter[str], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def counted(*arguments: Any, **named: Any) -> Any:
        counts[name] += 1
        result = function(*arguments, **named)
        if name in _WITH_BYTES:
            counts[_WITH_BYTES[name]] += len(result)
        return result

    return counted
