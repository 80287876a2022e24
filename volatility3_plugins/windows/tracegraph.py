# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

import logging
from typing import Any, Iterator, List, Sequence

from volatility3.framework import exceptions, interfaces
from volatility3.framework.configuration import requirements

from .stacktraces.base.decode.status import Word
from .stacktraces.flat.stack import FlatWanted
from .stacktraces.rows import flat as rows
from .stacktraces.rows import options
from .stacktraces.rows.grid import Row
from .stacktraces.rows.plugin import Listing

vollog = logging.getLogger(__name__)

FORMATS = {"html": ".html", "speedscope": ".speedscope.json", "folded": ".folded"}
"""The formats, and how the names of their files end."""
TITLE = "Stacks of the image"


class TraceGraph(interfaces.plugins.PluginInterface):
    """Draws stacks as a flame graph: a page that needs no network, a file for speedscope, folded stacks.

    Files go where -o says. A row says of a file and a kind how many stacks and frames are drawn, and their
    weight. Stacks begin with the start of the thread; equal beginnings are one box.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *rows.requirements_of_flat("stacks"),
            requirements.StringRequirement(
                name="weight",
                description="What the width of a box counts: count (of stacks, the default), bytes (of heap "
                "blocks) or threads",
                default="count",
                optional=True,
            ),
            requirements.ListRequirement(
                name="format",
                element_type=str,
                description=f"Write these files: {', '.join(FORMATS)} (default: html)",
                optional=True,
            ),
            requirements.StringRequirement(
                name="baseline",
                description="File of folded stacks, as --format folded writes it: the page shows what has "
                "grown and what has shrunk since",
                optional=True,
            ),
        ]

    def _generator(self, wanted: FlatWanted, formats: Sequence[str], baseline: Any) -> Iterator[Row]:
        from .stacktraces.pages import drawn, html
        from .stacktraces.pages import formats as files
        from .stacktraces.rows import graph

        weight = self.config["weight"]
        stacks = drawn.Drawn(weight, merged=baseline is not None)
        with Listing(self, rows.NOTHING, "stacks") as listing:
            for stack in rows.stacks(self, options.image(self), listing, wanted):
                stacks.add(stack)
        tree = stacks.tree
        if baseline is not None:
            tree.compare(baseline.stacks)
        said = (Word.STACKS_CUT if tree.cut else None, Word.SUM_LIMIT if tree.capped else None)
        for each in formats:
            if each == "html":
                pieces = html.page(TITLE, {"flame": html.flame_data(tree, drawn.WEIGHTS[weight])})
            elif each == "folded":
                pieces = files.folded(tree)
            else:
                pieces = files.speedscope(tree, TITLE, weight)
            written = graph.write(self, f"tracegraph{FORMATS[each]}", pieces)
            for kind, figures in stacks.kinds.items():
                yield graph.row(written, kind, figures, *said)

    def run(self) -> interfaces.renderers.TreeGrid:
        from .stacktraces.pages import drawn
        from .stacktraces.rows import graph

        options.check(self)
        formats = tuple(dict.fromkeys(self.config.get("format") or ("html",)))
        graph.chosen("weight", [self.config["weight"]], drawn.WEIGHTS)
        graph.chosen("format", formats, FORMATS)
        return graph.tree(self, self._generator(rows.wanted(self), formats, self._baseline()))

    def _baseline(self) -> Any:
        """Returns the stacks to compare with, None if no file of them is given.

        Raises:
            RenderException: the file cannot be read, or holds no stack
        """
        from .stacktraces.pages import formats

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
