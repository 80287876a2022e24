# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which images of a command line are to be read, and which were before."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Optional

from . import custody, versions
from .agreement import Depth
from .contents import Damaged
from .job import Custody, Job, Limits, Reading
from .lake import Lake
from .layout import MANIFEST
from .manifests import DONE, Manifest


class WrongUseError(Exception):
    """A command line that means nothing; the text says why."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a command line asks of all images.

    Attributes:
        reading: how they are read
        limits: what each may take
        custody: what manifests say of the run
        retry_failed: whether those that failed before are tried again
    """

    reading: Reading
    limits: Limits
    custody: Custody
    retry_failed: bool = False


@dataclasses.dataclass
class Plan:
    """What is to be done.

    Attributes:
        jobs: images to read, the largest first
        done: how many were done before
        failed: paths that failed before, and are not tried again
        again: why images that were done are read again, and how many for each reason
        replaced: paths with other content than when they were read, and the ImageIds of that
        damaged: images of the lake that are damaged, and are not read again
    """

    jobs: list[Job]
    done: int = 0
    failed: list[str] = dataclasses.field(default_factory=list)
    again: dict[str, int] = dataclasses.field(default_factory=dict)
    replaced: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    damaged: list[Damaged] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Input:
    """A file that can be read: bytes, time of modification in ns, and what `custody.probe` says of it."""

    size: int
    modified: int
    probe: str


DUMPS = ".dmp"
"""How the names of dumps end, in small letters."""


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The files of a command line.

    Attributes:
        files: those that can be read, by path
        unread: why the others cannot be read, by path
    """

    files: dict[str, Input]
    unread: dict[str, str]


def _files_of(path: str) -> list[str]:
    """Returns the dumps in a folder (`*.dmp`, in no folder below it), or the path itself."""
    try:
        with os.scandir(path) as entries:
            names = sorted(each.name for each in entries if each.name.lower().endswith(DUMPS))
    except OSError:
        return [path]
    return [os.path.join(path, name) for name in names] or [path]


def look(images: Sequence[str]) -> Inputs:
    """Returns which paths lead to files that can be read.

    Args:
        images: paths; a folder stands for the dumps in it

    Raises:
        WrongUseError: none of them does
    """
    found = Inputs({}, {})
    for path in dict.fromkeys(each for image in images for each in _files_of(absolute(image))):
        try:
            facts = os.stat(path)
            if custody.shown(path) != path:
                found.unread[path] = f"cannot be read: {_NOT_UTF8}"
            elif not (stat.S_ISREG(facts.st_mode) or stat.S_ISBLK(facts.st_mode)):
                found.unread[path] = "is no file"
            else:
                found.files[path] = Input(facts.st_size, facts.st_mtime_ns, custody.probe(path))
        except OSError as error:
            found.unread[path] = f"cannot be read: {error.strerror}"
    if not found.files:
        raise WrongUseError("; ".join(f"{custody.shown(path)} {why}" for path, why in found.unread.items()))
    return found


_NOT_UTF8 = "its name is not UTF-8, and Volatility opens no such file; give it another name, or a link to it"


def plan(
    files: Mapping[str, Input],
    lake: Lake,
    settings: Settings,
    found: dict[str, str],
    depth: Depth = Depth.SIZE,
) -> Plan:
    """Returns what is to be done.

    Args:
        files: what `look` has found
        lake: what was done before
        settings: what is asked
        found: versions that will read the images
        depth: how far what was done is compared with its manifests
    """
    contents, made = lake.contents(depth), Plan([])
    known = _by_path(contents.manifests)
    broken = _by_path([each.manifest for each in contents.damaged if each.manifest is not None])
    for path, file in files.items():
        before = known.get(path, [])
        reasons = [
            _reason(each, path, file, settings.reading, found)
            or lake.custody_fault(each["image_id"], contents.entries[each["image_id"]].manifest)
            for each in before
        ]
        same = {each["status"] for each, why in zip(before, reasons) if not why}
        if DONE in same:
            made.done += 1
            continue
        if same and not settings.retry_failed:
            made.failed.append(path)
            continue
        changed = None if same or not reasons else reasons[-1]
        if changed and changed.startswith(MANIFEST):
            changed = "their manifests are not what the catalogue has"
        if path in broken:
            changed = "their tables do not agree with their manifests"
        if changed:
            made.again[changed] = made.again.get(changed, 0) + 1
        made.replaced[path] = tuple(each["image_id"] for each in before if _is_other(each, path, file))
        made.jobs.append(
            Job(
                path,
                file.size,
                file.modified,
                file.probe,
                str(lake.folder),
                settings.reading,
                settings.limits,
                settings.custody,
                made.replaced[path],
            )
        )
    read = {job.path for job in made.jobs}
    made.damaged = [each for each in contents.damaged if (each.manifest or {}).get("path") not in read]
    made.jobs.sort(key=lambda job: (-job.size, job.path))
    return made


def _by_path(manifests: Sequence[Manifest]) -> dict[str, list[Manifest]]:
    """Returns by path the manifests that are about it, also as a copy, the newest last.

    Which is the newest decides only why an image is read again: clocks may go back.
    """
    found: dict[str, list[Manifest]] = {}
    for each in sorted(manifests, key=lambda each: str(each["ended"])):
        for path in dict.fromkeys((each["path"], *each["copies"])):
            found.setdefault(path, []).append(each)
    return found


def _is_other(before: Manifest, path: str, file: Input) -> bool:
    """Returns whether a path was read when it had other content, which is nowhere else as far as is known."""
    mine = before["status"] == DONE and before["path"] == path and not before["copies"]
    return bool(mine and before["probe"] != file.probe)


def absolute(path: str) -> str:
    """Returns the absolute form of a path, links not followed: it is what the examiner called the file."""
    return os.path.abspath(path)


def folders(text: str) -> tuple[str, ...]:
    """Returns the folders that an option names, with ; between."""
    return tuple(absolute(each) for each in text.split(";") if each)


def _reason(
    before: Manifest, path: str, file: Input, reading: Reading, found: dict[str, str]
) -> Optional[str]:
    """Returns in words why an image of which there is a manifest is to be read again; None if it is not."""
    # A copy has the same content, and a time of its own.
    touched = path == before["path"] and file.modified != before["modified"]
    if touched or (file.size, file.probe) != (before["size"], before["probe"]):
        return "the file was changed"
    if reading.digest() != before["reading_digest"]:
        return "other options"
    was = before["versions"]
    for name in versions.DECIDE:
        if was.get(name) != found.get(name):
            return f"{name} {was.get(name, 'unknown')} then, {found.get(name)} now"
    return None
