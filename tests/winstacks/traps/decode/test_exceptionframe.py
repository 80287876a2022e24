# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The nonvolatile registers below trap frames: where a record proves them, and nowhere else."""

from __future__ import annotations

import pathlib
from typing import Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.forge import kernels
from tests.support import real_trapframes, traplayouts
from winstacks.memory.decode.ranges import Extents
from winstacks.traps.decode import context
from winstacks.traps.decode.context import ExceptionFrame

FIVE_TWO = traplayouts.exceptions()


def below(real: real_trapframes.RealFrame, dispatcher: str = "") -> Optional[ExceptionFrame]:
    memory = Extents([(real.stack_address, real.stack)])
    return FIVE_TWO.find_frame(real.address, real.members["Rip"].value, memory, dispatcher)


@pytest.mark.shared
def test_every_real_dispatch(shared_dir: pathlib.Path) -> None:
    found = 0
    for real in real_trapframes.load(shared_dir, real_trapframes.BUILDS[0]):
        frame = below(real)
        # Bug checks, NMI and machine checks build an exception frame too, but no record beside it.
        assert (frame is not None) == (real.dispatcher == "KiExceptionDispatch"), real.label
        if frame is not None:
            truth = {name: real.registers[name.lower()] for name in context.NONVOLATILE}
            assert frame.registers == truth, real.label
            assert frame.validity == "unsure"
            confirmed = below(real, "KiExceptionDispatch")
            assert confirmed is not None
            assert confirmed.validity == "saved"
            assert below(real, "SwapContext") is None
            found += 1
    print(f"{found} exception frames")
    assert found == 57


@pytest.mark.shared
def test_the_real_crash(shared_dir: pathlib.Path) -> None:
    crash = real_trapframes.load_crash(shared_dir)
    table = kernels.load("win10-x64").table
    frames = traplayouts.exceptions(traplayouts.structure(table, "_KEXCEPTION_FRAME"))
    memory = Extents([(crash.stack_address, crash.stack)])
    rip = int(crash.truth["context"]["rip"], 16)
    frame = frames.find_frame(crash.address, rip, memory, "KiExceptionDispatch")
    assert frame is not None
    assert frame.registers == {
        name: int(crash.truth["context"][name.lower()], 16) for name in context.NONVOLATILE
    }
    assert frame.exception_code == 0xC0000005
    assert frame.address == int(crash.truth["exception_frame"]["va"], 16)
    assert frames.dispatcher_slot(crash.address) == crash.address - 0x1E8
    assert frames.find_frame(crash.address, rip + 16, memory) is None
    assert frames.find_frame(crash.address + 16, rip, memory) is None


def test_paged_out() -> None:
    assert FIVE_TWO.find_frame(0x1000, 0x10, Extents([])) is None


@given(data=st.binary(min_size=0x180, max_size=0x180), rip=st.integers(0, (1 << 64) - 1))
def test_any_bytes(data: bytes, rip: int) -> None:
    assert FIVE_TWO.find_frame(0x2000, rip, Extents([(0x2000 - 0x180, data)])) is None
