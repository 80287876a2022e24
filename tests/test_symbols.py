# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Our symbol tables are what the declarations beside them make: `python3 dev.py symbols`."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any, Dict

import pytest

from symbols import isf
from tests.conftest import ROOT
from winstacks.memory import tables

HEAD = """
source book = "described (a book)";
source book 6.1 x64 = "measured: 7";
source later 6.2 x64 = "inferred";
build 6.0 x86 = "listings of Vista";
build 6.1 x64 = "listings of 7, x64";
build 6.2 x64 = "listings of 8, x64";
"""
SAMPLE = """
struct _INNER {
    sizeof       @0x4/0x8;
    ULONG_PTR It @0x0;
};

struct _OUTER from book {   // a remark
    sizeof                 @0x20/0x40;
    _INNER   Inner         @0x0;
    _INNER*  Inners[2/3]   @0x4/0x8;
    USHORT   Low : 3 << 0  @0x10/0x20;
    USHORT   High : 13 << 3 @0x10/0x20 until 6.2 from later;
    LONG     Moved         @0x14/0x24;
    LONG     Moved         @-/0x28 since 6.2 from later;
    ULONG    Narrow        @0x18/-;
    _LIST_ENTRY Links      @0x18/0x30;
};
union _NEW {
    sizeof       @0x0/0x8 since 6.1;
};
"""


def tables_of(folder: pathlib.Path, text: str, head: str = HEAD) -> Dict[str, Dict[str, Any]]:
    """The tables of a text, by the part of their names behind the kind."""
    (folder / "basic.h").write_bytes((isf.FOLDER / "basic.h").read_bytes())
    (folder / "kind.h").write_text(head + text, encoding="utf-8")
    return {name[5:-5]: json.loads(text) for name, text in isf.make(folder).items()}


def test_the_tables_of_the_tree_are_what_the_texts_make() -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in isf.FOLDER.glob("*.json")}
    expected = isf.make()
    assert kept.keys() == expected.keys(), "python3 dev.py symbols"
    assert [name for name in expected if expected[name] != kept[name]] == [], "python3 dev.py symbols"
    assert {path.stem for path in isf.FOLDER.glob("*.h")} == {isf.BASIC, *tables.KINDS}


def test_every_member_lies_where_the_text_says(tmp_path: pathlib.Path) -> None:
    found = tables_of(tmp_path, SAMPLE)
    assert list(found) == ["6.0-x86", "6.1-x64", "6.2-x64"]
    types = {name: table["user_types"] for name, table in found.items()}
    assert [list(table_types) for table_types in types.values()] == [
        ["_INNER", "_OUTER", "_LIST_ENTRY"],
        ["_INNER", "_OUTER", "_NEW", "_LIST_ENTRY"],
        ["_INNER", "_OUTER", "_NEW", "_LIST_ENTRY"],
    ]
    outer = {name: type_["_OUTER"]["fields"] for name, type_ in types.items()}
    assert [table_types["_OUTER"]["size"] for table_types in types.values()] == [0x20, 0x40, 0x40]
    assert [row["Moved"]["offset"] for row in outer.values()] == [0x14, 0x24, 0x28]
    assert ["High" in fields for fields in outer.values()] == [True, True, False]
    assert ["Narrow" in fields for fields in outer.values()] == [True, False, False]
    assert outer["6.0-x86"]["High"]["type"]["bit_position"] == 3
    assert outer["6.0-x86"]["High"]["type"]["bit_length"] == 13
    assert outer["6.1-x64"]["Inners"]["type"]["count"] == 3
    assert types["6.1-x64"]["_INNER"]["fields"]["It"]["type"]["name"] == "unsigned long long"
    assert types["6.1-x64"]["_NEW"] == {"kind": "union", "size": 8, "fields": {}}
    assert [found[name]["base_types"]["pointer"]["size"] for name in found] == [4, 8, 8]


def test_a_table_says_where_it_is_known_from(tmp_path: pathlib.Path) -> None:
    found = tables_of(tmp_path, SAMPLE)
    comments = [table["metadata"]["producer"]["comment"] for table in found.values()]
    ntdef = "; _LIST_ENTRY: described (ntdef.h, the same in every version)"
    assert comments == [
        "listings of Vista; _OUTER: described (a book)" + ntdef,
        "listings of 7, x64; _OUTER: measured: 7" + ntdef,
        "listings of 8, x64; _OUTER: described (a book); _OUTER.Moved: inferred" + ntdef,
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("struct _X {\n    sizeof @4;\n", "kind.h:9: the text ends within _X"),
        ("struct _X\n", "kind.h:8: not understood: struct _X"),
        ("struct _X {\n    ULONG A;\n};\n", "kind.h:9: not understood: ULONG A;"),
        ("struct _X {\n    sizeof @4;\n    ULONG A @08;\n};\n", "kind.h:10: not a number: 08"),
        ("struct _X {\n    ULONG A @0;\n};\n", "kind.h:8: _X has no size in 6.0 x86"),
        (
            "struct _X {\n    sizeof @4;\n    ULONG A @4;\n};\n",
            "kind.h:10: A goes beyond the 0x4 bytes of 6.0 x86",
        ),
        ("struct _X {\n    sizeof @4;\n    _Y A @0;\n};\n", "kind.h:10: 6.0 x86 has no _Y"),
        ("struct _X {\n    sizeof @4;\n    ULONG A[0] @0;\n};\n", "kind.h:10: an array without elements"),
        (
            "struct _X {\n    sizeof @4;\n    ULONG A : 9 << 24 @0;\n};\n",
            "kind.h:10: these bits are not in a ULONG",
        ),
        (
            "struct _X {\n    sizeof @4;\n    ULONG A @0 from here;\n};\n",
            "kind.h:10: there is no source here",
        ),
        ("struct _X from here {\n", "kind.h:8: there is no source here"),
        (
            "struct _X {\n    sizeof @4;\n    ULONG A @0;\n    ULONG A @0 until 6.1;\n};\n",
            "kind.h:11: A is declared twice for 6.0 x86",
        ),
        ("struct _X {\n};\nstruct _X {\n", "kind.h:10: _X is declared twice"),
        ('build 6.0 x86 = "once more";\n', 'kind.h:8: declared twice: build 6.0 x86 = "once more";'),
        ('source book = "once more";\n', 'kind.h:8: declared twice: source book = "once more";'),
    ],
)
def test_a_wrong_text_is_refused(text: str, message: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(isf.DeclarationError) as caught:
        tables_of(tmp_path, text, HEAD.lstrip("\n") + "\n")
    assert str(caught.value) == message


def test_a_text_without_builds_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(isf.DeclarationError, match=r"^kind\.h: no build$"):
        tables_of(tmp_path, "// nothing\n", "")


def test_files_are_written_and_removed(tmp_path: pathlib.Path) -> None:
    tables_of(tmp_path, "")
    (tmp_path / "kind-5.1-x86.json").write_text("{}", encoding="utf-8")
    names = ["kind-5.1-x86.json", "kind-6.0-x86.json", "kind-6.1-x64.json", "kind-6.2-x64.json"]
    assert isf.update(tmp_path) == names
    assert sorted(path.name for path in tmp_path.glob("*.json")) == names[1:]
    assert isf.update(tmp_path) == []


def test_the_command(tmp_path: pathlib.Path) -> None:
    tree = tmp_path / "tree"
    (tree / "symbols" / "windows").mkdir(parents=True)
    for path in ("dev.py", "setup.cfg", "pyproject.toml", "symbols/isf.py"):
        (tree / path).write_bytes((ROOT / path).read_bytes())
    folder = tree / "symbols" / "windows" / "stacktraces"
    folder.mkdir()
    tables_of(folder, SAMPLE)

    def run() -> "subprocess.CompletedProcess[str]":
        arguments = [sys.executable, "dev.py", "symbols"]
        return subprocess.run(arguments, cwd=tree, capture_output=True, text=True, check=False)

    first, second = run(), run()
    assert (first.stdout.split(), first.returncode) == (
        sorted(path.name for path in folder.glob("*.json")),
        0,
    )
    assert (second.stdout, second.returncode) == ("Nothing has changed.\n", 0)
    tables_of(folder, "")
    (folder / "kind.h").write_text("struct\n", encoding="utf-8")
    wrong = run()
    assert (wrong.stdout, wrong.stderr, wrong.returncode) == ("", "kind.h:1: not understood: struct\n", 1)
