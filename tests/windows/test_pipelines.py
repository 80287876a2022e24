# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Readers of pipelines take the flat tables of all images as one: DuckDB, Polars, JSON schema."""

from __future__ import annotations

import pathlib
from typing import Any, Callable, Dict, Iterator, List, Set

import duckdb
import jsonschema
import polars
import pytest

from tests.conftest import ROOT, SHARED
from tests.docs import jsonschemas, pages, tables
from tests.forge import context, kernels, real_sets, sample
from tests.forge.context import Opened
from tests.forge.kernel import Kernel
from tests.support import flatfiles, realtruth
from tests.support.environments import system_process
from tests.support.only import only
from winstacks.columns import dictionary
from winstacks.columns.tables import FLAT
from winstacks.memory.decode.statuscodes import StatusCode

pytest.importorskip("volatility3.plugins.renderers.parquet_renderer")

TABLES = tuple(FLAT)
REAL = sorted((SHARED / "real_std").glob("*.tar.xz"))
POLARS = {
    dictionary.STR: polars.String,
    dictionary.INT: polars.Int64,
    dictionary.BOOL: polars.Boolean,
    dictionary.HEX: polars.UInt64,
    dictionary.ADDRESS: polars.UInt64,
    dictionary.HEXSTR: polars.String,
    dictionary.TIME: polars.Datetime("ms"),
}
QUESTIONS = [
    block.text
    for block in pages.blocks(pages.read(ROOT / "docs" / "pipelines.md"))
    if block.language == "sql" and block.mark is None and "parquet" in block.text
]


def open_sample(folder: pathlib.Path) -> Opened:
    return context.open_image(sample.build().image(), folder)


def open_without_traces(folder: pathlib.Path) -> Opened:
    known = kernels.load("win10-x64")
    return context.open_image(Kernel(known.table, **known.options()).image(), folder)


def open_truncated(folder: pathlib.Path) -> Opened:
    return context.open_truncated(sample.build().image(), folder)


def open_xp(folder: pathlib.Path) -> Opened:
    known = kernels.load("xp-x86")
    kernel = Kernel(known.table, **known.options())
    system_process(kernel, "services.exe", 600, "OFFICE").thread(604)
    return context.open_image(kernel.image(), folder)


IMAGES: Dict[str, Callable[[pathlib.Path], Opened]] = {
    "sample": open_sample,
    "without traces": open_without_traces,
    "truncated": open_truncated,
    "xp": open_xp,
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, pathlib.Path]:
    """A folder of tables for each image."""
    folders = {}
    for name, opens in IMAGES.items():
        folders[name] = tmp_path_factory.mktemp(name.replace(" ", "-"))
        flatfiles.write(opens(folders[name]), folders[name])
    return folders


def parquet(folders: Dict[str, pathlib.Path], table: str) -> str:
    """What stands behind FROM: the table of all images, as one that must have the same types everywhere."""
    files = ", ".join(f"'{folder / table}.parquet'" for folder in folders.values())
    return f"read_parquet([{files}])"


def read_json(path: pathlib.Path, table: str) -> str:
    """What stands behind FROM: JSON lines as the documentation reads them."""
    return f"read_json('{path}', format='newline_delimited', columns={{{tables.duckdb_columns(table)}}})"


class Checker:
    """Validates lines as jsonschema does with the whole schema, each value of a column once.

    The schema asks each column for itself, and for all columns to be there: nothing depends on two of them.
    """

    def __init__(self, table: str) -> None:
        schema = jsonschemas.make(table)
        self._whole = jsonschema.Draft202012Validator(
            {**schema, "properties": {name: {} for name in schema["properties"]}}
        )
        self._columns = {
            name: jsonschema.Draft202012Validator(column) for name, column in schema["properties"].items()
        }
        self._known: Set[str] = set()

    def errors(self, row: Dict[str, Any]) -> Iterator[str]:
        shape = " ".join(row)
        if shape not in self._known:
            self._known.add(shape)
            yield from (error.message for error in self._whole.iter_errors(row))
        for name, value in row.items():
            key = f"{name} {value!r}"
            if key not in self._known:
                self._known.add(key)
                yield from (error.message for error in self._columns[name].iter_errors(value))


def check_lines(folder: pathlib.Path) -> None:
    """Asserts that each line is what the JSON schema says, and that no row is a second one."""
    for table in TABLES:
        checker = Checker(table)
        rows = flatfiles.lines(folder / f"{table}.jsonl")
        assert [error for row in rows for error in checker.errors(row)] == []
    traces, images = (flatfiles.lines(folder / f"{table}.jsonl") for table in ("traces", "traceimage"))
    image = only(images)
    assert {row["ImageId"] for row in traces} <= {image["ImageId"]}
    assert len({row["TraceId"] for row in traces}) == len(traces)


def query(statement: str) -> duckdb.DuckDBPyRelation:
    """What a SELECT finds (DuckDB has no relation for other statements)."""
    found = duckdb.sql(statement)
    assert found is not None
    return found


def check_readers(folder: pathlib.Path) -> None:
    """Asserts that DuckDB and Polars read JSON lines and Parquet alike, in the types of the schema."""
    for table, columns in FLAT.items():
        path = folder / f"{table}.parquet"
        found = query(f"SELECT * FROM '{path}'")
        assert found.columns == [column.name for column in columns]
        assert found.types == [tables.DUCKDB_TYPES[column.type] for column in columns]
        times = [column.name for column in columns if column.type == dictionary.TIME]
        cut = ", ".join(f"date_trunc('milliseconds', {name}) AS {name}" for name in times)
        replaced = f"* REPLACE ({cut})" if cut else "*"
        lines = query(f"SELECT {replaced} FROM {read_json(path.with_suffix('.jsonl'), table)}")
        rows = lines.fetchall()
        assert (rows, lines.types) == (found.fetchall(), found.types)
        frame = polars.read_parquet(path)
        assert dict(frame.schema) == {column.name: POLARS[column.type] for column in columns}
        assert frame.rows() == rows
        text: Dict[str, Any] = {
            column.name: polars.String if column.type == dictionary.TIME else POLARS[column.type]
            for column in columns
        }
        read = polars.read_ndjson(path.with_suffix(".jsonl"), schema=text)
        others = [column.name for column in columns if column.type != dictionary.TIME]
        assert read.select(others).rows() == frame.select(others).rows()


@pytest.mark.parametrize("name", IMAGES)
def test_each_line_is_what_the_schema_says(name: str, lake: Dict[str, pathlib.Path]) -> None:
    check_lines(lake[name])


@pytest.mark.parametrize("name", IMAGES)
def test_json_lines_and_parquet_are_read_alike(name: str, lake: Dict[str, pathlib.Path]) -> None:
    check_readers(lake[name])


def test_the_image_without_traces_has_none(lake: Dict[str, pathlib.Path]) -> None:
    counts = [len(flatfiles.lines(lake["without traces"] / f"{table}.jsonl")) for table in TABLES]
    assert counts == [0, 0, 0, 1]
    assert all(flatfiles.lines(lake["sample"] / f"{table}.jsonl") for table in TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_one_query_reads_all_images(table: str, lake: Dict[str, pathlib.Path]) -> None:
    rows = sum(len(flatfiles.lines(folder / f"{table}.jsonl")) for folder in lake.values())
    found = query(f"SELECT * FROM {parquet(lake, table)}")
    assert len(found.fetchall()) == rows
    assert found.types == [tables.DUCKDB_TYPES[column.type] for column in FLAT[table]]
    files = [folder / f"{table}.parquet" for folder in lake.values()]
    assert polars.read_parquet(files).height == rows


@pytest.mark.parametrize("table", TABLES)
def test_each_column_is_selected_by_its_bare_name(table: str, lake: Dict[str, pathlib.Path]) -> None:
    for column in FLAT[table]:
        found = query(f"SELECT {column.name} FROM {parquet(lake, table)} t ORDER BY {column.name}")
        assert found.columns == [column.name]


def test_image_and_trace_are_a_key_over_all_images(lake: Dict[str, pathlib.Path]) -> None:
    traces, frames = parquet(lake, "traces"), parquet(lake, "traceframes")
    again = f"SELECT ImageId, TraceId FROM {traces} GROUP BY ALL HAVING count(*) > 1"
    assert query(again).fetchall() == []
    lost = f"SELECT 1 FROM {frames} f LEFT JOIN {traces} t USING (ImageId, TraceId) WHERE t.Kind IS NULL"
    assert query(lost).fetchall() == []
    twice = f"SELECT ImageId, TraceId, Frame FROM {frames} GROUP BY ALL HAVING count(*) > 1"
    assert query(twice).fetchall() == []
    images = query(f"SELECT count(*), count(DISTINCT ImageId) FROM {parquet(lake, 'traceimage')}")
    assert images.fetchall() == [(len(IMAGES), len(IMAGES))]


def answers(statement: str, folders: Dict[str, pathlib.Path]) -> List[Any]:
    for table in TABLES:
        statement = statement.replace(f"'{table}.parquet'", parquet(folders, table))
    return list(query(statement).fetchall())


@pytest.mark.parametrize("question", QUESTIONS, ids=range(len(QUESTIONS)))
def test_the_questions_of_the_page_are_one_statement_for_all_images(
    question: str, lake: Dict[str, pathlib.Path]
) -> None:
    """What the sample answers is among what all images answer, whatever else these have."""
    alone = answers(question, {"sample": lake["sample"]})
    together = answers(question, {name: lake[name] for name in ("sample", "without traces", "xp")})
    assert alone
    assert set(alone) <= set(together)


def test_the_page_has_its_questions_and_their_answers(lake: Dict[str, pathlib.Path]) -> None:
    sample_only = {"sample": lake["sample"]}
    unbacked, locks, waits, leaks, _, forms = (answers(question, sample_only) for question in QUESTIONS)
    assert (4312, "updater.exe", "user", "private", 1, 1) in unbacked
    assert (0, "nt", "std", "none", 1, 1) in unbacked
    held = {(address, tid, process) for address, _, tid, _, process, _ in locks}
    assert ("0xe0001000c8f0", 4316, "updater.exe") in held
    shared = {tid for address, tid, _ in held if address == "0xe0001000c9f0"}
    assert shared == {4316, 4320}
    assert len(held) == len(locks) == 6
    assert [row[2:8] for row in waits[:2]] == [
        (6204, "critical section", "0xe000000a80", 6208, "deadlock", 1),
        (6208, "critical section", "0xe0000009c0", 6204, "deadlock", 1),
    ]
    # The address of a lock is written as Owner is: both name the sections that the threads hold.
    assert {row[4] for row in waits[:2]} == {
        address for address, _, process in held if process == "spooler.exe"
    }
    assert leaks[0] == (98304, 24, 1, "updater!load_settings+0x47; updater!main+0x31")
    for _, offset, from_trace_id, thread, thread_offset in forms:
        assert offset == from_trace_id
        assert int(thread, 16) == thread_offset


@pytest.mark.parametrize("table", jsonschemas.PLUGINS)
def test_the_schemas_in_the_documentation_are_made_of_the_code(table: str) -> None:
    assert jsonschemas.path(table).read_text(encoding="utf-8") == jsonschemas.text(table)
    jsonschema.Draft202012Validator.check_schema(jsonschemas.make(table))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("Kind", "fiber"),
        ("PID", "4"),
        ("Owner", "FFFF8000"),
        ("ProcessOffset", -1),
        ("ThreadCreateTime", "2024-02-29 12:00:00"),
        ("Status", "unheard of"),
        ("Status", "unsure unsure"),
        ("ImageId", "1"),
        ("Schema", 1),
        ("Column", 1),
        ("__children", [{}]),
    ],
)
def test_the_schema_refuses_what_no_row_has(
    column: str, value: object, lake: Dict[str, pathlib.Path]
) -> None:
    validator = jsonschema.Draft202012Validator(jsonschemas.make("traces"))
    row = flatfiles.lines(lake["sample"] / "traces.jsonl")[0]
    validator.validate(row)
    wrong = {**row, column: value}
    assert not validator.is_valid(wrong)
    if column in row:
        assert list(Checker("traces").errors(wrong)) == [
            error.message for error in validator.iter_errors(wrong)
        ]


def test_the_schema_takes_all_words_of_status() -> None:
    validator = jsonschema.Draft202012Validator(jsonschemas.make("traces")["properties"]["Status"])
    for word in (code.value for code in StatusCode):
        text = word.format(-3, members="Tcb.Process Cid")
        validator.validate(text)
        validator.validate(f"unsure, {text}, {text}")


@pytest.mark.shared
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name.split(".tar")[0])
def test_what_windows_wrote(
    path: pathlib.Path, lake: Dict[str, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    real = real_sets.load(path)
    image = realtruth.image_of(real, realtruth.kernels_of(real.name)[0], False)
    flatfiles.write(context.open_image(image, tmp_path), tmp_path)
    check_lines(tmp_path)
    check_readers(tmp_path)
    both = {"sample": lake["sample"], "real": tmp_path}
    for table in TABLES:
        rows = sum(len(flatfiles.lines(folder / f"{table}.jsonl")) for folder in both.values())
        assert query(f"SELECT * FROM {parquet(both, table)}").shape[0] == rows
