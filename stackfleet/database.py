# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake as DuckDB sees it: a view for each table, over the files that manifests name and no others.

with Database(Lake(folder)) as database:
    database.table("SELECT count(*) FROM traces")
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Optional

import duckdb

from winstacks.columns.words import EXACT

from . import catalogue
from .catalogue import MANIFESTS, listed, quoted
from .contents import Contents
from .lake import Lake, LakeError
from .layout import IMAGE, KEYS, TABLES, TRACES
from .manifests import DONE

SIGNED = """\
CREATE OR REPLACE MACRO signed(number) AS
    (CASE WHEN number >= 9223372036854775808 THEN number::HUGEINT - 18446744073709551616
          ELSE number::HUGEINT END)::BIGINT"""
UNSIGNED = """\
CREATE OR REPLACE MACRO unsigned(number) AS
    CASE WHEN number < 0 THEN (number::HUGEINT + 18446744073709551616)::UBIGINT ELSE number::UBIGINT END"""
"""Delta has no unsigned numbers: files have the signed ones of the same bits."""

HALF = """\
CREATE OR REPLACE MACRO half(key, place) AS
    signed(('0x' || (CASE WHEN regexp_full_match(key, '[0-9a-f]{32}') THEN key ELSE sha256(key) END)
            [16 * place + 1 : 16 * place + 16])::UBIGINT)"""
"""Half of a key, as `keys.halves` has it."""

HOSTS = """\
CREATE OR REPLACE VIEW hosts AS
SELECT ImageId, Host, dense_rank() OVER (ORDER BY Host) AS HostNumber,
       signed(('0x' || sha256(Host)[1:16])::UBIGINT) AS HostKey
FROM (SELECT ImageId, coalesce(upper(ComputerName), ImageId) AS Host FROM image)"""
"""An image that does not say on which computer it was taken is a host of its own."""

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
"""Rows that are held at a time where not all are."""


_OF_QUERY = (
    duckdb.ParserException,
    duckdb.SyntaxException,
    duckdb.CatalogException,
    duckdb.PermissionException,
    duckdb.OutOfMemoryException,
    duckdb.InterruptException,
)
"""Errors that a query has by itself, whatever is in the lake."""


class SqlError(Exception):
    """DuckDB does not take a statement; the text says why.

    Attributes:
        of_files: whether files of the lake may be the cause
    """

    def __init__(self, error: Exception) -> None:
        said = str(error)
        if isinstance(error, duckdb.CatalogException) and "Table" in said:
            said += f"\nThe views of a lake are {', '.join((*TABLES, MANIFESTS, 'hosts'))}."
        super().__init__(said)
        self.of_files = isinstance(error, (duckdb.Error, OSError)) and not isinstance(error, _OF_QUERY)


class Database:
    """The views of a lake (a context). A query reaches the files of its views, and no other.

    Args:
        lake: the lake
        memory: the most that DuckDB may hold, such as `1GB`; None for its own limit
        threads: how many it uses; None for one a processor
        contents: the images that the views have; None for all of the lake

    Attributes:
        contents: these
        images: how many of them are done
    """

    def __init__(
        self,
        lake: Lake,
        memory: Optional[str] = None,
        threads: Optional[int] = None,
        contents: Optional[Contents] = None,
    ) -> None:
        self.contents = lake.contents() if contents is None else contents
        self.images = sum(each["status"] == DONE for each in self.contents.manifests)
        self._files = {
            name: [str(lake.folder / path) for path in self.contents.files(name)] for name in TABLES
        }
        self._settings = ["SET TimeZone = 'UTC'"]
        if memory:
            self._settings.append(f"SET memory_limit = {quoted(memory)}")
        if threads:
            self._settings.append(f"SET threads = {threads}")
        self._folder = lake.folder
        self._made: set[str] = set()

    def __enter__(self) -> Database:
        self._temporary = tempfile.TemporaryDirectory(prefix="stackfleet-")
        self._connection = duckdb.connect()
        files = [each for names in self._files.values() for each in names]
        try:
            for statement in (
                *self._settings,
                # Else it would be in the current folder.
                f"SET temp_directory = {quoted(self._temporary.name)}",
                f"SET allowed_paths = {listed(files)}",
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
        """Returns the statements that make the views which a query may mention, that of manifests apart."""
        if not self.images:
            return []
        counted = self.contents.counted
        wanted = {name for name in TABLES if _mentions(sql, (name,))}
        hosts = _mentions(sql, ("hosts",)) or (KEYS in wanted and not counted)
        wanted |= {IMAGE} if hosts else set()
        wanted |= {TRACES} if KEYS in wanted and not counted else set()
        made = [SIGNED, UNSIGNED, HALF]
        made += [self._view(name) for name in TABLES if name in wanted and (name != KEYS or counted)]
        made += [HOSTS] if hosts else []
        return made + ([KEYS_AGAIN] if KEYS in wanted and not counted else [])

    def _view(self, name: str) -> str:
        # What an earlier version has read lacks the columns that the table has got since. The schema of each
        # file must be read for that: the other tables have had their columns from the first version on.
        more = ", union_by_name = true" if name == IMAGE else ""
        files = f"read_parquet({listed(self._files[name])}, hive_partitioning = false{more})"
        return (
            f"CREATE OR REPLACE VIEW {name} AS SELECT {_columns(name)} FROM {files}"
            f"{_counting(self.contents.attempts(name))}"
        )

    def script(self, sql: str) -> str:
        """Returns a query with the views that it needs: DuckDB's own command line takes it as it is."""
        made = [*self._settings]
        if _mentions(sql, (MANIFESTS,)):
            made.append(catalogue.view(str(self._folder), self.contents))
        return "".join(f"{statement};\n" for statement in (*made, *self.views(sql), sql))

    def table(self, sql: str) -> Any:
        """Returns the rows of a query as an Arrow table.

        Raises:
            LakeError: the lake has no image that is done
            SqlError: DuckDB does not take the query
        """
        try:
            return self._relation(sql).to_arrow_table()
        except duckdb.Error as error:
            raise SqlError(error) from error

    def rows(self, sql: str, hexadecimal: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
        """Yields the rows of a query in plain values; few are held at a time.

        Args:
            sql: the query
            hexadecimal: Arrow types of columns whose numbers are written as hexadecimal text

        Raises:
            LakeError, SqlError: see `table`; the query may fail when rows were yielded
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
        if not self.images and not _mentions(sql, (MANIFESTS,)):
            raise LakeError(f"{self._folder}: no image of this lake is done (stackfleet status says why)")
        try:
            if _mentions(sql, (MANIFESTS,)):
                self._connection.register(MANIFESTS, catalogue.table(self.contents))
            for statement in self.views(sql):
                if statement not in self._made:
                    self._connection.execute(statement)
                    self._made.add(statement)
            relation = self._connection.sql(sql)
        except duckdb.Error as error:
            raise SqlError(error) from error
        if relation is None:
            raise SqlError(ValueError("this is no query: it has no rows"))
        return relation


def one_of(column: str, values: Iterable[str]) -> str:
    """Returns the condition that a column has one of some texts."""
    return f"{column} IN ({', '.join(map(quoted, values))})"


def _columns(table: str) -> str:
    """Returns what a view selects: the columns of a table in their own types."""
    from .columns import SCHEMAS

    made = []
    for each in SCHEMAS[table]:
        kind, name = str(each.type), f'"{each.name}"'
        if kind == "uint64":
            name = f"unsigned({name}) AS {name}"
        elif kind.startswith("list<") and "uint64" in kind:
            name = f"list_transform({name}, lambda each: unsigned(each)) AS {name}"
        made.append(name)
    return ", ".join(made)


def _counting(attempts: Sequence[tuple[str, str]]) -> str:
    """Returns the end of a view that has the rows of some attempts only; see `Contents.attempts`."""
    if not attempts:
        return ""
    if len(attempts) == 1:
        ((image_id, attempt),) = attempts
        return f" WHERE ImageId = {quoted(image_id)} AND Attempt = {quoted(attempt)}"
    pairs = ", ".join(f"({quoted(image_id)}, {quoted(attempt)})" for image_id, attempt in attempts)
    return f" SEMI JOIN (VALUES {pairs}) AS counted(ImageId, Attempt) USING (ImageId, Attempt)"


def _mentions(sql: str, names: Iterable[str]) -> bool:
    """Tells whether a query may mention a view: a name too many costs nothing but its text."""
    lower = sql.lower()
    return any(name in lower for name in names)
