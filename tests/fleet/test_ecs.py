# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`stackfleet export --to ecs`, read by PyPI's `eql` with rules that are written here."""

from __future__ import annotations

import datetime
import hashlib
import json
import pathlib
import re
from typing import Any, Dict, Iterator, List, NamedTuple, Set, Tuple

import eql
import pytest
from volatility3.plugins.windows import traces

from stackfleet.ecs import module_of
from tests.conftest import ROOT
from tests.docs import pages
from tests.forge import context, modulefile, sample
from tests.forge.context import Opened
from tests.support import fleetlakes, grid
from tests.support.fleetimages import options_for
from tests.support.fleetrun import fleet
from tests.support.only import only
from tests.support.processdumps import dump_of

pytestmark = pytest.mark.once

PAGE = ROOT / "docs" / "ecs.md"
UPDATER = 4312
TIME = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)

Document = Dict[str, Any]


class Exported(NamedTuple):
    """The sample and a dump of one of its processes in a lake, and what `export` makes of it."""

    opened: Opened
    lake: pathlib.Path
    documents: List[Document]
    files: pathlib.Path
    stderr: str


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("ecs")
    kernel = sample.build()
    image = kernel.image()
    opened = context.open_image(image, folder, "machine.dmp")
    (folder / "app.dmp").write_bytes(dump_of(opened, UPDATER, raised=4316))
    options = (*options_for(folder, image), "--workers", 1)
    fleet("run", folder / "machine.dmp", folder / "app.dmp", "-o", folder / "lake", *options, code=0)
    files = modulefile.save(kernel.user_modules(), folder / "files")
    written, stderr = export(folder / "lake", "--binaries", files)
    return Exported(opened, folder / "lake", written, files, stderr)


def export(lake: pathlib.Path, *options: object) -> Tuple[List[Document], str]:
    done = fleet("export", lake, "--to", "ecs", *options, code=0)
    lines = done.stdout.rstrip("\n").split("\n")
    assert all(line.isprintable() for line in lines)
    return [json.loads(line) for line in lines], done.stderr


def selected(rule: str, documents: List[Document]) -> List[Document]:
    """The documents that a rule selects; their time stands for the field that the engine orders by."""
    found: List[Document] = []
    engine = eql.PythonEngine({"print": False})
    with eql.parser.elastic_endpoint_syntax:
        engine.add_query(eql.parse_query(rule))
    engine.add_output_hook(lambda result: found.extend(event.data for event in result.events))
    engine.stream_events(
        eql.Event(only(document["event"]["category"]), number, document)
        for number, document in enumerate(documents)
    )
    engine.finalize()
    return found


def ids(documents: List[Document]) -> Set[str]:
    return {document["Stackfleet"]["TraceId"] for document in documents}


def selects(exported: Exported, **options: Any) -> Dict[str, Set[str]]:
    """The TraceIds that windows.traces lists with some options, by ImageId."""
    found: Dict[str, Set[str]] = {}
    for row, _ in grid.run(exported.opened, traces.StackTraces, **options):
        found.setdefault(row["ImageId"], set()).add(row["TraceId"])
    return found


def of_image(exported: Exported) -> List[Document]:
    """The documents of the image, without the dump's documents."""
    image_id = next(iter(selects(exported)))
    return [item for item in exported.documents if item["Stackfleet"]["ImageId"] == image_id]


@pytest.mark.parametrize(
    "find, pattern",
    [
        ("updater!*", "*updater.exe*"),
        ("Ntfs!*", "*ntfs.sys*"),
        ("ntdll!*", "*ntdll.dll*"),
        ("nt!*", "*ntoskrnl.exe*"),
        ("KERNEL32!*", "*kernel32.dll|*"),
    ],
)
def test_a_rule_selects_the_stacks_that_find_selects(exported: Exported, find: str, pattern: str) -> None:
    rule = f'process where process.thread.Ext.call_stack_summary : "{pattern}"'
    documents = of_image(exported)
    found = only(selects(exported, find=find).values())
    assert ids(selected(rule, documents)) == found & with_frames(documents)
    assert 0 < len(ids(selected(rule, documents))) < len(documents)


def with_frames(documents: List[Document]) -> Set[str]:
    """The stacks with frames: `--find` never leaves out a row without."""
    return ids([item for item in documents if "call_stack" in thread(item).get("Ext", {})])


def thread(document: Document) -> Document:
    found: Document = document["process"].get("thread", {})
    return found


def test_a_rule_selects_the_stacks_with_code_that_no_file_backs(exported: Exported) -> None:
    documents = of_image(exported)
    found = only(selects(exported, unbacked=True).values())
    rules = (
        "process where process.thread.Ext.call_stack_contains_unbacked == true",
        'process where process.thread.Ext.call_stack_summary : "*Unbacked*"',
        'process where arraySearch(process.thread.Ext.call_stack, $entry, $entry.symbol_info : "Unbacked*")',
    )
    for rule in rules:
        assert ids(selected(rule, documents)) == found & with_frames(documents) != set()


def test_bytes_and_protection_of_injected_code_are_there_for_rules(exported: Exported) -> None:
    rule = """process where arraySearch(process.thread.Ext.call_stack, $entry,
        $entry.protection == "RWX" and $entry.allocation_private_bytes > 0 and
        $entry.callsite_trailing_bytes : "9090*" and $entry.callsite_leading_bytes : "*9090")"""
    found = selected(rule, exported.documents)
    assert {item["process"]["name"] for item in found} == {"updater.exe"}
    assert {item["Stackfleet"]["ImageId"] for item in found} >= {
        item["Stackfleet"]["ImageId"] for item in exported.documents
    }
    threads = {thread(item).get("id") for item in found if item["Stackfleet"]["Kind"] == "user"}
    assert threads == {4320}


def leaves(value: Any, name: str = "") -> Iterator[str]:
    """The names of all fields that have a value."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield from leaves(member, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for member in value:
            yield from leaves(member, f"{name}[]")
    else:
        yield name


def listed(heading: str) -> Set[str]:
    """The fields in the first column of the table below a heading of the page."""
    section = pages.read(PAGE).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return {name for line in rows for name in re.findall(r"`([^`]+)`", line.split(" | ")[0])}


def test_the_page_lists_every_field_and_none_that_is_absent(exported: Exported) -> None:
    found = {name for document in exported.documents for name in leaves(document)}
    known, absent = listed("Fields"), listed("What is absent")
    # No document of the sample has these: its computer has no name.
    assert known - found == {"host.name", "host.hostname", "threat.technique.subtechnique.id"} - found
    assert found <= known
    assert absent and not [name for name in found if any(name.startswith(lacking) for lacking in absent)]


def test_the_file_of_the_final_user_module_has_a_hash_where_it_is_given(exported: Exported) -> None:
    files = [path for path in exported.files.rglob("updater.exe") if path.is_file()]
    digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    field = "process.thread.Ext.call_stack_final_user_module"
    found = selected(f'process where {field}.name : "updater.exe"', exported.documents)
    assert found
    for document in found:
        module = document["process"]["thread"]["Ext"]["call_stack_final_user_module"]
        assert module["path"].lower().endswith("\\updater.exe")
        assert {module["hash"]["sha256"]} == digests
    without, _ = export(exported.lake)
    assert not [name for document in without for name in leaves(document) if "hash" in name]
    assert "could not run" in exported.stderr


SYSTEM = "C:\\Windows\\System32\\"


def frame(backing: Any, symbol: Any = None, path: Any = None, **more: Any) -> Dict[str, Any]:
    module = symbol.partition("!")[0] if path else None
    return {"Backing": backing, "Symbol": symbol, "ModulePath": path, "Module": module, **more}


def stack(*frames: Dict[str, Any], **more: Any) -> Tuple[Dict[str, Any], List[Dict[str, Any]]]:
    row = {"Kind": "user", "PID": 8, "Process": "a.exe", "TID": 12, "Guessed": 0, **more}
    unbacked = [None if item["Backing"] == "unknown" else item["Backing"] == "private" for item in frames]
    row["Unbacked"] = None if None in unbacked or not unbacked else sum(map(bool, unbacked))
    return row, list(frames)


NTDLL = frame("image", "ntdll!NtWait+0x14", f"{SYSTEM}ntdll.dll", PageProtection="PAGE_EXECUTE_READ")
GUARDED = "PAGE_EXECUTE_READWRITE|PAGE_GUARD"
STACKS = {
    "plain": stack(NTDLL, NTDLL, frame("image", "App!~main+0x2000", "D:\\App.exe")),
    "shell code": stack(NTDLL, frame("private", "<private>", PageProtection=GUARDED)),
    "cut": stack(NTDLL, Incomplete=True),
    "guessed": stack(NTDLL, Guessed=1),
    "mapped": stack(NTDLL, frame("mapped", "<mapped:Data.bin>+0x10")),
    "unknown": stack(frame(None), frame("unknown", "<unknown>"), frame("user", "<user>")),
    "planted": stack(frame("image", "kernel32!x+0x1", "C:\\Users\\kernel32.dll")),
    "hostile": stack(frame("image", "a|Unbacked|b!f+0x1", "C:\\a|Unbacked|b\x1b[2J\u202e.dll")),
    "nothing": stack(Kind="heap", Status="untraced"),
    "lost": stack(Incomplete=True, Count=None),
    "kernel": stack(frame("image", "nt!KeWait+0x10", "\\SystemRoot\\system32\\ntoskrnl.exe"), Kind="kernel"),
}
SUMMARIES = {
    "plain": "ntdll.dll|app.exe",
    "shell code": "ntdll.dll|Unbacked",
    "cut": "ntdll.dll",
    "guessed": "ntdll.dll",
    "mapped": "ntdll.dll|data.bin",
    "unknown": "Unknown",
    "planted": "kernel32.dll",
    "hostile": "a_unbacked_b\x1b[2j\u202e.dll",
    "lost": "Unknown",
    "kernel": "ntoskrnl.exe",
    "timeless": "ntoskrnl.exe|app.exe",
}
FINALS = {"plain": "app.exe", "shell code": "Unbacked", "mapped": "data.bin", "planted": "kernel32.dll"}
FINALS["timeless"] = "app.exe"
FINALS.update({"unknown": "Unknown", "hostile": SUMMARIES["hostile"]})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Tuple[Dict[str, Document], List[Document], str]:
    """The documents of STACKS by name, those without a stack, and the messages."""
    folder = tmp_path_factory.mktemp("rows") / "lake"
    lake = fleetlakes.new_lake(folder)
    rows, frames = [], []
    for name, (row, of_stack) in STACKS.items():
        rows.append({**row, "TraceId": name})
        for number, item in enumerate(of_stack):
            address = {"Address": 0x1000 + number, "How": "unwind", "Frame": number, "TraceId": name}
            frames.append({**address, **item})
    found = {
        "Finding": "unbacked",
        "Confidence": "likely",
        "Symbol": "<private>",
        "Evidence": "VAD",
        "PID": 8,
    }
    findings = [
        {**found, "Severity": "low", "TraceId": "shell code", "Technique": "T1055.012, T1134"},
        {**found, "Severity": "high", "TraceId": "shell code", "Technique": "T1055", "Finding": "gadget"},
        {**found, "Severity": "medium", "TraceId": None, "Finding": "hidden", "Kind": None, "Symbol": None},
        {**found, "Severity": None, "TraceId": None, "Finding": "hidden"},
    ]
    image = [{"ComputerName": "pc", "CaptureTime": TIME, "BootTime": TIME - datetime.timedelta(hours=1)}]
    fleetlakes.add(lake, "i1", traces=rows, frames=frames, findings=findings, image=image)
    narrow = [
        frame("image", "nt!NtClose+0x10", "\\SystemRoot\\system32\\ntoskrnl.exe", Address=0x82600010),
        frame("image", "App!main+0x10", "D:\\App.exe", Address=0x401010),
    ]
    rows = [{**stack(*narrow)[0], "TraceId": "timeless", "Kind": "handle"}]
    frames = [
        {**item, "Frame": number, "TraceId": "timeless", "How": "recorded"}
        for number, item in enumerate(narrow)
    ]
    fleetlakes.add(lake, "i2", traces=rows, frames=frames, image=[{"Arch": "x86"}])
    documents, messages = export(folder)
    of_stacks = {item["Stackfleet"].get("TraceId"): item for item in documents}
    return of_stacks, [item for item in documents if "TraceId" not in item["Stackfleet"]], messages


Written = Tuple[Dict[str, Document], List[Document], str]


def values(written: Written, name: str) -> Dict[str, Any]:
    """A field of `process.thread.Ext` by the names of the stacks that have it."""
    exts = {key: thread(item).get("Ext", {}) for key, item in written[0].items()}
    return {key: ext[name] for key, ext in exts.items() if name in ext}


def test_summaries_are_the_modules_with_repeats_merged(written: Written) -> None:
    assert values(written, "call_stack_summary") == SUMMARIES


def test_what_is_missing_may_be_unbacked(written: Written) -> None:
    unsure = {"cut", "guessed", "lost", "unknown", "nothing"}
    expected = {name: name == "shell code" for name in {*STACKS, "timeless"} - unsure}
    assert values(written, "call_stack_contains_unbacked") == expected


def test_the_final_user_module_passes_no_calls_on(written: Written) -> None:
    found = values(written, "call_stack_final_user_module")
    assert {name: module["name"] for name, module in found.items()} == FINALS
    assert found["plain"] == {"name": "app.exe", "path": "D:\\App.exe"}
    assert found["shell code"] == {"name": "Unbacked"}


def test_entries_have_paths_and_protections(written: Written) -> None:
    entries = values(written, "call_stack")
    assert entries["plain"] == [
        {"symbol_info": f"{SYSTEM}ntdll.dll!NtWait+0x14", "protection": "R-X"},
        {"symbol_info": f"{SYSTEM}ntdll.dll!NtWait+0x14", "protection": "R-X"},
        {"symbol_info": "D:\\App.exe!~main+0x2000"},
    ]
    assert entries["shell code"][1] == {"symbol_info": "Unbacked", "protection": "RWX"}
    assert entries["mapped"][1] == {"symbol_info": "<mapped:Data.bin>+0x10"}


def test_findings_are_in_the_documents_of_their_stacks(written: Written) -> None:
    of_stacks, loose, messages = written
    document = of_stacks["shell code"]
    assert document["event"]["kind"] == "alert" and document["event"]["severity"] == 73
    assert document["tags"] == ["unbacked", "gadget"]
    assert document["threat"]["technique"] == {
        "id": ["T1055", "T1134"],
        "subtechnique": {"id": ["T1055.012"]},
    }
    assert "high finding gadget (likely) at <private>; VAD" in document["event"]["reason"]
    assert "rule" not in document
    assert only(loose)["tags"] == ["hidden"] and only(loose)["event"]["severity"] == 47
    assert of_stacks["plain"]["event"]["kind"] == "state" and "severity" not in of_stacks["plain"]["event"]
    assert "1 check could not run" in messages


def test_a_document_names_host_and_time(written: Written) -> None:
    document = written[0]["plain"]
    assert document["@timestamp"] == "2026-01-02T03:04:05Z"
    assert document["host"]["name"] == "PC" and document["host"]["uptime"] == 3600
    assert "@timestamp" not in written[0]["timeless"] and "name" not in written[0]["timeless"]["host"]
    assert "1 document without @timestamp" in written[2]


def test_what_a_frame_lacks_makes_it_unknown() -> None:
    lacking = dict.fromkeys(("Module", "ModulePath", "Symbol", "Backing"))
    assert module_of(lacking) == "Unknown"
    assert module_of({**lacking, "Backing": "mapped", "Symbol": "<mapped>+0x1"}) == "Unknown"
    assert module_of({**lacking, "Backing": "image", "Module": "Ntfs"}) == "ntfs"
