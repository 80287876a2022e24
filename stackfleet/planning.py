# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Decides which images of a command line are to be read, and which were read before."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Optional

from . import provenance, versions
from .job import Custody, Job, Limits, Reading
from .lake import Damaged, Depth, Lake
from .manifests import DONE, Manifest


class WrongUseError(Exception):
    """An invalid command line; the text gives the reason."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The options of a command line for all images.

    Attributes:
        retry_failed: whether images that failed before are tried again
    """

    reading: Reading
    limits: Limits
    custody: Custody
    retry_failed: bool = False


@dataclasses.dataclass
class Plan:
    """The plan of a run.

    Attributes:
        jobs: images to read, the largest first
        done: number of images that were done before
        cut: how many of these are truncated
        failed: paths of images that failed before, and are not tried again
        again: reasons for reading images again that were done, and the number of images for each
        replaced: paths whose content has changed since they were read, and the ImageIds of the earlier
            content
        damaged: damaged images of the lake that are not read again
    """

    jobs: list[Job]
    done: int = 0
    cut: int = 0
    failed: list[str] = dataclasses.field(default_factory=list)
    again: dict[str, int] = dataclasses.field(default_factory=dict)
    replaced: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    damaged: list[Damaged] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Input:
    """A readable file: size in bytes, time of modification in ns, and the result of `provenance.probe`."""

    size: int
    modified: int
    probe: str


DUMPS = ".dmp"
"""Ending of the names of dumps, in lower case."""


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The files of a command line.

    Attributes:
        files: readable files by path
        unread: reasons why other files cannot be read, by path
    """

    files: dict[str, Input]
    unread: dict[str, str]


def _files_of(path: str) -> list[str]:
    """Returns the dumps in a folder (`*.dmp`, not in subfolders), or the path itself."""
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if entry.name.lower().endswith(DUMPS))
    except OSError:
        return [path]
    return [os.path.join(path, name) for name in names] or [path]


def find_inputs(images: Sequence[str], shard: Optional[tuple[int, int]] = None) -> Inputs:
    """Returns the files of a command line, readable or not.

    Args:
        images: paths; a folder stands for the dumps in it
        shard: I and N of the I-th of N parts of the files; None for all

    Raises:
        WrongUseError: none of the paths leads to a readable file
    """
    inputs = Inputs({}, {})
    # Links are not followed: the examiner's names of files are kept.
    paths = list(dict.fromkeys(path for image in images for path in _files_of(os.path.abspath(image))))
    for path in paths if shard is None else paths[shard[0] - 1 :: shard[1]]:
        try:
            facts = os.stat(path)
            if provenance.shown(path) != path:
                inputs.unread[path] = f"cannot be read: {_NOT_UTF8}"
            elif stat.S_ISDIR(facts.st_mode):
                inputs.unread[path] = f"is a folder: only dumps (*{DUMPS}) in it are read; name other images"
            elif not (stat.S_ISREG(facts.st_mode) or stat.S_ISBLK(facts.st_mode)):
                inputs.unread[path] = "is not a file"
            else:
                inputs.files[path] = Input(facts.st_size, facts.st_mtime_ns, provenance.probe(path))
        except OSError as error:
            inputs.unread[path] = f"cannot be read: {error.strerror}"
    if not inputs.files and (inputs.unread or shard is None):
        raise WrongUseError(
            "; ".join(f"{provenance.shown(path)} {why}" for path, why in inputs.unread.items())
        )
    return inputs


_NOT_UTF8 = "its name is not UTF-8, so Volatility cannot open it. Rename it, or make a link to it"


def plan(
    files: Mapping[str, Input],
    lake: Lake,
    settings: Settings,
    found: dict[str, str],
    depth: Depth = Depth.SIZE,
) -> Plan:
    """Returns the plan of a run.

    Args:
        files: files from `find_inputs`
        found: versions of the packages that will read the images
    """
    contents, new_plan = lake.contents(depth), Plan([])
    damaged = {item.image_id for item in contents.damaged}
    manifests = lake.manifests(files)
    manifests_by_path = _by_path([item for item in manifests if item["image_id"] not in damaged])
    broken = _by_path([item for item in manifests if item["image_id"] in damaged])
    for path, file in files.items():
        before = manifests_by_path.get(path, [])
        reasons = [_reason(item, path, file, settings.reading, found) for item in before]
        same = {item["status"] for item, why in zip(before, reasons) if not why}
        if DONE in same:
            new_plan.done += 1
            new_plan.cut += any(item["truncated"] for item, why in zip(before, reasons) if not why)
            continue
        if same and not settings.retry_failed:
            new_plan.failed.append(path)
            continue
        changed = None if same or not reasons else reasons[-1]
        if path in broken:
            changed = "their rows do not agree with their manifests"
        if changed:
            new_plan.again[changed] = new_plan.again.get(changed, 0) + 1
        new_plan.replaced[path] = tuple(item["image_id"] for item in before if _is_other(item, path, file))
        new_plan.jobs.append(
            Job(
                path,
                file.size,
                file.modified,
                file.probe,
                lake.uri,
                settings.reading,
                settings.limits,
                settings.custody,
                new_plan.replaced[path],
            )
        )
    read = {job.path for job in new_plan.jobs}
    new_plan.damaged = [item for item in contents.damaged if item.path not in read]
    new_plan.jobs.sort(key=lambda job: (-job.size, job.path))
    return new_plan


def _by_path(manifests: Sequence[Manifest]) -> dict[str, list[Manifest]]:
    """Returns the manifests of each path, including copies, the newest last.

    The order decides only the reason for reading an image again: clocks may go back.
    """
    by_path: dict[str, list[Manifest]] = {}
    for manifest in sorted(manifests, key=lambda manifest: str(manifest["ended"])):
        for path in dict.fromkeys((manifest["path"], *manifest["copies"])):
            by_path.setdefault(path, []).append(manifest)
    return by_path


def _is_other(before: Manifest, path: str, file: Input) -> bool:
    """Returns whether the path's former content, as read, differs and has no other known copy."""
    mine = before["status"] == DONE and before["path"] == path and not before["copies"]
    return bool(mine and before["probe"] != file.probe)


def given_folders(option: str, text: str) -> tuple[str, ...]:
    """Returns the folders of an option, which semicolons separate.

    Raises:
        WrongUseError: one of them is no folder
    """
    paths = tuple(os.path.abspath(folder) for folder in text.split(";") if folder)
    for folder in paths:
        if not os.path.isdir(folder):
            raise WrongUseError(f"{option}: there is no folder {provenance.shown(folder)}")
    return paths


def _reason(
    before: Manifest, path: str, file: Input, reading: Reading, found: dict[str, str]
) -> Optional[str]:
    """Returns in words why an image with a manifest is to be read again; None if it is not."""
    # A copy has the same content but its own time.
    touched = path == before["path"] and file.modified != before["modified"]
    if touched or (file.size, file.probe) != (before["size"], before["probe"]):
        return "the file was changed"
    if reading.digest() != before["reading_digest"]:
        return "the options differ"
    was = before["versions"]
    for name in versions.DECIDE:
        if was.get(name) != found.get(name):
            return f"the version of {name} was {was.get(name, 'unknown')}, and is {found.get(name)} now"
    return None
