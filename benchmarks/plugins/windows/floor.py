# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import Dict, Iterator, List, Sequence, Tuple

from volatility3.framework import interfaces, renderers
from volatility3.framework.configuration import requirements
from volatility3.framework.renderers import format_hints
from volatility3.plugins.windows import info

from winstacks.columns.tables import FRAMES
from winstacks.rows import grid
from winstacks.rows.treegrid import RowGrid

Columns = Sequence[Tuple[str, type]]
Known = Dict[str, object]
"""Cells by the names of their columns."""
Row = Tuple[int, Tuple[object, ...]]

_SPACE: Known = {"PID": 1000, "Process": "app.exe", "Arch": "x64"}
_SYMBOL: Known = {
    "Symbol": "library17!Function00214+0x1d",
    "Source": "export",
    "Backing": "image",
    "Status": "",
}
_FRAME: Known = {**_SYMBOL, "Address": format_hints.Hex(0x7FE0012341D)}
_HASH: Known = {"BackTraceHash": format_hints.Hex(0x2D1F8A30), "Unbacked": 0, "Status": ""}
_ENTRY: Known = {
    **_SPACE,
    "Database": format_hints.Hex(0x1D2A0000000),
    "Index": 7,
    "EntryAddress": format_hints.Hex(0x1D2A00257E0),
}
_THREAD: Known = {**_SPACE, "TID": 0x10004, "Part": "kernel"}
_START: Known = {
    "State": "Waiting",
    "WaitReason": "UserRequest",
    "StartAddress": format_hints.Hex(0x7FE00001000),
    "StartSymbol": _SYMBOL["Symbol"],
}
_FLAT: Known = {
    **_SYMBOL,
    "PID": 1000,
    "Arch": "x64",
    "ImageId": "9b1c5e30-2f4a7d60",
    "Schema": 2,
    "TraceId": "std:1000:1d2a0000000:x64::7",
    "Frame": 3,
    "Address": "0x7fe0012341d",
    "Module": "library17.dll",
    "ModulePath": "\\Windows\\System32\\library17.dll",
    "ModuleStamp": format_hints.Hex(0x2D1F8A30),
    "ModuleSize": format_hints.Hex(0x130000),
    "Rva": format_hints.Hex(0x1341D),
    "Function": "Function00214",
    "Displacement": 0x1D,
    "How": "recorded",
    "Protection": "r-x",
}

LIKE: Dict[str, Tuple[Columns, Known, Known]] = {
    "stacktracedb": (
        grid.Grid.for_plugin("stacktracedb").columns,
        {**_ENTRY, **_HASH, "Count": 1, "Depth": 16},
        {**_ENTRY, **_FRAME, "Frame": 3},
    ),
    "callstacks": (
        grid.Grid.for_plugin("callstacks").columns,
        {**_THREAD, **_HASH, **_START, "Count": 1, "Depth": 14},
        {**_THREAD, **_FRAME, "Frame": 7, "Sp": format_hints.Hex(0xE10000012AA0), "How": "unwind"},
    ),
    "traceframes": (grid.typed(FRAMES), _FLAT, _FLAT),
}
"""Of plugins: their columns, a row, and a row below it."""


class Floor(interfaces.plugins.PluginInterface):
    """What Volatility itself needs: windows.info, then one row and its children over and over."""

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            requirements.ModuleRequirement(
                name="kernel", description="Windows kernel", architectures=["Intel32", "Intel64"]
            ),
            requirements.VersionRequirement(name="info", component=info.Info, version=(2, 0, 0)),
            requirements.ChoiceRequirement(
                choices=list(LIKE),
                name="like",
                description="The plugin whose columns, types and depths these are",
                default="stacktracedb",
                optional=True,
            ),
            requirements.IntRequirement(name="rows", description="Number of rows"),
            requirements.IntRequirement(
                name="children", description="Rows below each", default=0, optional=True
            ),
            requirements.IntRequirement(
                name="frames", description="Frames in the column Stack", default=0, optional=True
            ),
            requirements.BooleanRequirement(
                name="ours", description="Through the grid of our plugins", default=False, optional=True
            ),
        ]

    def _generator(self, columns: Columns, row: Known, child: Known) -> Iterator[Row]:
        info.Info(self.context, self.config_path).run().populate()
        frames = self.config.get("frames", 0)
        if frames:
            row = {**row, "Stack": "; ".join([str(_SYMBOL["Symbol"])] * frames)}
        whole, below = _cells(columns, row), _cells(columns, child)
        children = self.config.get("children", 0)
        for _ in range(self.config["rows"]):
            yield 0, whole
            for _ in range(children):
                yield 1, below

    def run(self) -> renderers.TreeGrid:
        columns, row, child = LIKE[self.config.get("like", "stacktracedb")]
        make = RowGrid if self.config.get("ours", False) else renderers.TreeGrid
        return make(list(columns), self._generator(columns, row, child))


def _cells(columns: Columns, known: Known) -> Tuple[object, ...]:
    absent = renderers.NotApplicableValue()
    return tuple(known.get(name, absent) for name, _ in columns)
