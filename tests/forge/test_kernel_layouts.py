# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Layout files: each kind of line, and lines that are none."""

from __future__ import annotations

import pytest

from tests.forge import kernel_layouts
from tests.forge.kernel_names import DATA

ULONG = {"kind": "base", "name": "unsigned long"}


def test_a_structure() -> None:
    text = "# comment\n_X 1c  # a size\n  0 First ulong\n\n  04 Links _LIST_ENTRY\n_Y 0\n"
    assert kernel_layouts.parse(text) == {
        "_X": {
            "kind": "struct",
            "size": 0x1C,
            "fields": {
                "First": {"offset": 0, "type": ULONG},
                "Links": {"offset": 4, "type": {"kind": "struct", "name": "_LIST_ENTRY"}},
            },
        },
        "_Y": {"kind": "struct", "size": 0, "fields": {}},
    }


@pytest.mark.parametrize(
    "text, expected",
    [
        ("uchar", {"kind": "base", "name": "unsigned char"}),
        ("longlong", {"kind": "base", "name": "long long"}),
        ("_X*", {"kind": "pointer", "subtype": {"kind": "struct", "name": "_X"}}),
        ("ulong[3]", {"kind": "array", "count": 3, "subtype": ULONG}),
        ("ulong:30@2", {"kind": "bitfield", "bit_length": 30, "bit_position": 2, "type": ULONG}),
        (
            "void*[0]",
            {
                "kind": "array",
                "count": 0,
                "subtype": {"kind": "pointer", "subtype": {"kind": "base", "name": "void"}},
            },
        ),
    ],
)
def test_types(text: str, expected: object) -> None:
    parsed = kernel_layouts.parse(f"_T 100\n 10 M {text}\n")
    assert parsed["_T"]["fields"]["M"] == {"offset": 0x10, "type": expected}


def test_a_member_without_a_type() -> None:
    assert kernel_layouts.parse("_T 4\n 0 M")["_T"]["fields"] == {"M": {"offset": 0, "type": {}}}


@pytest.mark.parametrize(
    "text",
    ["  0 Member ulong", "_T", "_T 10 20", "_T 4\n  0", "_T 4\n  0 M ulong 5", "_T 4\n  0 M quad", "_T x"],
)
def test_lines_that_are_neither(text: str) -> None:
    with pytest.raises(ValueError):
        kernel_layouts.parse(text)


@pytest.mark.parametrize("path", sorted(DATA.glob("*.layout")), ids=lambda path: str(path.stem))
def test_our_files(path: object) -> None:
    for name, layout in kernel_layouts.parse((DATA / str(path)).read_text()).items():
        offsets = [field["offset"] for field in layout["fields"].values()]
        assert offsets == sorted(offsets), name
        assert all(offset <= layout["size"] for offset in offsets), name
