# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.tracereport`: what the page says is what the other plugins say, and a browser shows it."""

from __future__ import annotations

import copy
import json
import pathlib
import random
import re
from typing import Any, Dict, Iterator, List

import pytest
from volatility3.plugins.minidump import tracereport as dump_report
from volatility3.plugins.windows import tracefindings, traceimage, tracereport, traces, tracewaits

from tests.conftest import SHARED
from tests.forge import context, sample, vol
from tests.support import grid, pagedata
from tests.support.browser import Browser, Page
from tests.support.only import only
from tests.support.processdumps import OpenedDump
from winstacks.columns.words import NAMELESS
from winstacks.findings.loststacks import LOST_STACKS
from winstacks.html import htmlpage
from winstacks.memory.decode.machine import Machine

Row = Dict[str, Any]
PARTS = ["findings", "image", "locks", "graph", "threads", "heaps"]
ELEMENTS = "document.querySelectorAll('*').length"
SETTLED = f"""new Promise((done) => {{
    const look = (last, same) => {{
        const now = {ELEMENTS};
        same === 5 ? done(now) : setTimeout(look, 50, now, now === last ? same + 1 : 0);
    }};
    look(-1, 0);
}})"""
"""The number of elements when it stays the same: a page draws what is seen, and takes it back later."""
HOSTILE = "</script><script>window.owned=1</script>\u202egnp.exe"


class Reported:
    """The report of the sample, and what other plugins say of it."""

    def __init__(self, folder: pathlib.Path) -> None:
        opened = context.open_image(sample.build().image(), folder)
        self.rows = grid.rendered(opened, tracereport.TraceReport, folder)
        self.path = folder / "tracereport.html"
        self.data = pagedata.data(self.path)
        self.findings = [node.row for node in grid.run(opened, tracefindings.TraceFindings)]
        self.traces = [node.row for node in grid.run(opened, traces.StackTraces)]
        self.waits = [node.row for node in grid.run(opened, tracewaits.TraceWaits)]
        self.image = only(node.row for node in grid.run(opened, traceimage.TraceImage))


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return Reported(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture()
def page(reported: Reported, browser: Browser) -> Iterator[Page]:
    opened = browser.open(reported.path)
    yield opened
    assert opened.faults == []
    assert {request.partition("#")[0] for request in opened.requests} == {reported.path.as_uri()}
    opened.close()


def written(folder: pathlib.Path, data: Dict[str, Any], title: str = "A report") -> pathlib.Path:
    path = folder / "page.html"
    path.write_text("".join(htmlpage.page(title, data)), encoding="utf-8")
    return path


@pytest.mark.cli
def test_vol_writes_one_page(tmp_path: pathlib.Path) -> None:
    image = sample.build().image()
    file, symbols = image.save(tmp_path / "image.dmp"), image.install(tmp_path / "symbols")
    folder = tmp_path / "out"
    folder.mkdir()
    # Links that somebody planted under the names that the page would have: one leads to a file, one to none.
    theirs = tmp_path / "theirs.txt"
    theirs.write_text("kept")
    (folder / "tracereport.html").symlink_to(theirs)
    (folder / "tracereport-1.html").symlink_to(tmp_path / "none.html")
    shown = vol.run(file, "windows.tracereport", symbols=symbols, arguments=["-o", str(folder)])
    assert {row["File output"] for row in shown.rows} == {"tracereport-1.html"}
    assert {path.name for path in folder.iterdir()} == {"tracereport.html", "tracereport-1.html"}
    assert theirs.read_text() == "kept" and not (tmp_path / "none.html").exists()
    page = folder / "tracereport-1.html"
    assert not page.is_symlink() and "<!doctype html>" in page.read_text("utf-8")[:100].lower()


@pytest.mark.cli
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_image_has_a_page(seed: int, tmp_path: pathlib.Path) -> None:
    """Every 200th word of the pages behind the first 4 MB points to another one."""
    image = sample.build().image()
    file, symbols = image.save(tmp_path / "image.dmp"), image.install(tmp_path / "symbols")
    data, chance = bytearray(file.read_bytes()), random.Random(seed)
    words = range(4 << 20, len(data) - 8, 8)
    for place in chance.sample(words, len(words) // 200):
        other = chance.choice(words)
        data[place : place + 8] = data[other : other + 8]
    file.write_bytes(data)
    shown = vol.run(file, "windows.tracereport", symbols=symbols, arguments=["-o", str(tmp_path)])
    assert shown.returncode == 0 and "Traceback" not in shown.stderr, shown.stderr
    found = pagedata.data(tmp_path / "tracereport.html")
    assert {row["Kind"]: row["Stacks"] for row in shown.rows}
    assert set(found) >= {"image", "findings", "flame", "threads", "locks", "heaps", "texts"}


def test_findings_are_those_of_tracefindings(reported: Reported) -> None:
    cards = reported.data["findings"]["cards"]
    found = [row for row in reported.findings if row["Severity"]]
    assert [(card["severity"], card["check"], card["tid"], card["symbol"]) for card in cards] == [
        (row["Severity"], row["Finding"], row["TID"], located(row)) for row in found
    ]
    for card, row in zip(cards, found):
        assert row["Evidence"].startswith(card["evidence"])
        assert card["innocent"] == row["Innocent"]
    unchecked = [
        [row["Finding"], process_prefix(row) + row["Evidence"]]
        for row in reported.findings
        if not row["Severity"]
    ]
    assert reported.data["findings"]["unchecked"] == unchecked != []


def located(row: Dict[str, Any]) -> Any:
    """Returns the text of a finding's address: the page has no other place for an address without a name."""
    if row["Symbol"] not in NAMELESS:
        return row["Symbol"]
    return f"{row['Symbol']} {Machine.AMD64.canonical(row['Address']):#x}"


def process_prefix(row: Dict[str, Any]) -> str:
    """Returns what the page puts before the reason of lost stacks: it has no column for the process."""
    return f"{row['Process']} ({row['PID']}): " if row["Finding"] == LOST_STACKS else ""


def test_the_image_is_that_of_traceimage(reported: Reported) -> None:
    values = {name: value for name, value, *_ in reported.data["image"]["rows"]}
    for name in ("ImageId", "KernelBuild", "Processes", "Threads", "Stacks", "StacksIncomplete", "Databases"):
        assert values[name] == str(reported.image[name])
    complete = {text: (part, whole) for text, part, whole in reported.data["image"]["complete"]}
    assert complete["stacks of threads are incomplete"] == (
        reported.image["StacksIncomplete"],
        reported.image["Stacks"],
    )


def test_the_rows_add_up_to_the_stacks(reported: Reported) -> None:
    for row in reported.rows:
        here = [trace for trace in reported.traces if trace["Kind"] == row["Kind"]]
        assert row["Stacks"] == len(here)
        assert row["Weight"] == sum(row["Count"] or 0 for row in here)
    assert len(reported.rows) == 9
    heaps = sorted((row["Bytes"] for row in reported.traces if row["Bytes"]), reverse=True)
    assert [heap[0] for heap in reported.data["heaps"]] == heaps
    threads = [row for row in reported.traces if row["Kind"] in ("kernel", "user", "wow64")]
    assert [(thread["kind"], thread["tid"]) for thread in reported.data["threads"]] == [
        (row["Kind"], row["TID"]) for row in threads
    ]


def test_the_page_has_its_parts_and_its_links_work(page: Page) -> None:
    assert page.run("[...document.querySelectorAll('section')].map((each) => each.id)") == PARTS
    links = page.run("[...document.querySelectorAll('a')].map((each) => each.getAttribute('href'))")
    assert links == [f"#{part}" for part in PARTS]
    page.click("document.querySelector('a[href=\"#threads\"]')")
    assert abs(page.run("document.querySelector('#threads').getBoundingClientRect().top")) < 900
    assert page.run("document.documentElement.lang") == "en"
    assert page.run("document.querySelectorAll('h1').length") == 1
    unlabelled = "[...document.querySelectorAll('section')].filter((each) => !document.getElementById("
    assert page.run(unlabelled + "each.getAttribute('aria-labelledby'))).length") == 0
    names = "[...document.querySelectorAll('[id]')].map((each) => each.id)"
    assert page.run(f"new Set({names}).size === {names}.length")
    assert page.run("[...document.querySelectorAll('button')].every((each) => each.innerText)")
    assert page.run("[...document.querySelectorAll('input, select')].every((each) => each.labels.length)")
    assert page.run(ELEMENTS) < 3000


def test_findings_come_first_with_their_evidence(page: Page, reported: Reported) -> None:
    first = page.run("document.querySelector('.card').innerText")
    assert first.split()[0] == "high" and "PAGE_EXECUTE_READWRITE" in first
    assert "! <private> 0x1d2b00002c4" in first
    low = page.run("[...document.querySelectorAll('.card.low, .story.low')].map((each) => each.open)")
    assert low and not any(low)
    above = "[...document.querySelectorAll('.card:not(.low), .story:not(.low)')].every((each) => each.open)"
    assert page.run(above)
    shown = page.run("document.querySelector('#findings .cards').innerText")
    for card in reported.data["findings"]["cards"]:
        # The evidence of one that is folded may be a part of another's.
        assert card["severity"] == "low" or card["evidence"] in shown
    assert "Not checked" in page.run("document.querySelector('#findings').innerText")
    page.run(
        "void document.querySelectorAll('#findings details:not([open]) > summary')"
        ".forEach((each) => each.click())"
    )
    page.run("new Promise((done) => setTimeout(done, 200))")
    page.run(
        "void document.querySelectorAll('#findings details:not([open]) > summary')"
        ".forEach((each) => each.click())"
    )
    page.run("new Promise((done) => setTimeout(done, 200))")
    shown = page.run("document.querySelector('#findings .cards').innerText")
    assert [card for card in reported.data["findings"]["cards"] if card["evidence"] not in shown] == []


@pytest.mark.shared
def test_what_is_not_known_of_a_dump_is_said(browser: Browser, tmp_path: pathlib.Path) -> None:
    """A dump without the code of ntdll: 13 of its 14 threads may wait."""
    dump: Any = OpenedDump(SHARED / "real_minidumps" / "more" / "node-minidump-windows.dmp")
    grid.rendered(dump, dump_report.TraceReport, tmp_path)
    with browser.open(tmp_path / "tracereport.html") as shown:
        assert "It is not known whether 13 threads wait: " in shown.run(
            "document.querySelector('#locks').innerText"
        )
        found = shown.run("document.querySelector('#findings').innerText")
        assert re.search(r"The checks found nothing: \d+ checks examined 15 stacks of 1 process\.", found)


def test_the_deadlock_is_drawn_and_said(page: Page) -> None:
    text = page.run("document.querySelector('.deadlock').innerText")
    assert text.startswith("Deadlock of 2 threads:")
    assert "Evidence of the waits: the table of waiting threads in the PEB" in text
    steps = page.run("[...document.querySelectorAll('ol.steps li')].map((each) => each.textContent)")
    assert [step.split(" waits for ")[0] for step in steps] == [
        "thread 6204 of spooler.exe (6200)",
        "thread 6208 of spooler.exe (6200)",
    ]
    assert page.run("document.querySelectorAll('svg rect.cycle').length") == 4
    assert page.run("document.querySelectorAll('svg line.cycle').length") == 4
    texts = page.run("[...document.querySelectorAll('svg text.node')].map((each) => each.textContent)")
    assert {"thread 6204", "thread 6208", "spooler.exe (6200)"} <= set(texts)


def test_the_waiting_threads_of_a_lock_have_their_stacks(page: Page, reported: Reported) -> None:
    """By name in the row, with the stack below the list. What waits is what windows.tracewaits says."""
    lists = "[...document.querySelectorAll('#locks .list')]"
    lock = f"[...{lists}[0].querySelectorAll('.row')].find((row) => row.innerText.includes('thread 6204'))"
    page.click(f"{lock}")
    row = page.run(f"{lock}.innerText")
    assert "thread 6204 of spooler.exe (6200)" in row and "thread 6208 of spooler.exe (6200)" in row
    below = page.run("document.querySelector('#locks .stack').innerText")
    stacks = [line.strip() for line in below.splitlines()]
    assert re.match(r"thread 620[48] of spooler.exe \(6200\) waits: ", below)
    for name in ("kernel:", "user:", "ntdll!RtlEnterCriticalSection+0x62"):
        assert name in stacks
    page.click("document.querySelectorAll('#locks .list')[1].querySelector('.row')")
    below = page.run("document.querySelectorAll('#locks .stack')[1].innerText")
    assert "ntdll!RtlEnterCriticalSection+0x62" in below


def test_waits_are_those_of_tracewaits(reported: Reported) -> None:
    found = reported.data["locks"]
    mine = []
    for thread, lock, how, _, symbol, thing, end in found["waits"]:
        mine.append((found["threads"][thread], thing.partition(" 0x")[0].partition(" (")[0], symbol, end))
        assert lock < 0 or found["locks"][lock]["text"].startswith(thing)
        assert how
    rows = [row for row in reported.waits if row["TID"] is not None]
    assert sorted(mine) == sorted(
        (
            f"thread {row['TID']} of {row['Process']} ({row['PID']})",
            row["WaitsFor"],
            row["Symbol"] or "",
            row["ChainEnd"],
        )
        for row in rows
    )
    deadlocks = [row["Evidence"] for row in reported.waits if row["WaitsFor"] == "deadlock"]
    assert [cycle["text"] for cycle in found["cycles"]] == deadlocks != []


def test_waiters_that_are_not_known_are_counted(page: Page, reported: Reported) -> None:
    """Windows counts the waiters of an ERESOURCE, and not all of them are found."""
    locks = reported.data["locks"]
    known = {
        number: [wait for wait in locks["waits"] if wait[1] == number]
        for number in range(len(locks["locks"]))
    }
    number, lock = next(
        (number, lock) for number, lock in enumerate(locks["locks"]) if lock["waiters"] > len(known[number])
    )
    page.run(f"void document.querySelectorAll('#locks .list')[0].querySelectorAll('.row')[{number}].click()")
    below = page.run("document.querySelector('#locks .stack').innerText")
    more = lock["waiters"] - len(known[number])
    assert re.search(rf"{more} (more )?waiting threads?: unknown which", below)


def test_an_unknown_number_is_sorted_behind_all_others(page: Page) -> None:
    order = "[10, 'unknown', 9, 'unknown', 1].sort(inOrder)"
    assert page.run(order) == [1, 9, 10, "unknown", "unknown"]


def test_the_completeness_is_that_of_traceimage(page: Page, reported: Reported) -> None:
    shown = page.run("document.querySelector('#image .complete').innerText")
    facts = reported.image
    assert not re.search(r"\b0 of", shown)
    assert f"{facts['StacksIncomplete']} of {facts['Stacks']} stacks of threads are incomplete" in shown
    assert ("processes cannot be read" in shown) == (facts["ProcessesUnreadable"] != 0)
    for kind, known in json.loads(facts["StacksKnown"]).items():
        read = json.loads(facts["StacksRead"])[kind]
        told = f"{known - read} of {known} stacks of kind {kind} are not in the image" in shown
        assert told == (known > read)


def test_threads_can_be_searched_and_sorted(page: Page, reported: Reported) -> None:
    rows = "[...document.querySelectorAll('#threads .row')].map((row) => row.children[1].textContent)"
    page.click("[...document.querySelectorAll('#threads .heads button')][1]")
    assert page.run(rows)[0] == "6208"
    page.click("[...document.querySelectorAll('#threads .heads button')][1]")
    assert page.run(rows)[0] == "4316"
    page.run("document.querySelector('#threads input').focus()")
    page.type("rtlentercriticalsection")
    page.run("new Promise((done) => setTimeout(done, 300))")
    assert page.run(rows) == ["6204", "6208"]
    assert page.run("document.querySelector('#threads .found').innerText") == "2 of 13"
    page.run("document.querySelector('#threads .list').focus()")
    page.key("ArrowDown")
    stack = page.run("document.querySelector('#threads pre').innerText")
    assert "spooler!count_jobs+0x1d" in stack and "ntdll!RtlUserThreadStart+0x21" in stack
    assert page.run("document.querySelector('#threads .current').children[1].textContent") == "6208"


@pytest.mark.parametrize(
    ("place", "expected", "found"),
    [
        ("#threads", "RtlEnter*Section+*", "2 of 13"),
        ("#threads", "spooler!*", "2 of 13"),
        ("#threads", "<private>", "1 of 13"),
        ("#threads", "0x1d2b00002c4", "1 of 13"),
        ("#threads", "[!a-z]*!*", "0 of 13"),
        ("#heaps", "updater!load_*", "1 of 4"),
        ("#heaps", "load_settings+0x??", "1 of 4"),
        ("#locks", "*spooler.exe*6200*", "2 of "),
        ("#locks", "spool", "2 of "),
    ],
)
def test_lists_take_the_globs_of_find(place: str, expected: str, found: str, page: Page) -> None:
    page.run(f"document.querySelector('{place} input').focus()")
    page.type(expected)
    page.run("new Promise((done) => setTimeout(done, 300))")
    assert page.run(f"document.querySelector('{place} .found').innerText").startswith(found)
    shown = page.run(f"document.querySelector('{place} .list').querySelectorAll('.row').length")
    assert str(shown) == found.split()[0]
    # The URL has the search: the page shows the same after a reload, and the first page is one step back.
    page.reload()
    assert page.requests.pop().startswith(page.requests[0])
    assert page.run(f"document.querySelector('{place} input').value") == expected
    assert page.run(f"document.querySelector('{place} .found').innerText").startswith(found)


def test_the_key_slash_goes_to_the_search_in_view(page: Page) -> None:
    for place in ("threads", "graph", "locks"):
        page.run("document.activeElement.blur()")
        page.run(f"document.getElementById('{place}').scrollIntoView()")
        page.key("/")
        assert page.run("document.activeElement.closest('section').id") == place


def test_a_telephone_shows_the_whole_deadlock(page: Page) -> None:
    """The steps have numbers, and the drawing is as wide as the screen, in letters that can be read."""
    page.size(390, 844)
    page.reload()
    box = "[...document.querySelectorAll('svg.waits{}')].map((each) => each.getBoundingClientRect().{})"
    assert 0 < max(page.run(box.format("", "right"))) <= 390
    assert min(page.run(box.format(" .node", "height"))) >= 11
    steps = page.run("[...document.querySelectorAll('ol.steps li')].map((each) => each.innerText)")
    assert len(steps) == 2 and all("waits for critical section" in step for step in steps)


def test_a_telephone_shows_stacks_in_all_lists(page: Page) -> None:
    page.size(390, 844)
    page.run("new Promise((done) => setTimeout(done, 300))")
    assert page.run("document.documentElement.scrollWidth") <= 390
    widths = page.run(
        "[...document.querySelectorAll('.list')].map((list) => list.querySelector('.row .frames'))"
        ".map((each) => each.getBoundingClientRect().width)"
    )
    letter = 12 * 0.61
    assert len(widths) == 6 and min(widths) > 40 * letter
    outside = page.run(
        "[...document.querySelectorAll('.row')].filter((row) => [...row.children].some((each) => {"
        "const [cell, all] = [each.getBoundingClientRect(), row.getBoundingClientRect()];"
        "return cell.width && (cell.bottom > all.bottom + 1 || cell.top < all.top - 1);})).length"
    )
    assert outside == 0
    cut = page.run(
        "[...document.querySelectorAll('#threads .row .where')]"
        ".filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.innerText)"
    )
    assert cut == []


def test_findings_are_turned_page_by_page(
    reported: Reported, browser: Browser, tmp_path: pathlib.Path
) -> None:
    data = copy.deepcopy(reported.data)
    card = data["findings"]["cards"][0]
    data["findings"]["cards"] = [dict(card, process=f"a.exe ({pid})") for pid in range(45)]
    opened = browser.open(written(tmp_path, data))
    bar = "[...document.querySelectorAll('#findings .bar button')]"
    assert opened.run(f"{bar}.map((each) => each.innerText)") == ["Previous", "Next"]
    where = "document.querySelector('#findings .found').innerText"
    shown = [opened.run(where)]
    for button in (1, 1, 1, 0, 0, 0):
        opened.click(f"{bar}[{button}]")
        shown.append(opened.run(where))
    pages = ["1 to 20 of 45", "21 to 40 of 45", "41 to 45 of 45"]
    assert shown == [*pages, pages[2], pages[1], pages[0], pages[0]]
    assert opened.faults == []
    opened.close()


def test_heaps_are_sorted_by_bytes(page: Page) -> None:
    shown = page.run(
        "[...document.querySelectorAll('#heaps .row')].map((row) => row.children[0].textContent)"
    )
    figures = [int(text.replace(",", "")) for text in shown]
    assert figures == sorted(figures, reverse=True) and figures[0] == 98304


def test_print_has_rows_and_no_controls(page: Page, tmp_path: pathlib.Path) -> None:
    page.media(kind="print")
    assert page.run("getComputedStyle(document.querySelector('.bar')).display") == "none"
    page.pdf(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes()[:5] == b"%PDF-"


def test_findings_of_one_story_are_one_part(
    reported: Reported, browser: Browser, tmp_path: pathlib.Path
) -> None:
    """A part has a process's findings above low, or what one innocent reason explains in many processes."""
    data = copy.deepcopy(reported.data)
    card = dict(data["findings"]["cards"][0], severity="high")
    data["findings"]["cards"] = [
        dict(card, process="bad.exe (8)", check="unbacked"),
        dict(card, process="System (4)", symbol="one+0x10"),
        dict(card, process="System (4)", symbol="two+0x10"),
        dict(
            card, process="bad.exe (8)", check="start_mismatch", severity="medium", evidence="started there"
        ),
        *(
            dict(
                card,
                process=f"a.exe ({pid})",
                severity="low",
                innocent=f"a table at {pid:#x}",
                evidence=f"at {pid}",
            )
            for pid in range(100, 150)
        ),
        dict(card, process="a.exe (150)", severity="low", innocent="a pico process"),
    ]
    opened = browser.open(written(tmp_path, data))
    top = "[...document.querySelector('#findings .cards').children]"
    titles = opened.run(f"{top}.map((each) => each.querySelector('summary').innerText)")
    assert len(titles) == 5
    assert "2 findings in bad.exe (8): unbacked, start_mismatch" in titles[0]
    assert "one+0x10" in titles[1] and "two+0x10" in titles[2]
    assert "50 findings in 50 processes" in titles[3] and "a table at 0x64" in titles[3]
    assert "a pico process" in titles[4]
    text = opened.run("document.querySelector('#findings').innerText")
    assert "started there" in text and "5 to read, because findings of one story are one part." in text
    opened.click(f"{top}[3].querySelector('summary')")
    opened.run("new Promise((done) => setTimeout(done, 200))")
    cards = f"{top}[3].querySelectorAll('.card').length"
    assert opened.run(cards) == 20
    more = f"[...{top}[3].querySelectorAll('button')].at(-1)"
    assert opened.run(f"{more}.innerText") == "Show more: 30 of 50 are left"
    opened.click(more)
    opened.click(more)
    assert opened.run(cards) == 50
    assert opened.run(f"{top}[3].querySelectorAll('button').length") == 0
    assert opened.faults == []
    opened.close()


def test_reasons_are_said_once_with_a_count(
    reported: Reported, browser: Browser, tmp_path: pathlib.Path
) -> None:
    data = copy.deepcopy(reported.data)
    data["findings"]["unchecked"] = [
        *([f"check{number}", "no process traces its handles"] for number in range(70)),
        ["alone", "no recorded stack"],
        *(
            ["lost_stacks", f"a.exe ({pid}): user of TID 1 (unreadable); not examined by x, y"]
            for pid in range(80)
        ),
    ]
    opened = browser.open(written(tmp_path, data))
    text = opened.run("document.querySelector('#findings').innerText")
    assert text.count("no process traces its handles") == 1
    assert "70 checks: no process traces its handles" in text and "3 reasons in 151 cases" in text
    assert "80 processes: stacks are lost; not examined by x, y" in text
    opened.run(
        "void document.querySelectorAll('#findings details details > summary')"
        ".forEach((each) => each.click())"
    )
    opened.run("new Promise((done) => setTimeout(done, 200))")
    text = opened.run("document.querySelector('#findings').textContent")
    assert all(f"check{number}" in text and f"a.exe ({number})" in text for number in range(70))
    assert opened.faults == []
    opened.close()


def test_the_head_is_that_of_an_examiner(page: Page, reported: Reported) -> None:
    head = page.run(
        "Object.fromEntries([...document.querySelectorAll('.head > div')]"
        ".map((each) => [...each.children].map((cell) => cell.innerText)))"
    )
    assert list(head)[:6] == ["File", "Size", "SHA-256", "Captured", "Computer", "Windows"]
    assert head["SHA-256"] == "not asked for; --sha256 computes it"
    assert head["Captured"].endswith("UTC (the kernel's clock, KUSER_SHARED_DATA.SystemTime)")
    assert head["Windows"].startswith("build ") and "x64" in head["Windows"]
    assert re.match(r"volatility3-stacktraces \S+ on Volatility \S+", head["Made by"])
    assert head["Command line"] and re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", head["Report made"])
    assert page.run("document.querySelector('.head').getBoundingClientRect().top") < 200


def test_all_facts_are_in_words(page: Page, reported: Reported) -> None:
    terms = "[...document.querySelectorAll('#image .facts dt')].map((each) => each.innerText)"
    page.run("void [...document.querySelectorAll('#image summary')].at(-1).click()")
    names = page.run(f"new Promise((done) => setTimeout(() => done({terms}), 200))")
    assert len(names) > 20
    assert [name for name in names if re.search(r"[a-z][A-Z]", name)] == []
    values = page.run("[...document.querySelectorAll('#image .facts dd')].map((each) => each.innerText)")
    assert [value for value in values if value.startswith(("{", "[")) or value in ("True", "False")] == []


def test_nothing_is_cut_without_a_word(reported: Reported, browser: Browser, tmp_path: pathlib.Path) -> None:
    data = copy.deepcopy(reported.data)
    data["image"]["warnings"], data["image"]["warned"] = [f"warning {number}" for number in range(256)], 300
    locks = data["locks"]
    cycle = locks["cycles"][0]
    locks["cycles"] = [cycle] * 30
    count = len(locks["threads"])
    locks["threads"] += [f"thread {tid} of a.exe (1)" for tid in range(60)]
    locks["waits"] += [[count + number, 0, "so", True, "f", "lock", "end"] for number in range(60)]
    opened = browser.open(written(tmp_path, data))
    assert opened.run("document.querySelectorAll('.deadlock').length") == 30
    text = opened.run("document.querySelector('#locks').innerText")
    assert re.search(r"\d+ more of the threads and locks of this group are in the lists only\.", text)
    opened.run("void document.querySelectorAll('#image summary').forEach((each) => each.click())")
    opened.run("new Promise((done) => setTimeout(done, 200))")
    text = opened.run("document.querySelector('#image').innerText")
    assert "300 warnings, 256 of them with texts of their own" in text
    assert all(f"warning {number}" in text for number in range(256))
    assert opened.faults == []
    opened.close()


def test_a_print_has_everything(reported: Reported, browser: Browser, tmp_path: pathlib.Path) -> None:
    """Also what is folded, on other pages of the findings, or below the edge of a list."""
    data = copy.deepcopy(reported.data)
    card = dict(data["findings"]["cards"][0], severity="low")
    data["findings"]["cards"] += [
        dict(
            card,
            process=f"a.exe ({pid})",
            innocent=f"reason {chr(97 + pid % 26)}{chr(97 + pid // 26)}",
            evidence=f"evidence {pid}.",
        )
        for pid in range(50)
    ]
    data["findings"]["cards"] += [
        dict(card, process=f"b.exe ({pid})", innocent="same", evidence=f"of b {pid}.") for pid in range(50)
    ]
    thread = data["threads"][0]
    data["threads"] = [dict(thread, tid=1000 + number) for number in range(300)]
    opened = browser.open(written(tmp_path, data))
    before = opened.run(SETTLED)
    opened.run("void window.dispatchEvent(new Event('beforeprint'))")
    text = opened.run("document.body.textContent")
    for number in range(50):
        assert f"evidence {number}." in text and f"of b {number}." in text
    assert opened.run("document.querySelectorAll('#threads .row').length") == 300
    assert "All facts about the image" in text and "Time of capture" in text
    opened.run("void window.dispatchEvent(new Event('afterprint'))")
    assert opened.run(SETTLED) <= before + 20
    assert opened.run("document.querySelectorAll('#threads .row').length") < 60
    assert opened.faults == []
    opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_told_from_its_ground(scheme: str, page: Page) -> None:
    """The contrast of WCAG 2, level AA, of all texts in boxes, cards and lists."""
    page.media(scheme)
    worst = page.run(
        """
        (() => {
          const parse = (text) => text.match(/[\\d.]+/g).map(Number);
          const light = (rgb) => rgb.slice(0, 3).map((each) => each / 255)
            .map((each) => each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
            .reduce((sum, each, place) => sum + each * [0.2126, 0.7152, 0.0722][place], 0);
          const ground = (element) => {
            for (let each = element; each; each = each.parentElement) {
              const color = parse(getComputedStyle(each).backgroundColor);
              if (color.length < 4 || color[3] > 0) return color;
            }
            return [255, 255, 255];
          };
          let worst = [99, ''];
          const texts = '.box, .severity, .row span, dt, dd, .note, .detail, pre';
          for (const each of document.querySelectorAll(texts)) {
            if (!each.textContent || each.closest('.dim, .above')) continue;
            const [a, b] = [light(parse(getComputedStyle(each).color)), light(ground(each))];
            const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (contrast < worst[0]) worst = [contrast, each.className + ' ' + each.textContent];
          }
          return worst;
        })()
        """
    )
    assert worst[0] >= 4.5, worst


def test_a_large_report_stays_a_small_document(
    reported: Reported, browser: Browser, tmp_path: pathlib.Path
) -> None:
    data = copy.deepcopy(reported.data)
    data["threads"] = [dict(data["threads"][0], tid=tid) for tid in range(1000)]
    data["heaps"] = [[100000 - number, 1, "a (1)", [0, 1], ""] for number in range(1000)]
    data["findings"]["cards"] = data["findings"]["cards"] * 100
    data["findings"]["unchecked"] = data["findings"]["unchecked"] * 100
    data["image"]["warnings"] = [f"warning {number}" for number in range(256)]
    locks = data["locks"]
    locks["locks"] = [dict(locks["locks"][0], holders=[0]) for _ in range(3000)]
    locks["threads"] = [f"thread {tid} of a (1)" for tid in range(3000)]
    locks["waits"] = [[tid, tid, "so", True, "f", "lock", "end"] for tid in range(1, 3000)]
    opened = browser.open(written(tmp_path, data))
    assert opened.run(ELEMENTS) < 3000
    for place in ("#threads .list", "#heaps .list"):
        opened.run(f"document.querySelector('{place}').scrollTop = 50000")
    opened.run("new Promise((done) => setTimeout(done, 200))")
    opened.pdf(tmp_path / "page.pdf")
    assert opened.run(ELEMENTS) < 3000
    assert opened.faults == []
    opened.close()


def hostile(value: Any) -> Any:
    """The data with a hostile text in the place of each text that an image may choose."""
    if isinstance(value, str):
        return HOSTILE if value not in KEPT else value
    if isinstance(value, list):
        return [hostile(element) for element in value]
    if isinstance(value, dict):
        return {key: hostile(element) for key, element in value.items()}
    return value


KEPT: List[str] = ["high", "medium", "low", "kernel", "user", "wow64"]


def test_hostile_texts_stay_texts(reported: Reported, browser: Browser, tmp_path: pathlib.Path) -> None:
    path = written(tmp_path, hostile(reported.data), HOSTILE)
    opened = browser.open(path)
    assert opened.run("window.owned") is None
    assert opened.run("document.scripts.length") == 2
    text = opened.run("document.body.innerText")
    assert text.count("</script><script>window.owned=1</script>") > 20
    assert "\u202e" not in text and "\\u202egnp.exe" in text
    assert opened.faults == [] and opened.requests == [path.as_uri()]
    opened.close()


def test_a_page_may_have_some_parts_only(
    reported: Reported, browser: Browser, tmp_path: pathlib.Path
) -> None:
    for parts in ({"image"}, {"findings", "texts"}, {"locks"}, {"threads", "texts"}, set()):
        data = {name: part for name, part in reported.data.items() if name in parts}
        opened = browser.open(written(tmp_path, data))
        assert opened.faults == []
        assert opened.run("document.querySelectorAll('section').length") == len(parts - {"texts"})
        opened.close()


def test_the_policy_stops_what_is_put_in_later(page: Page) -> None:
    """A second script, and an attribute `style`, do nothing."""
    page.run(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'window.owned = 1'}))"
    )
    assert page.run("window.owned") is None
    page.run(
        "document.body.insertAdjacentHTML('beforeend', '<p id=late style=\"color: rgb(1, 2, 3)\">x</p>')"
    )
    assert page.run("getComputedStyle(document.getElementById('late')).color") != "rgb(1, 2, 3)"
    assert len(page.faults) == 2 and all("Content Security Policy" in fault for fault in page.faults)
    page.faults.clear()


def test_the_data_is_json_of_plain_characters(reported: Reported) -> None:
    text = reported.path.read_text(encoding="utf-8")
    block = text.partition('id="data">')[2].partition("</script>")[0]
    assert block.isascii() and not set("<>&") & set(block)
    assert json.loads(block) == reported.data
