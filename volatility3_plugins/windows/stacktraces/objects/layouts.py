# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The layouts of the Object Manager's reference traces, from the kernel's own symbol table."""

from __future__ import annotations

from typing import NamedTuple, Optional

from volatility3.framework import constants, interfaces

from ..base import members
from ..base.decode.field import Field
from .decode.objecttrace import RefLayout, StackTableLayout

_INFO, _EVENT = "_OBJECT_REF_INFO", "_OBJECT_REF_STACK_INFO"
_TABLE, _TRACE = "_STACK_TABLE", "_OBJECT_REF_TRACE"


class ObjectTraceLayouts(NamedTuple):
    """How objects with their events, and how stacks are kept."""

    refs: RefLayout
    stacks: StackTableLayout


def load(
    context: interfaces.context.ContextInterface, table: str, pointer_size: int
) -> Optional[ObjectTraceLayouts]:
    """Returns the layouts, None where the kernel's symbols do not describe this form of traces.

    Args:
        context: the context whose symbol space holds the table
        table: the kernel's symbol table
        pointer_size: 4 or 8
    """
    space = context.symbol_space
    if not all(space.has_type(table + constants.BANG + name) for name in (_INFO, _EVENT, _TABLE, _TRACE)):
        return None

    def need(type_name: str, path: str) -> Field:
        return members.need(context, table, type_name, path)

    image_name = need(_INFO, "ImageFileName")
    blocks = need(_TABLE, "StackTrace")
    trace_size = members.size_of(context, table, _TRACE)
    return ObjectTraceLayouts(
        RefLayout(
            object_header=need(_INFO, "ObjectHeader"),
            next_ref=need(_INFO, "NextRef"),
            image_file_name=image_name.offset,
            image_file_name_size=image_name.size,
            next_pos=need(_INFO, "NextPos"),
            max_stacks=need(_INFO, "MaxStacks"),
            stack_info=need(_INFO, "StackInfo").offset,
            event_size=members.size_of(context, table, _EVENT),
            sequence=need(_EVENT, "Sequence"),
            trace_index=need(_EVENT, "Index"),
            num_traces=need(_EVENT, "NumTraces"),
            # Vista has no Tag.
            tag=members.find(context, table, _EVENT, "Tag"),
        ),
        StackTableLayout(
            pointer_size=pointer_size,
            num_stack_traces=need(_TABLE, "NumStackTraces"),
            blocks=blocks.offset,
            block_count=blocks.size // pointer_size,
            trace_size=trace_size,
            max_depth=trace_size // pointer_size,
        ),
    )
