# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`stackfleet report`: what the pages say is what the tables say, and a browser shows them."""

from __future__ import annotations

import json
import pathlib
import urllib.parse
from typing import Any, Dict, Iterator, List, Set

import pytest
from volatility3.plugins.windows import tracereport

from stackfleet import imagepage, questions, report
from stackfleet.database import Database
from stackfleet.lake import Lake, NewImage
from tests.forge import context, sample
from tests.support import fleetlakes, grid, pagedata
from tests.support.browser import Browser
from tests.support.fleetimages import options_for
from tests.support.fleetrun import ask, fleet
from tests.support.only import only, rows_of

pytestmark = pytest.mark.once

Row = Dict[str, Any]
HOSTILE = "</script><script>window.owned=1</script>\u202egnp.exe"
LINKS = "[...document.querySelectorAll('a')].map((each) => each.href)"
IDS = "[...document.querySelectorAll('section')].map((each) => each.id)"


def reported(lake: object, output: pathlib.Path) -> str:
    return fleet("report", lake, "-o", output, code=0).stdout


def frame(trace: str, number: int, symbol: Any, backing: str = "image", **more: Any) -> Row:
    module, _, function = (symbol or "").partition("!")
    known = {"Module": module, "Function": function} if function else {}
    row = {"TraceId": trace, "Frame": number, "Symbol": symbol, "How": "unwind", "Backing": backing}
    return {**row, **known, **more}


@pytest.fixture(scope="module")
def lake(shared_lake: Lake) -> pathlib.Path:
    """Three hosts and an image that failed. What an image may choose is hostile on the second."""
    for number in range(3):
        name = HOSTILE if number == 1 else "app.exe"
        thread = {"Kind": "user", "PID": 8, "Process": name, "TID": 12, "Owner": "0x80"}
        frames = [
            frame("user:1", 0, "<private>", "private", Address="0xffffab8009991088"),
            frame("user:1", 1, f"{name}!main+0x20", How="scan"),
            frame("user:1", 2, None, Status="overwritten, unsure"),
        ]
        stacks = [
            {**thread, "TraceId": "user:1", "Stack": f"<private>; {name}!main+0x20", "Unbacked": 1},
            {"StackKey": "all", "Stack": "nt!Common+0x1", "Count": 3},
            {"StackKey": f"own {number}", "Stack": f"nt!Own{number}+0x1; {name}", "Unbacked": number},
            {"Kind": "heap", "Process": name, "Bytes": 4096 + number, "Count": 2, "Stack": "a!b"},
        ]
        found: List[Row] = [{"Severity": None, "Finding": "hidden", "Evidence": "no threads"}]
        if number != 2:
            card: Row = {
                "Severity": ["medium", "high"][number],
                "Confidence": "likely",
                "Finding": "unbacked",
            }
            card.update(PID=8, Process=name, TID=12, Evidence=f"memory of {name}", TraceId="user:1")
            found.append({**card, "Symbol": "<private>", "Address": 0xFFFFAB8009991088, "Frame": 0})
        fleetlakes.add(
            shared_lake,
            f"i{number}",
            host=f"pc{number}{HOSTILE if number == 1 else ''}",
            traces=stacks,
            frames=frames,
            findings=found,
        )
    path = f"/images/{HOSTILE}/bad.raw"
    failed = fleetlakes.manifest("u1", {}, status="failed", reason=f"no kernel {HOSTILE}", path=path)
    shared_lake.add(NewImage(failed))
    return pathlib.Path(shared_lake.uri)


@pytest.fixture(scope="module")
def pages(lake: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("pages") / "out"
    printed = reported(lake, folder)
    assert printed == f"{folder / 'index.html'}: images: 3 done, 1 failed\n"
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


def visible(text: str) -> str:
    """A text as pages have it."""
    return text.replace("\u202e", "\\u202e")


def test_a_page_from_tables_says_what_that_of_the_image_says(tmp_path: pathlib.Path) -> None:
    image = sample.build().image()
    opened = context.open_image(image, tmp_path, "sample.dmp")
    options = options_for(tmp_path, image)
    file = tmp_path / "sample.dmp"
    fleet("run", file, "-o", tmp_path / "lake", *options, code=0)
    reported(tmp_path / "lake", tmp_path / "out")
    grid.rendered(opened, tracereport.TraceReport, tmp_path)
    path = only((tmp_path / "out").glob("image-*.html"))
    one, other = pagedata.data(tmp_path / "tracereport.html"), pagedata.data(path)
    assert pagedata.flame(other) == pagedata.flame(one) != {}
    for part in ("threads", "heaps"):
        assert sorted(plain(other, part)) == sorted(plain(one, part)) != []
    assert cards(other) == cards(one) != []
    assert other["findings"]["checks"] == one["findings"]["checks"]
    assert other["findings"]["unchecked"] == one["findings"]["unchecked"]
    assert other["image"]["complete"] == one["image"]["complete"] != []
    assert [row for row in one["image"]["rows"] if row not in other["image"]["rows"]] == []


def plain(page: Row, part: str) -> List[str]:
    """The rows of a list without numbers of texts. Tables do not have the state of threads."""
    found = []
    for row in page[part]:
        cells = dict(enumerate(row)) if isinstance(row, list) else {**row, "state": ""}
        places = cells.pop("frames" if isinstance(row, dict) else 3)
        found.append(repr((cells, pagedata.frames(page, places))))
    return found


def cards(page: Row) -> List[Row]:
    """The findings. Tables say in Evidence in how many stacks something was seen."""
    found = []
    for card in page["findings"]["cards"]:
        expected = {**card, "frames": pagedata.frames(page, card["frames"])}
        seen = expected.pop("stacks")
        if seen > 1:
            expected["evidence"] += f"; {seen} stacks"
        found.append(expected)
    return found


def test_the_first_page_has_all_findings(lake: pathlib.Path, pages: pathlib.Path) -> None:
    page = pagedata.data(pages / "index.html")
    rows = ask("findings", lake)
    assert [(card["severity"], card["check"], card["hosts"]) for card in page["findings"]["cards"]] == [
        (row["Severity"], row["Finding"], row["Hosts"]) for row in rows
    ]
    assert [card["severity"] for card in page["findings"]["cards"]] == ["high", "medium"]
    places = [place["image"][0] for card in page["findings"]["cards"] for place in card["places"]]
    assert places == ["image-i1.html", "image-i0.html"]
    last = page["findings"]["cards"][-1]
    expected = ["! <private> 0xffffab8009991088", "? app.exe!main+0x20", "? <overwritten>"]
    assert pagedata.frames(page, last["frames"]) == expected
    # Tables of findings have Volatility's form of addresses, pages the canonical one.
    assert last["symbol"] == "<private> 0xffffab8009991088"
    assert [place["address"] for place in last["places"]] == ["0xffffab8009991088"]
    assert page["findings"]["unchecked"] == [["hidden", "no threads (3 of 3 images)"]]


def test_the_first_page_has_the_rare_stacks(lake: pathlib.Path, pages: pathlib.Path) -> None:
    page = pagedata.data(pages / "index.html")
    rows = ask("rare", lake)
    assert len(rows) == 3
    for trace, row in zip(page["rare"]["stacks"], rows):
        assert "; ".join(pagedata.frames(page, trace["frames"])) == visible(row["Stack"])
        assert (trace["hosts"], trace["among"]) == (row["Hosts"], row["Among"])
        assert trace["unbacked"] == row["Unbacked"]
        assert [link[0] for link in trace["images"]] == [f"image-{row['ImageIds'][0]}.html"]


def test_the_first_page_has_all_images(lake: pathlib.Path, pages: pathlib.Path) -> None:
    known = pagedata.data(pages / "index.html")["lake"]
    assert (known["done"], known["failed"], known["hosts"]) == (3, 1, 3)
    assert [image["status"] for image in known["images"]] == ["failed", "done", "done", "done"]
    failed = known["images"][0]
    assert failed["page"] is None
    assert failed["reason"] == visible(f"no kernel {HOSTILE}")
    assert [image["found"] for image in known["images"][1:]] == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    for element in known["images"][1:]:
        assert (pages / element["page"][0]).is_file()


def test_the_page_of_an_image_has_that_image_alone(pages: pathlib.Path) -> None:
    page = pagedata.data(pages / "image-i2.html")
    assert page["findings"]["cards"] == []
    assert [(heap[0], heap[1]) for heap in page["heaps"]] == [(4098, 2)]
    assert sum(pagedata.flame(page).values()) == 7
    facts = {name: value for name, value, *_ in page["image"]["rows"]}
    assert (facts["ImageId"], facts["Path"]) == ("i2", "/images/i2.raw")


def test_pages_lead_to_each_other(pages: pathlib.Path, browser: Browser) -> None:
    with browser.open(pages / "index.html") as opened:
        assert opened.run(IDS) == ["lake", "findings", "rare"]
        leads = [urllib.parse.urlsplit(link) for link in opened.run(LINKS)]
        assert {urllib.parse.unquote(lead.path) for lead in leads} >= {
            str(pages / f"image-i{number}.html") for number in (0, 1)
        }
        assert all(pathlib.Path(urllib.parse.unquote(link.path)).is_file() for link in leads)
        assert all(
            opened.run(f"!!document.getElementById({link.fragment!r})") for link in leads if link.fragment
        )
        opened.run("document.querySelector('#lake .list').focus()")
        opened.key("End")
        opened.follow("document.querySelector('#lake .links a')")
        assert opened.run("location.pathname.split('/').pop()") == "image-i2.html"
        assert opened.run(IDS) == ["findings", "image", "graph", "threads", "heaps"]
        opened.follow("document.querySelector('main > p a')")
        assert opened.run("location.pathname.split('/').pop()") == "index.html"
        assert all(request.startswith("file://") for request in opened.requests)


def test_lists_of_all_images_can_be_searched(pages: pathlib.Path, browser: Browser) -> None:
    with browser.open(pages / "index.html") as opened:
        opened.run("document.querySelector('#rare input').focus()")
        opened.type("own0")
        opened.run("new Promise((done) => setTimeout(done, 300))")
        assert opened.run("document.querySelector('#rare .found').innerText") == "1 of 3"
        assert "nt!Own0+0x1" in opened.run("document.querySelector('#rare pre').innerText")
        assert opened.run("document.querySelector('#rare .links').innerText") == "PC0, i0.raw"


@pytest.mark.parametrize("name", ["index.html", "image-i1.html"])
def test_hostile_texts_stay_texts(name: str, pages: pathlib.Path, browser: Browser) -> None:
    with browser.open(pages / name) as opened:
        assert opened.run("window.owned") is None
        assert opened.run("document.scripts.length") == 2
        text = opened.run("document.body.innerText")
        assert text.count("<script>window.owned=1</script>") > 3
        assert "\u202e" not in text
        assert opened.requests == [(pages / name).as_uri()]


def test_one_file_has_its_pages_beside_it(
    lake: pathlib.Path, tmp_path: pathlib.Path, browser: Browser
) -> None:
    first = tmp_path / "a #1 100%.html"
    reported(lake, first)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a #1 100%-images", "a #1 100%.html"]
    with browser.open(first) as opened:
        opened.follow("document.querySelector('.card dd a')")
        assert opened.run("location.pathname.split('/').pop()") == "image-i1.html"
        opened.follow("document.querySelector('main > p a')")
        assert opened.run("decodeURIComponent(location.pathname.split('/').pop())") == first.name


def test_what_is_left_out_is_said(new_lake: Lake, tmp_path: pathlib.Path, browser: Browser) -> None:
    thread = {"Kind": "user", "Owner": "0x1", "Count": 1}
    threads = [{**thread, "TID": number} for number in range((1 << 15) + 7)]
    found = [
        {"Severity": "low", "Finding": "hidden", "PID": number, "Process": f"p{number}"}
        for number in range((1 << 12) + 5)
    ]
    own = [{"StackKey": f"k{number}", "Stack": "a!b", "TraceId": f"k:{number}"} for number in range(1100)]
    fleetlakes.add(new_lake, "i0", traces=[*threads, *own], findings=found)
    reported(new_lake.uri, tmp_path / "out")
    image = pagedata.data(tmp_path / "out" / "image-i0.html")
    assert (len(image["threads"]), image["cut"]) == (1 << 15, 7)
    assert sum(pagedata.flame(image).values()) == len(threads) + len(own)
    for name in ("index.html", "image-i0.html"):
        page = pagedata.data(tmp_path / "out" / name)
        assert (len(page["findings"]["cards"]), page["findings"]["total"]) == (1 << 12, len(found))
        with browser.open(tmp_path / "out" / name) as opened:
            assert "The first 4,096 are shown." in opened.run("document.querySelector('#findings').innerText")
            assert opened.run("document.querySelectorAll('*').length") < 3000
            if name == "index.html":
                assert "the 1,024 rarest are shown" in opened.run("document.querySelector('#rare').innerText")


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Pages of thirty hosts with the same finding, one of which has another one and says no name."""
    folder = tmp_path_factory.mktemp("company")
    new_lake = fleetlakes.new_lake(folder / "lake")
    for number in range(30):
        found = [
            {
                "Severity": "medium",
                "Confidence": "likely",
                "Finding": "unbacked",
                "PID": 8 + number,
                "Process": "app.exe",
                "TID": 12,
                "Symbol": "<private>",
                "Address": 0xFFFF800000001000 + number,
                "Evidence": "memory" if number != 7 else "other memory",
            }
        ]
        if number == 29:
            found.append({**found[0], "Severity": "high", "Finding": "hidden", "Symbol": None})
        fleetlakes.add(
            new_lake, f"i{number:02}", host=None if number == 29 else f"pc{number:02}", findings=found
        )
    reported(folder / "lake", folder / "pages")
    return folder


def test_the_same_finding_of_many_hosts_is_one_card(company: pathlib.Path, browser: Browser) -> None:
    page = pagedata.data(company / "pages" / "index.html")
    first, second = rows_of(2, page["findings"]["cards"])
    assert (first["check"], first["hosts"], first["number"], first["names"]) == ("hidden", 1, 1, ["i29.raw"])
    assert (second["check"], second["hosts"], second["number"]) == ("unbacked", 30, 30)
    assert second["names"][0] == "PC00, i00.raw" and len(second["names"]) == 30
    assert {place["address"] for place in second["places"]} == {
        hex(0xFFFF800000001000 + number) for number in range(30)
    }
    assert page["findings"]["total"] == 2
    with browser.open(company / "pages" / "index.html") as opened:
        text = opened.run("document.querySelector('#findings').textContent")
        assert "30 hosts, 30 findings" in text
        assert "2 findings: 1 high, 1 medium, 0 low." in text
        assert "PC07, i07.raw app.exe (15), thread 12 at 0xffff800000001007: other memory" in text
        assert opened.run("document.querySelector('#findings .cards').getBoundingClientRect().height") < 1500


def test_cards_are_found_by_severity_check_and_host(company: pathlib.Path, browser: Browser) -> None:
    with browser.open(company / "pages" / "index.html") as opened:
        shown = (
            "[...document.querySelectorAll('#findings .card > summary b')].map((each) => each.textContent)"
        )
        choose = (
            "(([place, value]) => {{ const each = document.querySelectorAll('#findings select')[place];"
            "each.value = value; each.dispatchEvent(new Event('change')); }})({})"
        )
        assert opened.run(shown) == ["hidden", "unbacked"]
        for place, value, expected in [
            (0, "medium", ["unbacked"]),
            (0, "", ["hidden", "unbacked"]),
            (1, "hidden", ["hidden"]),
            (0, "medium", []),
            (0, "", ["hidden"]),
            (1, "", ["hidden", "unbacked"]),
        ]:
            opened.run(choose.format(json.dumps([place, value])))
            assert opened.run(shown) == expected
        opened.run("document.querySelector('#findings input').focus()")
        opened.type("PC07")
        opened.run("new Promise((done) => setTimeout(done, 300))")
        assert opened.run(shown) == ["unbacked"]
        assert opened.run("document.querySelector('#findings .found').innerText") == "1 to 1 of 1"
        opened.type("nobody")
        opened.run("new Promise((done) => setTimeout(done, 300))")
        assert opened.run("document.querySelector('#findings .found').innerText") == "0 to 0 of 0"


def test_addresses_are_hexadecimal(company: pathlib.Path) -> None:
    rows = ask("findings", company / "lake", "--each")
    assert rows[0]["Address"] == "0xffff80000000101d"
    addresses = [row["Address"] for row in rows[1:]]
    assert addresses == sorted(addresses)
    assert ask("findings", company / "lake")[1]["Addresses"] == addresses[:8]


def names(folder: pathlib.Path) -> Set[str]:
    return {path.name for path in folder.iterdir()}


def links(folder: pathlib.Path) -> Set[str]:
    """Where the places of findings lead."""
    page = pagedata.data(folder / "index.html")
    return {place["image"][0] for card in page["findings"]["cards"] for place in card["places"]}


def test_pages_of_images_are_chosen(company: pathlib.Path, tmp_path: pathlib.Path, browser: Browser) -> None:
    done = fleet("report", company / "lake", "-o", tmp_path, "--images", "PC07,i29.raw")
    assert done.stdout.endswith("images: 30 done, 0 failed; 28 without pages of their own (--images)\n")
    assert names(tmp_path) == {"index.html", "image-i07.html", "image-i29.html"}
    assert links(tmp_path) == {"#lake", "image-i07.html", "image-i29.html"}
    with browser.open(tmp_path / "index.html") as opened:
        text = opened.run("document.querySelector('#lake').innerText")
        assert "2 of 30 images have pages of their own: those that --images chose." in text
    done = fleet("report", company / "lake", "-o", tmp_path, "--images", "nobody")
    assert done.returncode == 2 and "nobody names no image" in done.stderr
    done = fleet("report", company / "lake", "-o", tmp_path / "all", "--images", "all")
    assert len(names(tmp_path / "all")) == 31 and "#lake" not in links(tmp_path / "all")


def test_images_with_the_worst_findings_have_pages(
    company: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "MOST_PAGES", 2)
    with Database(Lake(str(company / "lake"))) as database:
        report.Report(database, report.place(str(tmp_path))).write()
    assert names(tmp_path) == {"index.html", "image-i29.html", "image-i00.html"}
    note = only(pagedata.data(tmp_path / "index.html")["lake"]["notes"])
    assert note.startswith("2 of 30 images have pages of their own: those with the worst findings.")


def test_images_that_are_read_together_keep_their_own_rows(
    lake: pathlib.Path, pages: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imagepage, "MOST_ROWS", 1)
    with Database(Lake(str(lake))) as database:
        report.Report(database, report.place(str(tmp_path))).write()
    assert names(tmp_path) == names(pages)
    for path in pages.iterdir():
        assert path.read_text() == (tmp_path / path.name).read_text()


def test_a_lake_of_failures_has_a_page(new_lake: Lake, tmp_path: pathlib.Path, browser: Browser) -> None:
    new_lake.add(
        NewImage(fleetlakes.manifest("u1", {}, status="failed", reason="no kernel", path="/images/bad.raw"))
    )
    assert "images: 0 done, 1 failed" in reported(new_lake.uri, tmp_path / "out")
    with browser.open(tmp_path / "out" / "index.html") as opened:
        assert opened.run(IDS) == ["lake"]
        assert "no kernel" in opened.run("document.querySelector('#lake').innerText")


def test_what_cannot_be_is_said(lake: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    done = fleet("report", lake, "-o", tmp_path / "file" / "out")
    assert done.returncode == 2 and "cannot be written" in done.stderr and "Traceback" not in done.stderr
    done = fleet("report", lake, "-o", tmp_path / "out", "--memory-limit", "much")
    assert done.returncode == 2 and "Memory must have a number" in done.stderr
    assert "Traceback" not in done.stderr
    fleet("report", tmp_path, "-o", tmp_path / "out", code=2)
    assert not (tmp_path / "out" / "index.html").exists()


def test_a_link_with_the_name_of_a_page_is_not_followed(lake: pathlib.Path, tmp_path: pathlib.Path) -> None:
    theirs, out = tmp_path / "theirs.txt", tmp_path / "out"
    theirs.write_text("kept")
    out.mkdir()
    for name in ("index.html", "image-i1.html"):
        (out / name).symlink_to(theirs)
    reported(lake, out)
    assert theirs.read_text() == "kept"
    for name in ("index.html", "image-i1.html"):
        assert not (out / name).is_symlink() and "<!doctype html>" in (out / name).read_text().lower()
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


def test_a_link_in_the_place_of_the_folder_of_pages_is_refused(
    lake: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (tmp_path / "first-images").symlink_to(theirs)
    done = fleet("report", lake, "-o", tmp_path / "first.html")
    assert done.returncode == 2 and "a link, not a folder" in done.stderr
    assert not list(theirs.iterdir())
