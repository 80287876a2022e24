# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A row's cells are kept once, and a type that a column has accepted is not asked about again."""

import pytest
from volatility3.framework import renderers
from volatility3.framework.renderers import format_hints


def grid(rows):
    made = renderers.TreeGrid([("Name", str), ("At", format_hints.Hex)], ((0, row) for row in rows))
    nodes = []
    made.populate(lambda node, _: nodes.append(node))
    return nodes


def test_a_node_hands_out_the_same_list():
    (node,) = grid([("a", format_hints.Hex(1))])
    assert node.values is node.values
    assert node.values == ["a", 1]
    assert node.asdict() == {"name": "a", "at": 1}
    assert "RowStructure(name='a', at=1)" in repr(node)


def test_a_wrong_type_is_refused_in_every_row():
    for rows in ([("a", 1)], [("a", format_hints.Hex(1)), ("b", 2)], [("a", format_hints.Hex(1)), (3, None)]):
        with pytest.raises(TypeError):
            grid(rows)


def test_a_wrong_number_of_cells_is_refused():
    with pytest.raises(TypeError):
        grid([("a",)])


def test_absent_values_and_subclasses_are_accepted():
    class Text(str):
        pass

    nodes = grid([(Text("a"), renderers.UnreadableValue()), ("b", format_hints.Hex(2))])
    assert len(nodes) == 2
