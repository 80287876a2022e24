# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The commands that ask a lake."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import IO, Callable, Optional

from winstacks.columns.words import KINDS, SEVERITIES

from . import exits, output, questions
from .agreement import Depth
from .contents import Contents
from .database import Database, SqlError
from .export import LINES, Export
from .job import Reading
from .lake import Lake, LakeError
from .layout import TABLES, TRACES
from .planning import WrongUseError, folders
from .questions import KEYS, Question

MOST_NAMED = 20
"""Damaged images that are named; of more the number is."""

RARE_MEMORY = "1500MB"
"""What DuckDB may hold for `rare` if nothing is said: what is more goes to the folder for temporary files."""

Commands = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_to(commands: Commands, count: Callable[[str], int]) -> None:  # type: ignore[valid-type]
    """Adds the commands to a command line.

    Args:
        commands: where they are added
        count: reads a number above 0
    """
    status = _command(commands, "status", _status, "what became of each image, and why some failed")
    status.add_argument(
        "--verify",
        action="store_true",
        help="read all files, and compare rows and SHA-256 with the manifests",
    )
    sql = _command(
        commands, "sql", _sql, "any query; there is a view for each table, and manifests and hosts"
    )
    sql.add_argument("sql", help="the query, - for standard input")
    found = _command(commands, "findings", _findings, "what was found in all images, worst first, rare first")
    found.add_argument("--severity", choices=SEVERITIES, default=SEVERITIES[-1], help="the least")
    found.add_argument("--unchecked", action="store_true", help="list checks that could not run")
    rare = _command(commands, "rare", _rare, "stacks that few hosts have, the rarest first")
    _of_stacks(rare)
    rare.add_argument("--max-hosts", type=count, default=2, help="hosts that have a stack at most")
    rare.add_argument("--limit", type=int, default=50, help="rows, 0 for all")
    rare.set_defaults(memory_limit=RARE_MEMORY)
    differ = _command(commands, "diff", _diff, "stacks that are new, gone or changed in count")
    differ.add_argument(
        "first", metavar="A", help="image or group: ImageId, host, file, case=NAME; , between"
    )
    differ.add_argument("second", metavar="B", help="what A is compared with")
    _of_stacks(differ)

    _add_export(commands)
    _add_report(commands)


def _add_report(commands: Commands) -> None:  # type: ignore[valid-type]
    text = "pages to read: one of all images, and one for each image"
    made = commands.add_parser("report", help=text, description=text)  # type: ignore[attr-defined]
    made.set_defaults(command=_report)
    made.add_argument("lake", metavar="LAKE", help="folder of the lake")
    made.add_argument(
        "-o",
        "--output",
        metavar="FILE.html|FOLDER",
        default="stackfleet-report",
        help="the page of all images, or the folder for all pages (default: %(default)s)",
    )
    made.add_argument("--memory-limit", metavar="SIZE", help="the most that DuckDB may hold, such as 4GB")
    made.add_argument("--plugin-dirs", default="", help="folders of plugins, with ; between")


def _report(asked: argparse.Namespace) -> int:
    from .opening import prepare

    prepare(Reading(plugin_dirs=folders(asked.plugin_dirs)))
    try:
        # The plugins have the form of the pages.
        from .report import Report, place
    except ImportError as error:
        raise WrongUseError(
            f"the plugins are not found, --plugin-dirs names their folder: {error}"
        ) from error
    where, lake = place(asked.output), Lake(asked.lake)

    def write(contents: Contents) -> None:
        report = Report(lake, where, asked.memory_limit, contents)
        report.write()
        print(f"{where.first}: images: {report.images} done, {report.failed} failed")

    try:
        # Pages are made of many columns of many types: all are to be there.
        return _of_whole_images(lake, write, Depth.FORM)
    except OSError as error:
        raise WrongUseError(f"{error.filename or where.first} cannot be written: {error.strerror}") from error


def _add_export(commands: Commands) -> None:  # type: ignore[valid-type]
    text = "stacks in the forms that other programs read"
    made = commands.add_parser("export", help=text, description=text)  # type: ignore[attr-defined]
    made.set_defaults(command=_export)
    made.add_argument("lake", metavar="LAKE", help="folder of the lake")
    made.add_argument("--to", required=True, choices=sorted(LINES), help="the form")
    made.add_argument("--output", metavar="FILE", help="where it goes (default: standard output)")
    made.add_argument("--table", choices=list(TABLES), default=TRACES, help="with --to jsonl: which table")
    _add_kind(made)


def _export(asked: argparse.Namespace) -> int:
    lake = Lake(asked.lake)

    def write(contents: Contents) -> None:
        with Database(lake, contents=contents) as database, opened(asked.output) as stream:
            export = Export(database, asked.table, asked.kind)
            for line in export.lines(asked.to):
                stream.write(line.encode("utf-8", "replace") + b"\n")
            stream.flush()
            for said in export.said:
                print(said, file=sys.stderr)

    # Rows that went to standard output cannot be taken back.
    return _of_whole_images(lake, write, again=bool(asked.output))


def _of_whole_images(
    lake: Lake, run: Callable[[Contents], None], depth: Depth = Depth.SIZE, again: bool = True
) -> int:
    """Asks a lake without the images that are damaged, and names these; returns the exit code.

    Args:
        lake: the lake
        run: asks the images that it is given
        depth: how far they are compared with their manifests
        again: whether, after an error that files may have caused, those are looked for and left out

    Raises:
        WrongUseError: DuckDB does not take what is asked
    """
    contents = lake.contents(depth)
    while True:
        try:
            run(contents)
            break
        except SqlError as error:
            found = _more_damaged(lake, contents, depth) if again and error.of_files else None
            if found is None:
                raise WrongUseError(str(error)) from error
            contents, depth = found
        except LakeError:
            _name(contents)
            raise
    _name(contents)
    return exits.INCOMPLETE if contents.damaged else exits.DONE


def _name(contents: Contents) -> None:
    """Names the images that are left out."""
    for each in contents.damaged[:MOST_NAMED]:
        print(f"stackfleet: left out: {each.called}: {each.reason}", file=sys.stderr)
    more = len(contents.damaged) - MOST_NAMED
    if more > 0:
        print(f"stackfleet: left out: {more:,} more images; stackfleet status names them", file=sys.stderr)


def _more_damaged(lake: Lake, contents: Contents, depth: Depth) -> Optional[tuple[Contents, Depth]]:
    """Returns the contents of a lake, looked at more closely; None if no more of it is damaged."""
    for closer in Depth:
        if closer > depth:
            found = lake.contents(closer)
            if len(found.damaged) > len(contents.damaged):
                return found, closer
    return None


def _command(
    commands: Commands,  # type: ignore[valid-type]
    name: str,
    run: Callable[[argparse.Namespace, Database], Question],
    text: str,
) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)  # type: ignore[attr-defined]
    made.set_defaults(command=lambda asked: _answer(asked, run))
    made.add_argument("lake", metavar="LAKE", help="folder of the lake")
    made.add_argument("--format", choices=output.FORMATS, default=output.TABLE)
    made.add_argument("--output", metavar="FILE", help="where the rows go (default: standard output)")
    made.add_argument("--show-sql", action="store_true", help="print the SQL and do not run it")
    made.add_argument("--memory-limit", metavar="SIZE", help="the most that DuckDB may hold, such as 4GB")
    return made


def _of_stacks(command: argparse.ArgumentParser) -> None:
    command.add_argument("--by", choices=KEYS, default=KEYS[0], help="key by which stacks are the same")
    _add_kind(command)
    command.add_argument("--partial", action="store_true", help="also stacks whose keys are not exact")


def _add_kind(command: argparse.ArgumentParser) -> None:
    text = f"only stacks of this kind, one of {', '.join(KINDS)}; can be repeated"
    command.add_argument(
        "--kind", action="append", default=[], choices=list(KINDS), metavar="KIND", help=text
    )


def _answer(asked: argparse.Namespace, run: Callable[[argparse.Namespace, Database], Question]) -> int:
    lake = Lake(asked.lake)

    def write(contents: Contents) -> None:
        with Database(lake, asked.memory_limit, contents=contents) as database:
            question = run(asked, database)
            if asked.show_sql:
                print(database.script(question.sql), end="")
                return
            table = database.table(question.sql)
            left_out = database.value(question.left_out) if question.left_out else 0
            if left_out:
                print(question.said.format(f"{left_out:,}"), file=sys.stderr)
            with opened(asked.output) as stream:
                output.write(table, asked.format, stream)

    return _of_whole_images(lake, write, Depth.CONTENT if getattr(asked, "verify", False) else Depth.SIZE)


@contextlib.contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Yields a file to write, standard output where none is named.

    Raises:
        WrongUseError: it cannot be written
    """
    if not path:
        yield sys.stdout.buffer
        return
    try:
        with open(path, "wb") as stream:
            yield stream
    except OSError as error:
        raise WrongUseError(f"{path} cannot be written: {error.strerror}") from error


def _status(asked: argparse.Namespace, database: Database) -> Question:
    return questions.status()


def _sql(asked: argparse.Namespace, database: Database) -> Question:
    return Question(sys.stdin.read() if asked.sql == "-" else asked.sql)


def _findings(asked: argparse.Namespace, database: Database) -> Question:
    return questions.findings(asked.severity, asked.unchecked)


def _rare(asked: argparse.Namespace, database: Database) -> Question:
    return questions.rare(asked.by, asked.kind, asked.max_hosts, asked.limit, database.images, asked.partial)


def _diff(asked: argparse.Namespace, database: Database) -> Question:
    first, second = (group(database, text) for text in (asked.first, asked.second))
    return questions.diff(first, second, asked.by, asked.kind, asked.partial)


def group(database: Database, text: str) -> list[str]:
    """Returns the ImageIds of a group: selectors with commas between.

    Raises:
        WrongUseError: one of them names no image that is done
    """
    found: dict[str, None] = {}
    for selector in filter(None, (each.strip() for each in text.split(","))):
        ids = database.table(questions.selected(selector)).column(0).to_pylist()
        if not ids:
            raise WrongUseError(
                f"{selector} is no ImageId, host or file of an image that is done, nor case=NAME"
            )
        found.update(dict.fromkeys(ids))
    if not found:
        raise WrongUseError("a group of no images")
    return list(found)
