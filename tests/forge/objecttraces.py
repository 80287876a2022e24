# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The Object Manager's reference traces: traced objects, their events, the table of stacks.

traces = ObjectTraces(kernel)
number = traces.stack([frame, frame])
ref = traces.object(body, "lsass.exe", [Event(1, True, number, 1, b"Dflt")])
traces.finish()
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence

from .handles import header_of
from .kernel import Kernel
from .obj import Obj

BUCKETS = 401
PER_BLOCK = 1024
REFERENCE = 0x8000


class Event(NamedTuple):
    """One operation; `trace` is a number that `ObjectTraces.stack` gave."""

    sequence: int
    reference: bool
    trace: int
    references: int = 1
    tag: bytes = b"Dflt"


class ObjectTraces:
    """The tables of a kernel; before 7 events have no tag."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        isf, space = kernel.isf, kernel.space
        self._pointer = space.pointer_size
        self.table = space.allocate(BUCKETS * self._pointer, 0x1000)
        kernel.set("ObpObjectTable", self.table)
        self.stacks = kernel.obj("_STACK_TABLE", tag=b"ObRt")
        self.stacks["TraceCapacity"] = 16381
        kernel.set("ObpStackTable", self.stacks)
        self._trace_size = isf.size("_OBJECT_REF_TRACE")
        self.blocks: Dict[int, int] = {}
        self._traces = 0
        self.chains: Dict[int, List[Obj]] = {}

    def stack(self, frames: Sequence[int], number: Optional[int] = None) -> int:
        """Keeps a stack; returns its number (default: the next)."""
        number = self._traces if number is None else number
        self._traces = max(self._traces, number + 1)
        block = number // PER_BLOCK
        if block not in self.blocks:
            self.blocks[block] = self.kernel.space.allocate(PER_BLOCK * self._trace_size, 0x1000)
            self.stacks[f"StackTrace[{block}]"] = self.blocks[block]
        trace = Obj(self.kernel.space, self.kernel.isf, "_OBJECT_REF_TRACE", self.trace_at(number))
        trace["StackTrace"] = [*frames, *(0,) * (16 - len(frames))]
        self.stacks["NumStackTraces"] = self._traces
        return number

    def trace_at(self, number: int) -> int:
        """Address of a trace."""
        return self.blocks[number // PER_BLOCK] + number % PER_BLOCK * self._trace_size

    def object(
        self,
        body: Obj,
        process: str,
        events: Sequence[Event],
        *,
        capacity: Optional[int] = None,
        bucket: Optional[int] = None,
        traced: bool = True,
    ) -> Obj:
        """Traces an object; returns its `_OBJECT_REF_INFO`.

        Args:
            body: the object
            process: the name that the trace keeps
            events: in the order of their sequence
            capacity: MaxStacks; default: room for one more
            bucket: default: the one that its address gives on x64
            traced: the object's header says that it is traced
        """
        isf, space = self.kernel.isf, self.kernel.space
        header = header_of(body)
        capacity = len(events) + 1 if capacity is None else capacity
        size = isf.size("_OBJECT_REF_STACK_INFO")
        ref = Obj(space, isf, "_OBJECT_REF_INFO", 0)
        start = isf.offset("_OBJECT_REF_INFO", "StackInfo")
        ref.address = self.kernel.pool.allocate(start + max(capacity, len(events)) * size, b"ObRt")
        ref["ObjectHeader"] = header
        ref["ImageFileName"] = process.encode()[:15]
        ref["NextPos"], ref["MaxStacks"] = len(events), capacity
        for number, event in enumerate(events):
            row = Obj(space, isf, "_OBJECT_REF_STACK_INFO", ref.address + start + number * size)
            row["Sequence"] = event.sequence
            row["Index"] = event.trace | (REFERENCE if event.reference else 0)
            row["NumTraces"] = event.references
            row.maybe("Tag", int.from_bytes(event.tag, "little"))
        Obj(space, isf, "_OBJECT_HEADER", header).maybe("TraceFlags", int(traced))
        if bucket is None:
            bucket = (body.address >> 4 & 0xFFFFF) % BUCKETS
        self.chains.setdefault(bucket, []).append(ref)
        return ref

    def finish(self) -> None:
        """Links the chains."""
        for bucket, chain in self.chains.items():
            self.kernel.space.write_int(self.table + bucket * self._pointer, chain[0].address)
            for ref, following in zip(chain, chain[1:]):
                ref["NextRef"] = following
