# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""README and docs are current: their tables are those of the code, their outputs those of real runs.

`python3 -m tests.docs update` makes them so.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import shutil
from typing import Dict, List, Set

import pytest

from tests.conftest import ROOT
from tests.install import environments
from tests.support.browser import Browser
from tests.support.only import only, rows_of
from tests.windows import test_trapframes_real
from winstacks.columns.tables import FLAT

from . import hooks, pages, picture, site, tables
from .pages import Block
from .runs import Runner

DOCUMENTS = pages.documents()
OTHERS = [ROOT / name for name in ("CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "ARCHITECTURE.md")]
WIDEST = 140
"""Columns of a terminal that a quoted output may take."""
PLUGINS = tables.plugin_names()
shell = pytest.mark.skipif(os.name == "nt", reason="the commands are those of a POSIX shell")

_ITEM = re.compile(r"^\* ((?:\*\*\w+\*\*(?:,? and |, )?)+)")


def name(path: pathlib.Path) -> str:
    return path.name


@shell
@pytest.mark.cli
@pytest.mark.once
@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_commands_print_what_stands_there(path: pathlib.Path, runner: Runner) -> None:
    text = pages.read(path)
    if "vol -r parquet" in text and not importlib.util.find_spec("volatility3.plugins.renderers"):
        pytest.skip("this Volatility has no renderer for Parquet")
    assert runner.current(text) == text, f"python3 -m tests.docs update {path.name}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_made_tables_are_those_of_the_code(path: pathlib.Path) -> None:
    text = pages.read(path)
    assert pages.with_parts(text, tables.make) == text, f"python3 -m tests.docs update {path.name}"


@shell
@pytest.mark.cli
@pytest.mark.once
def test_quotes_have_all_lines_that_vol_prints(runner: Runner) -> None:
    """The first one is Volatility's banner, with -q, too: who counts lines with sed counts it."""
    command = "vol -r pretty -f sample.dmp windows.gflags --brief"
    whole = runner.output(command)
    assert whole[0].startswith("Volatility 3 Framework ") and "Process" in whole[1]
    assert runner.output(f"{command} | grep -c Volatility") == ["1"]
    assert runner.output(f"{command} | sed -n '2,4p'") == whole[1:4]
    assert runner.console(Block("console", [f"$ {command}"], 0, None))[1:] == [
        line.rstrip() for line in whole
    ]


def test_the_picture_is_made_of_what_is_printed_now(runner: Runner) -> None:
    assert pages.read(picture.PATH) == picture.make(runner), "python3 -m tests.docs update"


def test_the_picture_loads_nothing() -> None:
    assert not re.search(r"url\((?!#)|https?://(?!www\.w3\.org/2000/svg)", pages.read(picture.PATH))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_a_block_is_run_or_says_why_not(path: pathlib.Path) -> None:
    assert unrun(pages.read(path)) == []


def unrun(text: str) -> List[str]:
    """Returns the first lines of the blocks that nobody runs, and that do not say why."""
    found, before = [], None
    for block in pages.blocks(text):
        run_here = block.language in ("console", *pages.PRINTING)
        printed = block.language == "text" and before in pages.PRINTING
        if block.mark is None and not run_here and not printed:
            found.append(block.lines[0] if block.lines else "")
        if block.mark == pages.INSTALL_CHECK:
            found += [line for line in block.lines if line not in installed()]
        before = block.language
    return found


def installed() -> str:
    """Returns the tests that dev.py install-check runs, with the name of the package in their commands."""
    folder = pathlib.Path(environments.__file__).parent
    sources = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))]
    return "".join(sources).replace("{NAME}", environments.NAME)


@pytest.mark.parametrize(
    "block",
    [
        "```sh\nvol -f memory.dmp windows.gflags\n```",
        "<!-- not run: -->\n```sh\nvol -f memory.dmp windows.gflags\n```",
        "```\nvol -f memory.dmp windows.gflags\n```",
        "```text\nvol -f memory.dmp windows.gflags\n```",
        "<!-- run by dev.py install-check -->\n```sh\nvol -f memory.dmp windows.gflags\n```",
    ],
)
def test_an_unmarked_block_is_found(block: str) -> None:
    assert unrun(f"Text.\n\n{block}\n") == ["vol -f memory.dmp windows.gflags"]


def test_a_stale_output_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = object.__new__(Runner)
    monkeypatch.setattr(runner, "output", lambda command: [f"{command}: new"], raising=False)
    page = "```console\n$ vol a \\\n  b\nold\n```\n\n"
    page += "<!-- not run: it takes a day -->\n```console\n$ c\nold\n```\n"
    assert runner.current(page) == page.replace("old", "vol a    b: new", 1)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_quoted_outputs_fit_a_page(path: pathlib.Path) -> None:
    lines = [
        line
        for block in pages.blocks(pages.read(path))
        if block.language == "console"
        for line in block.lines
    ]
    assert not [line for line in lines if len(line) > WIDEST and not line.startswith("$")]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_each_plugin_has_a_page_with_its_columns_options_and_words(plugin: str) -> None:
    text = pages.read(ROOT / "docs" / tables.page(plugin))
    assert text.startswith(f"# windows.{plugin}\n")
    kinds = [what.partition(" ") for what in pages.part_words(text)]
    assert {(kind, rest) for kind, _, rest in kinds if kind not in ("words", "checks", "machines")} == {
        ("columns", plugin),
        ("options", plugin),
    }
    assert "words" in [kind for kind, _, _ in kinds]
    assert {"evidence", "status"} <= pages.anchors(text)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_what_is_said_of_a_column_is_said_of_one_that_is_there(plugin: str) -> None:
    explained: Set[str] = set()
    for line in pages.prose(pages.read(ROOT / "docs" / tables.page(plugin))):
        entry = _ITEM.match(line)
        explained.update(re.findall(r"\*\*(\w+)\*\*", entry.group(1)) if entry else ())
    assert explained <= set(tables.column_names(plugin))


def test_every_word_of_status_has_a_meaning_and_stands_on_a_page() -> None:
    known = tables.words()
    assert not [word.text for word in known.values() if not word.meaning]
    shown: Set[str] = set()
    for path in DOCUMENTS:
        for what in pages.part_words(pages.read(path)):
            kind, _, rest = what.partition(" ")
            items = rest.split("; ") if kind == "words" else []
            shown.update(word.text for word in known.values() if {word.text, word.group} & set(items))
    assert sorted(set(known) - shown) == []


def test_the_words_are_those_of_the_enum() -> None:
    from winstacks.memory.decode.statuscodes import StatusCode

    assert list(tables.words()) == [word.value for word in StatusCode]


@pytest.mark.parametrize("path", [*DOCUMENTS, *OTHERS], ids=name)
def test_links_lead_somewhere(path: pathlib.Path) -> None:
    assert broken(path) == []


def broken(path: pathlib.Path) -> List[str]:
    """Returns the links of a page that lead to no file or to no heading."""
    found = []
    for link, file, anchor in site.targets(path):
        if not file.exists() or (anchor and anchor not in pages.anchors(pages.read(file))):
            found.append(link)
    return found


def test_a_broken_link_is_found(tmp_path: pathlib.Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A heading\n[a](page.md#a-heading) [b](#none) [c](gone.md) [d](page.md#gone)\n")
    assert broken(page) == ["#none", "gone.md", "page.md#gone"]


def test_the_site_has_all_pages() -> None:
    plugins = {path for entry in hooks.plugin_pages() for path in entry.values()}
    assert len(plugins) >= 14
    config = pages.read(ROOT / "mkdocs.yml")
    for path in DOCUMENTS:
        page = path.relative_to(ROOT).as_posix()
        assert page in plugins or page in config


def test_what_a_page_loads_from_the_network_is_found(tmp_path: pathlib.Path) -> None:
    texts: Dict[str, str] = {
        "font.html": '<link rel="stylesheet" href="https://fonts.example/css">',
        "script.html": '<script src="//cdn.example/a.js"></script>',
        "style.css": "@font-face { src: url('https://fonts.example/a.woff') }",
        "inner.html": "<style>body { background: url(http://a.example/b.png) }</style>",
        "image.html": '<img src="https://a.example/b.png">',
        "harmless.html": '<a href="https://a.example/">a</a><link rel="canonical" href="https://a.example/">',
        "own.html": '<script src="../a.js"></script><img src="b.png">',
    }
    for file, text in texts.items():
        (tmp_path / file).write_text(text)
    found = {line.split(":")[0] for line in site.fetched(tmp_path)}
    assert found == {"font.html", "script.html", "style.css", "inner.html", "image.html"}


def test_blocks_keep_their_marks_and_commands() -> None:
    text = (
        "<!-- not run: it takes a day -->\n```sh\na\n```\n\n```console\n$ vol a \\\n  b\nrow\n$ vol c\n```\n"
    )
    first, second = rows_of(2, pages.blocks(text))
    assert (first.mark, first.lines) == ("not run: it takes a day", ["a"])
    assert list(pages.commands(second)) == [[0, 1], [3]]
    assert pages.with_blocks(text, lambda block: block.lines) == text
    assert isinstance(first, Block)


def test_vol_json_in_readme_is_json() -> None:
    match = re.search(r"`(\{\"plugin_dirs\".*?\})`", pages.read(ROOT / "README.md"))
    assert match
    assert json.loads(match.group(1))


def test_the_figures_of_trap_frames_are_those_of_the_tests() -> None:
    saved, unsure, _, _, wrong, absent = map(sum, zip(*test_trapframes_real.COUNTS.values()))
    text = pages.read(ROOT / "docs" / "trapframes.md")
    assert f"| {saved + unsure:,} cells, {unsure} of them named in Unsure |" in text
    assert f"| {absent:,} cells |" in text
    assert f"| {wrong} cells |" in text


def test_each_plugin_answers_a_question() -> None:
    grouped = [name for names in tables.QUESTIONS.values() for name in names]
    assert sorted(grouped) == PLUGINS


def test_what_plugins_share_stands_once() -> None:
    """A row of columns or options is on a few pages at most; flat tables have all their columns."""
    places: Dict[str, Set[str]] = {}
    for path in DOCUMENTS:
        text = pages.read(path)
        for what in pages.part_words(text):
            kind, _, plugin = what.partition(" ")
            if kind in ("columns", "options", "shared") and plugin not in FLAT:
                for row in tables.make(what).splitlines():
                    if row.startswith("| `"):
                        places.setdefault(row, set()).add(path.name)
    assert "columns.md" in {page for found in places.values() for page in found}
    most = {row: found for row, found in places.items() if len(found) >= tables.SHARED_OPTIONS}
    assert most == {}
    assert only(found for row, found in places.items() if row.startswith("| `Source` |")) == {"columns.md"}


def test_readme_is_short() -> None:
    assert 1_000 <= len(pages.read(ROOT / "README.md").split()) <= 2_600


def test_a_page_opened_as_a_file_has_no_search_field(tmp_path: pathlib.Path) -> None:
    """Its search index cannot be read there. Material's names: .md-search, #__search and its labels."""
    parts = '<input id="__search"><label for="__search">a</label><div class="md-search">b</div><p>text</p>'
    shutil.copy(ROOT / "docs" / "offline.js", tmp_path)
    (tmp_path / "a.html").write_text(f'<body>{parts}<script src="offline.js"></script></body>')
    with Browser(tmp_path / "profile") as browser:
        page = browser.open(tmp_path / "a.html")
        assert page.run("document.body.innerText").strip() == "text"
        assert page.run("document.querySelectorAll('input').length") == 0
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "docs/offline.js" in config and "theme:\n  name: material" in config


_NUMBERS = re.compile(r"--(?:pid|tid|address|handle|index|offset) ((?:(?:0x)?[0-9a-f]+ ?)+)")


def unknown_numbers(section: str) -> List[str]:
    """Returns the IDs and addresses in the commands of a recipe that no output above them shows."""
    unknown: List[str] = []
    shown = {"0"}
    for block in pages.blocks(section):
        if block.mark is not None:
            continue
        for line in block.lines:
            if line.startswith(("$ ", "      --")):
                requests = (number for found in _NUMBERS.findall(line) for number in found.split())
                unknown += [number for number in requests if number not in shown]
            else:
                shown.update(re.findall(r"\b(?:0x)?[0-9a-f]+\b", line))
    return unknown


def test_a_recipe_asks_for_nothing_that_no_table_above_shows() -> None:
    recipes = re.split(r"(?m)^## ", pages.read(pages.ROOT / "docs" / "recipes.md"))[1:]
    assert len(recipes) > 5
    assert {
        recipe.split("\n")[0]: unknown_numbers(recipe) for recipe in recipes if unknown_numbers(recipe)
    } == {}
    assert unknown_numbers(
        "```console\n$ vol -f sample.dmp windows.vadinfo --pid 4 --address 0x10\n```\n"
    ) == ["4", "0x10"]
