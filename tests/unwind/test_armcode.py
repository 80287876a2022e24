# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Prologues and epilogues of real ARM64 code, run: each of their instructions has its caller."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.conftest import SHARED
from tests.support.armtruth import binaries
from tests.support.deep import rounds
from tests.unwind.armcode import INSTRUCTION, RIGHT, UNSURE, WRONG, MappedFile, Runner, survey
from winstacks.names.decode.unwind_arm64 import FP, LR, SAVE, SET_FP

pytestmark = pytest.mark.shared

_LIST = SHARED / "arm64" / "binaries64a.json"
NAMES = (
    sorted(pathlib.PurePosixPath(entry["path"]).name for entry in json.loads(_LIST.read_text()))
    if _LIST.is_file()
    else []
)
FUNCTIONS = 400


@pytest.mark.parametrize("name", NAMES)
def test_the_caller_is_found_at_each_instruction(name: str, shared_dir: pathlib.Path) -> None:
    counts, wrong = survey(MappedFile(binaries(shared_dir)[name].read_bytes()), rounds(FUNCTIONS), 7)
    print(name, dict(counts))
    assert not wrong
    assert counts["undecoded"] == 0
    assert counts[f"prologue: {RIGHT}"] > 100
    assert not [key for key in counts if key.endswith("unsure")]


def test_code_that_its_unwind_data_only_approximates_is_never_wrong_and_sure(
    shared_dir: pathlib.Path,
) -> None:
    """As in the builtins of V8: the code stores the pair later than its data says."""
    file = MappedFile(binaries(shared_dir)["vcruntime140.dll"].read_bytes())
    pair = [(SET_FP, ()), (SAVE, (FP, LR))]
    found = 0
    for entry, record in file.functions():
        codes = [] if record is None else [(code.operation, code.registers) for code in record.codes]
        if record is None or record.prolog != 2 or codes[:2] != pair or not record.whole:
            continue
        # The prologue is moved behind an instruction that its unwind data does not know.
        late = file.memory[entry.begin : entry.begin + 2 * INSTRUCTION]
        file.memory[entry.begin : entry.begin + 3 * INSTRUCTION] = b"\xe0\x03\x1f\xaa" + late
        outcomes = list(Runner(file, 1).sweep(entry, 4))
        assert [outcome.rva for outcome in outcomes] == [
            entry.begin + INSTRUCTION * number for number in range(4)
        ]
        # At the first instruction and behind the pair the data is right by chance.
        results = [outcome.result for outcome in outcomes]
        assert results == [UNSURE, WRONG, WRONG, UNSURE]
        found += 1
        if found == 3:
            break
    assert found == 3
