# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Whether a row has children is known without a list of them."""

from volatility3.framework import renderers


def test_the_number_of_children_is_no_list_of_them(monkeypatch):
    grid = renderers.TreeGrid([("Number", int)], ((min(number, 1), (number,)) for number in range(50)))
    nodes = []
    grid.populate(lambda node, _: nodes.append(node))

    def children(_self, _node):
        raise AssertionError("the children were listed")

    monkeypatch.setattr(renderers.TreeGrid, "children", children)
    assert len(nodes[0]) == 49
    assert len(nodes[1]) == 0
    assert nodes[1].parent and not nodes[1]
