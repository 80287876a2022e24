# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Trees and lists of several processes are the tree and the lists of one, up to each limit."""

from __future__ import annotations

import random
from typing import Any, List, Tuple

import pytest

from winstacks.html import lists as lists_module
from winstacks.html.lists import PageLists
from winstacks.html.prefixes import CUT, LEVEL, MAX_SUM, PrefixTree

Stack = Tuple[str, str, List[str], int]


def _stacks(seed: int, count: int) -> List[Stack]:
    choose = random.Random(seed)
    names = [f"module{number}!function" for number in range(12)]
    return [
        (
            choose.choice(("user", "heap")),
            choose.choice(("a.exe (4)", "b.exe (8)")),
            [choose.choice(names) for _ in range(choose.randrange(1, 6))],
            choose.randrange(0, 9),
        )
        for _ in range(count)
    ]


def _drawn(stacks: List[Stack], tree: PrefixTree) -> PrefixTree:
    for kind, process, frames, weight in stacks:
        tree.add_stack(kind, process, [tree.name(frame) for frame in frames], weight)
    return tree


def _contents(tree: PrefixTree) -> Any:
    return tree.boxes, list(tree._own.items()), tree.total, tree.cut, tree.capped


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("most", [40, 200, 1 << 22])
def test_joined_trees_are_one_tree(seed: int, most: int) -> None:
    stacks = _stacks(seed, 300)
    joined = PrefixTree(most)
    for begin in range(0, 300, 60):
        joined.merge(_drawn(stacks[begin : begin + 60], PrefixTree(most)))
    one = _drawn(stacks, PrefixTree(most))
    assert (one.cut > 0) == (most < 1000)
    if most == 1 << 22:
        assert _contents(joined) == _contents(one)
    else:
        # A part that is cut alone is cut in the whole: no weight is lost, and `cut` counts what is cut.
        assert (joined.total, joined.boxes) == (one.total, one.boxes)
        assert joined.cut >= one.cut
        assert sum(weight for names, weight, _ in joined.stacks() if names[2:] == [0]) == joined.cut


def test_a_tree_that_is_cut_is_joined_whole() -> None:
    """Parts that are not cut, and a whole that is: stack by stack as one process cuts."""
    stacks = _stacks(4, 300)
    joined, one = PrefixTree(60), _drawn(stacks, PrefixTree(60))
    for stack in stacks:
        joined.merge(_drawn([stack], PrefixTree()))
    assert _contents(joined) == _contents(one)
    assert joined.boxes[0].text == CUT
    assert joined.cut


def test_joined_weights_stay_exact() -> None:
    joined, kinds = PrefixTree(), []
    for _ in range(2):
        part = PrefixTree()
        part.add([part.name("heap", look=LEVEL), part.name("a.exe", look=LEVEL), part.name("f")], MAX_SUM - 5)
        kinds.append(joined.merge(part))
    assert kinds == [{"heap": MAX_SUM - 5}, {"heap": 5}]
    assert (joined.total, joined.capped) == (MAX_SUM, MAX_SUM - 10)


@pytest.mark.parametrize("most", [20, 1 << 14])
def test_joined_lists_are_one_list(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists_module, "MAX_THREADS", most)
    monkeypatch.setattr(lists_module, "MAX_HEAPS", most)
    choose = random.Random(most)
    added: List[Tuple[bool, List[str], int]] = [
        (number < 100, [f"f{choose.randrange(50)}" for _ in range(3)], choose.randrange(1, 9))
        for number in range(300)
    ]

    def fill(lists: PageLists, begin: int, end: int) -> PageLists:
        for number, (thread, names, size) in enumerate(added[begin:end], begin):
            frames = None if thread and not lists.room_for_thread() else lists.frames(_plain(names))
            if frames is not None and thread:
                lists.thread(4, "a.exe", number, frames=frames)
            elif frames is not None:
                lists.heap(size, number, "a.exe", frames, "")
        return lists

    joined = PageLists()
    for begin in range(0, 300, 50):
        joined.merge(fill(PageLists(), begin, begin + 50))
    one = fill(PageLists(), 0, 300)
    assert joined.data() == one.data()
    assert bool(one.cut) == (most == 20)


def _plain(names: List[str]) -> List[Tuple[str, bool, bool]]:
    return [(name, False, False) for name in names]
