# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The work of plugins that read stack trace databases, or that look up stacks in them."""

from __future__ import annotations

from functools import cached_property

from ..tracedb.finder import Databases
from .command import Command, Item, Step


class DatabaseCommand(Command[Step, Item]):
    """The work of such a plugin."""

    @cached_property
    def databases(self) -> Databases:
        """Finds the stack trace databases."""
        return Databases(self.image, self.symbolizer.indexes)
