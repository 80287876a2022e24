# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""All address spaces of an image share the number of x86 instructions that are followed."""

from __future__ import annotations

import pathlib
from typing import Optional

from tests.forge import context, sample
from winstacks.stacks.decode.budget import LEAST_FOLLOWED, MAX_FOLLOWED, FollowBudget
from winstacks.stacks.decode.functions_x86 import Functions
from winstacks.stacks.walkers import follow_budget

CODE = b"\x40" * 100 + b"\xc3" * 0xF9C


def read(address: int, length: int) -> Optional[bytes]:
    start = address - 0x10000
    return CODE[start : start + length] if start >= 0 and start + length <= len(CODE) else None


def test_spaces_share_the_budget() -> None:
    budget = FollowBudget(0)
    budget.left = 150
    first, second = Functions(read, budget), Functions(read, budget)
    assert len(first.flow(0x10000).places) == 101
    assert budget.left == 49
    assert not second.flow(0x10000).places
    assert budget.left == 0
    assert not first.flow(0x10010).places


def test_a_small_file_has_a_small_budget() -> None:
    assert FollowBudget(1 << 20).left < 400_000
    assert FollowBudget(1 << 40).left == MAX_FOLLOWED


def test_an_image_has_one_budget_by_the_size_of_its_file(tmp_path: pathlib.Path) -> None:
    opened = context.open_image(sample.build().image(), tmp_path)
    budget = opened.image.service(follow_budget)
    assert budget is opened.image.service(follow_budget)
    assert LEAST_FOLLOWED < budget.left <= MAX_FOLLOWED
