# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

import logging
from typing import Iterator, List, Tuple

from volatility3.framework import interfaces, renderers
from volatility3.framework.renderers import format_hints

from .stacktraces.base import bulk, spaces
from .stacktraces.names import symbolizer
from .stacktraces.objects import lister
from .stacktraces.objects.event import ObjectEvent
from .stacktraces.rows import options
from .stacktraces.rows.frames import StackCells, names_of

vollog = logging.getLogger(__name__)

Row = Tuple[int, Tuple[object, ...]]

_NONE = renderers.NotApplicableValue()


class ObjectTraces(interfaces.plugins.PluginInterface):
    """Lists who took and dropped references to traced objects, as the debugger's !obtrace does.

    Objects are traced by pool tag or process when gflags enabled that (ObTracePoolTags, ObTraceProcessName).
    """

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return [
            options.kernel(),
            *options.helpers(
                spaces=spaces.AddressSpaces,
                objecttraces=lister.ObjectTraces,
                symbolizer=symbolizer.Symbolizer,
            ),
            *options.selecting("events"),
            options.fetch_symbols(),
        ]

    def _generator(self) -> Iterator[Row]:
        kernel_name = self.config["kernel"]
        kernel = next(spaces.AddressSpaces.list_spaces(self.context, kernel_name, [spaces.KERNEL_PID]))
        naming = options.symbolizer(self)
        selection = options.selection(self)
        layer = self.context.layers[kernel.layer_name]
        stacks = StackCells(layer, naming.names(kernel))
        found = False
        listed = lister.ObjectTraces(self.context, kernel_name, kernel).list_events()
        for event in options.with_progress(self, listed, lambda _: "Reading the traces of objects"):
            found = True
            frames = stacks.of(event.frames)
            if selection.everything or selection.takes(names_of(frames)):
                yield 0, self._row(layer, event)
                for number, frame in enumerate(frames):
                    sequence = _NONE if event.sequence is None else event.sequence
                    yield 1, (*self._key(layer, event), *(_NONE,) * 3, sequence, number, *frame.cells)
        if not found:
            vollog.warning(
                "No object is traced: Windows keeps these traces when object reference tracing is on "
                "(gflags /ro, or ObTracePoolTags and ObTraceProcessName in the registry)"
            )

    @staticmethod
    def _key(layer: interfaces.layers.DataLayerInterface, event: ObjectEvent) -> Tuple[object, ...]:
        thing = event.object
        cells = (thing.type, thing.name) if thing else (None, None)
        return (
            format_hints.Hex(bulk.masked(layer, thing.body)) if thing else _NONE,
            *(_NONE if cell is None else cell for cell in (*cells, event.process)),
        )

    def _row(self, layer: interfaces.layers.DataLayerInterface, event: ObjectEvent) -> Tuple[object, ...]:
        cells = (event.event or None, event.num_traces, event.tag, event.sequence)
        return (
            *self._key(layer, event),
            *(_NONE if cell is None else cell for cell in cells),
            *(_NONE,) * 4,
            event.status,
        )

    def run(self) -> renderers.TreeGrid:
        return renderers.TreeGrid(
            [
                ("Object", format_hints.Hex),
                ("ObjectType", str),
                ("ObjectName", str),
                ("Process", str),
                ("Event", str),
                ("Count", int),
                ("Tag", str),
                ("Sequence", int),
                ("Frame", int),
                ("Address", format_hints.Hex),
                ("Symbol", str),
                ("Source", str),
                ("Status", str),
            ],
            self._generator(),
        )
