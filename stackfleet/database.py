# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake as DuckDB sees it: a view for each table, over the files that manifests name and no others.

with Database(Lake(folder)) as database:
    database.table("SELECT count(*) FROM traces")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Optional

import duckdb

from .lake import DONE, Lake, LakeError, Manifest
from .layout import TABLES, manifest_file

MANIFESTS = "manifests"
"""The view of all manifests, those of failed images too."""

_COLUMNS = {
    "image_id": "VARCHAR",
    "status": "VARCHAR",
    "reason": "VARCHAR",
    "path": "VARCHAR",
    "size": "BIGINT",
    "files": "STRUCT(path VARCHAR, size BIGINT, sha256 VARCHAR)[]",
    "identity": 'STRUCT(own VARCHAR, "of" VARCHAR, compared VARCHAR, digests VARCHAR[])',
    "copies": "VARCHAR[]",
    "tables": "MAP(VARCHAR, STRUCT(file VARCHAR, rows BIGINT, sha256 VARCHAR))",
    "versions": "MAP(VARCHAR, VARCHAR)",
    "command": "VARCHAR[]",
    "case": "VARCHAR",
    "note": "VARCHAR",
    "worker": "VARCHAR",
    "machine": "VARCHAR",
    "exit": "VARCHAR",
    "seconds": "DOUBLE",
    "memory": "BIGINT",
    "warnings": "BIGINT",
    "warning_texts": "VARCHAR[]",
    "log": "VARCHAR",
    "attempt": "VARCHAR",
    "started": "TIMESTAMPTZ",
    "ended": "TIMESTAMPTZ",
}

HOSTS = """\
CREATE VIEW hosts AS
SELECT ImageId, Host, dense_rank() OVER (ORDER BY Host) AS HostNumber
FROM (SELECT ImageId, coalesce(upper(ComputerName), ImageId) AS Host FROM image)"""
"""An image that does not say on which computer it was taken is a host of its own."""


ROWS = 4096
"""Rows that are held at a time where not all are."""


class SqlError(Exception):
    """DuckDB does not take a statement; the text says why."""


class Database:
    """The views of a lake (a context).

    Args:
        lake: the lake
        memory: the most that DuckDB may hold, such as `1GB`; None for its own limit
        threads: how many it uses; None for one a processor
        manifests: those of the images that the views have; None for all of the lake
    """

    def __init__(
        self,
        lake: Lake,
        memory: Optional[str] = None,
        threads: Optional[int] = None,
        manifests: Optional[Sequence[Manifest]] = None,
    ) -> None:
        self.images = 0
        self._files: dict[str, list[str]] = {name: [] for name in TABLES}
        self._manifests = []
        for manifest in lake.manifests() if manifests is None else manifests:
            self._manifests.append(str(manifest_file(str(lake.folder), manifest["image_id"])))
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
        self._connection = duckdb.connect()
        try:
            for statement in self._settings:
                self._connection.execute(statement)
        except duckdb.Error as error:
            self._connection.close()
            raise SqlError(str(error)) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def views(self, sql: str) -> list[str]:
        """Returns the statements that make the views which a query may mention."""
        made = [*self._settings]
        if _mentions(sql, (MANIFESTS,)):
            made.append(self._manifests_view())
        if self.images:
            wanted = [name for name in TABLES if _mentions(sql, (name,))]
            if _mentions(sql, ("hosts",)) and "image" not in wanted:
                wanted.append("image")
            made += [_view(name, self._files[name]) for name in wanted]
            if _mentions(sql, ("hosts",)):
                made.append(HOSTS)
        return made

    def script(self, sql: str) -> str:
        """Returns a query with the views that it needs: DuckDB's own command line takes it as it is."""
        return "".join(f"{statement};\n" for statement in (*self.views(sql), sql))

    def table(self, sql: str) -> Any:
        """Returns the rows of a query as an Arrow table.

        Raises:
            LakeError: the lake has no image that is done
            SqlError: DuckDB does not take the query
        """
        try:
            return self._relation(sql).to_arrow_table()
        except duckdb.Error as error:
            raise SqlError(str(error)) from error

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
            raise SqlError(str(error)) from error

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
            for statement in self.views(sql):
                self._connection.execute(statement.replace("CREATE VIEW", "CREATE OR REPLACE VIEW", 1))
            relation = self._connection.sql(sql)
        except duckdb.Error as error:
            raise SqlError(str(error)) from error
        if relation is None:
            raise SqlError("this is no query: it has no rows")
        return relation

    def _manifests_view(self) -> str:
        columns = ", ".join(f'"{name}": {quoted(kind)}' for name, kind in _COLUMNS.items())
        if not self._manifests:
            empty = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in _COLUMNS.items())
            return f"CREATE VIEW {MANIFESTS} AS SELECT {empty} WHERE false"
        files = _listed(self._manifests)
        return (
            f"CREATE VIEW {MANIFESTS} AS SELECT * FROM read_json({files}, "
            f"format = 'unstructured', maximum_object_size = 268435456, columns = {{{columns}}})"
        )


def quoted(text: str) -> str:
    """Returns a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def one_of(column: str, values: Iterable[str]) -> str:
    """Returns the condition that a column has one of some texts."""
    return f"{column} IN ({', '.join(map(quoted, values))})"


def _view(name: str, files: Sequence[str]) -> str:
    return f"CREATE VIEW {name} AS SELECT * FROM read_parquet({_listed(files)}, hive_partitioning = false)"


def _listed(files: Sequence[str]) -> str:
    return f"[{', '.join(map(quoted, files))}]"


def _mentions(sql: str, names: Iterable[str]) -> bool:
    """Tells whether a query may mention a view: a name too many costs nothing but its text."""
    lower = sql.lower()
    return any(name in lower for name in names)
