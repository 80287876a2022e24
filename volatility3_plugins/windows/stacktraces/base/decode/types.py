# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""How the builders of layouts ask symbol tables, whoever reads these."""

from __future__ import annotations

from typing import Optional, Protocol


class Types(Protocol):
    """Symbol tables, as far as layouts need them."""

    def offset(self, type_name: str, *members: str) -> Optional[int]:
        """Returns the offset of the first of members that the type has, or None."""

    def size(self, type_name: str) -> Optional[int]:
        """Returns the size of a type in bytes, or None."""


class MissingMemberError(LookupError):
    """The symbol tables lack a type or member without which nothing can be read."""


def offset(types: Types, type_name: str, *members: str) -> int:
    """Returns the offset of the first of members that a type has.

    Raises:
        MissingMemberError: when it has none of them
    """
    found = types.offset(type_name, *members)
    if found is None:
        raise MissingMemberError(f"{type_name} has no member {' or '.join(members)}")
    return found


def size(types: Types, type_name: str) -> int:
    """Returns the size of a type in bytes.

    Raises:
        MissingMemberError: when the type is unknown
    """
    found = types.size(type_name)
    if found is None:
        raise MissingMemberError(f"{type_name} is unknown")
    return found
