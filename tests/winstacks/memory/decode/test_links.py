# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lists against a model: what is damaged is named, everything else comes back once and in order."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from hypothesis import given
from hypothesis import strategies as st

from winstacks.memory.decode import links
from winstacks.memory.decode.links import Break, Gap, walk

HEAD = 0x1000
Memory = Dict[int, Tuple[int, int]]


def ring(count: int) -> Tuple[List[int], Memory]:
    """Nodes and the links of a list of them; the head is not among the nodes."""
    nodes = [0x2000 + 0x10 * number for number in range(count)]
    circle = [HEAD, *nodes]
    memory = {
        link: (circle[(place + 1) % len(circle)], circle[place - 1]) for place, link in enumerate(circle)
    }
    return nodes, memory


@given(st.integers(0, 9))
def test_a_whole_list_is_walked_forward(count: int) -> None:
    nodes, memory = ring(count)
    assert walk(HEAD, memory.get) == (tuple(nodes), (), None, None)


@given(st.integers(1, 9), st.data())
def test_an_unreadable_node_is_the_only_loss(count: int, data: st.DataObject) -> None:
    nodes, memory = ring(count)
    lost = data.draw(st.sampled_from(nodes))
    del memory[lost]
    found = walk(HEAD, memory.get)
    assert list(found.nodes) == [node for node in nodes if node != lost]
    assert found.gap is not None
    assert found.gap.exact
    assert found.gap.lost == (lost,)


@given(st.integers(4, 12), st.data())
def test_of_several_lost_nodes_the_outer_two_are_named(count: int, data: st.DataObject) -> None:
    nodes, memory = ring(count)
    first = data.draw(st.integers(0, count - 3))
    last = data.draw(st.integers(first + 2, count - 1))
    for place in range(first, last + 1, 2):
        memory.pop(nodes[place])
    memory.pop(nodes[last], None)
    found = walk(HEAD, memory.get)
    assert list(found.before) == nodes[:first]
    assert list(found.after) == nodes[last + 1 :]
    assert found.gap is not None
    assert not found.gap.exact
    assert found.gap.lost == (nodes[first], nodes[last])


@given(st.integers(1, 9), st.booleans(), st.data())
def test_one_wild_link_loses_nothing_and_is_named(count: int, forward: bool, data: st.DataObject) -> None:
    nodes, memory = ring(count)
    node = data.draw(st.sampled_from([HEAD, *nodes]))
    target = data.draw(st.sampled_from([0, 0x5000, *nodes]))
    sound = memory[node]
    memory[node] = (target, sound[1]) if forward else (sound[0], target)
    found = walk(HEAD, memory.get)
    assert list(found.nodes) == nodes
    assert found.gap is None
    assert found.altered == (None if memory[node] == sound else Break(node, links.MISMATCH))


@given(st.integers(1, 9), st.booleans(), st.data())
def test_a_node_that_is_unlinked_on_one_side_comes_back(
    count: int, forward: bool, data: st.DataObject
) -> None:
    nodes, memory = ring(count)
    circle = [HEAD, *nodes, HEAD]
    place = data.draw(st.integers(1, count))
    before, after = circle[place - 1], circle[place + 1]
    if forward:
        memory[before] = (after, memory[before][1])
    else:
        memory[after] = (memory[after][0], before)
    found = walk(HEAD, memory.get)
    assert list(found.nodes) == nodes
    assert found.gap is None
    assert found.altered == Break(before if forward else after, links.MISMATCH)


def test_a_cycle_ends_the_walk_and_is_said() -> None:
    nodes, memory = ring(6)
    # The third and the fourth node lead back into themselves, in both directions.
    memory[nodes[2]] = (nodes[0], nodes[1])
    memory[nodes[3]] = (nodes[4], nodes[5])
    found = walk(HEAD, memory.get)
    assert found.nodes == tuple(nodes)
    assert found.gap == Gap(Break(nodes[0], links.MISMATCH), Break(nodes[5], links.MISMATCH))
    assert found.gap is not None
    assert found.gap.lost == ()


def test_an_unreadable_head_has_no_nodes() -> None:
    found = walk(HEAD, lambda _: None)
    assert tuple(found) == ((), (), Gap(Break(HEAD, links.HEAD), Break(HEAD, links.HEAD)), None)
    assert found.gap is not None
    assert not found.gap.exact
    assert found.gap.lost == ()


def test_an_endless_list_ends_at_the_limit() -> None:
    def endless(link: int) -> Optional[Tuple[int, int]]:
        return link + 0x10, link - 0x10

    found = walk(HEAD, endless, limit=5)
    assert len(found.nodes) == 5
    assert found.gap is not None
    assert found.gap.forward.reason == links.LIMIT


ADDRESSES = st.sampled_from(range(0x1000, 0x1008))


@given(st.dictionaries(ADDRESSES, st.tuples(ADDRESSES, ADDRESSES)))
def test_any_memory_ends_and_yields_each_node_once(memory: Memory) -> None:
    found = walk(HEAD, memory.get)
    assert len(set(found.nodes)) == len(found.nodes)
    assert HEAD not in found.nodes
    assert set(found.nodes) <= set(memory)
