# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The log of a table: Delta's writer sums up its commits in a checkpoint after each hundred of them."""

from __future__ import annotations

import pathlib

import pyarrow as pa

from stackfleet.columns import stored
from stackfleet.layout import TRACES
from stackfleet.tablelog import DataFile, TableLog

COMMITS = 102


def test_a_log_with_a_checkpoint_is_read_and_written(tmp_path: pathlib.Path) -> None:
    log, names = TableLog(tmp_path, TRACES), [f"{number:04}.a.parquet" for number in range(COMMITS)]
    (tmp_path / "tables" / TRACES).mkdir(parents=True)
    for name in names:
        log.commit(pa.schema(stored(TRACES)), [DataFile(name, 100, 1, "a", "b")])
    assert list(tmp_path.rglob("*.checkpoint.parquet"))
    assert [file.name for file in TableLog(tmp_path, TRACES).load()] == names
