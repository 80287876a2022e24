# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`NamedTuple` as in `typing`, at a seventh of the cost of a class: a command makes two hundred of them.

Python's own compiles each annotation and a constructor for each class, and makes each class twice. Here the
constructors of all classes with the same number of fields share their instructions, and the methods of all
classes are those of one base. Checkers of types see Python's own (`namedtuples.pyi`). Fields are the
annotations of a class: the module that has the class begins with `from __future__ import annotations`.
"""

from __future__ import annotations

import functools
import types
from collections import _tuplegetter
from typing import Any, Dict, Iterable, Tuple


class _Fields(tuple):
    """What the tuples of all classes do; see `collections.namedtuple`."""

    __slots__ = ()
    _fields = ()

    @classmethod
    def _make(cls, values: Iterable[Any]) -> _Fields:
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self, **changed: Any) -> _Fields:
        made = self._make(map(changed.pop, self._fields, self))
        if changed:
            raise ValueError(f"Got unexpected field names: {list(changed)!r}")
        return made

    def _asdict(self) -> Dict[str, Any]:
        return dict(zip(self._fields, self))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self))
        return f"{type(self).__name__}({shown})"

    def __getnewargs__(self) -> Tuple[Any, ...]:
        return tuple(self)


class _Making(type):
    """Makes a class of what `class X(NamedTuple)` says. A class below X is made as usual."""

    def __new__(cls, name: str, bases: Tuple[type, ...], members: Dict[str, Any]) -> type:
        fields = tuple(members.get("__annotations__", ()))
        defaults = {field: members[field] for field in fields if field in members}
        new = types.FunctionType(
            _code(len(fields)).replace(co_name="__new__", co_varnames=("_cls", *fields)),
            {"_new": tuple.__new__},
            "__new__",
            tuple(defaults.values()),
        )
        new.__qualname__ = f"{members['__qualname__']}.__new__"
        members.update(
            {field: _getter(number) for number, field in enumerate(fields)},
            __slots__=(),
            __match_args__=fields,
            _fields=fields,
            _field_defaults=defaults,
            __new__=new,
        )
        return type(name, (_Fields, *bases[1:]), members)


@functools.lru_cache(maxsize=None)
def _code(count: int) -> types.CodeType:
    """Returns the instructions of a constructor that takes `count` values."""
    values = [f"_{number}" for number in range(count)]
    taken = "".join(f"{value}, " for value in values)
    made: types.FunctionType = eval(f"lambda {', '.join(['_cls', *values])}: _new(_cls, ({taken}))")
    return made.__code__


@functools.lru_cache(maxsize=None)
def _getter(number: int) -> Any:
    """Returns what reads the field of a number: all classes share it."""
    return _tuplegetter(number, f"Alias for field number {number}")


NamedTuple = type.__new__(_Making, "NamedTuple", (), {"__module__": __name__})
