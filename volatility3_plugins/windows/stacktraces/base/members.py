# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Members of a symbol table's structures by path, for structures that are read as bytes."""

from __future__ import annotations

from typing import Optional

from volatility3.framework import constants, exceptions, interfaces

from .decode.field import Field

__all__ = ["Field", "find", "need", "size_of"]


def find(
    context: interfaces.context.ContextInterface, table_name: str, type_name: str, *paths: str
) -> Optional[Field]:
    """Returns the first of several members that a structure has.

    Args:
        context: the context whose symbol space holds the table
        table_name: the symbol table
        type_name: a structure's name
        paths: members of embedded structures, such as `u.VadFlags.VadType`; unions and names that moved
            between versions are what the alternatives are for

    Returns:
        Where the member is, or None if the structure has none of them (or is not in the table).
    """
    space = context.symbol_space
    full_name = table_name + constants.BANG + type_name
    if not space.has_type(full_name):
        return None
    for path in paths:
        template, offset = space.get_type(full_name), 0
        for member in path.split("."):
            if not template.has_member(member):
                break
            offset += template.relative_child_offset(member)
            template = template.child_template(member)
            if isinstance(template, interfaces.objects.Template) and "start_bit" not in template.vol:
                template = _resolved(context, template)
        else:
            if "start_bit" in template.vol:
                width = template.vol.end_bit - template.vol.start_bit
                return Field(offset, template.size, template.vol.start_bit, (1 << width) - 1)
            return Field(offset, template.size)
    return None


def need(context: interfaces.context.ContextInterface, table_name: str, type_name: str, *paths: str) -> Field:
    """Returns the first of several members that a structure has, as `find` does.

    Raises:
        exceptions.SymbolError: when it has none of them
    """
    found = find(context, table_name, type_name, *paths)
    if found is None:
        message = f"{table_name} has no {type_name}.{' or '.join(paths)}"
        raise exceptions.SymbolError(type_name, table_name, message)
    return found


def size_of(context: interfaces.context.ContextInterface, table_name: str, type_name: str) -> int:
    """Returns a structure's size in bytes."""
    return int(context.symbol_space.get_type(table_name + constants.BANG + type_name).size)


def _resolved(
    context: interfaces.context.ContextInterface, template: interfaces.objects.Template
) -> interfaces.objects.Template:
    """Returns a member's own template: a structure's members are known to its table only."""
    name = template.vol.type_name
    kind = name.rsplit(constants.BANG, 1)[-1]
    if kind in ("pointer", "array", "void") or not context.symbol_space.has_type(name):
        return template
    return context.symbol_space.get_type(name)
