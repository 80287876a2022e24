# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The distinct keys of an image's stacks with their counts. `rare` counts these instead of stacks.

A key is 128 bits in hexadecimal. The table stores it as two signed numbers, high half first, which take half
the space of the text and are grouped faster. A text that is no such key is replaced by the first half of its
SHA-256.
"""

from __future__ import annotations

import hashlib
import pathlib
import re
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from winstacks.columns.words import EXACT

from .columns import SCHEMAS
from .layout import KEYS

_KEY = re.compile(r"[0-9a-f]{32}")
_GROUPED = ("StackKey", "ShapeKey", "ModuleSet", "Kind", "Sure")
_READ = ("ImageId", "Schema", *_GROUPED[:4], "KeyQuality", "Incomplete", "Count", "Unbacked")


def halves(key: str) -> tuple[int, int]:
    """Returns the two signed numbers of a key."""
    data = bytes.fromhex(key) if _KEY.fullmatch(key) else hashlib.sha256(key.encode("utf-8")).digest()
    high, low = struct.unpack(">qq", data[:16])
    return high, low


def number_of(data: bytes) -> int:
    """Returns a signed number for bytes, equal on every machine: 8 bytes of their SHA-256."""
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big", signed=True)


def upper(name: str) -> str:
    """Returns the name of a computer in upper case, converted letter by letter like DuckDB's `upper`."""
    return "".join(letter.upper() if len(letter.upper()) == 1 else letter for letter in name)


def key_rows(traces: pathlib.Path, image: pathlib.Path) -> Iterator[list[Any]]:
    """Yields the columns of the table of keys, if the image has any stack."""
    rows = pq.ParquetFile(traces).read(list(_READ))
    if not rows.num_rows:
        return
    computer = pq.ParquetFile(image).read(["ComputerName"]).column(0)[0].as_py()
    image_id, schema = rows.column("ImageId")[0].as_py(), rows.column("Schema")[0].as_py()
    sure = pc.and_(pc.equal(rows.column("KeyQuality"), EXACT), pc.invert(rows.column("Incomplete")))
    rows = rows.append_column("Sure", pc.fill_null(sure, False))
    grouped = rows.group_by(list(_GROUPED), use_threads=False).aggregate(
        [("Kind", "count"), ("Count", "sum"), ("Unbacked", "max")]
    )
    count, host = grouped.num_rows, upper(computer) if computer else image_id
    columns = {name: grouped.column(name).combine_chunks() for name in grouped.column_names}
    columns.update(Stacks=columns["Kind_count"], Count=columns["Count_sum"], Unbacked=columns["Unbacked_max"])
    for key in ("Stack", "Shape"):
        columns[f"{key}High"], columns[f"{key}Low"] = _halves(columns[f"{key}Key"])
    for name, value in (("ImageId", image_id), ("Schema", schema), ("HostKey", number_of(host.encode()))):
        columns[name] = pa.repeat(pa.scalar(value, SCHEMAS[KEYS].field(name).type), count)
    yield [columns[name] for name in SCHEMAS[KEYS].names]


def _halves(keys: Any) -> tuple[Any, Any]:
    """Returns the two columns with the halves of keys."""
    encoded = keys.dictionary_encode()
    values = [halves(value) for value in encoded.dictionary.to_pylist()]
    high, low = (pa.array([value[half] for value in values], pa.int64()) for half in (0, 1))
    return high.take(encoded.indices), low.take(encoded.indices)
