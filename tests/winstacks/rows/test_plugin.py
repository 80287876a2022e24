# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What the library has for plugins is no plugin itself."""

from __future__ import annotations

from volatility3 import framework
from volatility3.framework import interfaces


def test_nothing_of_the_library_is_a_plugin() -> None:
    found = framework.class_subclasses(interfaces.plugins.PluginInterface)
    assert [plugin for plugin in found if plugin.__module__.startswith("winstacks")] == []
