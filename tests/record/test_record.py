# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Two recordings of one tree agree, and one of another tree shows what is other."""

from __future__ import annotations

import json
import lzma
import pathlib
import shutil
from typing import Any, Dict

import pytest

from tests.forge import sample, vol
from tests.record import __main__ as command
from tests.record import compare
from tests.record.corpus import Corpus, Run, table_set
from tests.record.matrix import select
from tests.record.replay import join

RUNS = [("windows.gflags", ()), ("windows.stacktracedb", ("--pid", "0")), ("windows.locks", ("--dump",))]

PLANTED = """

def _run(self, whole=StackTraceDb.run):
    grid = whole(self)
    rows = grid._generator
    grid._generator = ((depth, [other(each) for each in cells]) for depth, cells in rows)
    return grid


def other(cell):
    return "elsewhere" if cell == "Ntfs!NtfsFsdCreate+0x32" else cell


StackTraceDb.run = _run
"""
"""What makes the word of one cell another."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A corpus of the sample with a few runs."""
    folder = tmp_path_factory.mktemp("corpus")
    image = sample.build().image()
    file = image.save(folder / "sample.dmp")
    symbols = image.install(folder / "symbols")
    made = Corpus(folder / "corpus")
    kept = [[path.relative_to(symbols).as_posix(), made.keep(path)] for path in symbols.rglob("*.json")]
    tables, digest = table_set(kept), made.keep(file)
    made.log("tables", {"digest": tables, "files": kept})
    about = {"digest": digest, "name": file.name, "size": 1, "kind": "", "tables": tables, "test": ""}
    made.log("image", about)
    for plugin, options in RUNS:
        made.log("run", {"run": Run(digest, tables, "both", (), plugin, options), "test": ""})
    made.merge()
    return folder / "corpus"


def _replay(corpus: pathlib.Path, out: pathlib.Path, *words: str) -> None:
    assert command.main(["replay", str(corpus), str(out), *words]) == 0


def test_a_file_is_kept_once_and_whole(tmp_path: pathlib.Path) -> None:
    corpus = Corpus(tmp_path / "corpus")
    dense, sparse = tmp_path / "dense", tmp_path / "sparse"
    data = bytes(0x5000) + b"end" + bytes(0x1FFF)
    dense.write_bytes(data)
    with sparse.open("wb") as file:
        file.seek(0x5000)
        file.write(b"end")
        file.truncate(len(data))
    assert corpus.keep(dense) == corpus.keep(sparse)
    assert corpus.path(corpus.keep(dense)).read_bytes() == data
    longer = tmp_path / "longer"
    longer.write_bytes(data + b"\0")
    assert corpus.keep(longer) != corpus.keep(dense)


def test_what_holds_most_of_each_test_and_kernel_is_selected() -> None:
    def image(pages: int, kind: str, *tests: str) -> Dict[str, Any]:
        return {"pages": pages, "kind": kind, "tests": list(tests)}

    images = {
        "seven": image(1, "7 .raw", "one"),
        "more": image(2, "7 .raw", "one"),
        "most": image(3, "7 .dmp", "other"),
        "xp": image(1, "xp .raw", "one"),
        "unused": image(1, "7 .raw", "tests/forge/this"),
    }
    runs = {name: {"run": [name, "", "both", [], f"on {name}", []]} for name in images if name != "unused"}
    assert select(images, runs) == {
        "more": {"on more"},
        "most": {"*", "on most"},
        "xp": {"*"},
        "unused": set(),
    }


def test_parts_take_the_place_of_what_they_repeat(tmp_path: pathlib.Path) -> None:
    whole = tmp_path / "entries.jsonl.xz"
    for number, keys in enumerate((["a", "b"], ["b", "c"])):
        parts = tmp_path / str(number)
        parts.mkdir()
        with lzma.open(parts / "part.xz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps([key, str(number)]) + "\n" for key in keys)
        assert join(parts, whole, add=True) == 2 + number
    assert sorted(compare.entries(tmp_path)) == [["a", "0"], ["b", "1"], ["c", "1"]]
    assert join(tmp_path / "1", whole, add=False) == 2
    assert sorted(compare.entries(tmp_path)) == [["b", "1"], ["c", "1"]]


@pytest.mark.cli
def test_recordings(corpus: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = tmp_path / "tree"
    for name in ("volatility3_plugins", "symbols"):
        shutil.copytree(vol.REPOSITORY / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    plugin = tree / "volatility3_plugins" / "windows" / "stacktracedb.py"
    plugin.write_text(plugin.read_text("utf-8") + PLANTED, encoding="utf-8")
    before, again, after = (tmp_path / name for name in ("before", "again", "after"))
    _replay(corpus, before)
    _replay(corpus, again, "--plain")
    _replay(corpus, after, "--tree", str(tree))
    capsys.readouterr()
    assert command.main(["compare", str(before), str(again)]) == 0
    count = 1 + len(list((tree / "volatility3_plugins" / "windows").glob("*.py"))) + len(RUNS)
    assert f"{count} runs in both; 0 differ" in capsys.readouterr().out
    assert command.main(["compare", str(before), str(after)]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if line.startswith("===")] == [shown[0]]
    assert shown[0].endswith(": 1 runs, such as")
    assert "windows.stacktracedb --pid 0" in shown[1]
    assert len([line for line in shown if line.startswith("+") and "elsewhere" in line]) == 2
    assert f"{count} runs in both; 1 differ in 1 ways" in shown[-2]
    known = tmp_path / "explained"
    known.write_text(f"# why\n{shown[0].split()[1].rstrip(':')} it was planted\n", encoding="utf-8")
    assert command.main(["compare", str(before), str(after), "--explained", str(known)]) == 0
    known.write_text("rewrite elsewhere -> Ntfs!NtfsFsdCreate+0x32\n", encoding="utf-8")
    assert command.main(["compare", str(before), str(after), "--explained", str(known)]) == 0
