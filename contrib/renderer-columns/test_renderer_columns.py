# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The renderers of columns are chosen once, and each row is written as before."""

import pytest
from volatility3.cli import text_filter, text_renderer
from volatility3.framework import renderers
from volatility3.framework.renderers import format_hints

COLUMNS = [("Name", str), ("At", format_hints.Hex), ("Size", int)]
ROWS = [(0, ("a", format_hints.Hex(16), 1)), (1, ("b", renderers.UnreadableValue(), 2))]


class Lookups(dict):
    """The renderers by type, which counts how often one is asked for."""

    count = 0

    def get(self, *arguments):
        self.count += 1
        return super().get(*arguments)


def written(name, capsys, **settings):
    renderer = getattr(text_renderer, name)()
    for each, value in settings.items():
        setattr(renderer, each, value)
    renderer.render(renderers.TreeGrid(COLUMNS, iter(ROWS)))
    return capsys.readouterr().out


@pytest.mark.parametrize("name", ["QuickTextRenderer", "CSVRenderer"])
def test_a_renderer_is_looked_up_once_for_each_column(name, capsys):
    lookups = Lookups(getattr(text_renderer, name)._type_renderers)
    written(name, capsys, _type_renderers=lookups)
    assert lookups.count == len(COLUMNS)


@pytest.mark.parametrize(
    "name, text",
    [
        ("QuickTextRenderer", "\nName\tAt\tSize\n\na\t0x10\t1\n* b\t-\t2\n"),
        ("CSVRenderer", "TreeDepth,Name,At,Size\n0,a,0x10,1\n1,b,-,2\n\n"),
    ],
)
def test_rows_are_written_as_before(name, text, capsys):
    assert written(name, capsys) == text


@pytest.mark.parametrize(
    "name, text",
    [
        ("QuickTextRenderer", "\nAt\tSize\n\n0x10\t1\n* -\t2\n"),
        ("CSVRenderer", "TreeDepth,At,Size\n0,0x10,1\n1,-,2\n\n"),
    ],
)
def test_a_hidden_column_is_in_no_row(name, text, capsys):
    assert written(name, capsys, column_hide_list=["name"]) == text


@pytest.mark.parametrize("name", ["QuickTextRenderer", "CSVRenderer"])
def test_a_filter_sees_the_columns_that_are_shown(name, capsys):
    rows = renderers.TreeGrid(COLUMNS, iter(ROWS))
    accepted = text_filter.CLIFilter(rows, ["+Name,a"])
    assert "0x10" in written(name, capsys, filter=accepted)
    assert "b" not in written(name, capsys, filter=accepted).split("Size", 1)[1]
