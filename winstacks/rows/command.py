# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a plugin does, apart from what it declares."""

from __future__ import annotations

from functools import cached_property

from volatility3.framework import interfaces

from ..memory.image import Image
from . import requested


class Command:
    """The work of a plugin.

    Args:
        plugin: the plugin that runs

    Attributes:
        plugin: as given
        config: the values of its options
    """

    def __init__(self, plugin: interfaces.plugins.PluginInterface) -> None:
        self.plugin = plugin
        self.config = plugin.config

    @cached_property
    def image(self) -> Image:
        """The image that the plugin runs on. The plugin of another kind of input opens that here.

        Raises:
            RenderException: its machine is not supported
        """
        return requested.image(self.plugin)

    def run(self) -> interfaces.renderers.TreeGrid:
        """Returns the grid of the plugin's rows."""
        raise NotImplementedError
