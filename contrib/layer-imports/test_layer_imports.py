# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The files of layers are looked at once for a plugin, however many options it has."""

from volatility3 import framework
from volatility3.framework import contexts, layers
from volatility3.framework.automagic import construct_layers
from volatility3.framework.configuration import requirements


def test_layers_are_imported_once(monkeypatch):
    plugin = requirements.MultiRequirement(name="plugin")
    plugin.add_requirement(requirements.TranslationLayerRequirement(name="primary"))
    for number in range(19):
        plugin.add_requirement(requirements.BooleanRequirement(name=f"option{number}", optional=True))
    imported = []
    monkeypatch.setattr(framework, "import_files", imported.append)
    context = contexts.Context()
    failed = construct_layers.ConstructionMagic(context, "automagic")(context, "plugins", plugin)
    assert failed == ["plugins.plugin.primary"]
    assert imported == [layers]
