# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lists against a model: what is damaged is named, everything else comes back once and in order."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from hypothesis import given
from hypothesis import strategies as st

from winstacks.memory.decode import links
from winstacks.memory.decode.links import ListBreak, ListGap, neighbour, steps, take_nodes, walk

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
    assert found.altered == (None if memory[node] == sound else ListBreak(node, links.MISMATCH))


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
    assert found.altered == ListBreak(before if forward else after, links.MISMATCH)


def test_a_cycle_ends_the_walk_and_is_said() -> None:
    nodes, memory = ring(6)
    # The third and the fourth node lead back into themselves, in both directions.
    memory[nodes[2]] = (nodes[0], nodes[1])
    memory[nodes[3]] = (nodes[4], nodes[5])
    found = walk(HEAD, memory.get)
    assert found.nodes == tuple(nodes)
    assert found.gap == ListGap(ListBreak(nodes[0], links.MISMATCH), ListBreak(nodes[5], links.MISMATCH))
    assert found.gap is not None
    assert found.gap.lost == ()


def test_an_unreadable_head_has_no_nodes() -> None:
    found = walk(HEAD, lambda _: None)
    assert tuple(found) == ((), (), ListGap(ListBreak(HEAD, links.HEAD), ListBreak(HEAD, links.HEAD)), None)
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


@given(st.integers(0, 9), st.sampled_from([0, 1]))
def test_steps_lead_back_to_the_head(count: int, direction: int) -> None:
    nodes, memory = ring(count)
    expected = nodes[::-1] if direction else nodes
    assert take_nodes(steps(HEAD, memory.get, direction)) == (expected, ListBreak(HEAD, links.CLOSED))
    assert take_nodes(steps(HEAD, memory.get, direction, known=set())) == (
        expected,
        ListBreak(HEAD, links.CLOSED),
    )
    assert take_nodes(steps(0, memory.get, direction)) == ([], ListBreak(0, links.HEAD))


def test_steps_from_a_node_to_which_the_head_does_not_lead() -> None:
    nodes, memory = ring(3)
    memory[HEAD] = (HEAD, HEAD)
    assert list(steps(HEAD, memory.get, 0, first=nodes[0])) == nodes
    assert list(steps(HEAD, memory.get, 1, first=nodes[2])) == nodes[::-1]
    assert take_nodes(steps(HEAD, memory.get, 0, first=nodes[1])) == ([], ListBreak(nodes[1], links.MISMATCH))


def test_steps_over_wrong_links_end() -> None:
    nodes, memory = ring(6)
    for node in nodes:
        memory[node] = (memory[node][0], 0)
    known = {nodes[4]}
    found = steps(HEAD, memory.get, 0, known=known)
    assert take_nodes(found) == (nodes[:4], ListBreak(nodes[4], links.MISMATCH))
    assert known == set(nodes[:5])
    memory[nodes[3]] = (nodes[1], 0)
    assert take_nodes(steps(HEAD, memory.get, 0, known=set())) == (
        nodes[:4],
        ListBreak(nodes[1], links.MISMATCH),
    )
    assert take_nodes(steps(HEAD, memory.get, 0, 2, known=set())) == (
        nodes[:2],
        ListBreak(nodes[2], links.LIMIT),
    )


@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_the_first_nodes_are_read_one_by_one(count: int, limit: int, data: st.DataObject) -> None:
    nodes, memory = ring(count)
    reads: List[int] = []

    def read(link: int) -> Optional[Tuple[int, int]]:
        reads.append(link)
        return memory.get(link)

    assert next(links.nodes(HEAD, read, limit)) == nodes[0]
    assert reads == [HEAD, nodes[0]]
    assert list(links.nodes(HEAD, read, limit)) == nodes[:limit]
    lost = data.draw(st.sampled_from(nodes))
    del memory[lost]
    before, after = nodes[: nodes.index(lost)], nodes[nodes.index(lost) + 1 :][::-1]
    if len(before) < limit:
        assert list(links.nodes(HEAD, read, limit)) == [*before, *after[:limit]]


def test_a_neighbour_points_back() -> None:
    nodes, memory = ring(3)
    assert [neighbour(nodes[1], memory.get, direction) for direction in (0, 1)] == [nodes[2], nodes[0]]
    memory[nodes[2]] = (HEAD, HEAD)
    del memory[nodes[0]]
    assert [neighbour(nodes[1], memory.get, direction) for direction in (0, 1)] == [None, None]
    assert neighbour(nodes[0], memory.get, 0) is None
    assert neighbour(HEAD, ring(0)[1].get, 0) == HEAD
