# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from typing import List

from volatility3.framework import interfaces, renderers

from winstacks import options


class Opening(interfaces.plugins.PluginInterface):
    """The start and the layer over the file, which a plugin for dumps pays before it reads anything."""

    _required_framework_version = (2, 26, 0)
    _version = (1, 0, 0)

    @classmethod
    def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
        return list(options.dump([]))

    def run(self) -> interfaces.renderers.TreeGrid:
        return renderers.TreeGrid([("Opened", int)], iter([(0, (1,))]))
