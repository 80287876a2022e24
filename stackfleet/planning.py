# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which images of a command line are to be read, and which were before."""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Sequence
from typing import Optional

from . import custody, versions
from .job import Custody, Job, Limits, Reading
from .lake import DONE, Lake, Manifest


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
    """

    jobs: list[Job]
    done: int = 0
    failed: list[str] = dataclasses.field(default_factory=list)
    again: dict[str, int] = dataclasses.field(default_factory=dict)


def plan(images: Sequence[str], lake: Lake, settings: Settings, found: dict[str, str]) -> Plan:
    """Returns what is to be done.

    Args:
        images: paths
        lake: what was done before
        settings: what is asked
        found: versions that will read the images

    Raises:
        WrongUseError: a path leads to no file that can be read
    """
    known, made = lake.by_path(), Plan([])
    for path in dict.fromkeys(map(absolute, images)):
        try:
            facts = os.stat(path)
            if not (stat.S_ISREG(facts.st_mode) or stat.S_ISBLK(facts.st_mode)):
                raise WrongUseError(f"{path} is no file")
            before = known.get(path)
            changed = None if before is None else reason(before, path, facts, settings.reading, found)
            if before is not None and before["status"] == DONE and not changed:
                made.done += 1
                continue
            if before is not None and before["status"] != DONE and not (changed or settings.retry_failed):
                made.failed.append(path)
                continue
            if changed:
                made.again[changed] = made.again.get(changed, 0) + 1
            probe = custody.probe(path)
        except OSError as error:
            raise WrongUseError(f"{path} cannot be read: {error.strerror}") from error
        made.jobs.append(
            Job(
                path,
                facts.st_size,
                facts.st_mtime_ns,
                probe,
                str(lake.folder),
                settings.reading,
                settings.limits,
                settings.custody,
            )
        )
    made.jobs.sort(key=lambda job: (-job.size, job.path))
    return made


def absolute(path: str) -> str:
    """Returns the absolute form of a path, links not followed: it is what the examiner called the file."""
    return os.path.abspath(path)


def folders(text: str) -> tuple[str, ...]:
    """Returns the folders that an option names, with ; between."""
    return tuple(absolute(each) for each in text.split(";") if each)


def reason(
    before: Manifest, path: str, facts: os.stat_result, reading: Reading, found: dict[str, str]
) -> Optional[str]:
    """Returns in words why an image of which there is a manifest is to be read again; None if it is not."""
    if path == before["path"] and (facts.st_size, facts.st_mtime_ns) != (before["size"], before["modified"]):
        return "the file was changed"
    if reading.digest() != before["reading_digest"]:
        return "other options"
    was = before["versions"]
    for name in versions.DECIDE:
        if was.get(name) != found.get(name):
            return f"{name} {was.get(name, 'unknown')} then, {found.get(name)} now"
    return None
