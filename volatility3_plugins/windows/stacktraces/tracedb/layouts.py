# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The layouts of the decoders, from our symbol tables."""

from __future__ import annotations

from typing import Dict, Iterable, NamedTuple, Optional, Tuple

from volatility3.framework import constants, interfaces

from ..base import tables
from .decode.layout import BacktracesLayout, EntryLayout, HeapLogLayout, Member, StdLayout

_STD_NAMES = {"x64": ("6.1", "6.0", "5.2"), "x86": ("6.1", "6.0", "5.1", "5.2")}
_DATABASE = "_STACK_TRACE_DATABASE"
_ENTRY = "_RTL_STACK_TRACE_ENTRY"
_BUCKET_HEADS = ("_RTL_STD_LIST_HEAD", "_RTL_STD_LIST_HEAD_KERNEL")
_NUMBERS = ("unsigned char", "unsigned short", "unsigned long", "unsigned long long", "pointer", "bitfield")


class Layouts(NamedTuple):
    """What the decoders need for the databases of one bitness."""

    std: Tuple[StdLayout, ...]
    heaplog: HeapLogLayout
    backtraces: BacktracesLayout


def load(context: interfaces.context.ContextInterface, config_path: str, arch: str) -> Layouts:
    """Loads the layouts of a bitness.

    The kernel's own native types are not used: the database of a WoW64 process is of another bitness.

    Args:
        context: the context whose symbol space takes the tables
        config_path: where the tables' configuration goes
        arch: `x64` or `x86`, the bitness of the databases

    Raises:
        tables.MissingTableError: when one of our symbol tables is missing
    """

    def table(name: str) -> _Table:
        return _Table(context, tables.load(context, config_path, f"{name}-{arch}"))

    return Layouts(
        std=tuple(_std(name, table(f"std-{name}")) for name in _STD_NAMES[arch]),
        heaplog=_heaplog(table("heaplog")),
        backtraces=_backtraces(table("backtraces")),
    )


class _Table(NamedTuple):
    """One of our symbol tables."""

    context: interfaces.context.ContextInterface
    name: str

    def get_type(self, name: str) -> interfaces.objects.Template:
        return self.context.symbol_space.get_type(f"{self.name}{constants.BANG}{name}")

    def size_of(self, member: interfaces.objects.Template) -> int:
        """Returns the size of a member whose structure may not be resolved yet."""
        return int(self.context.symbol_space.get_type(member.vol.type_name).size)

    def size_if_there(self, name: str) -> Tuple[int, ...]:
        there = self.context.symbol_space.has_type(f"{self.name}{constants.BANG}{name}")
        return (int(self.get_type(name).size),) if there else ()


def _std(name: str, table: _Table) -> StdLayout:
    database = table.get_type(_DATABASE)
    entry = table.get_type(_ENTRY)
    pointer_size = table.get_type("pointer").size
    strides = [size for head in _BUCKET_HEADS for size in table.size_if_there(head)]
    chain = entry.vol.members.get("FreeChain")
    depth = entry.vol.members.get("BlockDepth")
    return StdLayout(
        name=name,
        pointer_size=pointer_size,
        size=database.size,
        members=_integers(database),
        buckets=database.relative_child_offset("Buckets"),
        bucket_strides=tuple(strides) or (pointer_size,),
        entry=EntryLayout(
            members=(
                Member("HashChain", entry.relative_child_offset("HashChain"), pointer_size),
                *_integers(entry, ("TraceCount", "IndexHigh", "Index", "Depth")),
            ),
            count_bits=_bits(entry.vol.members["TraceCount"][1]),
            block_depth_shift=depth[1].vol.start_bit if depth else 0,
            back_trace=entry.relative_child_offset("BackTrace"),
            max_depth=entry.child_template("BackTrace").count,
            free_chain=chain[0] if chain else None,
            free_chain_size=table.size_of(chain[1]) if chain else 0,
        ),
    )


def _heaplog(table: _Table) -> HeapLogLayout:
    log = table.get_type("_RTLP_HEAP_STACK_TRACE_LOG")
    record = table.get_type("_RTLP_HEAP_STACK_TRACE_RECORD")
    return HeapLogLayout(
        pointer_size=table.get_type("pointer").size,
        size=log.size,
        trace_count=log.relative_child_offset("TraceCount"),
        buckets=log.relative_child_offset("Buckets"),
        bucket_count=log.child_template("Buckets").count,
        next=record.relative_child_offset("Next"),
        hash=record.relative_child_offset("Hash"),
        depth=record.relative_child_offset("Depth"),
        frames=record.relative_child_offset("Frames"),
        max_depth=record.child_template("Frames").count,
    )


def _backtraces(table: _Table) -> BacktracesLayout:
    buffer = table.get_type("_RTL_PROCESS_BACKTRACES")
    record = table.get_type("_RTL_PROCESS_BACKTRACE_INFORMATION")
    return BacktracesLayout(
        pointer_size=table.get_type("pointer").size,
        header=_integers(buffer),
        header_size=buffer.relative_child_offset("BackTraces"),
        record=_integers(record),
        record_size=record.size,
        back_trace=record.relative_child_offset("BackTrace"),
        max_depth=record.child_template("BackTrace").count,
    )


def _integers(
    template: interfaces.objects.Template, names: Optional[Iterable[str]] = None
) -> Tuple[Member, ...]:
    """Returns the integer and pointer members of a structure; of two at one offset, the first."""
    found: Dict[int, Member] = {}
    for name, (offset, member) in template.vol.members.items():
        if (names is None or name in names) and member.vol.type_name.split(constants.BANG)[-1] in _NUMBERS:
            found.setdefault(offset, Member(name, offset, member.size))
    return tuple(found[offset] for offset in sorted(found))


def _bits(member: interfaces.objects.Template) -> int:
    if "end_bit" in member.vol:
        return int(member.vol.end_bit - member.vol.start_bit)
    return 8 * int(member.size)
