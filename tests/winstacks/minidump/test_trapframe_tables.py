# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Our tables of trap frames: members lie where real kernels wrote them, and public symbols have them."""

from __future__ import annotations

import json
import lzma
from typing import Dict, Tuple

import pytest

from tests.conftest import SHARED
from tests.support import bare, real_trapframes
from winstacks.memory import tables
from winstacks.traps.decode.trapframe_x64 import TrapFrameLayout64
from winstacks.traps.decode.trapframe_x86 import TrapFrameLayout86

TABLES = {
    "5.2.3790.3959up-x64": "trapframe-5.2-x64",
    "5.1.2600.5512up-x86": "trapframe-5.1-x86",
    "5.2.3790.3959pa-x86": "trapframe-5.1-x86",
}
SYMBOLS = {
    "ntkrnlmp.pdb": "trapframe-5.2-x64",
    "ntkrnlpa.pdb": "trapframe-5.1-x86",
    "wntdll.pdb": "trapframe-6.3.9600-x86",
}
Places = Dict[str, Tuple[int, int]]


def places(name: str, structure: str) -> Places:
    """Offset and bytes of the members of a structure in one of our tables."""
    found = bare.ours(name)[structure]
    return {member: found.field(member)[:2] for member in found.names}


def test_there_is_a_table_of_each_generation() -> None:
    assert tables.generations("trapframe", "x64") == ["5.2"]
    assert tables.generations("trapframe", "x86") == ["6.3.9600", "5.1"]


@pytest.mark.shared
@pytest.mark.parametrize("build", real_trapframes.BUILDS)
def test_members_lie_where_real_kernels_wrote_them(build: str) -> None:
    known = places(TABLES[build], "_KTRAP_FRAME")
    form = (TrapFrameLayout64 if build.endswith("x64") else TrapFrameLayout86)(
        bare.ours(TABLES[build])["_KTRAP_FRAME"]
    )
    frames = real_trapframes.load(SHARED, build)
    assert frames
    for real in frames:
        assert form.size == len(real.data)
        for name, member in real.members.items():
            if name in known:
                assert known[name][0] == member.offset, name
                if member.status == "saved":
                    assert form.number(real.data, name) & (1 << 8 * member.size) - 1 == member.value, name


@pytest.mark.shared
@pytest.mark.parametrize("pdb", SYMBOLS)
def test_members_lie_as_public_symbols_have_them(pdb: str) -> None:
    files = sorted((SHARED / "isf/symbols/windows" / pdb).glob("*.json.xz"))
    assert files
    for path in files:
        types = json.loads(lzma.decompress(path.read_bytes()))["user_types"]
        for structure in (
            ("_KTRAP_FRAME", "_KEXCEPTION_FRAME") if pdb == "ntkrnlmp.pdb" else ("_KTRAP_FRAME",)
        ):
            public = types[structure]
            ours = bare.ours(SYMBOLS[pdb])[structure]
            assert ours.size == public["size"]
            for name, (offset, _) in places(SYMBOLS[pdb], structure).items():
                assert public["fields"][name]["offset"] == offset, (path.name, name)
