# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces
from volatility3.plugins.windows import winstacks_library

options = winstacks_library.options(__file__)


class TraceGraph(interfaces.plugins.PluginInterface):
    """Draws stacks as a flame graph: a page that works offline, a file for speedscope, or folded stacks.

    Files are written into the folder of -o. A row has the numbers of drawn stacks and frames of one kind in
    one file, and their weight. Stacks begin with the start of the thread; stacks with the same start share a
    box.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.stack_list("stacks"),
            options.word(
                "weight",
                options.WEIGHTS,
                "Quantity shown by the width of a box: count (stacks, the default), bytes or threads",
                default="count",
            ),
            options.words(
                "format",
                tuple(options.FORMATS),
                f"Write these files: {', '.join(options.FORMATS)} (default: html)",
            ),
            options.file_name(
                "baseline",
                "File of folded stacks, written by --format folded: the page shows which stacks have grown "
                "and which have shrunk since",
            ),
            options.OutputFolderRequirement(),
        ]

    def run(self) -> interfaces.renderers.TreeGrid:
        from winstacks.commands import tracegraph

        return tracegraph.TraceGraph(self).run()
