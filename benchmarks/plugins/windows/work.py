# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

import time
from typing import Callable, Dict, Iterator, List, Tuple

from volatility3.framework import constants, interfaces, renderers
from volatility3.framework.configuration import requirements

from winstacks.memory import tables
from winstacks.memory.image import Image
from winstacks.names.moduleindex import ModuleIndexes
from winstacks.names.pdbsymbols import PdbSymbols
from winstacks.process.spaces import AddressSpaces
from winstacks.tracedb.decode import backtraces
from winstacks.tracedb.decode.database import StdDatabase
from winstacks.tracedb.decode.header import Header, bounds
from winstacks.tracedb.finder import Databases
from winstacks.tracedb.model import Database

SAMPLE = 500
DEPTH = 16


class Work(interfaces.plugins.PluginInterface):
    """Does one thing with the database of a process, on an image that has just been opened, and times it.

    bulk      reads the used parts of the database, each with one read through the layer
    decode    reads them and yields every trace as a tuple of frames whose hash was compared with its bucket
    dump      reads them and makes what `--dump` writes
    objects   makes a framework object of some entries and reads their frames through it (times what it would
              take for all)
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            requirements.ModuleRequirement(
                name="kernel", description="Windows kernel", architectures=["Intel32", "Intel64"]
            ),
            requirements.IntRequirement(name="pid", description="Whose database"),
            requirements.ChoiceRequirement(
                name="what", choices=["bulk", "decode", "dump", "objects"], description="What is timed"
            ),
        ]

    def _generator(self) -> Iterator[Tuple[int, Tuple[str, int, float]]]:
        image = Image(self.context, self.config["kernel"], self.config_path)
        finder = Databases(image, ModuleIndexes(image, PdbSymbols(image)))
        (space,) = AddressSpaces.list_spaces(image, [self.config["pid"]])
        (database,) = finder.find_databases(space)
        header = database.header
        if header is None:
            raise ValueError("the image has no sound database")
        # To find it some of its pages were read: another layer has none of them in its caches.
        layer_name = image.object_at("_EPROCESS", space.eprocess).add_process_layer()
        fresh = database._replace(space=space._replace(layer_name=layer_name))
        work: Dict[str, Callable[[], Tuple[int, float]]] = {
            "bulk": lambda: self._bulk(layer_name, header),
            "decode": lambda: (sum(1 for _ in self._open(finder, fresh).traces()), 1),
            "dump": lambda: self._dump(finder, fresh),
            "objects": lambda: self._objects(layer_name, header),
        }
        what = self.config["what"]
        start = time.process_time()
        count, share = work[what]()
        seconds = (time.process_time() - start) / share
        yield 0, (what, count, seconds)

    def _bulk(self, layer_name: str, header: Header) -> Tuple[int, float]:
        layer, used = self.context.layers[layer_name], bounds(header)
        lower = layer.read(header.address, used.lower_end - header.address)
        upper = layer.read(used.upper_start, used.upper_end - used.upper_start)
        return len(lower) + len(upper), 1

    def _open(self, finder: Databases, database: Database) -> StdDatabase:
        opened = finder.open_database(database)
        assert isinstance(opened, StdDatabase)
        return opened

    def _dump(self, finder: Databases, database: Database) -> Tuple[int, float]:
        opened = self._open(finder, database)
        layout = finder.layouts(database.space).backtraces()
        return sum(map(len, backtraces.encode(opened.buffer(), opened.records(), layout))), 1

    def _objects(self, layer_name: str, header: Header) -> Tuple[int, float]:
        """All entries have the same depth, hence the same size."""
        table = tables.load(self.context, self.config_path, "std-6.1-x64")
        entry_type = table + constants.BANG + "_RTL_STACK_TRACE_ENTRY"
        size = header.layout.entry.head_size + DEPTH * header.layout.pointer_size
        total = (bounds(header).lower_end - header.first_entry) // size
        for number in range(SAMPLE):
            entry = self.context.object(entry_type, layer_name, header.first_entry + number * size)
            frames = tuple(int(entry.BackTrace[frame]) for frame in range(int(entry.Depth)))
            assert len(frames) == DEPTH
        return total, SAMPLE / total

    def run(self) -> renderers.TreeGrid:
        return renderers.TreeGrid(
            [("What", str), ("Count", int), ("Seconds", float)],
            self._generator(),
        )
