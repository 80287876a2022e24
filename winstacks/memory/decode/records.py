# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""typing.NamedTuple without types at run time: each is made in less than half of the instructions.

typing compiles the annotation of each field, and nothing here reads the result. A command makes about 140
such classes. Type checkers read records.pyi, where it is typing's.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, Dict, Tuple


class _Maker(type):
    """Makes a tuple with names of each class that has NamedTuple as its base."""

    def __new__(mcs, name: str, bases: Tuple[type, ...], namespace: Dict[str, Any]) -> Any:
        fields = namespace.get("__annotations__", {})
        defaults = [namespace.pop(field) for field in fields if field in namespace]
        made = namedtuple(name, fields, defaults=defaults, module=namespace.pop("__module__"))  # type: ignore
        for key, value in namespace.items():
            setattr(made, key, value)
        return made


NamedTuple = type.__new__(_Maker, "NamedTuple", (), {})
