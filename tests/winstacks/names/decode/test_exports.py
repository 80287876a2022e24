# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The export table as it lies in memory."""

from __future__ import annotations

import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.deep import rounds
from tests.support.flatimage import Flat, flat, pe
from winstacks.memory.decode.status import NOTHING, status
from winstacks.memory.decode.statuscodes import StatusCode
from winstacks.names.decode import exports
from winstacks.names.decode import pe as peimage
from winstacks.names.decode.exports import Exports

EXPORTS = {"Beta": 0x1100, "Alpha": 0x1000, "Alias": 0x1000, "Away": "NTDLL.RtlAway", "Data": 0x7010}
ORDINALS = {1: 0x1200, 3: 0x1300}


def read(memory: Flat) -> Exports:
    return exports.read_exports(memory.load, peimage.read_headers(memory.read))


def test_names_ordinals_and_forwarders() -> None:
    for bits in (32, 64):
        found = read(flat(pe(bits, exports=EXPORTS, ordinals=ORDINALS)))
        assert found.status == NOTHING
        assert found.forwarders == (("Away", "NTDLL.RtlAway"),)
        assert [(name, rva) for rva, name in found.entries] == [
            ("Alias", 0x1000),
            ("Alpha", 0x1000),
            ("Beta", 0x1100),
            ("Ordinal1", 0x1200),
            ("Ordinal3", 0x1300),
            ("Data", 0x7010),
        ]


def test_no_export_directory_is_no_fault() -> None:
    assert read(flat(pe())) == Exports((), (), NOTHING)


def test_a_paged_out_directory_is_said() -> None:
    image = pe(exports=EXPORTS)
    assert read(flat(image).hide(0x5000, 0x6000)).status == status(StatusCode.EXPORTS_UNREADABLE)


def test_an_export_whose_name_is_paged_out_is_called_by_its_ordinal() -> None:
    exports = {f"Function{index:04}": 0x1000 + 4 * index for index in range(300)}
    image = pe(exports=exports, rdata=0x4000)
    found = read(flat(image).hide(0x6000, 0x7000))
    assert found.status == status(StatusCode.EXPORTS_INCOMPLETE)
    names = dict(found.entries)
    assert set(names) == set(exports.values())
    lost = [name for name, rva in exports.items() if names[rva] != name]
    assert 0 < len(lost) < 300
    assert all(names[exports[name]] == f"Ordinal{image.ordinal_of(name)}" for name in lost)


def test_hostile_names_are_made_printable() -> None:
    hostile = {"a\x1b[2Jb": 0x1000, "c; d!e": 0x1010, "x" * 5000: 0x1020, "y" * 3000: 0x1030}
    hostile.update({"z" * 260: 0x1040, "z" * 261: 0x1050})
    found = read(flat(pe(exports=hostile, rdata=0x8000)))
    names = dict(found.entries)
    assert names[0x1000] == "a\\x1b[2Jb"
    assert names[0x1010] == "c\\x3b d!e"
    assert names[0x1020] == "Ordinal3"
    # A name that is cut says so.
    assert names[0x1030] == "y" * 259 + "…"
    assert names[0x1040] == "z" * 260
    assert names[0x1050] == "z" * 259 + "…"


def test_counts_are_bounded() -> None:
    image = bytearray(flat(pe(exports=EXPORTS)).read(0, 0x8000) or b"")
    rva = peimage.read_headers(Flat(bytes(image)).read).directory(peimage.DIRECTORY_EXPORT)[0]
    struct.pack_into("<II", image, rva + 20, 0xFFFFFFFF, 0xFFFFFFFF)
    found = read(Flat(bytes(image)))
    assert len(found.entries) + len(found.forwarders) <= 2 * exports.MAX_EXPORTS
    assert ("Beta", 0x1100) in {(name, rva) for rva, name in found.entries}


def test_a_limit_is_said() -> None:
    memory = flat(pe(exports=EXPORTS, ordinals=ORDINALS))
    headers = peimage.read_headers(memory.read)
    whole = exports.read_exports(memory.load, headers)
    cut = exports.read_exports(memory.load, headers, 1)
    assert not whole.status
    assert cut.status == status(StatusCode.EXPORTS_INCOMPLETE)
    assert len(cut.entries) + len(cut.forwarders) < len(whole.entries) + len(whole.forwarders)


@settings(deadline=None)
@given(
    damage=st.lists(st.tuples(st.integers(0, 0x1FF), st.binary(min_size=1, max_size=8)), max_size=8),
    hidden=st.tuples(st.integers(0, 0x1FF), st.integers(0, 64)),
)
def test_a_damaged_table_yields_only_addresses_within_the_image(
    damage: "list[tuple[int, bytes]]", hidden: "tuple[int, int]"
) -> None:
    sample = flat(pe(exports=EXPORTS, ordinals=ORDINALS))
    image = bytearray(sample.read(0, sample.size) or b"")
    headers = peimage.read_headers(sample.read)
    start = headers.directory(peimage.DIRECTORY_EXPORT)[0]
    for offset, value in damage:
        image[start + offset : start + offset + len(value)] = value
    memory = Flat(bytes(image)).hide(start + hidden[0], start + sum(hidden))
    found = exports.read_exports(memory.load, headers)
    assert all(0 < rva < headers.size and name.isprintable() for rva, name in found.entries)
    assert list(found.entries) == sorted(found.entries)


NAMES = st.text("abcXYZ09_?@$", min_size=1, max_size=30)
RVAS = st.integers(0x1000, 0x1FFF)


@settings(max_examples=rounds(60), deadline=None, derandomize=True)
@given(
    st.sampled_from([32, 64]),
    st.dictionaries(NAMES, RVAS, max_size=40),
    st.dictionaries(st.integers(1, 60), RVAS),
)
def test_any_table_comes_back(bits: int, exports: "dict[str, int]", ordinals: "dict[int, int]") -> None:
    image = pe(bits, exports={**exports, "Away": "NTDLL.RtlAway"}, ordinals=ordinals, rdata=0x8000)
    found = read(flat(image))
    assert found.status == NOTHING
    assert found.forwarders == (("Away", "NTDLL.RtlAway"),)
    expected = {(rva, name) for name, rva in exports.items() if name != "Away"}
    expected |= {(rva, f"Ordinal{number}") for number, rva in ordinals.items()}
    assert set(found.entries) == expected
