# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import Iterator, List

from volatility3.framework import interfaces

from .stacktraces.base.image import Image
from .stacktraces.base.spaces import AddressSpaces
from .stacktraces.flat.imagefacts import Totals, Warnings, gather
from .stacktraces.names.symbolizer import Symbolizer
from .stacktraces.rows import imagefacts as rows
from .stacktraces.rows import options
from .stacktraces.rows.grid import Row
from .stacktraces.rows.plugin import Listing
from .stacktraces.stacks.lister import CallStack, StackLister
from .stacktraces.threads.lister import Thread, Threads
from .stacktraces.tracedb.finder import Databases


class TraceImage(interfaces.plugins.PluginInterface):
    """Tells in one row what an image is, and how much of its stacks could be read.

    The row has the files of the image, the kernel, its clock, the name of the computer, and how many
    processes, threads, stacks and databases were found and could be read. ImageId is the name of the image
    in all flat tables.
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            *options.helpers(threads=Threads, databases=Databases, symbolizer=Symbolizer, stacks=StackLister),
            options.pid(zero_means="the kernel"),
            options.tid(),
            options.switch("sha256", "Read all files of the image for their SHA-256"),
            options.fetch_symbols(),
        ]

    def _generator(self) -> Iterator[Row]:
        with Warnings() as warnings:
            image, totals = options.image(self), Totals()
            with Listing(self) as listing:
                listing.matched = True
                self._walk(image, totals, listing)
            yield 0, rows.row(gather(image, totals, warnings, self.config.get("sha256", False)))

    def _walk(self, image: Image, totals: Totals, listing: Listing) -> None:
        names = options.symbolizer(self, image)
        stacks, finder = StackLister(image, names), Databases(image, names.indexes)
        pids = self.config.get("pid")
        spaces = list(AddressSpaces.list_spaces(image, pids))
        for space in spaces:
            totals.databases += len(finder.find(space))
        threads = list(Threads.list_threads(image, pids, tids=self.config.get("tid")))
        for thread in listing.each(threads, _work, len(threads)):
            listing.asked.saw("tid", thread.tid)
            totals.threads += bool(thread.ethread)
            for stack in stacks.of_thread(thread):
                totals.stack(_incomplete(stack))

    def run(self) -> interfaces.renderers.TreeGrid:
        return rows.tree("traceimage", self._generator())


def _work(thread: Thread) -> str:
    return f"Walking the stacks of process {thread.space.pid}"


def _incomplete(stack: CallStack) -> bool:
    return not stack.frames
