# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Docstrings describe what is there."""

from __future__ import annotations

import pytest

from tests import docstrings

HEAD = '    """Something.\n\n    {}:\n        {}: an entry\n            that goes on: here\n    """\n'


def test_every_name_that_is_described_exists_and_is_explained() -> None:
    assert list(docstrings.faults()) == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f(a, *b, c=0, **d):\n" + HEAD.format("Args", "a, *b, c, **d"), []),
        ("def f(a):\n" + HEAD.format("Args", "b"), ["b"]),
        ("def f(a):\n" + HEAD.format("Raises", "b"), []),
        ("class C(NamedTuple):\n" + HEAD.format("Attributes", "a, b") + "    a: int\n", ["b"]),
        (
            "class C:\n"
            + HEAD.format("Attributes", "a, b")
            + "    def __init__(self):\n        self.a = 1\n",
            ["b"],
        ),
        (
            "class C:\n" + HEAD.format("Args", "a, b") + "    def __init__(self, b):\n        self.a = b\n",
            ["a"],
        ),
        ("class B:\n    a = 1\nclass C(B):\n" + HEAD.format("Attributes", "a"), []),
        ('def f(a):\n    """Something. `a` is known. `b` is unknown; `f` counts."""\n', ["b"]),
        ("class C:\n" + HEAD.format("Attributes", "a") + "    @property\n    def a(self): ...\n", []),
    ],
)
def test_what_is_described_is_looked_for(source: str, names: list[str]) -> None:
    assert [name for _, name in docstrings.strangers(source)] == names


@pytest.mark.parametrize(
    ("entry", "repeats"),
    [
        ("image: the image", True),
        ("config_path: the config path", True),
        ("size: in bytes", False),
        ("image: the image, None if unknown", False),
        ("end: the end\n            of the last page", False),
    ],
)
def test_a_description_that_repeats_the_name_is_found(entry: str, repeats: bool) -> None:
    source = f'def f():\n    """Something.\n\n    Args:\n        {entry}\n    """\n'
    assert bool(list(docstrings.repetitions(source))) == repeats
