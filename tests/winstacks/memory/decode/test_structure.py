# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Members of structures by their names."""

from __future__ import annotations

import struct
from typing import Dict, List, Optional

import pytest

from winstacks.memory.decode.structure import Field, MissingMemberError, Structure, Structures, integers

FIELDS = {
    "Flags": Field(0, 4),
    "Kind": Field(4, 1, shift=2, mask=3),
    "Change": Field(5, 1, signed=True),
    "Next": Field(8, 8),
    "u.Inner": Field(16, 2),
}
DATA = struct.pack("<IBbxxQHxxxxxx", 0x11223344, 0b1011, -3, 0x5566778899, 0xAABB)


def structure(fields: Optional[Dict[str, Field]] = None, requests: Optional[List[str]] = None) -> Structure:
    def lookup(path: str) -> Optional[Field]:
        if requests is not None:
            requests.append(path)
        return (FIELDS if fields is None else fields).get(path)

    return Structure("_SAMPLE", 24, lookup, ["Flags", "Kind", "Change", "Next", "u"])


def test_the_first_of_several_members_counts() -> None:
    sample = structure()
    assert sample.first_member("Absent", "Next", "Flags") == FIELDS["Next"]
    assert sample.field("u.Inner").value_in(DATA) == 0xAABB
    assert sample.offset("Absent", "u.Inner") == 16
    assert (sample.has("Kind"), sample.has("Absent"), sample.first_member("Absent")) == (True, False, None)


def test_a_member_that_is_missing_is_named() -> None:
    sample = structure()
    for ask in (sample.field, sample.offset):
        with pytest.raises(MissingMemberError, match="_SAMPLE has no member Other or Absent"):
            ask("Other", "Absent")
    for bind in (sample.reader, sample.packer):
        with pytest.raises(MissingMemberError, match="_SAMPLE has no member Absent"):
            bind("Flags", "Absent")


def test_a_member_is_looked_up_once() -> None:
    requests: List[str] = []
    sample = structure(requests=requests)
    for _ in range(3):
        sample.first_member("Absent", "Flags")
    assert requests == ["Absent", "Flags"]


def test_several_members_at_once_in_the_order_asked_for() -> None:
    sample = structure()
    shifted = b"\xff" * 3 + DATA
    for paths in (["Flags", "Next"], ["Next", "Change", "u.Inner"], ["u.Inner"]):
        expected = tuple(sample.field(path).value_in(DATA) for path in paths)
        assert sample.reader(*paths)(DATA, 0) == expected
        assert sample.reader(*paths)(shifted, 3) == expected
    with pytest.raises(struct.error):
        sample.reader("Next", "Flags")(DATA[:10], 0)


def test_what_is_packed_is_read_again() -> None:
    sample = structure()
    data = sample.packer("Flags", "Change", "Next", "u.Inner").pack(1, -1, 2, 3)
    assert len(data) == 18
    assert sample.reader("Flags", "Change", "Next", "u.Inner")(data, 0) == (1, -1, 2, 3)


def test_a_structure_in_bytes() -> None:
    view = structure().view(b"\0" + DATA, 1)
    assert (view["Flags"], view["Kind"], view["Change"]) == (0x11223344, 2, -3)
    assert (view.first_value("Absent", "Next"), view.first_value("Absent")) == (0x5566778899, None)
    with pytest.raises(MissingMemberError):
        view["Absent"]
    with pytest.raises(ValueError, match="ends before"):
        structure().view(DATA[:12])["Next"]


def test_structures_are_made_once_and_found_by_several_names() -> None:
    names: List[str] = []

    def make(name: str) -> Optional[Structure]:
        names.append(name)
        return structure() if name == "_SAMPLE" else None

    types = Structures(make)
    assert types["_SAMPLE"] is types.first_structure("_ABSENT", "_SAMPLE") is types.need("_SAMPLE")
    assert (types.has("_SAMPLE"), types.has("_ABSENT"), types.first_structure("_ABSENT")) == (
        True,
        False,
        None,
    )
    with pytest.raises(MissingMemberError, match="no _ABSENT or _OTHER"):
        types.need("_ABSENT", "_OTHER")
    assert names == ["_SAMPLE", "_ABSENT", "_OTHER"]


def test_of_several_tables_the_first_that_has_a_structure_counts() -> None:
    first, second = structure({}), structure()
    one = Structures({"_A": first}.get)
    two = Structures({"_A": second, "_B": second}.get)
    types = Structures.chain([one, two])
    assert (types["_A"], types["_B"], types.first_structure("_C")) == (first, second, None)


def test_arrays_of_integers() -> None:
    data = bytes(range(1, 18))
    assert integers(data, 8) == struct.unpack("<QQ", data[:16])
    assert integers(data, 4, 1, 2) == struct.unpack("<II", data[1:9])
    # A run of memory may be shorter than what has to be skipped to the first aligned integer.
    assert integers(b"\1\2", 8, 5) == integers(b"", 4) == integers(data, 4, 17, 0) == ()
    with pytest.raises(struct.error):
        integers(data, 8, 8, 2)
