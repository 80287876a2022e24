# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The command line: commands that write a lake; `query_cli` adds the commands that read one."""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import shlex
import subprocess
import sys
import uuid
from collections.abc import Sequence
from typing import Any, Optional

from winstacks.memory.decode.text import counted

from . import exits, provenance, query_cli
from .arguments import count, seconds, shard, size, whole
from .job import Custody, Limits, Reading
from .lake import Depth, Lake, LakeError
from .output import say, tell, visible
from .planning import Inputs, Plan, Settings, WrongUseError, find_inputs, given_folders, plan


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs a command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A code page, such as a pipe's on Windows, lacks letters that names contain.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        options = _parser().parse_args(arguments)
        return int(options.command(options))
    except (LakeError, WrongUseError) as error:
        tell(f"stackfleet: {error}")
        return exits.WRONG_USE
    except KeyboardInterrupt:
        tell("stackfleet: interrupted")
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The reader of the output closed it early.
        return exits.DONE


class _Parser(argparse.ArgumentParser):
    """A parser whose help ends the command with an error if it cannot be written."""

    def print_help(self, file: Any = None) -> None:
        say(self.format_help().rstrip("\n"))


def quoted(path: str) -> str:
    """Returns a path quoted for this system's shell."""
    return subprocess.list2cmdline([path]) if os.name == "nt" else shlex.quote(path)


def _parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = _Parser(
        prog="stackfleet", description="Read many memory images into a lake, and query it.", epilog=exits.HELP
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Any, text: str, lake: bool = True) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text, epilog=exits.HELP)
        command.set_defaults(command=run)
        if lake:
            command.add_argument("lake", metavar="LAKE", help="folder of the lake")
        return command

    _add_run(add("run", _run, "read memory images, and write their tables to a lake", lake=False))
    query_cli.add_to(add)
    forget = add("forget", _forget, "remove images from a lake: their manifests and rows")
    forget.add_argument("images", nargs="+", metavar="IMAGE", help="complete ImageId, path, or file name")
    add("compact", _compact, "merge the many files of a lake into few, which are faster to query")
    return parser


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "images",
        nargs="+",
        metavar="IMAGE",
        help="memory image, dump, or folder of dumps (*.dmp); finished images are not read again",
    )
    run.add_argument(
        "-o",
        "--lake",
        required=True,
        help="folder of the lake, or s3://BUCKET/PATH, gs://... or az://...; created if it does not exist",
    )
    dask = run.add_argument_group("where it runs")
    dask.add_argument("--workers", type=count, help="number of images read at a time (default: processors)")
    dask.add_argument("--scheduler", help="address of a Dask scheduler: tcp://... or tls://...")
    limits = run.add_argument_group("limits for an image; its process is killed beyond them")
    limits.add_argument("--timeout", type=seconds, help="time limit in seconds, or such as 90m or 2h")
    limits.add_argument("--memory", type=size, help="limit of resident memory, such as 4G")
    limits.add_argument("--retries", type=whole, default=0, help="number of further attempts after a failure")
    run.add_argument(
        "--shard",
        type=shard,
        metavar="I/N",
        help="read only part I of N equal parts of the images: for the jobs of Slurm, Kubernetes or xargs",
    )
    run.add_argument("--retry-failed", action="store_true", help="try failed images of earlier runs again")
    run.add_argument(
        "--verify",
        action="store_true",
        help="compare all rows with their digests first, and read images with altered rows again",
    )
    custody_group = run.add_argument_group("entries of the manifests")
    custody_group.add_argument("--case", default="", help="name of the case")
    custody_group.add_argument("--note", default="", help="free text")
    custody_group.add_argument("--sha256", action="store_true", help="the SHA-256 of each file of an image")
    reading = run.add_argument_group("how images are read")
    for name in ("carve", "scan-stacks", "scan-threads", "scan-processes", "processors", "fetch-symbols"):
        reading.add_argument(f"--{name}", action="store_true", help="as in windows.traces")
    reading.add_argument("--binaries", default="", help="folders with files of modules, separated by ;")
    volatility = run.add_argument_group("Volatility")
    volatility.add_argument("--plugin-dirs", default="", help="folders of plugins, separated by ;")
    volatility.add_argument("--symbol-dirs", default="", help="folders of symbol tables, separated by ;")
    volatility.add_argument("--cache-path", help="folder of Volatility's cache (default: in the lake)")
    volatility.add_argument("--offline", action="store_true", help="download nothing")


def _forget(options: argparse.Namespace) -> int:
    lake = _opened(options.lake)
    names: dict[str, str] = {}
    manifests, damaged = lake.manifests(), lake.contents().damaged
    known = [(item["image_id"], item["path"]) for item in manifests]
    known += [(item.image_id, item.path) for item in damaged]
    for selector in options.images:
        found = {
            image_id: path for image_id, path in known if selector in (image_id, path, os.path.basename(path))
        }
        if not found:
            raise WrongUseError(
                f"{selector} names no image of this lake: use a complete ImageId, a path or a file name"
            )
        names.update(found)
    lake.forget(names)
    lake.record(f"stackfleet-{uuid.uuid4().hex}", {**_command_record(), "forgotten": names})
    for image_id, path in names.items():
        say(visible(f"{image_id} is forgotten: {path}"))
    return exits.DONE


def _compact(options: argparse.Namespace) -> int:
    lake = _opened(options.lake)
    lake.compact()
    say(f"{lake.uri} has {counted(lake.files(), 'file')} now")
    return exits.DONE


def _opened(uri: str, create: bool = False) -> Lake:
    """Returns a lake, and says so if its last commit is left out.

    Raises:
        LakeError: there is no lake, or it cannot be read
    """
    lake = Lake(uri, create)
    lake.contents()
    for name in lake.torn:
        tell(
            f"stackfleet: {name}, a commit of this lake, is torn and left out, as after a power failure: its "
            "images are read again"
        )
    return lake


def _images(count: int, singular: str, plural: str) -> str:
    """Returns a number of images with its verb."""
    return counted(count, f"image {singular}", f"images {plural}")


def _settings(options: argparse.Namespace) -> Settings:
    given = {
        "plugin_dirs": given_folders("--plugin-dirs", options.plugin_dirs),
        "symbol_dirs": given_folders("--symbol-dirs", options.symbol_dirs),
        "cache_path": options.cache_path and os.path.abspath(options.cache_path),
        "binaries": given_folders("--binaries", options.binaries),
    }
    names = (field.name for field in dataclasses.fields(Reading))
    reading = Reading(**{name: given.get(name, getattr(options, name)) for name in names})
    run_custody = Custody(
        provenance.shown(options.case), provenance.shown(options.note), f"stackfleet-{uuid.uuid4().hex}"
    )
    limits = Limits(options.timeout, options.memory, options.retries)
    return Settings(reading, limits, run_custody, options.retry_failed)


def _run(options: argparse.Namespace) -> int:
    # Commands that query a lake need none of this, and start faster without it.
    from .joining import CheckFailedError, RefusedError, checked

    inputs, settings = find_inputs(options.images, options.shard), _settings(options)
    for path, why in inputs.unread.items():
        tell(f"stackfleet: {provenance.shown(path)} {why}")
    try:
        lake = _opened(options.lake, create=True)
        try:
            found_versions = checked(settings.reading, lake.uri)
            missing, unrecorded, cut = _read(options, lake, inputs, settings, found_versions)
        finally:
            lake.remove_if_empty()
    except (CheckFailedError, RefusedError) as error:
        raise WrongUseError(str(error)) from error
    where = quoted(options.lake)
    if missing > unrecorded:
        number = _images(missing - unrecorded, "is", "are")
        tell(f"{number} not done. The reasons: stackfleet status {where}")
    if unrecorded:
        number, again = _images(unrecorded, "is", "are"), "it" if unrecorded == 1 else "them"
        tell(f"{number} not done, and not recorded in the lake: the next run reads {again} again")
    if cut:
        tell(f"{_images(cut, 'is', 'are')} truncated: stackfleet status {where}")
    return exits.INCOMPLETE if missing or cut or inputs.unread else exits.DONE


def _read(
    options: argparse.Namespace, lake: Lake, inputs: Inputs, settings: Settings, found: dict[str, str]
) -> tuple[int, int, int]:
    """Reads the planned images.

    Returns:
        numbers of images: how many are not done, how many of these are not recorded either, and how many are
        done and cut
    """
    from . import engine
    from .progress import Progress

    planned = plan(inputs.files, lake, settings, found, Depth.CONTENT if options.verify else Depth.SIZE)
    _report_plan(planned, options.lake)
    missing, unrecorded, cut = len(planned.failed), 0, planned.cut
    if planned.jobs:
        sizes = {job.path: job.size for job in planned.jobs}
        workers = options.workers or os.cpu_count() or 1
        embedded = options.scheduler is None
        with engine.connected(options.scheduler, workers) as client, Progress(sizes) as progress:
            unread = {provenance.shown(path): why for path, why in inputs.unread.items()}
            lake.record(settings.custody.run, {**_command_record(), "unread": unread})
            missing += engine.run(client, planned.jobs, lake, settings.reading, found, progress, embedded)
        cut, unrecorded = cut + progress.cut, progress.unrecorded
        lake.compact(needed=True)
    return missing, unrecorded, cut


def _command_record() -> dict[str, Any]:
    """Returns the parts of a command line that a lake records."""
    return {"command": [provenance.shown(argument) for argument in sys.argv], "started": provenance.now()}


def _report_plan(planned: Plan, lake: str) -> None:
    """Reports the images that are skipped or read again, and the faults of the lake."""
    where = quoted(lake)
    if planned.done:
        tell(f"{_images(planned.done, 'was', 'were')} done before")
    if planned.failed:
        failed = _images(len(planned.failed), "has", "have")
        tell(f"{failed} failed before: --retry-failed tries again")
    for reason, number in planned.again.items():
        tell(f"{_images(number, 'is', 'are')} read again: {reason}")
    for path, image_ids in planned.replaced.items():
        for image_id in image_ids:
            forget = f"stackfleet forget {where} {image_id}"
            tell(f"{path} has new content. The rows of its old content, {image_id}, stay until: {forget}")
    if planned.damaged:
        tell(
            f"{_images(len(planned.damaged), 'is', 'are')} damaged, and this run does not read "
            f"{'it' if len(planned.damaged) == 1 else 'them'}: stackfleet status {where}"
        )
