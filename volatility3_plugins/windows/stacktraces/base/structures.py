# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The structures of the symbol tables that Volatility has loaded: the kernel's, and ours."""

from __future__ import annotations

import functools
from typing import Optional

from volatility3.framework import constants, interfaces, objects

from .decode.structure import Field, Structure, Structures


def of_table(context: interfaces.context.ContextInterface, table_name: str) -> Structures:
    """Returns the structures of a symbol table; none if the table's name is empty.

    Args:
        context: the context whose symbol space holds the table
        table_name: the symbol table
    """
    return Structures(functools.partial(_structure, context, table_name))


def _structure(
    context: interfaces.context.ContextInterface, table_name: str, name: str
) -> Optional[Structure]:
    full_name = table_name + constants.BANG + name
    if not table_name or not context.symbol_space.has_type(full_name):
        return None
    template = context.symbol_space.get_type(full_name)
    lookup = functools.partial(_field, context, template)
    return Structure(name, int(template.size), lookup, tuple(getattr(template.vol, "members", ())))


def _field(
    context: interfaces.context.ContextInterface, template: interfaces.objects.Template, path: str
) -> Optional[Field]:
    """Returns where a member lies, which may be one of an embedded structure (`u.VadFlags.VadType`).

    The member is signed where the table says so of an integer (SHORT, LONG). A CHAR is no integer: what
    Windows keeps in one (a processor mode, an IRQL) is never negative.
    """
    offset = 0
    for member in path.split("."):
        if not template.has_member(member):
            return None
        offset += template.relative_child_offset(member)
        template = template.child_template(member)
        if isinstance(template, interfaces.objects.Template) and "start_bit" not in template.vol:
            template = _resolved(context, template)
    if "start_bit" in template.vol:
        width = template.vol.end_bit - template.vol.start_bit
        return Field(offset, template.size, template.vol.start_bit, (1 << width) - 1)
    return Field(offset, template.size, signed=_is_signed(template))


def _is_signed(template: interfaces.objects.Template) -> bool:
    kind = template.vol.get("object_class")
    number = isinstance(kind, type) and issubclass(kind, objects.Integer)
    return number and bool(template.vol.data_format.signed)


def _resolved(
    context: interfaces.context.ContextInterface, template: interfaces.objects.Template
) -> interfaces.objects.Template:
    """Returns a member's own template: a structure's members are known to its table only."""
    name = template.vol.type_name
    kind = name.rsplit(constants.BANG, 1)[-1]
    if kind in ("pointer", "array", "void", "enum") or not context.symbol_space.has_type(name):
        return template
    return context.symbol_space.get_type(name)
