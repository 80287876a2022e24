# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The custody files of a lake: a manifest for each image, and a record of each run.

The catalogue has the text of each manifest, too. A file that differs from it was altered.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import uuid
from collections.abc import Iterable
from typing import Any

from . import folders
from .entries import Entry
from .layout import MANIFEST, RUNS, manifest_file
from .manifests import MOST_BYTES, Manifest, ManifestError, is_image_id, parsed, written
from .summary import summary

_END = ".json"


def image_ids(lake: pathlib.Path) -> list[str]:
    """Returns the ImageIds in the names of the manifest files.

    Raises:
        OSError: the folder of manifests cannot be read
    """
    names = os.listdir(lake / MANIFEST)
    return sorted(name[: -len(_END)] for name in names if name.endswith(_END) and name[0] != ".")


def unfinished(lake: pathlib.Path) -> list[str]:
    """Returns the names of manifest files that a killed process has not finished."""
    names = folders.list_names(lake, MANIFEST)
    return [name for name in names if name.startswith(".") and f"{_END}." in name]


def read(lake: pathlib.Path, image_id: str) -> Manifest:
    """Returns the manifest of an image, from its file.

    Raises:
        ManifestError: there is no such file, or it is no valid manifest
    """
    return parsed(_data(lake, image_id), image_id)


def write(lake: pathlib.Path, manifest: Manifest) -> None:
    """Writes the manifest of an image, in one step.

    Raises:
        OSError: the manifest cannot be written
    """
    folders.folder(lake, MANIFEST)
    path = manifest_file(str(lake), manifest["image_id"])
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with temporary.open("xb") as stream:
        stream.write(written(manifest))
        stream.flush()
        os.fsync(stream.fileno())
    folders.replace(temporary, path)
    folders.sync(lake / MANIFEST)


def remove(lake: pathlib.Path, removed: Iterable[str]) -> None:
    """Removes the manifests of images.

    Raises:
        OSError: a manifest cannot be removed
    """
    for image_id in filter(is_image_id, removed):
        manifest_file(str(lake), image_id).unlink(missing_ok=True)
    folders.sync(lake / MANIFEST)


def fault(lake: pathlib.Path, image_id: str, text: str) -> str:
    """Returns how the file of a manifest differs from the catalogue's text; empty if it does not."""
    try:
        data = folders.read(lake, MANIFEST, f"{image_id}{_END}", most=MOST_BYTES)
    except OSError as error:
        return f"{MANIFEST}/{image_id}{_END}: {error.strerror or type(error).__name__}"
    return "" if data == text.encode() else f"{MANIFEST}/{image_id}{_END} differs from the catalogue"


def entries(lake: pathlib.Path) -> list[Entry]:
    """Returns the catalogue that the manifest files describe; files that cannot be read are left out.

    Raises:
        OSError: the folder of manifests cannot be read
    """
    found = []
    for image_id in image_ids(lake):
        with contextlib.suppress(ManifestError):
            data = _data(lake, image_id)
            manifest = parsed(data, image_id)
            found.append(Entry(image_id, manifest["attempt"], "", data.decode(), summary(manifest)))
    return found


def record_run(lake: pathlib.Path, run: str, facts: dict[str, Any]) -> None:
    """Writes the record of a run.

    Args:
        lake: the folder of the lake
        run: name of the run
        facts: members of the record, in addition to `run`

    Raises:
        OSError: the record cannot be written
    """
    path = folders.make_folder(lake, RUNS) / f"{run}{_END}"
    with path.open("xb") as stream:
        stream.write(written({"run": run, **facts}))
    for item in (path, path.parent, lake):
        folders.sync(item)


def batch_digests(lake: pathlib.Path) -> dict[str, str]:
    """Returns the SHA-256 of the files with many images, by path below the lake, from the records of runs."""
    digests: dict[str, str] = {}
    for name in folders.list_names(lake, RUNS):
        with contextlib.suppress(OSError, ValueError, RecursionError):
            record = json.loads(folders.read(lake, RUNS, name, most=MOST_BYTES))
            files = record.get("files") if isinstance(record, dict) else None
            for path, digest in files.items() if isinstance(files, dict) else ():
                digests[path] = str(digest)
    return digests


def _data(lake: pathlib.Path, image_id: str) -> bytes:
    if not is_image_id(image_id):
        raise ManifestError("its name is not an ImageId")
    try:
        return folders.read(lake, MANIFEST, f"{image_id}{_END}", most=MOST_BYTES)
    except OSError as error:
        raise ManifestError(f"it cannot be read ({error.strerror or type(error).__name__})") from error
