# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A record has the members of the class that typing makes, and no annotation is compiled."""

from __future__ import annotations

import copy
import pickle
import typing
from decimal import Decimal
from typing import Any, List

import pytest

from winstacks.memory.decode import records

BODY = """
class Range(base):
    'A range.'

    start: int
    end: int = 8
    names: 'Sequence[str]' = ()

    @property
    def size(self):
        return self.end - self.start

    @classmethod
    def empty(cls, at):
        return cls(at, at)
"""


class Price(records.NamedTuple):
    """A record of this module: pickle finds it by its name."""

    amount: Decimal
    currency: str = "EUR"


def both() -> List[Any]:
    """The class as typing makes it, and as we do."""
    made = []
    for base in (typing.NamedTuple, records.NamedTuple):
        scope = {"base": base, "__name__": __name__}
        exec(BODY, scope)
        made.append(scope["Range"])
    return made


@pytest.mark.parametrize(
    "name",
    [
        "__name__",
        "__qualname__",
        "__module__",
        "__doc__",
        "__bases__",
        "__slots__",
        "_fields",
        "_field_defaults",
    ],
)
def test_a_class_is_what_typing_makes(name: str) -> None:
    expected, found = both()
    assert getattr(found, name) == getattr(expected, name)


@pytest.mark.parametrize(
    "use",
    [
        lambda made: made(1),
        lambda made: made(1, names="ab"),
        lambda made: made(start=3, end=4)._replace(end=5),
        lambda made: made(2).size,
        lambda made: made.empty(7),
        lambda made: made._make((1, 2, 3)),
        lambda made: repr(made(1)),
        lambda made: made(1)._asdict(),
        lambda made: copy.copy(made(1)),
    ],
)
def test_a_value_is_what_typing_makes(use: Any) -> None:
    expected, found = map(use, both())
    assert found == expected


def test_it_is_pickled_by_its_name() -> None:
    value = pickle.loads(pickle.dumps(Price(Decimal(1))))
    assert type(value) is Price
    assert tuple(value) == (1, "EUR")


def test_no_annotation_is_compiled() -> None:
    scope = {"base": records.NamedTuple, "__name__": __name__}
    exec("class Size(base):\n    size: 'no Python'", scope)
    assert scope["Size"](3).size == 3  # type: ignore[operator]
