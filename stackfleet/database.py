# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake in DuckDB: a view for each table, with the rows of images that are done and not damaged.

with Database(Lake(folder)) as database:
    database.table("SELECT count(*) FROM traces")
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Callable, Optional

import duckdb
import pyarrow as pa

from .columns import ROW, SCHEMAS, TIME, UNITED
from .lake import DAMAGED, Contents, Depth, Lake, LakeError
from .layout import IMAGE, MANIFESTS, TABLES
from .manifests import DONE, SQL_TYPES
from .output import plain
from .snapshots import within
from .sqltext import chosen, one_of, quoted, sql_list, sql_rows
from .storeerrors import StoreError

HALF = """\
CREATE OR REPLACE MACRO half(key, place) AS
    (SELECT (CASE WHEN number >= 9223372036854775808 THEN number::HUGEINT - 18446744073709551616
                  ELSE number::HUGEINT END)::BIGINT
     FROM (SELECT ('0x' || (CASE WHEN regexp_full_match(key, '[0-9a-f]{32}') THEN key ELSE sha256(key) END)
                           [16 * place + 1 : 16 * place + 16])::UBIGINT AS number))"""
"""Half of a key, as computed by `keys.halves`."""

TOTAL = """\
CREATE OR REPLACE MACRO total(number) AS
    greatest(least(sum(number), 9223372036854775807), -9223372036854775808)::BIGINT"""
"""The sum of numbers; one that 64 bits cannot hold becomes the nearest that they can."""

HOSTS = "hosts"
_DONE = "done_images"
"""The table of the images whose rows the views have."""

_HOSTS = f"""\
CREATE OR REPLACE VIEW {HOSTS} AS
SELECT ImageId, Host, dense_rank() OVER (ORDER BY Host) AS HostNumber,
       CASE WHEN Host = ImageId THEN 'no name: ' || ImageId ELSE Host END AS HostText
FROM (SELECT ImageId, coalesce(upper(ComputerName), ImageId) AS Host FROM image)"""
"""An image that does not record its computer counts as a host of its own."""

_FORM = quoted(json.dumps(SQL_TYPES)).replace("{", "{{").replace("}", "}}")

_MANIFESTS = f"""\
CREATE OR REPLACE VIEW {MANIFESTS} AS
SELECT image_id, CASE WHEN problem IS NOT NULL THEN {quoted(DAMAGED)} ELSE status END AS status,
       coalesce(problem, reason) AS reason, * EXCLUDE (image_id, status, reason, problem),
       coalesce(list_sum([each.rows for each in map_values(tables)]), 0)::BIGINT AS "rows",
       identity.compared AS same_id_as
FROM (
    SELECT coalesce(image_id, damaged_id) AS image_id, * EXCLUDE (image_id, damaged_id)
    FROM (
        SELECT ImageId AS image_id,
               unnest(from_json(CASE WHEN json_valid(Manifest) THEN Manifest ELSE '{{{{}}}}' END, {_FORM}))
        FROM {{source}}
    ) FULL JOIN {{damaged}} ON image_id = damaged_id
)"""

ROWS = 4096
"""The number of rows that are held at a time, if not all are."""


_OF_QUERY = (
    duckdb.ParserException,
    duckdb.SyntaxException,
    duckdb.CatalogException,
    duckdb.PermissionException,
    duckdb.OutOfMemoryException,
    duckdb.InterruptException,
)
"""Errors caused by the query itself, whatever the lake contains."""


class SqlError(Exception):
    """DuckDB rejects a statement; the text gives the reason.

    Attributes:
        of_files: whether files of the lake may be the cause
    """

    def __init__(self, error: Exception) -> None:
        message = str(error)
        if isinstance(error, duckdb.CatalogException) and "Table" in message:
            message += f"\nThe views of a lake are {', '.join((*TABLES, MANIFESTS, HOSTS))}."
        super().__init__(message)
        of_reading = isinstance(error, (duckdb.Error, pa.ArrowException, OSError))
        self.of_files = of_reading and not isinstance(error, _OF_QUERY)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Turns the errors of DuckDB, and of the files that it reads, into a SqlError."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError, StoreError) as error:
        raise SqlError(error) from error


class Database:
    """The views of a lake (a context). A query can read the rows of its views, and no file.

    Args:
        memory: memory limit of DuckDB, such as `1GB`; None for its own limit
        threads: number of threads; None for one per processor
        contents: images of the views; None for all of the lake

    Attributes:
        images: number of images that are done
    """

    def __init__(
        self,
        lake: Lake,
        memory: Optional[str] = None,
        threads: Optional[int] = None,
        contents: Optional[Contents] = None,
    ) -> None:
        self._uri = lake.uri
        self.contents = lake.contents() if contents is None else contents
        self.images = 0
        self._views: set[str] = set()
        self._registered: set[str] = set()
        self._settings = ["SET TimeZone = 'UTC'"]
        if memory:
            self._settings.append(f"SET memory_limit = {quoted(memory)}")
        if threads:
            self._settings.append(f"SET threads = {threads}")

    def narrow(self, image_ids: Optional[Sequence[str]]) -> None:
        """Restricts the views to some images: one connection serves many images faster than many do.

        Args:
            image_ids: None for all images again
        """
        self.contents = Contents(self.contents.snapshot, self.contents.damaged, image_ids)
        self._views.clear()

    def __enter__(self) -> Database:
        with contextlib.ExitStack() as contexts:
            temporary = contexts.enter_context(tempfile.TemporaryDirectory(prefix="stackfleet-"))
            self._connection = contexts.enter_context(duckdb.connect())
            with _explained():
                for statement in (
                    *self._settings,
                    # Otherwise DuckDB would put this folder into the current one.
                    f"SET temp_directory = {quoted(temporary)}",
                    "SET enable_external_access = false",
                    "SET lock_configuration = true",
                    HALF,
                    TOTAL,
                ):
                    self._connection.execute(statement)
            self.images = self.value(f"SELECT count(*) FROM {MANIFESTS} WHERE status = {quoted(DONE)}")
            self._contexts = contexts.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._contexts.close()

    def script(self, sql: str) -> str:
        """Returns a query with the views that it needs, to run in DuckDB's own command line."""
        snapshot = self.contents.snapshot
        files = [] if snapshot is None else snapshot.files

        def source(table: str) -> str:
            paths = [f"{self._uri}/{file.path}" for file in files if file.table == table]
            return f"read_parquet({sql_list(paths)}, hive_partitioning = true, union_by_name = true)"

        statements = [*self._settings, HALF, TOTAL]
        for name in self._wanted(sql):
            statements += self._view(name, source)
        return "".join(f"{statement};\n" for statement in (*statements, sql))

    def reads_tables(self, sql: str) -> bool:
        """Returns whether a query may read a table, and not only the manifests."""
        return mentions(sql, (*TABLES, HOSTS))

    def table(self, sql: str) -> Any:
        """Returns the rows of a query as an Arrow table.

        Raises:
            LakeError: the lake has no image that is done
            SqlError: DuckDB rejects the query
        """
        with _explained():
            reader = self._relation(sql).to_arrow_reader(ROWS)
            return within(reader, reader.schema)

    def rows(self, sql: str) -> Generator[dict[str, Any], None, None]:
        """Yields the rows of a query as plain values; few are held at a time.

        Who does not take all of them closes the generator before the next query.

        Raises:
            LakeError, SqlError: see `table`; the query may fail after rows were yielded
        """
        with _explained():
            for batch in self._relation(sql).to_arrow_reader(ROWS):
                batch.validate(full=True)
                yield from plain([batch])

    def statements(self, sql: str) -> list[str]:
        """Returns the kinds of the statements of a text, such as SELECT.

        Raises:
            SqlError: it is no SQL
        """
        with _explained():
            return [statement.type.name for statement in self._connection.extract_statements(sql)]

    def value(self, sql: str) -> Any:
        """Returns the only value of a query; see `table`."""
        return self.table(sql).column(0)[0].as_py()

    def _relation(self, sql: str) -> Any:
        wanted = self._wanted(sql)
        if MANIFESTS not in wanted and not self.images:
            raise LakeError(f"{self._uri}: no image of this lake is done (stackfleet status shows why)")
        with _explained():
            for name in wanted:
                if name not in self._views:
                    self._views.add(name)
                    for statement in self._view(name, self._rows):
                        self._connection.execute(statement)
            relation = self._connection.sql(sql)
        if relation is None:
            raise SqlError(ValueError("this statement is not a query: it returns no rows"))
        return relation

    def _wanted(self, sql: str) -> list[str]:
        """Returns the views that a query may mention, those first that others need."""
        hosts = [IMAGE, HOSTS] if mentions(sql, (HOSTS,)) else []
        tables = [name for name in TABLES if name in hosts or mentions(sql, (name,))]
        manifests = [MANIFESTS] if mentions(sql, (MANIFESTS,)) else []
        return [*([_DONE] if tables else []), *tables, *manifests, *hosts[1:]]

    def _rows(self, table: str) -> str:
        """Returns the name under which DuckDB knows the rows of a table, and registers them if needed."""
        name = f"rows_of_{table}"
        if name not in self._registered:
            self._registered.add(name)
            snapshot = self.contents.snapshot
            rows = UNITED.empty_table() if snapshot is None else snapshot.datasets(table)
            self._connection.register(name, rows)
        return name

    def _view(self, name: str, rows: Callable[[str], str]) -> Iterator[str]:
        """Yields the statements that create a view.

        Args:
            rows: function that returns the source of the rows of a table, in SQL
        """
        if name == HOSTS:
            yield _HOSTS
            return
        damaged = [(item.image_id, item.reason) for item in self.contents.damaged]
        these = chosen("ImageId", self.contents.only)
        if name == MANIFESTS:
            source = f"(SELECT * FROM {rows(MANIFESTS)} WHERE {these})"
            yield _MANIFESTS.format(source=source, damaged=sql_rows(damaged, ("damaged_id", "problem")))
            return
        if name == _DONE:
            bad = one_of("ImageId", (image_id for image_id, _ in damaged))
            yield (
                f"CREATE OR REPLACE TABLE {_DONE} AS SELECT DISTINCT ImageId FROM {rows(MANIFESTS)} "
                f"WHERE Status = {quoted(DONE)} AND {these} AND NOT coalesce({bad}, false)"
            )
            return
        yield (
            f"CREATE OR REPLACE VIEW {name} AS SELECT {_columns(name)} FROM {rows(name)} "
            f"SEMI JOIN {_DONE} USING (ImageId) WHERE {these}"
        )


def _columns(table: str) -> str:
    """Returns the select list of a view. A time that Python's calendar lacks becomes null."""
    columns = []
    for field in SCHEMAS[table].append(ROW):
        name = f'"{field.name}"'
        if field.type == TIME:
            name = f"CASE WHEN {name} BETWEEN {_FIRST_TIME} AND {_LAST_TIME} THEN {name} END AS {name}"
        columns.append(name)
    return ", ".join(columns)


_FIRST_TIME, _LAST_TIME = (f"TIMESTAMPTZ '{day} 00:00:00+00'" for day in ("0001-01-02", "9999-12-30"))


def mentions(sql: str, names: Iterable[str]) -> bool:
    """Returns whether a query may mention a view."""
    return re.search(rf"\b({'|'.join(names)})\b", sql, re.IGNORECASE) is not None


class NothingLeftError(LakeError):
    """No image is left that a query can read.

    Attributes:
        contents: contents of the lake, with the damaged images
    """

    def __init__(self, error: LakeError, contents: Contents) -> None:
        super().__init__(str(error))
        self.contents = contents


def query_whole(
    lake: Lake, run: Callable[[Contents], None], depth: Depth = Depth.SIZE, again: bool = True
) -> Contents:
    """Runs a query on the images of a lake that are not damaged; returns the contents that it had.

    Args:
        again: whether to search for damaged images after an error that files may have caused, and to repeat
            without them

    Raises:
        SqlError: DuckDB rejects the query
        NothingLeftError: the lake has no image that is done and not damaged
    """
    contents = lake.contents(depth)
    while True:
        try:
            run(contents)
            return contents
        except SqlError as error:
            closer_look = _more_damaged(lake, contents, depth) if again and error.of_files else None
            if closer_look is None:
                raise
            contents, depth = closer_look
        except LakeError as error:
            raise NothingLeftError(error, contents) from error


def _more_damaged(lake: Lake, contents: Contents, depth: Depth) -> Optional[tuple[Contents, Depth]]:
    """Returns the contents of a lake after a closer check; None if this finds no more damage."""
    for closer in Depth:
        if closer > depth:
            closer_contents = lake.contents(closer)
            if len(closer_contents.damaged) > len(contents.damaged):
                return closer_contents, closer
    return None
