# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Tuples with names, as `typing.NamedTuple` makes them, for a fortieth of its price.

Volatility imports this library at every command, also where none of its plugins runs. `NamedTuple` compiles
each annotation, and functions for each class. Here the classes share all but the constructor, which is
compiled when a class has made a few tuples: the constants of a module are not worth it.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any, Dict, Tuple

_MOST_FIELDS = 32
_FEW = 4
"""So many tuples are made of a class before its constructor is compiled."""


class _NamedFields(tuple):
    """What all records have besides their fields."""

    __slots__ = ()

    _fields: Tuple[str, ...] = ()
    _field_defaults: Dict[str, Any] = {}

    _made = 0

    def __new__(cls, *values: Any, **named: Any) -> Any:
        fields, defaults = cls._fields, cls._field_defaults
        given = len(values)
        if cls._made < _FEW and not named and len(fields) - len(defaults) <= given <= len(fields):
            cls._made += 1
            return tuple.__new__(cls, values + tuple(defaults[field] for field in fields[given:]))
        twin = namedtuple(cls.__name__, fields, defaults=defaults.values())  # type: ignore[misc]
        cls.__new__ = vars(twin)["__new__"]  # type: ignore[method-assign]
        return cls(*values, **named)

    def _replace(self, **changed: Any) -> Any:
        values = map(changed.pop, self._fields, self)
        made = tuple.__new__(type(self), values)
        if changed:
            raise ValueError(f"{type(self).__name__} has no {', '.join(changed)}")
        return made

    def _asdict(self) -> Dict[str, Any]:
        return dict(zip(self._fields, self))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self))
        return f"{type(self).__name__}({shown})"

    def __getnewargs__(self) -> Tuple[Any, ...]:
        return tuple(self)


_NAMES = [f"x{number}" for number in range(_MOST_FIELDS)]
_WIDEST = namedtuple("_WIDEST", _NAMES)  # type: ignore[misc]
_GETTERS = [vars(_WIDEST)[name] for name in _NAMES]
"""The descriptors of the fields by number: they know the number alone, so all classes share them."""


class _RecordMaker(type):
    """Makes a subclass of `_NamedFields` of the body of a class that names `Record` as its base."""

    def __new__(cls, name: str, bases: Tuple[type, ...], body: Dict[str, Any]) -> Any:
        if not bases:
            return super().__new__(cls, name, bases, body)
        fields = tuple(body["__annotations__"])
        defaults = {field: body[field] for field in fields if field in body}
        if tuple(defaults) != fields[len(fields) - len(defaults) :]:
            raise TypeError(f"{name} has a field without a default after one with a default")
        body["_field_defaults"] = defaults
        body.update({field: _GETTERS[number] for number, field in enumerate(fields)})
        body.update(_fields=fields, __slots__=())
        return type(name, (_NamedFields,), body)


if TYPE_CHECKING:
    from typing import NamedTuple as Record
else:

    class Record(metaclass=_RecordMaker):
        """The base of a class with named fields: `class Gap(Record):`, then `address: int` and so on."""
