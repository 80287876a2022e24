# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A lake that is attacked: its log, its manifests and its rows are changed from outside."""

from __future__ import annotations

import json
import pathlib
import shutil
from typing import Any, Callable, Dict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from stackfleet.lake import Lake

from . import fleetlakes
from .only import only

SECRET = "secret of another case"


class Attack:
    """A lake of two images, `i1` and `i2`, and one of another case beside it, with `i9`."""

    def __init__(self, lakes: pathlib.Path, folder: pathlib.Path) -> None:
        self.folder = folder
        shutil.copytree(lakes, folder, dirs_exist_ok=True)
        self.lake, self.other = folder / "lake", folder / "other"
        self.before = self.others()

    def others(self) -> Dict[str, bytes]:
        """All files outside the lake that is attacked."""
        return {str(path): path.read_bytes() for path in self.other.rglob("*") if path.is_file()}

    @property
    def log(self) -> pathlib.Path:
        return self.lake / "_delta_log"

    def file(self, table: str = "traces", image_id: str = "i1") -> pathlib.Path:
        """The file with the rows of an image."""
        return next(
            path
            for path in sorted((self.lake / f"Table={table}").iterdir())
            if pq.read_table(path).column("ImageId")[0].as_py() == image_id
        )

    def set(self, **values: Any) -> None:
        """Lets the manifest of `i1` say something else."""
        known = only(item for item in Lake(str(self.lake)).manifests() if item["image_id"] == "i1")
        fleetlakes.put_manifest(Lake(str(self.lake)), {**known, **values, "image_id": "i1"})

    def set_row(self, **values: Any) -> None:
        """Lets the row of the manifest of `i1` say something else."""
        predicate = "\"Table\" = 'manifests' AND \"ImageId\" = 'i1'"
        DeltaTable(str(self.lake)).update(new_values=values, predicate=predicate)

    def replace(self, path: pathlib.Path, replacement: Callable[[pathlib.Path], object]) -> None:
        """Puts something else into the place of a file or folder."""
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        replacement(path)

    def commit(self, *actions: Dict[str, Any]) -> None:
        """Adds a commit to the log: lines of JSON, whatever they say."""
        number = len(list(self.log.glob("*.json")))
        (self.log / f"{number:020}.json").write_text("".join(f"{json.dumps(item)}\n" for item in actions))

    def name_instead(self, path: str, table: str = "traces", **more: Any) -> None:
        """Lets the log name another file in the place of the rows of `i1`."""
        gone = {"path": f"Table={table}/{self.file(table).name}", "deletionTimestamp": 1, "dataChange": True}
        of: Dict[str, Any] = {"partitionValues": {"Table": table}}
        self.commit({"remove": {**gone, **of}}, added(path, **of, **more))

    def put(self, path: pathlib.Path, rows: int = 1, table: str = "traces") -> None:
        """Lets the log name a file in the folder of a table in the place of the rows of `i1`."""
        self.name_instead(f"Table={table}/{path.name}", table, size=path.stat().st_size, rows=rows)

    def rows(self, table: str, *rows: Dict[str, Any]) -> None:
        """Adds rows with Delta's own writer, without a manifest."""
        schema = pa.schema(DeltaTable(str(self.lake)).schema().to_arrow())
        known = [{"Table": table, **row} for row in rows]
        write_deltalake(str(self.lake), pa.Table.from_pylist(known, schema=schema), mode="append")


def added(path: str, rows: int = 1, **more: Any) -> Dict[str, Any]:
    """The entry of a log for a file that is added."""
    bounds = {"minValues": {"ImageId": "i1"}, "maxValues": {"ImageId": "i1"}, "nullCount": {}}
    stats = {"numRecords": rows, **bounds}
    entry = {"path": path, "size": 7323, "partitionValues": {"Table": "traces"}, "modificationTime": 1}
    return {"add": {**entry, "dataChange": True, "stats": json.dumps(stats), **more}}


@pytest.fixture(scope="session")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of the lakes. Each attack has a copy: to make lakes takes longer than most attacks."""
    folder = tmp_path_factory.mktemp("lakes")
    for name, image_id in (("lake", "i1"), ("lake", "i2"), ("other", "i9")):
        stack = SECRET if name == "other" else f"stack of {image_id}"
        found = {"Severity": "high", "Finding": "unbacked", "Symbol": stack}
        traces = [{"StackKey": stack, "Stack": stack}]
        lake = fleetlakes.new_lake(folder / name)
        fleetlakes.add(lake, image_id, host=image_id, traces=traces, findings=[found])
    return folder


@pytest.fixture
def attack(lakes: pathlib.Path, tmp_path: pathlib.Path) -> Attack:
    return Attack(lakes, tmp_path)
