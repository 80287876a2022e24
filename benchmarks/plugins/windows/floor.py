# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import Iterator, List, Tuple

from volatility3.framework import interfaces, renderers
from volatility3.framework.configuration import requirements
from volatility3.framework.renderers import format_hints
from volatility3.plugins.windows import info
from volatility3.plugins.windows.stacktraces.rows import flat, stacks, traces
from volatility3.plugins.windows.stacktraces.rows.treegrid import RowGrid

Row = Tuple[int, Tuple[object, ...]]

_NONE = renderers.NotApplicableValue()
_KEY = (1000, "app.exe", "x64", format_hints.Hex(0x1D2A0000000))
_ENTRY = format_hints.Hex(0x1D2A00257E0)
_HASH = format_hints.Hex(0x2D1F8A30)
_SYMBOL = "library17!Function00214+0x1d"
_FRAME = (format_hints.Hex(0x7FE0012341D), _SYMBOL, "export", "")

_THREAD = (1000, "app.exe", 0x10004, "x64", "kernel")
_CALLED = (format_hints.Hex(0xE10000012AA0), *_FRAME[:3], "image", "unwind")
_START = ("Waiting", "UserRequest", format_hints.Hex(0x7FE00001000), _SYMBOL, 1)
_STACKS: Tuple[Tuple[object, ...], Tuple[object, ...]] = (
    (*_THREAD, 14, _HASH, 0, *(_NONE,) * 7, "", *_START, _NONE),
    (*_THREAD, *(_NONE,) * 3, 7, *_CALLED, "", *(_NONE,) * 6),
)
"""The rows of windows.callstacks, those of a stack and of a frame."""

_FLAT = (
    *("9b1c5e30-2f4a7d60", 1, "std:1000:1d2a0000000:x64::7", 1000, "x64", 3, "0x7fe0012341d", _NONE),
    *("library17.dll", "\\Windows\\System32\\library17.dll", _HASH, format_hints.Hex(0x130000)),
    *(format_hints.Hex(0x1341D), "Function00214", 0x1D, _SYMBOL, "export", "recorded", "image", "r-x", ""),
)
"""A row of windows.traceframes."""


class Floor(interfaces.plugins.PluginInterface):
    """What Volatility itself needs: windows.info, then one row and its children over and over.

    The columns, types and depths are those of windows.stacktracedb, with `--stacks` those of
    windows.callstacks, with `--flat` those of windows.traceframes.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            requirements.ModuleRequirement(
                name="kernel", description="Windows kernel", architectures=["Intel32", "Intel64"]
            ),
            requirements.VersionRequirement(name="info", component=info.Info, version=(2, 0, 0)),
            requirements.IntRequirement(name="rows", description="Number of rows"),
            requirements.IntRequirement(
                name="children", description="Rows below each", default=0, optional=True
            ),
            requirements.IntRequirement(
                name="frames", description="Frames in the column Stack", default=0, optional=True
            ),
            requirements.BooleanRequirement(
                name="stacks", description="Rows of windows.callstacks", default=False, optional=True
            ),
            requirements.BooleanRequirement(
                name="flat", description="Rows of windows.traceframes", default=False, optional=True
            ),
            requirements.BooleanRequirement(
                name="ours", description="Through the grid of our plugins", default=False, optional=True
            ),
        ]

    def _generator(self) -> Iterator[Row]:
        info.Info(self.context, self.config_path).run().populate()
        frames = self.config.get("frames", 0)
        stack = "; ".join([_SYMBOL] * frames) if frames else _NONE
        row: Tuple[object, ...] = (*_KEY, 7, 1, 16, *(_NONE,) * 4, "", _ENTRY, _HASH, stack, *(_NONE,) * 5)
        child: Tuple[object, ...] = (*_KEY, 7, _NONE, _NONE, 3, *_FRAME, _ENTRY, *(_NONE,) * 7)
        if self.config.get("stacks", False):
            row, child = _STACKS
        if self.config.get("flat", False):
            row = _FLAT
        children = self.config.get("children", 0)
        for _ in range(self.config["rows"]):
            yield 0, row
            for _ in range(children):
                yield 1, child

    def run(self) -> renderers.TreeGrid:
        columns = (stacks.GRID if self.config.get("stacks", False) else traces.TRACES).columns
        if self.config.get("flat", False):
            columns = flat.columns_of("traceframes")
        make = RowGrid if self.config.get("ours", False) else renderers.TreeGrid
        return make(columns, self._generator())
