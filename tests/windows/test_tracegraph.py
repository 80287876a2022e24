# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.tracegraph` through the command line: sums of its files, and what a browser shows of them."""

from __future__ import annotations

import collections
import io
import json
import pathlib
import re
import shutil
from typing import Any, Counter, Dict, Iterator, List, Tuple

import jsonschema
import pytest
from volatility3.framework import exceptions
from volatility3.plugins.windows import tracegraph, traces

from tests.conftest import ROOT
from tests.forge import context, real_sets, sample, vol
from tests.forge.context import Opened
from tests.support import grid, nodemodules, pagedata, realtruth
from tests.support.browser import Browser, Page
from tests.support.only import only
from winstacks.html import drawing, formats, htmlpage
from winstacks.html.prefixes import CODE, MAX_SUM, UNBACKED, PrefixTree
from winstacks.options import WEIGHTS

Row = Dict[str, Any]

SUMS = """
(() => {
  const boxes = [...document.querySelectorAll('.boxes > .box')].map((box) => ({
    level: Number(box.dataset.level), node: Number(box.dataset.node), more: Number(box.dataset.more),
    weight: Number(box.dataset.weight), left: parseFloat(box.style.left),
    width: parseFloat(box.style.width)}));
  return boxes;
})()
"""

TREE = (
    "new Stacks(JSON.parse(document.getElementById('data').textContent).flame)"
    ".tree({unit: document.querySelector('select[name=unit]').value, process: -1, split: false})"
)
"""The tree of the weight that a page shows."""

LEVELS = f"""
(() => {{
  const tree = {TREE};
  const boxes = [...document.querySelectorAll('.boxes > .box')].map((box) => box.dataset);
  const root = boxes.filter((box) => box.level === boxes[0].level);
  const [wrong, levels] = [[], new Map()];
  for (const box of boxes) levels.set(Number(box.level), [...(levels.get(Number(box.level)) || []), box]);
  const whole = Math.min(...boxes.filter((box) => !Number(box.more) && Number(box.weight) ===
    Math.max(...boxes.map((each) => Number(each.weight)))).map((box) => Number(box.weight)));
  let ended = 0;
  for (const [level, here] of [...levels].sort((a, b) => a[0] - b[0])) {{
    const sum = here.reduce((all, box) => all + Number(box.weight), 0);
    if (sum + ended !== whole) wrong.push([level, sum, ended, whole]);
    // What stands for several boxes has nothing below it.
    for (const box of here) ended += Number(box.more) ? Number(box.weight) : tree.own(Number(box.node));
  }}
  return wrong;
}})()
"""
"""The levels in view whose boxes, with the stacks that end above, are not the whole."""


class Written:
    """The sample and the files that the plugin has written of it."""

    def __init__(self, folder: pathlib.Path) -> None:
        image = sample.build().image()
        self.folder = folder
        self.file = image.save(folder / "image.dmp")
        self.symbols = image.install(folder / "symbols")
        self.rows = self.run("windows.tracegraph", "--format", "html", "speedscope", "folded")
        self.traces = self.run("windows.traces")

    def run(self, plugin: str, *options: str, output: str = "") -> List[Row]:
        folder = self.folder / output
        folder.mkdir(exist_ok=True)
        return vol.run(self.file, plugin, *options, symbols=self.symbols, arguments=["-o", str(folder)]).rows


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("graph"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture()
def page(written: Written, browser: Browser) -> Iterator[Page]:
    opened = browser.open(written.folder / "tracegraph.html")
    yield opened
    assert opened.faults == []
    assert opened.requests == [(written.folder / "tracegraph.html").as_uri()]
    opened.close()


def sums(rows: List[Row]) -> Counter[str]:
    found: Counter[str] = collections.Counter()
    for row in rows:
        found[row["Kind"]] += row["Count"] or 0
    return found


def parsed(path: pathlib.Path) -> List[Tuple[List[str], int]]:
    """The stacks of a folded file, read as flamegraph.pl reads it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(line.rpartition(" ")[0].split(";"), int(line.rpartition(" ")[2])) for line in lines]


@pytest.mark.cli
def test_the_rows_are_those_of_the_stacks(written: Written) -> None:
    names = ["tracegraph.html", "tracegraph.speedscope.json", "tracegraph.folded"]
    assert list(dict.fromkeys(row["File output"] for row in written.rows)) == names
    counted = sums(written.traces)
    stacks = collections.Counter(row["Kind"] for row in written.traces)
    for name in names:
        rows = {row["Kind"]: row for row in written.rows if row["File output"] == name}
        assert {kind: row["Weight"] for kind, row in rows.items()} == dict(counted)
        assert {kind: row["Stacks"] for kind, row in rows.items()} == dict(stacks)
        assert {row["Status"] for row in rows.values()} == {""}
    assert len(counted) == 9


@pytest.mark.cli
def test_folded_stacks_add_up_to_the_rows(written: Written) -> None:
    found: Counter[str] = collections.Counter()
    for names, weight in parsed(written.folder / "tracegraph.folded"):
        found[names[0]] += weight
    assert found == sums(written.traces)
    again = formats.read_folded((written.folder / "tracegraph.folded").open(encoding="utf-8"))
    assert (again.stacks, again.bad, again.cut) == (parsed(written.folder / "tracegraph.folded"), 0, False)


@pytest.mark.cli
def test_the_weight_may_be_bytes_or_threads(written: Written) -> None:
    rows = written.run("windows.tracegraph", "--weight", "bytes", output="bytes")
    expected = sum(row["Bytes"] or 0 for row in written.traces)
    assert sum(row["Weight"] for row in rows) == expected > 1000
    rows = written.run("windows.tracegraph", "--weight", "threads", output="threads")
    threads = {(row["Kind"], row["Owner"]) for row in written.traces if row["TID"] and row["Count"]}
    threads = {thread for thread in threads if thread[0] in ("kernel", "user", "wow64")}
    assert sum(row["Weight"] for row in rows) == len(threads) > 5


def test_speedscope_s_schema_takes_the_file(written: Written) -> None:
    path = nodemodules.folder("speedscope") / "dist" / "release" / "file-format-schema.json"
    data = json.loads((written.folder / "tracegraph.speedscope.json").read_text(encoding="utf-8"))
    jsonschema.validate(data, json.loads(path.read_text(encoding="utf-8")))
    assert sum(sum(profile["weights"]) for profile in data["profiles"]) == sum(sums(written.traces).values())
    for profile in data["profiles"]:
        assert sum(profile["weights"]) == profile["endValue"]
    named = {profile["name"] for profile in data["profiles"]}
    assert {"std nt (0)", "heap updater.exe (4312)", "user spooler.exe (6200)"} <= named


def test_speedscope_s_own_page_shows_the_names(written: Written, browser: Browser) -> None:
    """Its page takes a profile as a script that stands beside it."""
    release = nodemodules.folder("speedscope") / "dist" / "release"
    folder = written.folder / "speedscope"
    shutil.copytree(release, folder)
    text = (written.folder / "tracegraph.speedscope.json").read_text(encoding="utf-8")
    (folder / "profile.js").write_text(
        "speedscope.loadFileFromBase64('tracegraph.speedscope.json', btoa("
        f"unescape(encodeURIComponent({json.dumps(text)}))));",
        encoding="utf-8",
    )
    # speedscope draws on a canvas: what it draws is noted before its script runs.
    index = folder / "index.html"
    spy = "<script>window.drawn = new Set(); const was = CanvasRenderingContext2D.prototype.fillText; "
    spy += "CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) "
    spy += "{ window.drawn.add(text); return was.call(this, text, ...rest); };</script>"
    index.write_text(index.read_text(encoding="utf-8").replace("<script", spy + "<script", 1))
    opened = browser.open(index, fragment=f"#localProfilePath={(folder / 'profile.js').as_uri()[7:]}")
    wait = """
    new Promise((done) => {
      let left = 100;
      const look = () => {
        const named = [...window.drawn].some((text) => text.includes('!'));
        if (named || !left--) done([...window.drawn].join(' ') + document.body.innerText);
        else setTimeout(look, 100);
      };
      look();
    })
    """
    shown = opened.run(wait)
    assert "heap updater.exe (4312)" in shown
    assert "KERNEL32!BaseThreadInitThunk" in shown
    opened.close()


def test_the_page_shows_the_names_and_asks_for_nothing(page: Page) -> None:
    text = page.run("document.body.innerText")
    for name in ("updater!load_settings", "KERNEL32!BaseThreadInitThunk", "nt!NtCreateFile", "<private>"):
        assert name in text
    gone = [label for unit in units(page) for label in labels(page, unit, ".unloaded")]
    assert any(text.startswith("<unloaded:aimhook>+0x1a34, ") for text in gone)
    assert any(labels(page, unit, ".guessed") for unit in units(page))
    assert page.run(
        "document.querySelectorAll('[style]').length > 0 && !document.documentElement.outerHTML"
        ".slice(0, 2000).includes('style=')"
    )


def units(page: Page) -> List[str]:
    """The weights that a page can show."""
    return list(
        page.run("[...document.querySelector('select[name=unit]').options].map((each) => each.value)")
    )


def choose(page: Page, name: str, value: str) -> None:
    """Chooses a value of a list of choices."""
    page.run(
        f"(() => {{ const each = document.querySelector('select[name={name}]'); each.value = "
        f"{json.dumps(value)}; each.dispatchEvent(new Event('change')); }})()"
    )


def labels(page: Page, unit: str, kind: str) -> List[str]:
    """The labels of the boxes of a kind in the graph of a weight."""
    choose(page, "unit", unit)
    found = f"[...document.querySelectorAll('.boxes > {kind}')].map((box) => box.getAttribute('aria-label'))"
    return list(page.run(found))


@pytest.mark.parametrize("unit", ["stack", "trace", "block", "event", "lock"])
def test_shares_add_up_on_every_level(unit: str, page: Page, written: Written) -> None:
    choose(page, "unit", unit)
    boxes = page.run(SUMS)
    total = sum(weight for kind, weight in sums(written.traces).items() if UNITS.get(kind, "stack") == unit)
    levels = sorted({box["level"] for box in boxes})
    assert levels == list(range(levels[-1] + 1)) and levels[-1] > 4
    own = {node: page.run(f"{TREE}.own({node})") for node in nodes(boxes)}
    ended = 0
    for level in levels:
        here = [box for box in boxes if box["level"] == level]
        assert sum(box["weight"] for box in here) + ended == total
        assert sum(box["width"] for box in here) == pytest.approx(100 * (total - ended) / total, abs=0.01)
        ended += sum(own[box["node"]] for box in here if not box["more"])
    lefts = sorted((box["level"], box["left"], box["width"]) for box in boxes)
    for (level, left, width), (other, following, _) in zip(lefts, lefts[1:]):
        assert level != other or left + width <= following + 0.01


def nodes(boxes: List[Row]) -> List[int]:
    return sorted({box["node"] for box in boxes})


def test_zoom_flip_and_search(page: Page) -> None:
    find = "[...document.querySelectorAll('.boxes > .box')].find((box) => box.textContent === '{}')".format
    choose(page, "unit", "block")
    page.click(find("updater!load_settings"))
    assert "24 blocks, 80.0 % of heap" in page.run("document.querySelector('.detail').innerText")
    assert page.run("document.querySelector('.flamegraph > h3').innerText").startswith(
        "1 different stack below"
    )
    assert page.run(f"{find('updater!load_settings')}.style.width") == "100%"
    page.click("[...document.querySelectorAll('button')].find((each) => each.innerText === 'All')")
    tops = "['all', 'updater!load_settings'].map((name) => [...document.querySelectorAll('.boxes > .box')]"
    tops += ".find((box) => box.textContent === name).getBoundingClientRect().top)"
    root, leaf = page.run(tops)
    assert root < leaf
    page.click("[...document.querySelectorAll('button')].find((each) => each.innerText === 'Flip')")
    root, leaf = page.run(tops)
    assert root > leaf
    page.run("document.querySelector('input[type=search]').focus()")
    page.type("PRIVATE")
    found = page.run(
        "new Promise((done) => setTimeout(() => done([document.querySelector('.found').innerText, "
        "document.querySelector('.found').dataset.touched, document.querySelectorAll('.match')"
        ".length, JSON.parse(document.getElementById('data').textContent).flame.texts.length]), 400))"
    )
    assert re.match(r"3 names, ", found[0])
    assert re.search(r"names?, 1 stack \(\d+\.\d %\), ", found[0]) or "%" in found[0]
    assert int(found[1]) == found[3]
    assert found[2] >= 1


def test_the_search_has_the_weight_of_the_stacks_that_match(page: Page, written: Written) -> None:
    page.run("document.querySelector('input[type=search]').focus()")
    page.type("rtluserthreadstart")
    shown = page.run(
        "new Promise((done) => setTimeout(() => done(document.querySelector('.found').innerText), 400))"
    )
    weights: Counter[str] = collections.Counter()
    for names, weight in parsed(written.folder / "tracegraph.folded"):
        if any("rtluserthreadstart" in name.lower() for name in names):
            weights[UNITS.get(names[0], "stack")] += weight
    assert len(weights) > 3
    for unit, weight in weights.items():
        assert re.search(rf", {weight} {unit}s?\b", shown), (unit, shown)


UNITS = {
    "std": "trace",
    "heaplog": "trace",
    "heap": "block",
    "lock": "lock",
    "handle": "event",
    "object": "event",
}
"""The unit that a page counts, by kind of stacks; all other units are stacks."""


def wait(page: Page, code: str) -> Any:
    """The value of an expression after a search has been done."""
    return page.run(f"new Promise((done) => setTimeout(() => done({code}), 400))")


def test_the_title_begins_with_the_file(page: Page) -> None:
    assert page.run("document.title") == page.run("document.querySelector('h1').innerText")
    assert re.fullmatch(r"\S+\.(dmp|raw|img): flame graph of its stacks", page.run("document.title"))


def test_one_weight_is_drawn_and_named(page: Page, written: Written) -> None:
    """Blocks, threads and traces have no common width; a share is one of its own kind of stacks."""
    of_unit: Counter[str] = collections.Counter()
    for kind, weight in sums(written.traces).items():
        of_unit[UNITS.get(kind, "stack")] += weight
    options = page.run("[...document.querySelector('select[name=unit]').options].map((each) => each.text)")
    named = {
        "stack": "stacks of threads",
        "trace": "recorded traces",
        "block": "heap blocks",
        "lock": "locks",
        "event": "events of handles and objects",
    }
    assert sorted(options) == sorted(f"{named[unit]} ({weight})" for unit, weight in of_unit.items())
    assert options[0].startswith("stacks of threads")
    detail = "document.querySelector('.detail').innerText"
    for unit, weight in of_unit.items():
        choose(page, "unit", unit)
        assert page.run(detail).startswith(f"all: {weight} {unit}{'s' * (weight != 1)}, in ")
        kinds = page.run(
            "[...document.querySelectorAll('.boxes > [data-level=\"1\"]')].map((box) => box.innerText)"
        )
        assert {UNITS.get(kind, "stack") for kind in kinds} == {unit}
    page.run("location.hash = '#box=1'")
    kind, weight_text = wait(page, detail).split(": ")
    assert weight_text.startswith(f"{sums(written.traces)[kind]} {UNITS.get(kind, 'stack')}")
    assert f", 100.0 % of {kind}, in " in weight_text


def test_equal_frames_of_all_processes_are_one_box(page: Page, written: Written) -> None:
    """A process is a filter, and may have boxes of its own."""
    starts = (
        "[...document.querySelectorAll('.boxes > .box')]"
        ".filter((box) => box.textContent === 'ntdll!RtlUserThreadStart')"
    )
    where = f"{starts}.map((box) => Number(box.dataset.weight))"
    together = page.run(where)
    choose(page, "split", "1")
    apart = page.run(where)
    assert len(apart) > len(together) and sum(apart) == sum(together)
    choose(page, "split", "")
    processes = page.run(
        "[...document.querySelector('select[name=process]').options].map((each) => each.text)"
    )
    known = {f"{row['Process']} ({row['PID']})" for row in written.traces if row["Count"] and row["PID"]}
    assert known <= set(processes) and processes[0] == f"all {len(processes) - 1}"
    number = page.run(
        "[...document.querySelector('select[name=process]').options]"
        ".find((each) => each.text === 'spooler.exe (6200)').value"
    )
    choose(page, "process", number)
    shown = page.run("document.querySelector('.detail').innerText")
    mine = [
        row for row in written.traces if row["PID"] == 6200 and row["Kind"] in ("kernel", "user", "wow64")
    ]
    assert shown.startswith(f"all: {sum(row['Count'] or 0 for row in mine)} stacks, in spooler.exe (6200)")
    # The URL has the process: the page shows the same after a reload.
    page.reload()
    assert page.requests.pop().startswith(page.requests[0])
    assert wait(page, "document.querySelector('.detail').innerText") == shown


def test_colors_may_be_those_of_programs(page: Page) -> None:
    choose(page, "color", "process")
    legend = page.run("[...document.querySelectorAll('.legend')].at(-1).innerText")
    assert "spooler.exe: 4 stacks" in legend and "several programs" in legend
    several = page.run("[...document.querySelectorAll('.boxes > .several')].map((box) => box.textContent)")
    assert "ntdll!RtlUserThreadStart" in several
    hues = page.run(
        "Object.fromEntries([...document.querySelectorAll('.boxes > .code:not(.several)')]"
        ".map((box) => [box.textContent, Number(box.style.getPropertyValue('--h'))]))"
    )
    assert hues["spooler!count_jobs"] == page.run("hue('spooler.exe')")


def test_stacks_with_code_in_no_file_come_first(page: Page, written: Written) -> None:
    """All of them, of every weight; a click leads to the red box in the graph of its weight."""
    below = "compareDocumentPosition(document.querySelector('.flame')) & Node.DOCUMENT_POSITION_FOLLOWING"
    assert page.run(f"Boolean(document.querySelector('.reds').{below})")
    title = page.run("document.querySelector('.reds h3').innerText")
    reds = {
        (names[0], *names[2:])
        for names, _ in parsed(written.folder / "tracegraph.folded")
        if any(re.match(r"<(private|unmapped|no-module|unloaded)", name) for name in names)
    }
    assert title.startswith(f"Stacks with code in no file: {len(reds)} different stacks in ")
    rows = page.run("[...document.querySelectorAll('.reds .row')].map((each) => each.innerText)")
    kinds = {row.split("\n")[1].split(",")[0] for row in rows}
    assert kinds == {names[0] for names in reds} and len(kinds) > 2
    for number in range(len(rows)):
        page.click(f"document.querySelectorAll('.reds .row')[{number}]")
        kind = page.run(f"document.querySelectorAll('.reds .row')[{number}].children[1].innerText").split(
            ","
        )[0]
        assert page.run("document.querySelector('select[name=unit]').value") == UNITS.get(kind, "stack")
        red = page.run(f"document.querySelectorAll('.reds .row')[{number}].children[2].innerText")
        assert page.run("document.querySelector('.detail').innerText").startswith(f"{red}: ")


def test_red_stays_red_in_merged_boxes(browser: Browser, tmp_path: pathlib.Path) -> None:
    """Of 3,000 threads two are in private code: the box of what is too narrow says how many."""
    tree = PrefixTree()
    for number in range(3000):
        look = UNBACKED if number in (7, 2900) else CODE
        frames = [tree.name("ntdll!start", "ntdll"), tree.name(f"m!f{number}", "m", look)]
        tree.add_stack("user", f"p{number}.exe ({number})", frames, 1)
    path = tmp_path / "many.html"
    path.write_text(
        "".join(htmlpage.page("Many", {"flame": htmlpage.flame_data(tree, "stacks")})), encoding="utf-8"
    )
    opened = browser.open(path)
    rest = "[...document.querySelectorAll('.boxes > .rest.red')].map((box) => box.getAttribute('aria-label'))"
    label = only(opened.run(rest))
    assert label.startswith("3000 more, 2 with code in no file, ")
    ground = "getComputedStyle(document.querySelector('.boxes > .rest.red')).backgroundColor"
    assert opened.run(ground) == "rgb(211, 48, 47)"
    assert "2 different stacks in 2 processes" in opened.run("document.querySelector('.reds h3').innerText")
    assert opened.run("document.querySelector('.boxes > .holds').textContent") == "all"
    assert opened.faults == []
    opened.close()


def test_the_view_is_in_the_url_and_back_returns(page: Page) -> None:
    box = "[...document.querySelectorAll('.boxes > .box')].find((box) => box.textContent === 'user')"
    # The line of details follows the mouse.
    detail = "document.querySelector('.flamegraph > h3').innerText"
    whole = page.run(detail)
    page.click(box)
    zoomed = page.run(detail)
    address = page.run("location.hash")
    assert address.startswith("#box=") and zoomed.endswith(" below user") and zoomed != whole
    page.run("history.back()")
    assert wait(page, detail) == whole
    page.run("history.forward()")
    assert wait(page, detail) == zoomed
    page.run("document.querySelector('input[type=search]').focus()")
    page.type("count_jobs")
    assert wait(page, "location.hash") == f"{address}&find=count_jobs"
    found = page.run("document.querySelector('.found').innerText")
    zoomed = page.run(detail)
    # The URL has the box and the search: the page shows the same after a reload.
    page.reload()
    assert page.requests.pop().startswith(page.requests[0])
    assert wait(page, "document.querySelector('.found').innerText") == found
    assert page.run(detail) == zoomed
    for wrong in ("#box=99999999", "#box=-1", "#box=x", "#box=1e99&nothing=%"):
        page.run(f"location.hash = {json.dumps(wrong)}")
        assert wait(page, detail) == whole


def test_the_search_filters_the_list_and_takes_globs(page: Page) -> None:
    listed = "document.querySelector('.flamegraph > h3').innerText"
    everything = int(page.run(listed).split()[0])
    page.run("document.querySelector('h1').click()")
    page.key("/")
    assert page.run("document.activeElement.type") == "search"
    names = page.run("JSON.parse(document.getElementById('data').textContent).flame.texts")
    numbers = []
    for text, glob in (
        ("nt!ki*", r"nt!ki.*"),
        ("Rtl*Section", r"(.*!)?rtl.*section"),
        ("?[!a]f_not_there", "-"),
    ):
        page.run("document.querySelector('input[type=search]').value = ''")
        page.type(text)
        found = wait(page, "document.querySelector('.found').innerText")
        assert int(found.split()[0]) == sum(bool(re.fullmatch(glob, name.lower())) for name in names), text
        numbers.append(page.run(listed))
        shown = page.run(
            "[...document.querySelectorAll('.flamegraph > .list .row .frames')].map((each) => each.innerText)"
        )
        assert all(re.search(glob.strip("(.*!)?"), text.lower()) for text in shown if " … " not in text)
    first, second, none = (int(number.split()[0]) for number in numbers)
    assert 0 < first < everything and 0 < second < everything and none == 0
    assert f"{first} of {everything} different stacks" in numbers[0]


def test_a_telephone_shows_the_stack(page: Page) -> None:
    page.size(390, 844)
    width = wait(page, "document.querySelector('.flamegraph .row .frames').getBoundingClientRect().width")
    letter = 12 * 0.61
    assert width > 40 * letter
    heights = page.run(
        "[...document.querySelectorAll('.flamegraph > .list .row')]"
        ".map((each) => each.getBoundingClientRect().height)"
    )
    tops = page.run(
        "[...document.querySelectorAll('.flamegraph > .list .row')]"
        ".map((each) => each.getBoundingClientRect().top)"
    )
    assert set(heights) == {46} and all(b - a == 46 for a, b in zip(tops, tops[1:]))


def test_the_keyboard_is_enough(page: Page) -> None:
    focused = "document.activeElement.textContent"
    page.run("document.querySelector('.boxes > [tabindex=\"0\"]').focus()")
    assert page.run(focused) == "all"
    for key, name in (("ArrowDown", "kernel"), ("ArrowRight", "user"), ("ArrowLeft", "kernel")):
        page.key(key)
        assert page.run(focused) == name
    for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
        page.key(key)
    page.key("Enter")
    assert (
        page.run(focused) == "KERNEL32!BaseThreadInitThunk" or page.run(focused) == "ntdll!RtlUserThreadStart"
    )
    assert page.run("document.activeElement.style.width") == "100%"
    page.key("ArrowUp")
    page.key("Escape")
    page.key("Home")
    assert page.run(focused) == "all"
    before = page.run("document.activeElement.getBoundingClientRect().top")
    page.key("f")
    assert page.run("document.activeElement.getBoundingClientRect().top") > before
    page.key("/")
    assert page.run("document.activeElement.tagName") == "INPUT"


HOSTILE = (
    "</title><script>window.owned = 1</script>",
    "</script><img src=x onerror=owned=1>",
    "\u202egnp.exe",
    "a" * 65536,
    "<!--<script>",
    '" onfocus="owned=1',
    "\u2028&amp;\0",
)


def test_hostile_names_stay_text(browser: Browser, tmp_path: pathlib.Path) -> None:
    tree = PrefixTree()
    for name in HOSTILE:
        tree.add_stack(name, name, [tree.name(name, name)], 3)
    path = tmp_path / "hostile.html"
    path.write_text(
        "".join(htmlpage.page(HOSTILE[0], {"flame": htmlpage.flame_data(tree, "stacks")})), encoding="utf-8"
    )
    opened = browser.open(path)
    assert opened.run("window.owned") is None
    assert opened.run("document.title") == HOSTILE[0]
    assert opened.run("document.images.length") == 0
    assert opened.run("document.scripts.length") == 2
    shown = opened.run("document.body.innerText")
    for name in (HOSTILE[0], HOSTILE[1], "\\u202egnp.exe", HOSTILE[4], HOSTILE[5], "\\u2028&amp;\\x00"):
        assert name in shown
    assert (
        opened.run(
            "Math.max(...JSON.parse(document.getElementById('data').textContent)"
            ".flame.texts.map((text) => text.length))"
        )
        <= 600
    )
    assert opened.faults == [] and opened.requests == [path.as_uri()]
    opened.close()


def test_the_document_stays_small(browser: Browser, tmp_path: pathlib.Path) -> None:
    """A tree of 60,000 nodes, 200 levels deep, with a level of 20,000 boxes."""
    tree = PrefixTree()
    for number in range(20000):
        frames = [tree.name(f"m{number % 50}!f{number}"), tree.name("g")]
        tree.add_stack("user", f"p{number % 70}", frames, 1 + number % 7)
    for number in range(100):
        deep = [tree.name(f"m!deep{level}") for level in range(200)]
        tree.add_stack("user", "deep", [*deep, tree.name(f"leaf{number}")], 900)
    path = tmp_path / "large.html"
    path.write_text(
        "".join(htmlpage.page("Large", {"flame": htmlpage.flame_data(tree, "stacks")})), encoding="utf-8"
    )
    opened = browser.open(path)
    elements = "document.querySelectorAll('*').length"
    assert opened.run(elements) < 3000
    assert opened.run("document.querySelectorAll('.boxes > .rest').length") > 0
    assert opened.run(LEVELS) == []
    opened.click("document.querySelectorAll('.boxes > .box')[1]")
    assert opened.run(LEVELS) == []
    for code in (
        "document.querySelector('.flame').scrollTop = 2000",
        "document.querySelector('.list').scrollTop = 9e5",
    ):
        opened.run(code)
        opened.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
        assert opened.run(elements) < 3000
    assert int(opened.run("document.querySelector('.boxes > .box').dataset.level")) > 90
    opened.close()


def test_a_baseline_shows_growth_and_shrinkage(
    written: Written, browser: Browser, tmp_path: pathlib.Path
) -> None:
    lines = [
        "heap;updater.exe (999);ntdll!RtlUserThreadStart;KERNEL32!BaseThreadInitThunk;updater!main;"
        "updater!load_settings 20",
        "heap;updater.exe (999);ntdll!RtlUserThreadStart;gone!gone 5",
        "no stack",
    ]
    baseline = tmp_path / "old.folded"
    baseline.write_text("\n".join(lines), encoding="utf-8")
    written.run("windows.tracegraph", "--kinds", "heap", "--baseline", str(baseline), output="growth")
    opened = browser.open(written.folder / "growth" / "tracegraph.html")
    kinds = opened.run(
        "Object.fromEntries([...document.querySelectorAll('.boxes > .box')].map((box) => "
        "[box.textContent, box.className]))"
    )
    assert "grown" in kinds["updater!load_settings"]
    choose(opened, "split", "1")
    assert "updater.exe" in opened.run("document.querySelector('.boxes').innerText")
    title = opened.run("document.title")
    assert re.fullmatch(r"image\.dmp: flame graph of its stacks, compared with old\.folded", title)
    said = opened.run("document.body.innerText")
    assert f"before is {baseline}" in said and "image.dmp" in said
    opened.click("document.querySelector('input[type=checkbox]')")
    kinds = opened.run(
        "Object.fromEntries([...document.querySelectorAll('.boxes > .box')].map((box) => "
        "[box.textContent, box.className]))"
    )
    assert "shrunk" in kinds["gone!gone"]
    assert opened.faults == []
    opened.close()


def test_growth_has_a_column_and_a_scale(browser: Browser, tmp_path: pathlib.Path) -> None:
    """Sorted by growth; +376 % and +83 % do not look alike, and red is code in no file alone."""
    tree = PrefixTree()
    weights = {"a": (110, 60), "b": (476, 100), "c": (50, 50), "d": (45, 0), "e": (10, 40), "f": (300, 290)}
    for name, (now, _) in weights.items():
        tree.add_stack("heap", "p.exe", [tree.name(f"m!{name}", "m")], now)
    tree.add_stack("heap", "p.exe", [tree.name("<private>", look=UNBACKED)], 30)
    before = [(["heap", "p.exe", f"m!{name}"], old) for name, (_, old) in weights.items() if old]
    tree.compare([*before, (["heap", "p.exe", "<private>"], 10), (["heap", "p.exe", "m!gone"], 20)])
    path = tmp_path / "growth.html"
    flame = htmlpage.flame_data(tree, "stacks", ["now.dmp", "old.folded"])
    path.write_text("".join(htmlpage.page("Growth", {"flame": flame})), encoding="utf-8")
    opened = browser.open(path)
    rows = opened.run(
        "[...document.querySelectorAll('.flamegraph > .list .row')]"
        ".map((row) => [...row.children].map((each) => each.innerText))"
    )
    assert [(row[2], row[3], row[5]) for row in rows] == [
        ("+376", "+376 %", "m!b"),
        ("+50", "+83 %", "m!a"),
        ("+45", "new", "m!d"),
        ("+20", "+200 %", "<private>"),
        ("+10", "+3.4 %", "m!f"),
        ("0", "equal", "m!c"),
        ("-20", "gone", "m!gone"),
        ("-30", "\u221275 %", "m!e"),
    ]
    heads = opened.run(
        "[...document.querySelectorAll('.flamegraph > .heads span')].map((each) => each.innerText)"
    )
    assert heads == ["Now", "Before", "Change", "Growth", "Kind, process", "Stack"]
    looks = opened.run(
        "Object.fromEntries([...document.querySelectorAll('.boxes > .box')].map((box) => "
        "[box.textContent, [box.className, getComputedStyle(box).backgroundColor]]))"
    )
    grounds = {name: ground for name, (_, ground) in looks.items()}
    assert grounds["m!b"] != grounds["m!a"] != grounds["m!f"] and grounds["m!d"] != grounds["m!b"]
    assert "rgb(211, 48, 47)" not in grounds.values()
    assert "unbacked" in looks["<private>"][0]
    shadow = "getComputedStyle(document.querySelector('.boxes > .unbacked')).boxShadow"
    assert "rgb(211, 48, 47)" in opened.run(shadow)
    assert "now is now.dmp, before is old.folded" in opened.run("document.body.innerText")
    assert opened.faults == []
    opened.close()


def test_an_image_is_equal_to_itself(written: Written) -> None:
    """Also where two names have one text, and where PIDs and addresses are this image's."""
    baseline = str(written.folder / "tracegraph.folded")
    lines = [line.rpartition(" ")[0] for line in pathlib.Path(baseline).read_text().splitlines()]
    assert any(re.search(r";updater.exe \(4312\);.*;<private> 0x1d2b00002c4$", line) for line in lines)
    written.run("windows.tracegraph", "--baseline", baseline, output="itself")
    data = pagedata.data(written.folder / "itself" / "tracegraph.html")["flame"]
    assert {"updater.exe", "<private>"} <= set(data["texts"])
    code, found = iter(data["stacks"]), []
    for _ in code:
        for _ in range(next(code)):
            next(code)
        found.append((next(code), next(code)))
    assert sum(now for now, _ in found) > 50
    assert [pair for pair in found if pair[0] != pair[1]] == []


def test_addresses_without_a_name_have_boxes_of_their_own(page: Page) -> None:
    found = [label for unit in units(page) for label in labels(page, unit, ".unbacked")]
    assert any(label.startswith("<private> 0x1d2b00002c4, 1 stack, ") for label in found)
    assert any(label.startswith("<no-module> 0xffffab8009991088, ") for label in found)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return context.open_image(sample.build().image(), tmp_path_factory.mktemp("graphs"))


def test_the_words_of_weight() -> None:
    """The command line knows them without the room that draws."""
    assert tuple(drawing.WEIGHTS) == WEIGHTS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weight": "size"}, "--weight: unknown value size; choose from count, bytes, threads"),
        ({"format": ["svg"]}, "--format: unknown value svg; choose from html, speedscope, folded"),
        ({"baseline": "/nowhere"}, "The baseline cannot be used: "),
        ({"baseline": __file__.replace(".py", ".none")}, "The baseline cannot be used: "),
    ],
)
def test_options_without_a_meaning(options: Dict[str, Any], message: str, opened: Opened) -> None:
    with pytest.raises(exceptions.RenderException) as caught:
        grid.run(opened, tracegraph.TraceGraph, **options)
    assert str(caught.value).startswith(message)


def test_options_select_stacks(written: Written, opened: Opened, tmp_path: pathlib.Path) -> None:
    rows = grid.rendered(
        opened, tracegraph.TraceGraph, tmp_path, unbacked=True, kinds=["std"], format=["folded"]
    )
    kind, weight = only((row["Kind"], row["Weight"]) for row in rows)
    stacks = parsed(tmp_path / "tracegraph.folded")
    expected = sum(row["Count"] for row in written.traces if row["Kind"] == "std" and row["Unbacked"])
    assert kind == "std" and weight == sum(weight for _, weight in stacks) == expected > 2
    assert all(any(name.startswith("<") for name in names) for names, _ in stacks)


def test_stacks_without_weight_are_told(
    opened: Opened, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"weight": "bytes", "format": ["folded"]}
    grid.rendered(opened, tracegraph.TraceGraph, tmp_path, kinds=["lock"], **options)
    assert "Nothing is drawn: all stacks (lock) have the weight 0 with --weight bytes" in caplog.messages
    caplog.clear()
    grid.rendered(opened, tracegraph.TraceGraph, tmp_path, kinds=["heap"], **options)
    assert not [text for text in caplog.messages if "drawn" in text]


def test_what_is_cut_keeps_its_weight() -> None:
    tree = PrefixTree(most=3 * 4)
    for number in range(50):
        tree.add([tree.name("same"), tree.name(f"f{number}"), tree.name("g")], 2)
    assert tree.total == 100 == sum(weight for _, weight, _ in tree.stacks())
    assert tree.cut == 100 - 2 * 4
    assert len(tree) == 4 + 46
    assert {tree.boxes[names[-1]].text for names, _, _ in tree.stacks()} == {"g", "…"}


def test_heaps_of_windows_add_up(tmp_path: pathlib.Path) -> None:
    """Blocks that an ntdll of Windows 10 21H2 allocated, with its stack traces."""
    path = ROOT / "tests" / "data" / "real_std" / "19044.1766-x64-heap.tar.xz"
    image = realtruth.image_of(real_sets.load(path), "win10-x64", symbols=False)
    opened = context.open_image(image, tmp_path)
    rows = grid.rendered(
        opened, tracegraph.TraceGraph, tmp_path, kinds=["heap"], weight="bytes", format=["folded"]
    )
    row = only(rows)
    expected = [node.row["Bytes"] or 0 for node in grid.run(opened, traces.StackTraces, kinds=["heap"])]
    stacks = parsed(tmp_path / "tracegraph.folded")
    assert row["Weight"] == sum(expected) == sum(weight for _, weight in stacks) > 10000
    assert row["Stacks"] == len(expected)
    assert any("ntdll" in name for names, _ in stacks for name in names)


@pytest.mark.parametrize(
    ("text", "stacks", "bad"),
    [
        ("a;b 3\nc 1\n", [(["a", "b"], 3), (["c"], 1)], 0),
        ("a b;c d 12\r\n\n", [(["a b", "c d"], 12)], 0),
        ("a;b\n7\na -1\na 1.5\na \u0663\na 99999999999999999999\n", [], 6),
        ("", [], 0),
    ],
)
def test_folded_stacks_are_read(text: str, stacks: List[Any], bad: int) -> None:
    found = formats.read_folded(io.StringIO(text))
    assert (found.stacks, found.bad, found.cut) == (stacks, bad, False)


def test_a_sum_stays_exact() -> None:
    tree = PrefixTree()
    tree.add([tree.name("a")], MAX_SUM - 1)
    assert tree.add([tree.name("b")], 5) == 1
    assert (tree.total, tree.capped) == (MAX_SUM, 4)


def test_the_scripts_are_checked() -> None:
    """ESLint and the compiler of TypeScript find nothing in the scripts of the pages."""
    nodemodules.lint()
