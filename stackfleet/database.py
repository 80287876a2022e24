# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake in DuckDB: a view for each table, over the files that manifests name and no others.

with Database(Lake(folder)) as database:
    database.table("SELECT count(*) FROM traces")
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Optional

import duckdb

from winstacks.columns.words import EXACT

from . import catalogue
from .catalogue import MANIFESTS
from .contents import Contents
from .lake import Lake, LakeError
from .layout import IMAGE, KEYS, TABLES, TRACES
from .manifests import DONE
from .sqltext import parquet_rows, quoted, sql_list

SIGNED = """\
CREATE OR REPLACE MACRO signed(number) AS
    (CASE WHEN number >= 9223372036854775808 THEN number::HUGEINT - 18446744073709551616
          ELSE number::HUGEINT END)::BIGINT"""
UNSIGNED = """\
CREATE OR REPLACE MACRO unsigned(number) AS
    CASE WHEN number < 0 THEN (number::HUGEINT + 18446744073709551616)::UBIGINT ELSE number::UBIGINT END"""
"""Delta has no unsigned numbers: files hold signed numbers with the same bits."""

HALF = """\
CREATE OR REPLACE MACRO half(key, place) AS
    signed(('0x' || (CASE WHEN regexp_full_match(key, '[0-9a-f]{32}') THEN key ELSE sha256(key) END)
            [16 * place + 1 : 16 * place + 16])::UBIGINT)"""
"""Half of a key, as computed by `keys.halves`."""

HOSTS = """\
CREATE OR REPLACE VIEW hosts AS
SELECT ImageId, Host, dense_rank() OVER (ORDER BY Host) AS HostNumber,
       signed(('0x' || sha256(Host)[1:16])::UBIGINT) AS HostKey
FROM (SELECT ImageId, coalesce(upper(ComputerName), ImageId) AS Host FROM image)"""
"""An image that does not record its computer counts as a host of its own."""

KEYS_AGAIN = f"""\
CREATE OR REPLACE VIEW keys AS
SELECT ImageId, any_value(Schema) AS Schema, half(StackKey, 0) AS StackHigh, half(StackKey, 1) AS StackLow,
       half(ShapeKey, 0) AS ShapeHigh, half(ShapeKey, 1) AS ShapeLow, ModuleSet, HostKey, Kind,
       coalesce(KeyQuality = {quoted(EXACT)} AND NOT Incomplete, false) AS Sure, count(*) AS Stacks,
       sum(Count)::BIGINT AS Count, max(Unbacked) AS Unbacked
FROM traces JOIN (SELECT ImageId, HostKey FROM hosts) USING (ImageId)
GROUP BY ImageId, StackKey, ShapeKey, ModuleSet, HostKey, Kind, Sure"""
"""The table of keys, counted from the stacks."""

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
            message += f"\nThe views of a lake are {', '.join((*TABLES, MANIFESTS, 'hosts'))}."
        super().__init__(message)
        self.of_files = isinstance(error, (duckdb.Error, OSError)) and not isinstance(error, _OF_QUERY)


class Database:
    """The views of a lake (a context). A query can read the files of its views, and no others.

    Args:
        lake: the lake
        memory: memory limit of DuckDB, such as `1GB`; None for its own limit
        threads: number of threads; None for one per processor
        contents: images of the views; None for all of the lake

    Attributes:
        contents: images of the views
        images: number of these images that are done
    """

    def __init__(
        self,
        lake: Lake,
        memory: Optional[str] = None,
        threads: Optional[int] = None,
        contents: Optional[Contents] = None,
    ) -> None:
        self._folder = lake.folder
        self._created: set[str] = set()
        self._views: dict[str, str] = {}
        self.narrow(lake.contents() if contents is None else contents)
        self._settings = ["SET TimeZone = 'UTC'"]
        if memory:
            self._settings.append(f"SET memory_limit = {quoted(memory)}")
        if threads:
            self._settings.append(f"SET threads = {threads}")

    def narrow(self, contents: Contents) -> None:
        """Restricts the views to some of the images: one connection serves many images faster than many do.

        Args:
            contents: some of the images that the context began with
        """
        self.contents = contents
        self.images = sum(item["status"] == DONE for item in contents.manifests)
        self._files = {name: [str(self._folder / path) for path in contents.files(name)] for name in TABLES}
        self._created.clear()
        self._views.clear()

    def __enter__(self) -> Database:
        self._temporary = tempfile.TemporaryDirectory(prefix="stackfleet-")
        self._connection = duckdb.connect()
        files = [path for paths in self._files.values() for path in paths]
        try:
            for statement in (
                *self._settings,
                # Otherwise DuckDB would put this folder into the current one.
                f"SET temp_directory = {quoted(self._temporary.name)}",
                f"SET allowed_paths = {sql_list(files)}",
                "SET enable_external_access = false",
            ):
                self._connection.execute(statement)
        except duckdb.Error as error:
            self.__exit__()
            raise SqlError(error) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._temporary.cleanup()

    def views(self, sql: str) -> list[str]:
        """Returns the statements that create the views a query may mention, without `manifests`."""
        if not self.images:
            return []
        counted = self.contents.counted
        wanted_tables = {name for name in TABLES if mentions(sql, (name,))}
        hosts = mentions(sql, ("hosts",)) or (KEYS in wanted_tables and not counted)
        wanted_tables |= {IMAGE} if hosts else set()
        wanted_tables |= {TRACES} if KEYS in wanted_tables and not counted else set()
        statements = [SIGNED, UNSIGNED, HALF]
        statements += [
            self._view(name) for name in TABLES if name in wanted_tables and (name != KEYS or counted)
        ]
        statements += [HOSTS] if hosts else []
        return statements + ([KEYS_AGAIN] if KEYS in wanted_tables and not counted else [])

    def reads_tables(self, sql: str) -> bool:
        """Returns whether a query may read a table, and not only the manifests."""
        return self.images > 0 and mentions(sql, (*TABLES, "hosts"))

    def _view(self, name: str) -> str:
        if name not in self._views:
            rows, counting = parquet_rows(name, self._files[name]), _counting(self.contents.attempts(name))
            select = f"SELECT {_columns(name)} FROM {rows}{counting}"
            self._views[name] = f"CREATE OR REPLACE VIEW {name} AS {select}"
        return self._views[name]

    def script(self, sql: str) -> str:
        """Returns a query with the views that it needs, to run in DuckDB's own command line."""
        statements = [*self._settings]
        if mentions(sql, (MANIFESTS,)):
            statements.append(catalogue.view(str(self._folder), self.contents))
        return "".join(f"{statement};\n" for statement in (*statements, *self.views(sql), sql))

    def table(self, sql: str) -> Any:
        """Returns the rows of a query as an Arrow table.

        Raises:
            LakeError: the lake has no image that is done
            SqlError: DuckDB rejects the query
        """
        try:
            return self._relation(sql).to_arrow_table()
        except duckdb.Error as error:
            raise SqlError(error) from error

    def rows(self, sql: str, hexadecimal: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
        """Yields the rows of a query as plain values; few are held at a time.

        Args:
            sql: the query
            hexadecimal: Arrow types of columns whose numbers are written as hexadecimal text

        Raises:
            LakeError, SqlError: see `table`; the query may fail after rows were yielded
        """
        try:
            yield from self._batches(sql, hexadecimal)
        except (duckdb.Error, OSError) as error:
            raise SqlError(error) from error

    def _batches(self, sql: str, hexadecimal: Sequence[str]) -> Iterator[dict[str, Any]]:
        reader = self._relation(sql).to_arrow_reader(ROWS)
        written = [field.name for field in reader.schema if str(field.type) in hexadecimal]
        for batch in reader:
            for row in batch.to_pylist():
                for name in written:
                    if row[name] is not None:
                        row[name] = f"{row[name]:#x}"
                yield row

    def value(self, sql: str) -> Any:
        """Returns the only value of a query; see `table`."""
        return self.table(sql).column(0)[0].as_py()

    def _relation(self, sql: str) -> Any:
        if not self.images and not mentions(sql, (MANIFESTS,)):
            raise LakeError(f"{self._folder}: no image of this lake is done (stackfleet status shows why)")
        try:
            if mentions(sql, (MANIFESTS,)):
                self._connection.register(MANIFESTS, catalogue.table(self.contents))
            for statement in self.views(sql):
                if statement not in self._created:
                    self._connection.execute(statement)
                    self._created.add(statement)
            relation = self._connection.sql(sql)
        except duckdb.Error as error:
            raise SqlError(error) from error
        if relation is None:
            raise SqlError(ValueError("this statement is not a query: it returns no rows"))
        return relation


def _columns(table: str) -> str:
    """Returns the select list of a view: the columns of a table in their own types."""
    from .columns import SCHEMAS

    columns = []
    for field in SCHEMAS[table]:
        kind, name = str(field.type), f'"{field.name}"'
        if kind == "uint64":
            name = f"unsigned({name}) AS {name}"
        elif kind.startswith("list<") and "uint64" in kind:
            name = f"list_transform({name}, lambda each: unsigned(each)) AS {name}"
        columns.append(name)
    return ", ".join(columns)


def _counting(attempts: Sequence[tuple[str, str]]) -> str:
    """Returns the end of a view that restricts rows to some attempts; see `Contents.attempts`."""
    if not attempts:
        return ""
    if len(attempts) == 1:
        ((image_id, attempt),) = attempts
        return f" WHERE ImageId = {quoted(image_id)} AND Attempt = {quoted(attempt)}"
    pairs = ", ".join(f"({quoted(image_id)}, {quoted(attempt)})" for image_id, attempt in attempts)
    return f" SEMI JOIN (VALUES {pairs}) AS counted(ImageId, Attempt) USING (ImageId, Attempt)"


def mentions(sql: str, names: Iterable[str]) -> bool:
    """Returns whether a query may mention a view."""
    return re.search(rf"\b({'|'.join(names)})\b", sql, re.IGNORECASE) is not None
