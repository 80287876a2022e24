# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of `windows.tracegraph`."""

import logging
from functools import cached_property
from typing import Any, Iterator, Sequence, Tuple

from volatility3.framework import exceptions, interfaces

from ..html import drawing, formats, htmlpage
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.text import file_name
from ..options import FORMATS
from ..rows import graph, requested
from ..rows.flat import FlatCommand
from ..rows.grid import Row
from ..stacklist.frames import NamedFrame
from ..stacklist.imagefacts import identity
from ..stacklist.stack import StackRecord

vollog = logging.getLogger(__name__)

TITLE = "flame graph of its stacks"

_NOTHING = "Nothing is drawn: all stacks (%s) have the weight 0 with --weight %s"


class TraceGraph(FlatCommand):
    """The work of `windows.tracegraph`."""

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        super().__init__(plugin)
        # A thread counts once, whatever lists have it: only the first process knows all of them.
        self.joins = plugin.config["weight"] == drawing.THREADS

    def divides(self) -> bool:
        return True

    @cached_property
    def _drawn(self) -> drawing.Drawing:
        return drawing.Drawing(self.config["weight"], merged=self._baseline is not None)

    @property
    def _formats(self) -> Tuple[str, ...]:
        return tuple(dict.fromkeys(self.config.get("format") or ("html",)))

    def rows(self, item: StackRecord, frames: Sequence[NamedFrame]) -> Iterator[Row]:
        self._drawn.add(item)
        return iter(())

    def take(self) -> Any:
        drawn = self._drawn.take()
        return drawn, super().take()

    def merge(self, counted: Any) -> None:
        drawn, others = counted
        super().merge(others)
        self._drawn.merge(*drawn)

    def finish(self) -> Iterator[Row]:
        weight, tree = self.config["weight"], self._drawn.tree
        if self._baseline is not None:
            tree.compare((formats.comparable(names), weight) for names, weight in self._baseline.stacks)
        limits = (StatusCode.STACKS_CUT if tree.cut else None, StatusCode.SUM_LIMIT if tree.capped else None)
        if self._drawn.kinds and not any(figures.weight for figures in self._drawn.kinds.values()):
            self.log.warning(_NOTHING, ", ".join(self._drawn.kinds), weight)
        paths = [file.shown for file in self.image.service(identity).files]
        before = self.config.get("baseline")
        compared = f", compared with {file_name(before)}" if before else ""
        title = htmlpage.page_title(TITLE + compared, paths)
        files = (", ".join(paths), before) if before else ()
        for form in self._formats:
            if form == "html":
                drawn = htmlpage.flame_data(tree, drawing.WEIGHTS[weight], files)
                pieces = htmlpage.page(title, {"flame": drawn})
            elif form == "folded":
                pieces = formats.folded(tree)
            else:
                pieces = formats.speedscope(tree, title, weight)
            written = graph.write(self.plugin, f"tracegraph{FORMATS[form]}", pieces)
            for kind, figures in self._drawn.kinds.items():
                yield graph.row(written, kind, figures, *limits)

    def shown(self) -> interfaces.renderers.TreeGrid:
        requested.check_words("weight", [self.config["weight"]], drawing.WEIGHTS)
        requested.check_words("format", self._formats, FORMATS)
        # An unusable baseline ends the command before any row.
        _ = self._baseline
        return graph.tree(self.plugin, self.generate())

    @cached_property
    def _baseline(self) -> Any:
        """The stacks to compare with, None without a file of them. Raises RenderException if the file cannot
        be read, or holds no stack."""
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
            vollog.warning(f"lines of the baseline{rest} that are no usable stacks: {found.bad}")
        return found
