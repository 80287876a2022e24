# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Records against typing.NamedTuple, which says what they are."""

from __future__ import annotations

import copy
import pickle
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import pytest
from volatility3.plugins.windows.stacktraces.base.decode.record import Record


class Ours(Record):
    """A range."""

    start: int
    end: int
    name: Optional[str] = None
    flags: Tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return self.end - self.start

    def moved(self, by: int) -> Ours:
        return self._replace(start=self.start + by, end=self.end + by)


class Theirs(NamedTuple):
    """A range."""

    start: int
    end: int
    name: Optional[str] = None
    flags: Tuple[int, ...] = ()


CALLS: Tuple[Tuple[Tuple[Any, ...], Dict[str, Any]], ...] = (
    ((1, 5), {}),
    ((1, 5, "a", (2, 3)), {}),
    ((1,), {"end": 5, "flags": (7,)}),
    ((), {"end": 5, "start": 1}),
)


@pytest.mark.parametrize(("values", "named"), CALLS)
def test_a_record_is_a_named_tuple(values: Tuple[Any, ...], named: Dict[str, Any]) -> None:
    ours, theirs = Ours(*values, **named), Theirs(*values, **named)
    assert isinstance(ours, tuple)
    assert ours == theirs
    assert hash(ours) == hash(theirs)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert ours._asdict() == theirs._asdict()
    assert ours._replace(end=9) == theirs._replace(end=9)
    assert type(ours._replace(end=9)) is Ours
    for name in Theirs._fields:
        assert getattr(ours, name) == getattr(theirs, name)
    assert not hasattr(ours, "__dict__")


@pytest.mark.parametrize(
    "call",
    [
        lambda made: made(1),
        lambda made: made(1, 2, 3, 4, 5),
        lambda made: made(1, 2, other=3),
        lambda made: made(1, 2, start=3),
    ],
)
def test_wrong_values_are_refused(call: Callable[[Any], object]) -> None:
    class Fresh(Record):
        start: int
        end: int
        name: Optional[str] = None
        flags: Tuple[int, ...] = ()

    for made in (Theirs, Fresh, Fresh, Ours):
        with pytest.raises(TypeError):
            call(made)


def test_the_first_tuples_of_a_class_are_as_the_later_ones() -> None:
    """The constructor is compiled after a few; what is given and refused stays the same."""

    class Fresh(Record):
        start: int
        end: int = 7
        name: Optional[str] = None

    made = [Fresh(number) for number in range(10)]
    assert made == [(number, 7, None) for number in range(10)]
    assert {type(each) for each in made} == {Fresh}
    assert Fresh(1, 2, "a") == (1, 2, "a")
    assert Fresh(1, name="a") == (1, 7, "a")


def test_what_a_record_keeps_of_its_class() -> None:
    assert (Ours.__name__, Ours.__module__, Ours.__doc__) == ("Ours", __name__, "A range.")
    assert Ours._fields == Theirs._fields
    assert Ours(1, 5).size == 4
    assert Ours(1, 5).moved(2) == (3, 7, None, ())
    assert pickle.loads(pickle.dumps(Ours(1, 5))) == copy.copy(Ours(1, 5)) == Ours(1, 5)
    with pytest.raises(AttributeError):
        Ours(1, 5).start = 2
    with pytest.raises(ValueError, match="other"):
        Ours(1, 5)._replace(other=1)


def test_a_default_before_a_field_without_one_is_refused() -> None:
    with pytest.raises(TypeError, match="Wrong"):

        class Wrong(Record):
            start: int = 0
            end: int


def test_a_field_too_many_is_refused() -> None:
    body = {"__annotations__": {f"field{number}": "int" for number in range(100)}}
    with pytest.raises(IndexError):
        type(Record)("Wide", (Record,), body)
