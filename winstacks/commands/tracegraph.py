# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.tracegraph`."""

import logging
from typing import Any, Iterator, Sequence

from volatility3.framework import exceptions, interfaces

from ..flat.stack import FlatWanted
from ..memory.decode.status import Word
from ..options import FORMATS
from ..pages import drawn, formats, html
from ..rows import flat as rows
from ..rows import graph, requested
from ..rows.command import Command
from ..rows.grid import Row
from ..rows.plugin import Listing

vollog = logging.getLogger(__name__)

TITLE = "Stacks of the image"


class TraceGraph(Command):
    """What `windows.tracegraph` does."""

    def _generator(self, wanted: FlatWanted, names: Sequence[str], baseline: Any) -> Iterator[Row]:
        weight = self.config["weight"]
        stacks = drawn.Drawn(weight, merged=baseline is not None)
        with Listing(self, rows.NOTHING, "stacks") as listing:
            for stack in rows.stacks(self.plugin, self.image, listing, wanted):
                stacks.add(stack)
        tree = stacks.tree
        if baseline is not None:
            tree.compare(baseline.stacks)
        said = (Word.STACKS_CUT if tree.cut else None, Word.SUM_LIMIT if tree.capped else None)
        for each in names:
            if each == "html":
                pieces = html.page(TITLE, {"flame": html.flame_data(tree, drawn.WEIGHTS[weight])})
            elif each == "folded":
                pieces = formats.folded(tree)
            else:
                pieces = formats.speedscope(tree, TITLE, weight)
            written = graph.write(self.plugin, f"tracegraph{FORMATS[each]}", pieces)
            for kind, figures in stacks.kinds.items():
                yield graph.row(written, kind, figures, *said)

    def run(self) -> interfaces.renderers.TreeGrid:
        requested.check(self.plugin)
        names = tuple(dict.fromkeys(self.config.get("format") or ("html",)))
        graph.chosen("weight", [self.config["weight"]], drawn.WEIGHTS)
        graph.chosen("format", names, FORMATS)
        return graph.tree(self.plugin, self._generator(rows.wanted(self.plugin), names, self._baseline()))

    def _baseline(self) -> Any:
        """Returns the stacks to compare with, None if no file of them is given.

        Raises:
            RenderException: the file cannot be read, or holds no stack
        """
        path = self.config.get("baseline")
        if not path:
            return None
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                found = formats.read_folded(file)
        except OSError as error:
            raise exceptions.RenderException(f"The baseline cannot be used: {error}") from error
        if not found.stacks:
            raise exceptions.RenderException(f"The baseline cannot be used: {path} holds no folded stacks")
        if found.bad or found.cut:
            rest = f" and all behind line {formats.MAX_LINES}" if found.cut else ""
            vollog.warning(f"{found.bad} lines of the baseline{rest} are no stacks that can be used")
        return found
