# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The command line: `stackfleet run`, and what asks a lake."""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
import uuid
from collections.abc import Sequence
from typing import Any, Optional

from . import asking, custody, exits
from .agreement import Depth
from .job import Custody, Limits, Reading
from .lake import Lake, LakeError
from .mirror import is_remote, mirrored
from .planning import Inputs, Plan, Settings, WrongUseError, absolute, folders, look, plan

_SIZES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TIMES = {"": 1, "s": 1, "m": 60, "h": 3600}


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs a command; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        # A code page, as that of a pipe on Windows, lacks letters that names have.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    parser = _parser()
    asked = parser.parse_args(arguments)
    asked.called = asked.lake
    try:
        # A lake in object storage is asked and written by a copy of it.
        with mirrored(asked.lake, asked.command in _WRITING) as folder:
            asked.lake = folder
            return int(asked.command(asked))
    except (LakeError, WrongUseError) as error:
        said = str(error) if asked.lake == asked.called else str(error).replace(asked.lake, asked.called)
        print(f"stackfleet: {said}", file=sys.stderr)
        return exits.WRONG_USE
    except KeyboardInterrupt:
        print("stackfleet: interrupted", file=sys.stderr)
        return exits.INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has seen enough. Python would complain when it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return exits.DONE


def quoted(path: str) -> str:
    """Returns a path as the shell of this system takes it in a command."""
    return subprocess.list2cmdline([path]) if os.name == "nt" else shlex.quote(path)


def quantity(units: dict[str, int], text: str) -> float:
    """Returns a number with a unit behind it, such as `90m` or `2G`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]?)i?b?", text.strip().lower())
    if not found or found[2] not in units or not float(found[1]):
        raise argparse.ArgumentTypeError(
            f"{text} is not a number above 0 with one of {' '.join(units)} behind it"
        )
    return float(found[1]) * units[found[2]]


def seconds(text: str) -> float:
    """Returns the seconds of a time such as `90m`."""
    return quantity(_TIMES, text)


def size(text: str) -> int:
    """Returns the bytes of a size such as `2G`."""
    return int(quantity(_SIZES, text))


def count(text: str) -> int:
    """Returns a number above 0."""
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="stackfleet", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run(commands)
    asking.add_to(commands, count)
    _add_forget(commands)
    _add_compact(commands)
    for each in (parser, *commands.choices.values()):
        each.epilog = exits.HELP
    return parser


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = commands.add_parser("run", help="read images and write their tables to a lake")
    run.set_defaults(command=_run)
    run.add_argument("images", nargs="+", metavar="IMAGE", help="memory images; done ones are passed over")
    run.add_argument(
        "-o",
        "--lake",
        required=True,
        help="folder of the lake, or s3://BUCKET/PATH; it is made if there is none",
    )
    dask = run.add_argument_group("where it runs")
    dask.add_argument("--workers", type=count, help="images at a time in this program (default: processors)")
    dask.add_argument("--scheduler", help="address of a Dask scheduler, tcp://... or tls://...")
    limits = run.add_argument_group("limits of an image")
    limits.add_argument("--timeout", type=seconds, help="seconds, or 90m, or 2h: then its process is killed")
    limits.add_argument("--memory", type=size, help="resident memory, such as 4G: above it is killed")
    limits.add_argument("--retries", type=int, default=0, help="further attempts after one that failed")
    run.add_argument("--retry-failed", action="store_true", help="try again what failed in an earlier run")
    run.add_argument(
        "--verify",
        action="store_true",
        help="read all tables of the lake, and images again whose tables changed",
    )
    kept = run.add_argument_group("what the manifests say")
    kept.add_argument("--case", default="", help="name of the case")
    kept.add_argument("--note", default="", help="any text")
    kept.add_argument("--sha256", action="store_true", help="read all files for their SHA-256")
    reading = run.add_argument_group("how images are read (see windows.traces)")
    for name in ("carve", "scan-stacks", "scan-threads", "scan-processes", "processors", "fetch-symbols"):
        reading.add_argument(f"--{name}", action="store_true")
    volatility = run.add_argument_group("Volatility")
    volatility.add_argument("--plugin-dirs", default="", help="folders of plugins, with ; between")
    volatility.add_argument("--symbol-dirs", default="", help="folders of symbol tables, with ; between")
    volatility.add_argument("--cache-path", help="folder in which Volatility caches (default: LAKE/cache)")
    volatility.add_argument("--offline", action="store_true", help="download nothing")


def _add_forget(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "take images out of a lake: their manifests and rows"
    forget = commands.add_parser("forget", help=text, description=text)
    forget.set_defaults(command=_forget)
    forget.add_argument("lake", metavar="LAKE", help="folder of the lake")
    forget.add_argument("images", nargs="+", metavar="IMAGE", help="whole ImageId, path or name of a file")


def _forget(asked: argparse.Namespace) -> int:
    from .forgetting import forget

    lake, run = Lake(asked.lake), f"stackfleet-{uuid.uuid4().hex}"
    with lake.alone():
        _mend(lake)
        found = forget(lake, asked.images, run)
        lake.record(run, {**_asked(), "forgotten": found})
    for image_id, called in found.items():
        print(f"{image_id} is forgotten: {called}")
    return exits.DONE


def _add_compact(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "make few files of many, in the order in which they are asked for"
    compact = commands.add_parser("compact", help=text, description=text)
    compact.set_defaults(command=_compact)
    compact.add_argument("lake", metavar="LAKE", help="folder of the lake")


def _compact(asked: argparse.Namespace) -> int:
    from .merging import merge

    lake, run = Lake(asked.lake), f"stackfleet-{uuid.uuid4().hex}"
    with lake.alone():
        _mend(lake)
        lake.record(run, _asked())
        print(f"{merge(lake, run, everything=True)} images are in one batch of files now")
        damaged = lake.contents().damaged
    for each in damaged:
        print(f"stackfleet: left as it is: {each.called}: {each.reason}", file=sys.stderr)
    return exits.INCOMPLETE if damaged else exits.DONE


def _mend(lake: Lake) -> None:
    """Makes logs anew that cannot be read, and says so; ends what a run that was killed had begun."""
    for table in lake.mend():
        print(
            f"stackfleet: the log of the table {table} could not be read, and was made anew", file=sys.stderr
        )
    lake.take_over()
    lake.clean()


def _settings(asked: argparse.Namespace) -> Settings:
    reading = Reading(
        plugin_dirs=folders(asked.plugin_dirs),
        symbol_dirs=folders(asked.symbol_dirs),
        cache_path=asked.cache_path and absolute(asked.cache_path),
        offline=asked.offline,
        fetch_symbols=asked.fetch_symbols,
        carve=asked.carve,
        scan_stacks=asked.scan_stacks,
        scan_threads=asked.scan_threads,
        scan_processes=asked.scan_processes,
        processors=asked.processors,
        sha256=asked.sha256,
    )
    kept = Custody(custody.shown(asked.case), custody.shown(asked.note), f"stackfleet-{uuid.uuid4().hex}")
    limits = Limits(asked.timeout, asked.memory, asked.retries)
    return Settings(reading, limits, kept, asked.retry_failed)


def _run(asked: argparse.Namespace) -> int:
    # What asks a lake needs none of this, and starts faster without it.
    from .joining import CheckFailedError, RefusedError, checked

    if asked.scheduler is not None and is_remote(asked.called):
        raise WrongUseError(f"--scheduler: workers write to the lake, and {asked.called} is no folder")
    if asked.retries < 0:
        raise WrongUseError(f"--retries is {asked.retries}: it takes 0 or more")
    inputs, settings = look(asked.images), _settings(asked)
    for path, why in inputs.unread.items():
        print(f"stackfleet: {custody.shown(path)} {why}", file=sys.stderr)
    try:
        lake = Lake(asked.lake, create=True)
        try:
            found = checked(settings.reading, absolute(asked.lake))
            with lake.alone():
                missing = _read(asked, lake, inputs, settings, found)
        finally:
            if lake.made:
                lake.remove_if_empty()
    except (CheckFailedError, RefusedError) as error:
        raise WrongUseError(str(error)) from error
    if missing:
        where = quoted(asked.called)
        print(f"{missing} images are not done; the reasons: stackfleet status {where}", file=sys.stderr)
    return exits.INCOMPLETE if missing or inputs.unread else exits.DONE


def _read(
    asked: argparse.Namespace, lake: Lake, inputs: Inputs, settings: Settings, found: dict[str, str]
) -> int:
    """Reads what is to be read; returns how many images are not done."""
    from . import engine
    from .merging import merge
    from .progress import Progress

    _mend(lake)
    planned = plan(inputs.files, lake, settings, found, Depth.CONTENT if asked.verify else Depth.SIZE)
    _say(planned, asked.called)
    missing = len(planned.failed)
    if planned.jobs:
        sizes = {job.path: job.size for job in planned.jobs}
        workers = asked.workers or os.cpu_count() or 1
        embedded = asked.scheduler is None
        with engine.connected(asked.scheduler, workers) as client, Progress(sizes) as progress:
            unread = {custody.shown(path): why for path, why in inputs.unread.items()}
            lake.record(settings.custody.run, {**_asked(), "unread": unread})
            missing += engine.run(client, planned.jobs, lake, settings.reading, found, progress, embedded)
        merge(lake, settings.custody.run)
    return missing


def _asked() -> dict[str, Any]:
    """Returns what a lake keeps of a command line."""
    return {"command": [custody.shown(each) for each in sys.argv], "started": custody.now()}


def _say(planned: Plan, lake: str) -> None:
    """Says what is passed over, what is read again, and what is wrong with the lake."""
    where = quoted(lake)
    if planned.done:
        print(f"{planned.done} images were done before", file=sys.stderr)
    if planned.failed:
        print(f"{len(planned.failed)} images failed before: --retry-failed tries them again", file=sys.stderr)
    for reason, number in planned.again.items():
        print(f"{number} images are read again: {reason}", file=sys.stderr)
    for path, image_ids in planned.replaced.items():
        for image_id in image_ids:
            forget = f"stackfleet forget {where} {image_id}"
            print(f"{path} has other content than {image_id}, whose rows stay: {forget}", file=sys.stderr)
    if planned.damaged:
        print(
            f"{len(planned.damaged)} other images of the lake are damaged: stackfleet status {where}",
            file=sys.stderr,
        )


_WRITING = (_run, _forget, _compact)
"""The commands that change a lake."""
