# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The library's named tuples do what Python's do, and their classes cost less."""

from __future__ import annotations
import __future__

import copy
import inspect
import pickle
import subprocess
import sys
import typing
from typing import Any, Callable, Generic, List, Optional, Tuple, TypeVar

import pytest

from tests.conftest import ROOT
from tests.support.pythons import python
from winstacks.columns.namedtuples import NamedTuple

Value = TypeVar("Value")


class Ours(NamedTuple):
    """A class of the library's."""

    first: int
    second: Optional[str]
    rest: Tuple[int, ...] = ()
    last: str = "end"

    @property
    def both(self) -> str:
        return f"{self.first}{self.second}"

    @classmethod
    def of(cls, text: str) -> Ours:
        return cls(len(text), text)


class Theirs(typing.NamedTuple):
    """The same class of Python's."""

    first: int
    second: Optional[str]
    rest: Tuple[int, ...] = ()
    last: str = "end"


class Narrower(Ours):
    """A class below one of the library's."""

    __slots__ = ()

    def shown(self) -> str:
        return self.last.upper()


class Plain(NamedTuple):
    """Without fields."""


class Holding(NamedTuple, Generic[Value]):
    """Of a type that is open: Python 3.9 and 3.10 refuse this of their own."""

    value: Value
    more: Optional[Value] = None


@pytest.mark.parametrize(
    "use",
    [
        lambda kind: kind(1, "a"),
        lambda kind: kind(1, second="a", last="b"),
        lambda kind: kind(second=None, first=2, rest=(1, 2)),
        lambda kind: kind._make([1, "a", (), "b"]),
        lambda kind: kind(1, "a")._replace(rest=(3,), first=9),
        lambda kind: list(kind(1, "a")._asdict().items()),
        lambda kind: kind._fields,
        lambda kind: kind._field_defaults,
        lambda kind: kind.__match_args__,
        lambda kind: (kind(1, "a") == (1, "a", (), "end"), hash(kind(1, "a"))),
        lambda kind: (kind(1, "a").second, kind(1, "a")[3], len(kind(1, "a"))),
        lambda kind: repr(kind(1, "a", (2,))).partition("(")[2],
        lambda kind: str(inspect.signature(kind)).replace("_cls, ", "").partition(" ->")[0].count("="),
        lambda kind: list(inspect.signature(kind).parameters),
        lambda kind: typing.get_type_hints(kind),
        lambda kind: hasattr(kind(1, "a"), "__dict__"),
        lambda kind: tuple(copy.deepcopy(kind(1, "a"))),
    ],
)
def test_they_do_what_those_of_python_do(use: Callable[[Any], object]) -> None:
    assert use(Ours) == use(Theirs)


@pytest.mark.parametrize(
    "use",
    [
        lambda kind: kind(),
        lambda kind: kind(1),
        lambda kind: kind(1, "a", (), "b", "c"),
        lambda kind: kind(1, "a", other=3),
        lambda kind: kind(1, "a", first=3),
        lambda kind: kind._make([1]),
        lambda kind: kind(1, "a")._replace(other=3),
        lambda kind: setattr(kind(1, "a"), "first", 2),
        lambda kind: setattr(kind(1, "a"), "other", 2),
    ],
)
def test_they_refuse_what_those_of_python_refuse(use: Callable[[Any], object]) -> None:
    for kind in (Ours, Theirs):
        with pytest.raises((TypeError, ValueError, AttributeError)):
            use(kind)


def test_they_have_their_own_methods_and_text() -> None:
    assert Ours.of("abc").both == "3abc"
    assert Ours.__doc__ == "A class of the library's."
    assert (Ours.__module__, Ours.__qualname__, Ours.__new__.__qualname__) == (
        __name__, "Ours", "Ours.__new__",
    )  # fmt: skip
    assert repr(Ours(1, None)) == "Ours(first=1, second=None, rest=(), last='end')"
    assert (Plain(), repr(Plain())) == ((), "Plain()")


def test_a_class_below_is_made_as_usual() -> None:
    narrower = Narrower(1, "a", last="b")
    assert narrower.shown() == "B"
    assert type(narrower._replace(first=2)) is Narrower
    assert not hasattr(narrower, "__dict__")


def test_an_open_type_is_filled_in() -> None:
    held: Holding[int] = Holding(1)
    assert held == (1, None)
    assert Holding[str]("a", "b").more == "b"


@pytest.mark.parametrize("one", [Ours(1, "a"), Narrower(1, None), Holding([1]), Plain()])
def test_workers_send_them(one: Any) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        sent = pickle.loads(pickle.dumps(one, protocol))
        assert (sent, type(sent)) == (one, type(one))


def test_a_class_is_made_with_a_third_of_the_calls() -> None:
    """No annotation is compiled, and a class is made once."""
    fields = "".join(f"    field{number}: Optional[Tuple[int, ...]]\n" for number in range(8))
    code = compile(f"class Made(NamedTuple):\n{fields}", "made", "exec", __future__.annotations.compiler_flag)

    def calls(named: object) -> int:
        counted: List[int] = []
        scope = {"NamedTuple": named, "__name__": __name__}
        exec(code, dict(scope))
        sys.setprofile(lambda frame, event, _: counted.append(1) if event.endswith("call") else None)
        try:
            exec(code, scope)
        finally:
            sys.setprofile(None)
        return len(counted)

    assert calls(NamedTuple) * 3 < calls(typing.NamedTuple)


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_every_python_imports_the_decoders(version: str) -> None:
    """They need the standard library alone."""
    code = """
import importlib, pathlib
for path in sorted(pathlib.Path("winstacks").rglob("*.py")):
    if {"decode", "encode", "columns"}.intersection(path.parts):
        importlib.import_module(".".join(path.with_suffix("").parts))
from winstacks.stacks.decode.scan import _Slot
print(_Slot(1, None))
"""
    done = subprocess.run(
        [python(version), "-B", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("_Slot(value=1, step=None)\n", "")
