# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The commands that ask a lake."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import IO, Callable

from . import output, questions
from .database import Database, SqlError
from .export import LINES, Export
from .job import Reading
from .lake import Lake
from .layout import TABLES, TRACES
from .planning import WrongUseError, folders
from .questions import KEYS, SEVERITIES, Question

Commands = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_to(commands: Commands, count: Callable[[str], int]) -> None:  # type: ignore[valid-type]
    """Adds the commands to a command line.

    Args:
        commands: where they are added
        count: reads a number above 0
    """
    _command(commands, "status", _status, "what became of each image, and why some failed")
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
    where = place(asked.output)
    try:
        report = Report(Lake(asked.lake), where, asked.memory_limit)
        report.write()
    except SqlError as error:
        raise WrongUseError(str(error)) from error
    except OSError as error:
        raise WrongUseError(f"{error.filename or where.first} cannot be written: {error.strerror}") from error
    print(f"{where.first}: images: {report.images} done, {report.failed} failed")
    return 0


def _add_export(commands: Commands) -> None:  # type: ignore[valid-type]
    text = "stacks in the forms that other programs read"
    made = commands.add_parser("export", help=text, description=text)  # type: ignore[attr-defined]
    made.set_defaults(command=_export)
    made.add_argument("lake", metavar="LAKE", help="folder of the lake")
    made.add_argument("--to", required=True, choices=sorted(LINES), help="the form")
    made.add_argument("--output", metavar="FILE", help="where it goes (default: standard output)")
    made.add_argument("--table", choices=list(TABLES), default=TRACES, help="with --to jsonl: which table")
    made.add_argument("--kind", action="append", default=[], help="only stacks of this kind; can be repeated")


def _export(asked: argparse.Namespace) -> int:
    try:
        with Database(Lake(asked.lake)) as database, opened(asked.output) as stream:
            export = Export(database, asked.table, asked.kind)
            for line in export.lines(asked.to):
                stream.write(line.encode("utf-8", "replace") + b"\n")
            stream.flush()
            for said in export.said:
                print(said, file=sys.stderr)
    except SqlError as error:
        raise WrongUseError(str(error)) from error
    return 0


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
    command.add_argument(
        "--kind", action="append", default=[], help="only stacks of this kind; can be repeated"
    )
    command.add_argument("--partial", action="store_true", help="also stacks whose keys are not exact")


def _answer(asked: argparse.Namespace, run: Callable[[argparse.Namespace, Database], Question]) -> int:
    try:
        with Database(Lake(asked.lake), asked.memory_limit) as database:
            question = run(asked, database)
            if asked.show_sql:
                print(database.script(question.sql), end="")
                return 0
            table = database.table(question.sql)
            if question.left_out:
                number = database.value(question.left_out)
                if number:
                    print(question.said.format(f"{number:,}"), file=sys.stderr)
            with opened(asked.output) as stream:
                output.write(table, asked.format, stream)
    except SqlError as error:
        raise WrongUseError(str(error)) from error
    return 0


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
