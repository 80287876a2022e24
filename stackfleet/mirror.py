# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Works on a lake in object storage through a copy on this machine.

    with mirrored("s3://bucket/lake", writes=True) as folder:
        ...

Files of tables never change once they are written, so the copy is kept, and only new files are fetched.
Changed files are sent in the order in which a lake is written: the catalogue comes last. If somebody else has
written to the lake since it was fetched, nothing is sent. Object stores have neither links nor pipes, and
only names that a lake can have are accepted.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
import shutil
from collections.abc import Iterator
from typing import Any, Optional

from . import folders
from .lake import LakeError
from .layout import CATALOGUE, MANIFEST, RUNS, TABLES, TABLES_FOLDER
from .tablelog import LOG

SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")
SUPPORTED = "s3"
_NAME = re.compile(
    rf"{MANIFEST}/[A-Za-z0-9]{{1,64}}\.json|{RUNS}/[A-Za-z0-9-]{{1,128}}\.json"
    rf"|{TABLES_FOLDER}/(?:{'|'.join((*TABLES, CATALOGUE))})/"
    rf"(?:[A-Za-z0-9]{{1,64}}\.[A-Za-z0-9-]{{1,64}}\.parquet|{LOG}/[0-9A-Za-z_.]{{1,80}})"
)
_TURN = "turns"
"""A table without rows. Each of its commits is one writer's turn: only one writer can commit the next
version."""
_TEMPORARY = ".part"


def is_remote(lake: str) -> bool:
    """Returns whether a lake is not in a folder of this machine.

    Raises:
        LakeError: the lake is in an unknown kind of store
    """
    match = SCHEME.match(lake)
    if match and match[1].lower() != SUPPORTED:
        raise LakeError(f"{lake}: a lake is a folder, or {SUPPORTED}://BUCKET/PATH")
    return match is not None


@contextlib.contextmanager
def mirrored(lake: str, writes: bool = False) -> Iterator[str]:
    """Yields a folder with a lake; for a lake in object storage, the folder of its copy.

    Args:
        lake: a folder, or the address of a lake in object storage
        writes: whether changes in the folder are to be sent

    Raises:
        LakeError: the store cannot be reached, or somebody else has written to the lake in the meantime
    """
    if not is_remote(lake):
        yield lake
        return
    mirror = Mirror(lake)
    turn = mirror.turn() if writes else None
    mirror.fetch()
    try:
        yield str(mirror.folder)
    finally:
        if turn is not None:
            mirror.send(turn)


class Mirror:
    """A lake in object storage, and its copy.

    Args:
        lake: address of the lake
    """

    def __init__(self, lake: str) -> None:
        import pyarrow as pa
        from pyarrow import fs

        self._lake = lake.rstrip("/")
        self._errors = (OSError, pa.ArrowException, ValueError)
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None
        try:
            self._store = fs.S3FileSystem(endpoint_override=endpoint)
        except self._errors as error:
            raise LakeError(f"{lake}: {error}") from error
        self._root = SCHEME.sub("", self._lake)
        self._selector = fs.FileSelector(self._root, allow_not_found=True, recursive=True)
        self._options = {"AWS_ALLOW_HTTP": "true"} if (endpoint or "").startswith("http://") else {}
        home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
        self.folder = home / "stackfleet" / hashlib.sha256(self._lake.encode()).hexdigest()[:32]

    def fetch(self) -> None:
        """Updates the copy from the lake.

        Raises:
            LakeError: the lake cannot be fetched
        """
        remote, local = self._remote(), self._local()
        for name in sorted(set(local) - set(remote)):
            folders.remove(self.folder, *name.split("/"))
        for name, size in remote.items():
            # Only names with a random part identify one content.
            if local.get(name) != size or not name.endswith(".parquet") or LOG in name:
                self._fetch(name)

    def send(self, turn: Any) -> None:
        """Updates the lake from the copy.

        Args:
            turn: value that `turn` returned before the copy was fetched

        Raises:
            LakeError: somebody else has written to the lake in the meantime, or it cannot be sent
        """
        remote, local = self._remote(), self._local()
        new = [
            name
            for name, size in local.items()
            if remote.get(name) != size or name.startswith(MANIFEST) or name.endswith("_last_checkpoint")
        ]
        removed = sorted(set(remote) - set(local))
        if not new and not removed:
            return
        self._take_turn(turn)
        try:
            for name in sorted(new, key=_order):
                with (
                    open(self.folder / name, "rb") as source,
                    self._store.open_output_stream(f"{self._root}/{name}") as target,
                ):
                    shutil.copyfileobj(source, target)
            for name in removed:
                self._store.delete_file(f"{self._root}/{name}")
        except self._errors as error:
            raise LakeError(f"{self._lake}: it cannot be written: {error}") from error

    def turn(self) -> Any:
        """Returns the next turn; `send` takes it, if nobody else has."""
        import pyarrow as pa
        from deltalake import DeltaTable, Schema

        address = f"{self._lake}/{_TURN}"
        with self._of_delta():
            if not DeltaTable.is_deltatable(address, self._options):
                schema = Schema.from_arrow(pa.schema([("Turn", pa.int64())]))
                DeltaTable.create(address, schema, mode="ignore", storage_options=self._options)
            return DeltaTable(address, storage_options=self._options)

    def _take_turn(self, turn: Any) -> None:
        from deltalake import CommitProperties
        from deltalake.exceptions import CommitFailedError

        try:
            with self._of_delta(CommitFailedError):
                turn.create_write_transaction(
                    [], "append", turn.schema(), commit_properties=CommitProperties(max_commit_retries=0)
                )
        except CommitFailedError as error:
            raise LakeError(
                f"{self._lake}: another run wrote to this lake in the meantime; run the command again"
            ) from error

    @contextlib.contextmanager
    def _of_delta(self, other: Optional[type[Exception]] = None) -> Iterator[None]:
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError, ValueError) as error:
            if other is not None and isinstance(error, other):
                raise
            message = " ".join(str(error).split())
            raise LakeError(f"{self._lake}: {message}") from error

    def _remote(self) -> dict[str, int]:
        """Returns the sizes in bytes of the lake's files, by name."""
        try:
            infos = self._store.get_file_info(self._selector)
        except self._errors as error:
            raise LakeError(f"{self._lake}: it cannot be read: {error}") from error
        names = ((info.path[len(self._root) + 1 :], info.size) for info in infos if info.is_file)
        return {name: size for name, size in names if _NAME.fullmatch(name)}

    def _local(self) -> dict[str, int]:
        sizes = {}
        for folder in self._folders():
            for name in folders.list_names(self.folder, *folder):
                path = "/".join((*folder, name))
                if _NAME.fullmatch(path):
                    sizes[path] = folders.size(self.folder, *folder, name)
        return sizes

    @staticmethod
    def _folders() -> Iterator[tuple[str, ...]]:
        yield from ((MANIFEST,), (RUNS,))
        for table in (*TABLES, CATALOGUE):
            yield from ((TABLES_FOLDER, table), (TABLES_FOLDER, table, LOG))

    def _fetch(self, name: str) -> None:
        *path, last = name.split("/")
        try:
            target = folders.make_folder(self.folder, *path) / last
            temporary = target.with_name(last + _TEMPORARY)
            with (
                self._store.open_input_stream(f"{self._root}/{name}") as source,
                open(temporary, "wb") as stream,
            ):
                shutil.copyfileobj(source, stream)
            folders.replace(temporary, target)
        except self._errors as error:
            raise LakeError(f"{self._lake}/{name}: it cannot be fetched: {error}") from error


def _order(name: str) -> tuple[bool, bool, str]:
    """Returns the order of sending files: rows, then manifests, logs, and last the catalogue's log."""
    return f"/{CATALOGUE}/{LOG}" in name, LOG in name, name
