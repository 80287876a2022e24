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

from . import catalogue
from .catalogue import MANIFESTS, listed, quoted
from .lake import Contents, Lake, LakeError
from .layout import IMAGE, TABLES
from .manifests import DONE

HOSTS = """\
CREATE VIEW hosts AS
SELECT ImageId, Host, dense_rank() OVER (ORDER BY Host) AS HostNumber
FROM (SELECT ImageId, coalesce(upper(ComputerName), ImageId) AS Host FROM image)"""
"""An image that does not say on which computer it was taken is a host of its own."""


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
        self.images = 0
        self._files: dict[str, list[str]] = {name: [] for name in TABLES}
        for manifest in self.contents.manifests:
            if manifest["status"] == DONE:
                self.images += 1
                for name, each in manifest["tables"].items():
                    self._files[name].append(str(lake.folder / each["file"]))
        self._settings = ["SET TimeZone = 'UTC'"]
        if memory:
            self._settings.append(f"SET memory_limit = {quoted(memory)}")
        if threads:
            self._settings.append(f"SET threads = {threads}")
        self._folder = lake.folder

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
        made = []
        if self.images:
            wanted = [name for name in TABLES if _mentions(sql, (name,))]
            if _mentions(sql, ("hosts",)) and IMAGE not in wanted:
                wanted.append(IMAGE)
            made += [_view(name, self._files[name]) for name in wanted]
            if _mentions(sql, ("hosts",)):
                made.append(HOSTS)
        return made

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
                self._connection.execute(statement.replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1))
            relation = self._connection.sql(sql)
        except duckdb.Error as error:
            raise SqlError(error) from error
        if relation is None:
            raise SqlError(ValueError("this is no query: it has no rows"))
        return relation


def one_of(column: str, values: Iterable[str]) -> str:
    """Returns the condition that a column has one of some texts."""
    return f"{column} IN ({', '.join(map(quoted, values))})"


def _view(name: str, files: Sequence[str]) -> str:
    # What an earlier version has read lacks the columns that the table has got since. The schema of each file
    # must be read for that: the other tables have had their columns from the first version on.
    more = ", union_by_name = true" if name == IMAGE else ""
    return (
        f"CREATE VIEW {name} AS SELECT * FROM read_parquet({listed(files)}, hive_partitioning = false{more})"
    )


def _mentions(sql: str, names: Iterable[str]) -> bool:
    """Returns whether a query may mention a view: a name too many costs nothing but its text."""
    lower = sql.lower()
    return any(name in lower for name in names)
