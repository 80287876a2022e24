# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The library under the plugins: a folder ("room") for each subject, with its pure decoders in `decode`.

    with winstacks.open("memory.dmp") as opened:
        for stack in opened.stacks(): ...

Types of these names are in `__init__.pyi`.
"""

VERSION = "4.0.0"
"""Version of the package: of the library, and of the plugins that use it."""


def __getattr__(name: str) -> object:
    """Returns a name of the room `opening`, which is imported when a program first asks for one of them.

    It imports most of the library. Plugins import this package at each start of Volatility, and need none.
    """
    if name not in ("InputError", "Opened", "open"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .opening import opened

    return getattr(opened, name)
