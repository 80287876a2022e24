# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The flat tables as the files that Volatility's renderers write of them."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
from typing import Any, Dict, List

from volatility3.cli import text_renderer
from volatility3.plugins.windows import traceframes, traceimage, traces, tracewaits

from tests.forge.context import Opened

TABLES = {
    "traces": traces.StackTraces,
    "traceframes": traceframes.TraceFrames,
    "tracewaits": tracewaits.TraceWaits,
    "traceimage": traceimage.TraceImage,
}


def write(opened: Opened, folder: pathlib.Path) -> None:
    """Writes the tables of an image as JSON lines and as Parquet, as `vol -r jsonl` and `-r parquet` do."""
    # Volatility finds renderers when its command line starts; one of them needs pyarrow.
    from volatility3.plugins.renderers import parquet_renderer

    for name, plugin in TABLES.items():
        for kind, renderer in (
            ("jsonl", text_renderer.JsonLinesRenderer),
            ("parquet", parquet_renderer.ParquetRenderer),
        ):
            (folder / f"{name}.{kind}").write_bytes(_rendered(opened.construct(plugin).run(), renderer))


def lines(path: pathlib.Path) -> List[Dict[str, Any]]:
    """The rows of a file of JSON lines that Volatility wrote: its first line is empty."""
    first, *rest = path.read_text(encoding="utf-8").splitlines()
    assert first == ""
    return [json.loads(line) for line in rest]


def _rendered(grid: Any, renderer: Any) -> bytes:
    buffer = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(buffer, "utf-8", write_through=True)):
        renderer().render(grid)
        return buffer.getvalue()
