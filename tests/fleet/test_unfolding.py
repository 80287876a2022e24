# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Small files of a stranger's lake that unfold to gigabytes: refused by the headers of their pages."""

from __future__ import annotations

import os
import pathlib
from typing import Any, Callable, Dict, List, Tuple

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake._internal import DeltaFileSystemHandler
from deltalake.fs import DeltaStorageHandler

from stackfleet import lakefiles, lakefolder, parquetpages, snapshots
from stackfleet.lake import Depth, Lake
from stackfleet.parquetpages import UnfoldingError, rows_at_a_time
from tests.conftest import ROOT
from tests.support.attackedlakes import Attack
from tests.support.fleetrun import called, fleet, measured
from tests.support.only import only

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/status"), reason="asks Linux for the memory of a process"
)

MEGABYTE = 1 << 20
CONTRADICTED = ROOT / "tests" / "fuzz" / "finds" / "parquetpages.4cedee72f008b120"
ONE_PAGE = {"use_dictionary": False, "data_page_size": (1 << 31) - 1, "write_batch_size": 1 << 20}


def plant(attack: Attack, table: Any, **form: Any) -> pathlib.Path:
    """Puts a file in the place of the stacks of `i1`."""
    rows = table.num_rows
    ids = {"ImageId": "i1", "TraceId": "std:0", "Kind": "std", "StackKey": "k"}
    for name, text in ids.items():
        table = table.append_column(name, pa.array([text]).take(pa.repeat(pa.scalar(0), rows)))
    table = table.append_column("Row", pa.repeat(pa.scalar(0, pa.int64()), rows))
    path = attack.file().with_name("z.parquet")
    options = {"compression": "zstd", "row_group_size": rows, "write_statistics": False, **form}
    pq.write_table(table, path, **options)
    attack.put(path, rows)
    return path


def same(text: Any, rows: int) -> Any:
    """A column of one value, without its letters for each row."""
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([text]))


def texts(rows: int) -> Any:
    """A column of long texts, each with its letters."""
    return pa.array(["x" * MEGABYTE] * rows)


def one_page(attack: Attack) -> pathlib.Path:
    return plant(attack, pa.table({"Stack": texts(400)}), **ONE_PAGE)


def long_list() -> Any:
    """One row with millions of nulls."""
    return pa.ListArray.from_arrays([0, 60_000_000], pa.nulls(60_000_000, pa.int64()))


def _number(value: int) -> bytes:
    """An integer from 0 as Thrift's compact protocol has it."""
    value <<= 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes((*found, value))


def _structure(*fields: Tuple[int, bytes]) -> bytes:
    """A structure of Thrift's compact protocol: steps between the numbers of fields with their types."""
    return b"".join(bytes((head,)) + value for head, value in fields) + b"\0"


def _one(kind: int, item: bytes) -> bytes:
    """A list of one item of a type."""
    return bytes((0x10 | kind,)) + item


def sparse_pages(attack: Attack) -> pathlib.Path:
    """Pages of one number each, behind which are 64 MB of zeros: 100 bytes with brotli."""
    size, count = 64 << 20, 200
    data = pa.Codec("brotli").compress(bytes(size), asbytes=True)
    header = _structure((0x15, _number(1)), (0x15, _number(0)), (0x15, _number(3)), (0x15, _number(3)))
    sizes = (0x15, _number(0)), (0x15, _number(size)), (0x15, _number(len(data)))
    pages = (_structure(*sizes, (0x2C, header)) + data) * count
    column = _structure(
        *((0x15, _number(2)), (0x19, _one(5, _number(0))), (0x19, _one(8, b"\3Row")), (0x15, _number(4))),
        *((0x16, _number(count)), (0x16, _number(size * count)), (0x16, _number(len(pages)))),
        (0x26, _number(4)),
    )
    chunk = _one(12, _structure((0x26, _number(4)), (0x1C, column)))
    group = _structure((0x19, chunk), (0x16, _number(size * count)), (0x16, _number(count)))
    root = _structure((0x48, b"\6schema"), (0x15, _number(1)))
    row = _structure((0x15, _number(2)), (0x25, _number(0)), (0x18, b"\3Row"))
    schema = b"\x2c" + root + row
    footer = _structure((0x15, _number(1)), (0x19, schema), (0x16, _number(count)), (0x19, _one(12, group)))
    path = attack.file().with_name("z.parquet")
    path.write_bytes(b"PAR1" + pages + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    assert pq.read_metadata(path).num_rows == count
    attack.put(path, count)
    return path


COLUMNS = ("Stack", "Process", "Symbol", "Module", "Frame", "Status", "Host", "Reason", "Key", "Other")
PREFIXES: Dict[str, Any] = {"use_dictionary": False, "column_encoding": {"Stack": "DELTA_BYTE_ARRAY"}}
BOMBS: Dict[str, Tuple[Callable[[Attack], pathlib.Path], str]] = {
    "one page": (one_page, "its pages unfold to"),
    "one text of a dictionary for more rows": (
        lambda a: plant(a, pa.table({"Stack": same("x" * MEGABYTE, 9_000)})),
        "letters in its rows",
    ),
    # Each page has a size that is allowed, all of them have not.
    "many columns": (
        lambda a: plant(a, pa.table(dict.fromkeys(COLUMNS, texts(40))), **ONE_PAGE),
        "its pages unfold to",
    ),
    "texts that repeat the one before": (
        lambda a: plant(a, pa.table({"Stack": texts(400)}), **PREFIXES),
        "an encoding that lakes do not use",
    ),
    "pages of one number": (sparse_pages, "bytes in its unfolded pages"),
    "a long list": (lambda a: plant(a, pa.table({"Versions": long_list()})), "its pages unfold to"),
    "rows of nulls": (lambda a: plant(a, pa.table({"Stack": pa.nulls(30_000_000, pa.string())})), "rows"),
}
"""Files below 1 MB that need 400 MB to 300 GB, and why they are refused."""


SQL = ["sql", "SELECT count(*) FROM traces WHERE Stack <> 'b'"]
COMMANDS: List[List[str]] = [
    *(["status"], SQL, ["rare"], ["findings"], ["waits"]),
    *(["export", "--to", "folded"], ["report"], ["compact"]),
]
READ_STACKS = ("sql", "rare", "export", "report", "compact")


def refused(attack: Attack, command: List[str], reason: str, tmp_path: pathlib.Path) -> None:
    name, *more = command
    pages = ["-o", str(tmp_path / "pages")] if name == "report" else []
    code, errors, most = measured(name, attack.lake, *more, *pages)
    assert "Traceback" not in errors
    assert most < 400, (command, most)
    assert reason in errors and "Table=traces/z.parquet" in errors
    assert code == (2 if name == "compact" else 3), errors


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_that_unfolds_to_gigabytes_is_left_out(
    name: str, attack: Attack, tmp_path: pathlib.Path
) -> None:
    """By its name, with the images that have no other rows; nothing of it was decoded."""
    make, reason = BOMBS[name]
    assert make(attack).stat().st_size < MEGABYTE
    refused(attack, SQL, reason, tmp_path)


def test_pages_are_summed(attack: Attack) -> None:
    """Each alone is small enough: Arrow would unfold one after the other, 13 GB for 20 KB."""
    with pytest.raises(UnfoldingError, match="bytes in its unfolded pages"):
        rows_at_a_time(sparse_pages(attack))


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] in READ_STACKS], ids=" ".join)
def test_every_command_refuses_it(command: List[str], attack: Attack, tmp_path: pathlib.Path) -> None:
    make, reason = BOMBS["one page"]
    make(attack)
    refused(attack, command, reason, tmp_path)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c[0] not in READ_STACKS], ids=" ".join)
def test_commands_that_need_none_of_it_work(command: List[str], attack: Attack) -> None:
    one_page(attack)
    name, *more = command
    code, errors, most = measured(name, attack.lake, *more)
    assert (code, errors) == (0, ""), errors
    assert most < 400


def test_the_image_can_be_forgotten_and_the_rest_be_merged(attack: Attack) -> None:
    one_page(attack)
    called("forget", attack.lake, "i1", code=0)
    called("compact", attack.lake, code=0)
    done = called("sql", attack.lake, "SELECT Stack FROM traces", "--format", "csv")
    assert (done.returncode, done.stdout.split("\n")[1]) == (0, "stack of i2")


def uploaded(attack: Attack, bucket: str) -> str:
    """The lake in a bucket."""
    store = DeltaFileSystemHandler(bucket)
    for path in filter(pathlib.Path.is_file, attack.lake.rglob("*")):
        stream: Any = store.open_output_stream(path.relative_to(attack.lake).as_posix())
        stream.write(path.read_bytes())
        stream.close()
    return bucket


# Nothing of ours knows one store from another: tests/fleet/test_lake.py has each of them.
@pytest.mark.parametrize("server", ["s3"], indirect=True)
def test_files_and_checkpoints_of_a_bucket_are_refused(
    attack: Attack, bucket: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_page(attack)
    lake, attack.lake = attack.lake, uploaded(attack, bucket)  # type: ignore[assignment]
    for command in (SQL, ["rare"], ["compact"]):
        refused(attack, command, BOMBS["one page"][1], tmp_path)
    code, errors, _ = measured("status", bucket)
    assert (code, errors) == (0, "")
    # A file that is too large to be kept is looked at in ranges.
    monkeypatch.setattr(lakefiles, "MOST_KEPT", 0)
    damaged = Lake(bucket).contents(Depth.FORM).damaged
    assert BOMBS["one page"][1] in only(item.reason for item in damaged if "z.parquet" in item.image_id)
    attack.lake = lake
    unfolding_checkpoint(attack, f"{2:020}.checkpoint.parquet")
    code, errors, most = measured("status", uploaded(attack, bucket))
    assert (code, "unfolds to more than" in errors) == (2, True), errors
    assert most < 600


def test_a_file_of_a_bucket_is_requested_once(
    attack: Attack, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: List[str] = []
    known = DeltaStorageHandler.open_input_file

    def counted(self: Any, path: str) -> Any:
        requested.append(path)
        return known(self, path)

    monkeypatch.setattr(DeltaStorageHandler, "open_input_file", counted)
    lake = Lake(uploaded(attack, bucket))
    for _ in range(2):
        assert not lake.contents(Depth.CONTENT).damaged
        assert len(lake.manifests()) == 2
    files = {path for path in requested if path.startswith("Table=")}
    assert len(files) == lake.files()
    fetched = [path for path in requested if path.startswith("Table=manifests")]
    assert len(fetched) == len(set(fetched))


@pytest.mark.parametrize(("rows", "letters"), [(1_000, MEGABYTE), (250_000, 4_000)])
def test_what_is_allowed_is_read_a_few_rows_at_a_time(rows: int, letters: int, attack: Attack) -> None:
    """A file of 200 KB, whose dictionary has one text for all rows, is 1 GB of texts."""
    path = plant(attack, pa.table({"Stack": same("x" * letters, rows)}))
    assert path.stat().st_size < MEGABYTE
    assert rows_at_a_time(path) * letters <= parquetpages.AT_A_TIME
    for (name, *more), expected in ((SQL, 0), (["status", "--verify"], 3)):
        code, errors, most = measured(name, attack.lake, *more)
        assert code == expected, errors
        assert most < 1500, (name, most)


def test_an_answer_of_more_bytes_than_are_held_is_refused(
    attack: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(attack, pa.table({"Stack": same("x" * 4000, 10_000)}))
    monkeypatch.setattr(snapshots, "MOST_BYTES", MEGABYTE)
    done = called("sql", attack.lake, "SELECT Stack FROM traces", code=2)
    assert "need more than 1,048,576 bytes" in done.stderr
    called("sql", attack.lake, "SELECT count(*) FROM traces", code=0)


def test_one_long_text_among_short_ones_is_no_reason(tmp_path: pathlib.Path) -> None:
    """Rows times the longest text would be 12 GB; the texts are summed instead."""
    table = pa.table({"Stack": ["x" * MEGABYTE, *(f"stack {n % 1000}" for n in range(12_000))]})
    pq.write_table(table, tmp_path / "z.parquet", compression="zstd")
    assert 1 <= rows_at_a_time(tmp_path / "z.parquet") < 64


def test_a_checkpoint_of_a_large_lake_is_read(attack: Attack) -> None:
    """It has one long text, the schema, and hundreds of thousands of rows."""
    Lake(str(attack.lake)).compact()
    path = next(attack.log.glob("*.checkpoint.parquet"))
    there = pq.read_table(path)
    pq.write_table(pa.concat_tables([there] * 20_000), path, compression="zstd")
    assert rows_at_a_time(path) < parquetpages.MOST_ROWS
    assert lakefolder.look_at_log(attack.lake)[1] == []


def plant_checkpoint(attack: Attack, name: str, features: Any, schema: bool = False) -> pathlib.Path:
    """Puts a checkpoint into the log whose protocols need lists of features."""
    rows, path = len(features), attack.log / name
    versions = (pa.array([version] * rows, pa.int32()) for version in (1, 2))
    names = ["minReaderVersion", "minWriterVersion", "readerFeatures"]
    table = pa.table({"protocol": pa.StructArray.from_arrays([*versions, features], names)})
    pq.write_table(table, path, compression="zstd", store_schema=schema)
    return path


def unfolding_checkpoint(attack: Attack, name: str, schema: bool = False) -> None:
    """Puts a checkpoint into the log that unfolds to 2 GB."""
    lists = pa.ListArray.from_arrays(range(2_001), same("x" * MEGABYTE, 2_000))
    plant_checkpoint(attack, name, lists, schema)


def test_a_checkpoint_of_one_row_with_a_long_list(attack: Attack) -> None:
    """Millions of nulls in 8 KB."""
    number = lakefolder.MOST_ACTIONS + 1
    features = pa.ListArray.from_arrays([0, number], pa.nulls(number, pa.string()))
    assert plant_checkpoint(attack, f"{2:020}.checkpoint.parquet", features).stat().st_size < 1 << 14
    assert "so many in a list" in called("status", attack.lake, code=2).stderr


@pytest.mark.parametrize("schema", [True, False])
def test_a_checkpoint_whose_texts_unfold(schema: bool, attack: Attack) -> None:
    """With Arrow's schema in its footer, Arrow itself would keep each text once, and Delta would not."""
    unfolding_checkpoint(attack, f"{2:020}.checkpoint.parquet", schema)
    code, errors, most = measured("status", attack.lake)
    assert (code, "unfold" in errors) == (2, True), errors
    assert most < 600


@pytest.mark.parametrize("part", ["", f".{1:010}.{2:010}", ".3a0d65cd-4056-49b8-937b-95f9e3ee90e5"])
def test_a_checkpoint_that_delta_takes_instead_of_the_newest(part: str, attack: Attack) -> None:
    """One behind a newer one that lacks a part, or with a name of a later form of Delta."""
    unfolding_checkpoint(attack, f"{2:020}.checkpoint{part if '-' in part else ''}.parquet")
    attack.commit({"txn": {"appId": "another", "version": 1}})
    if part.count(".") == 2:
        pq.write_table(pa.table({"x": [1]}), attack.log / f"{3:020}.checkpoint{part}.parquet")
    code, errors, most = measured("status", attack.lake)
    assert (code, "unfold" in errors or "features of Delta" in errors) == (2, True), errors
    assert most < 600


def with_views(kind: Any) -> Any:
    """A type in which each text is a view."""
    if pa.types.is_map(kind):
        return pa.map_(with_views(kind.key_type), with_views(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(with_views(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(with_views(field.type)) for field in kind])
    return pa.string_view() if pa.types.is_string(kind) else kind


def test_a_checkpoint_whose_writer_had_views_is_read(attack: Attack) -> None:
    """Parquet has texts; that they were views in the memory of their writer is a note in the footer."""
    Lake(str(attack.lake)).compact()
    path = next(attack.log.glob("*.checkpoint.parquet"))
    there = pq.read_table(path)
    kinds = {field.name: with_views(field.type) for field in there.schema}
    table = {name: pa.array(there.column(name).to_pylist(), kind) for name, kind in kinds.items()}
    try:
        pq.write_table(pa.table(table), path)
    except pa.ArrowNotImplementedError:
        pytest.skip("pyarrow writes views from its version 18 on")
    assert "string_view" in str(pq.read_schema(path))
    done = called("status", attack.lake, "--format", "csv")
    assert (done.returncode, done.stdout.count("/images/")) == (0, 2), done.stderr


def test_a_lake_that_polars_wrote_is_read(attack: Attack) -> None:
    """Its texts are views with statistics, and its lists are large; pyarrow 17 shows the views as texts."""
    copy = attack.folder / "copy"
    polars.read_delta(str(attack.lake)).write_delta(
        str(copy), delta_write_options={"partition_by": ["Table"]}
    )
    DeltaTable(str(copy)).create_checkpoint()
    for command in (["status"], ["status", "--verify"], ["findings"], ["rare"], SQL):
        answers = [called(command[0], lake, *command[1:]) for lake in (attack.lake, copy)]
        assert answers[1].returncode == 0, answers[1].stderr
        assert answers[1].stdout == answers[0].stdout


def test_files_of_ours_are_read_many_rows_at_a_time(attack: Attack) -> None:
    assert not Lake(str(attack.lake)).contents().damaged
    paths = list(attack.lake.glob("Table=*/*.parquet"))
    assert paths and {rows_at_a_time(path) for path in paths} == {parquetpages.MOST_ROWS}


PAGES: Dict[str, bytes] = {
    "no structure": bytes(40),
    "a number without an end": b"\x15" + b"\xff" * 40,
    "a list": b"\x19" + b"\x1c" * 40,
    "structures in structures": b"\x1c" * 40,
    "nothing": b"",
}


@pytest.mark.parametrize("name", PAGES)
def test_headers_of_nonsense(name: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "z.parquet"
    pq.write_table(pa.table({"Stack": ["text"]}), path)
    data = path.read_bytes()
    path.write_bytes(data[:4] + PAGES[name] + data[4 + len(PAGES[name]) :])
    if name == "nothing":
        assert rows_at_a_time(path) == parquetpages.MOST_ROWS
    else:
        with pytest.raises(UnfoldingError, match="cannot be read"):
            rows_at_a_time(path)


def test_statistics_of_a_column_that_contradict_it(attack: Attack) -> None:
    """A file that the fuzzer found: Arrow's view of its column ends the whole process."""
    path = attack.file().with_name("z.parquet")
    path.write_bytes(CONTRADICTED.read_bytes())
    attack.put(path, 3)
    with pytest.raises(UnfoldingError, match="cannot be read"):
        rows_at_a_time(path)
    for command in (["status", "--verify"], ["sql", "SELECT count(*) FROM traces"]):
        done = fleet(command[0], attack.lake, *command[1:])
        assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
        assert "z.parquet" in done.stderr


def test_a_footer_of_any_size(tmp_path: pathlib.Path) -> None:
    (tmp_path / "z.parquet").write_bytes(b"PAR1" + (1 << 30).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(UnfoldingError, match="footer"):
        rows_at_a_time(tmp_path / "z.parquet")
