# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The commands that query a lake."""

from __future__ import annotations

import argparse
import fnmatch
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Callable, Optional

from winstacks.columns.dictionary import SCHEMA
from winstacks.columns.words import KINDS, SEVERITIES
from winstacks.memory.decode.text import counted

from . import agents, exits, findings, output, questions, waits
from .arguments import count, whole
from .columns import SCHEMAS
from .database import Database, NothingLeftError, SqlError, query_whole
from .export import ECS, JSONL, LINES, Export
from .job import Reading
from .lake import Contents, Depth, Lake
from .layout import TABLES, TRACES
from .manifests import DONE
from .output import opened, say, tell
from .planning import WrongUseError, given_folders
from .questions import KEYS, Question

MOST_NAMED = 20
"""The most damaged images that are named; the others are counted."""

RARE_MEMORY = "800MB"
"""Default memory limit of DuckDB for `rare`: more goes to the folder for temporary files."""

Add = Callable[..., argparse.ArgumentParser]
"""A function of name, function and help of a command, which adds it to the command line."""

Ask = Callable[[argparse.Namespace, Database], Question]
"""A function that returns the question that options ask."""


def add_to(add: Add) -> None:
    """Adds the commands to a command line."""
    status = _command(add, "status", "the state of each image, and why images failed")
    status.add_argument(
        "--verify",
        action="store_true",
        help="read all rows, and compare them with the digests in the manifests",
    )
    sql = _command(add, "sql", "run a query; each table is a view, and so are manifests and hosts")
    sql.add_argument("sql", metavar="SQL", help="the query; - reads standard input")
    findings_command = _command(add, "findings", "findings of all images: the worst first, then the rarest")
    findings_command.add_argument(
        "--severity", choices=SEVERITIES, default=SEVERITIES[-1], help="lowest severity to list"
    )
    findings_command.add_argument(
        "--check", action="append", default=[], metavar="GLOB", help="only these checks; can be repeated"
    )
    findings_command.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="GLOB",
        help="only findings on these hosts: name of the computer, path or name of the file, ImageId; can be "
        "repeated",
    )
    findings_command.add_argument(
        "--each", action="store_true", help="a row for each host and process, and not one for equal findings"
    )
    findings_command.add_argument(
        "--unchecked", action="store_true", help="also list checks that could not run"
    )
    rare = _command(add, "rare", "stacks that few hosts have, the rarest first")
    _of_stacks(rare, questions.CRASH_KEYS)
    rare.add_argument("--max-hosts", type=count, default=2, help="most hosts with a stack (default: 2)")
    rare.add_argument("--limit", type=whole, default=50, help="most rows; 0 for all (default: 50)")
    rare.set_defaults(memory_limit=RARE_MEMORY)
    differ = _command(add, "diff", "stacks that are new, gone or changed in count")
    differ.add_argument("first", metavar="A", help="ImageIds, hosts, files or case=NAME, separated by commas")
    differ.add_argument("second", metavar="B", help="images to compare with A, in the same form")
    _of_stacks(differ)

    text = "what threads of all images wait for, and deadlocks: the worst first, then those on most hosts"
    waits.add_to(_command(add, "waits", text))
    _add_export(add)
    _add_report(add)
    agents.add_to(add)


def _add_report(add: Add) -> None:
    command = add("report", _report, "write pages for a browser: one about all images, and one about each")
    command.add_argument(
        "-o",
        "--output",
        metavar="FILE.html|FOLDER",
        default="stackfleet-report",
        help="file of the first page, or folder of all pages (default: %(default)s)",
    )
    command.add_argument(
        "--images",
        metavar="IMAGES",
        help="images with pages of their own: all, or ImageIds, hosts, files or case=NAME, separated by "
        f"commas (default: the {questions.MOST_PAGES} with the worst findings)",
    )
    command.add_argument("--memory-limit", metavar="SIZE", help="memory limit of DuckDB, such as 4GB")
    command.add_argument("--plugin-dirs", default="", help="folders of plugins, separated by ;")


def _report(options: argparse.Namespace) -> int:
    from .opening import prepare

    prepare(Reading(plugin_dirs=given_folders("--plugin-dirs", options.plugin_dirs)))
    try:
        # The pages' format is part of the plugins.
        from .report import Report, place
    except ImportError as error:
        raise WrongUseError(
            f"the plugins are not found ({error}): name their folder with --plugin-dirs"
        ) from error
    where, lake = place(options.output), Lake(options.lake)

    def write(contents: Contents) -> None:
        with Database(lake, options.memory_limit, contents=contents) as database:
            report = Report(database, where, _chosen(database, options.images))
            report.write()
            _name_versions(database)
        without = report.images - len(report.paged)
        more = f"; {without:,} without pages of their own (--images)" if without else ""
        say(f"{where.first}: images: {report.images} done, {report.failed} failed{more}")

    try:
        # Pages use many columns of many types: all of these must be readable.
        return _of_whole_images(lake, write, Depth.FORM)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise WrongUseError(f"{error.filename or where.first} cannot be written: {error.strerror}") from error


def _chosen(database: Database, images: Optional[str]) -> Optional[list[str]]:
    """Returns the ImageIds of --images; None if there is no such option."""
    if images is None:
        return None
    if images == "all":
        return database.table(f"SELECT image_id FROM manifests WHERE status = '{DONE}'").column(0).to_pylist()
    return group(database, images)


def _add_export(add: Add) -> None:
    command = add("export", _export, "write stacks in the formats of other programs")
    command.add_argument("--to", required=True, choices=sorted(LINES), help="output format")
    command.add_argument("--output", metavar="FILE", help="output file (default: standard output)")
    command.add_argument("--table", choices=list(TABLES), help=f"table, with --to jsonl (default: {TRACES})")
    text = "folders with files of modules, separated by ;: --to ecs has their hashes"
    command.add_argument("--binaries", default="", help=text)
    _add_kind(command)


def _export(options: argparse.Namespace) -> int:
    table, binaries = options.table or TRACES, given_folders("--binaries", options.binaries)
    if options.table and options.to != JSONL:
        raise WrongUseError(f"--table: --to {options.to} has no choice of tables")
    if binaries and options.to != ECS:
        raise WrongUseError(f"--binaries: --to {options.to} has no hashes of files")
    if options.kind and "Kind" not in SCHEMAS[table].names:
        raise WrongUseError(f"--kind: the table {table} has no column Kind")
    lake = Lake(options.lake)

    def write(contents: Contents) -> None:
        with Database(lake, contents=contents) as database, opened(options.output) as stream:
            _name_versions(database)
            export = Export(database, table, options.kind, binaries)
            for line in export.lines(options.to):
                stream.write(line.encode("utf-8", "replace") + b"\n")
            stream.flush()
            for message in export.messages:
                tell(message)

    # Rows already written to standard output cannot be withdrawn: damaged files are looked for before.
    depth = Depth.SIZE if options.output else Depth.FORM
    return _of_whole_images(lake, write, depth, again=bool(options.output))


def _of_whole_images(
    lake: Lake, run: Callable[[Contents], None], depth: Depth = Depth.SIZE, again: bool = True
) -> int:
    """Queries a lake without its damaged images, and names these; returns the exit code.

    Args:
        again: see `query_whole`

    Raises:
        WrongUseError: DuckDB rejects the query
    """
    try:
        contents = query_whole(lake, run, depth, again)
    except SqlError as error:
        raise WrongUseError(str(error)) from error
    except NothingLeftError as error:
        _name(error.contents)
        raise
    _name(contents)
    return exits.INCOMPLETE if contents.damaged else exits.DONE


def _name(contents: Contents) -> None:
    """Prints the names of the images that are left out."""
    for image in contents.damaged[:MOST_NAMED]:
        tell(f"stackfleet: left out: {image.called}: {image.reason}")
    more = len(contents.damaged) - MOST_NAMED
    if more > 0:
        tell(f"stackfleet: left out: {counted(more, 'more image')}: stackfleet status names them")


def _name_versions(database: Database) -> None:
    """Prints how many images were read with another version of the tables."""
    if not database.images:
        return
    other = f"SELECT Schema, count(*) FROM image WHERE Schema <> {SCHEMA} GROUP BY ALL ORDER BY ALL"
    counted = database.table(other)
    for version, images in zip(*(column.to_pylist() for column in counted.columns)):
        tell(
            f"stackfleet: tables of version {version}, not "
            f"{SCHEMA}: {images:,} of {database.images:,} images; the columns that they lack are empty. "
            "'stackfleet run' reads these images again"
        )


def _command(add: Add, name: str, text: str) -> argparse.ArgumentParser:
    command = add(name, lambda options: _answer(options, name), text)
    command.add_argument("--format", choices=output.FORMATS, default=output.TABLE, help="output format")
    command.add_argument("--output", metavar="FILE", help="output file (default: standard output)")
    command.add_argument(
        "--wide", action="store_true", help=f"tables with all columns, and lines longer than {output.WIDTH}"
    )
    command.add_argument("--show-sql", action="store_true", help="print the SQL instead of running it")
    command.add_argument("--memory-limit", metavar="SIZE", help="memory limit of DuckDB, such as 4GB")
    return command


def _of_stacks(command: argparse.ArgumentParser, more: Sequence[str] = ()) -> None:
    text = "key that equal stacks share" + (f"; {' and '.join(more)} compare crashes" if more else "")
    command.add_argument("--by", choices=[*KEYS, *more], default=KEYS[0], help=text)
    _add_kind(command)
    command.add_argument("--partial", action="store_true", help="include stacks without exact keys")


def _add_kind(command: argparse.ArgumentParser) -> None:
    text = f"only stacks of this kind, one of {', '.join(KINDS)}; can be repeated"
    command.add_argument(
        "--kind", action="append", default=[], choices=list(KINDS), metavar="KIND", help=text
    )


def _answer(options: argparse.Namespace, name: str) -> int:
    lake, failed = Lake(options.lake), False
    if getattr(options, "sql", "") == "-":
        options.sql = sys.stdin.read()

    def write(contents: Contents) -> None:
        with Database(lake, options.memory_limit, contents=contents) as database:
            question = ASKED[name](options, database)
            if options.show_sql:
                say(database.script(question.sql).rstrip("\n"))
                return
            table = database.table(question.sql)
            nonlocal failed
            failed = name == "status" and table.column("Status").to_pylist().count(DONE) < table.num_rows
            if database.reads_tables(question.sql):
                _name_versions(database)
            left_out = database.value(question.left_out) if question.left_out else 0
            if left_out:
                tell(question.remarks.format(f"{left_out:,}"))
            with opened(options.output) as stream:
                output.write(table, options.format, stream, () if options.wide else _NARROW.get(name, ()))

    depth = Depth.CONTENT if getattr(options, "verify", False) else Depth.SIZE
    code = _of_whole_images(lake, write, depth)
    return exits.INCOMPLETE if failed else code


def _sql(options: argparse.Namespace, database: Database) -> Question:
    if len(database.statements(options.sql)) > 1:
        raise WrongUseError("sql runs one statement: the rows of the others would not be shown")
    return Question(options.sql)


def _findings(options: argparse.Namespace, database: Database) -> Question:
    checks = checks_of(database, options.check) if options.check else None
    image_ids = images_of(database, options.host) if options.host else None
    return findings.findings(options.severity, options.unchecked, checks, image_ids, options.each)


def checks_of(database: Database, globs: Sequence[str]) -> list[str]:
    """Returns the names of the checks that --check selects."""
    from winstacks.options import CHECKS

    known = database.table("SELECT DISTINCT Finding FROM findings").column(0).to_pylist()
    names = {name: [name] for name in (*CHECKS, *sorted(set(known) - {*CHECKS, None}))}
    return matching("--check", globs, names)


def images_of(database: Database, globs: Sequence[str]) -> list[str]:
    """Returns the ImageIds of the images that --host selects."""
    rows = database.rows(
        "SELECT ImageId, Host, path, parse_filename(path) AS File "
        "FROM hosts JOIN manifests ON image_id = ImageId ORDER BY Host, File"
    )
    names = {row["ImageId"]: [row["Host"], row["File"], row["path"], row["ImageId"]] for row in rows}
    return matching("--host", globs, names)


def matching(option: str, globs: Sequence[str], names: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the things one of whose names matches one of some globs; case does not matter.

    Args:
        names: names of each thing; an error has the first of them

    Raises:
        WrongUseError: a glob matches nothing
    """
    chosen: dict[str, None] = {}
    for glob in globs:
        matches = re.compile(fnmatch.translate(glob), re.IGNORECASE).match
        found = [thing for thing, called in names.items() if any(map(matches, called))]
        if not found:
            first = list(dict.fromkeys(called[0] for called in names.values()))
            more = f" and {len(first) - MOST_NAMED:,} more" if len(first) > MOST_NAMED else ""
            choices = ", ".join(map(output.visible, first[:MOST_NAMED])) + more
            raise WrongUseError(f"{option} {glob} matches nothing. Choose from: {choices}")
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def _rare(options: argparse.Namespace, database: Database) -> Question:
    if options.by not in questions.CRASH_KEYS:
        return questions.rare(
            options.by, options.kind, options.max_hosts, options.limit, database.images, options.partial
        )
    if options.kind or options.partial:
        raise WrongUseError(f"kind and partial choose stacks, and {options.by} compares crashes")
    return questions.rare_of_crashes(options.by, options.max_hosts, options.limit)


def _diff(options: argparse.Namespace, database: Database) -> Question:
    first, second = (group(database, text) for text in (options.first, options.second))
    return questions.diff(first, second, options.by, options.kind, options.partial)


ASKED: dict[str, Ask] = {
    "status": lambda options, database: questions.status(),
    "sql": _sql,
    "findings": _findings,
    "rare": _rare,
    "diff": _diff,
    "waits": waits.asked,
}
"""The questions of commands."""

_NARROW: dict[str, Sequence[str]] = {
    "status": ("Status", "Path", "Rows", "Reason", "ReplacedBy"),
    "rare": (
        *("Hosts", "Among", "Hostnames", "Count", "Unbacked", "Stack", "Processes", "KeyQuality"),
        *("BugCheck", "Driver", "Crashes", "Guessed", "BugChecks"),
    ),
    "findings": (
        *("Severity", "Confidence", "Finding", "Hosts", "Host", "Hostnames", "PID", "Process", "Processes"),
        *("Symbol", "Evidence"),
    ),
    "waits": waits.NARROW,
    "diff": ("Change", "Kind", "Process", "CountBefore", "CountAfter", "Unbacked", "Stack"),
}
"""The columns of tables that are not wide: host, count and stack; keys come with --wide."""


def group(database: Database, text: str) -> list[str]:
    """Returns the ImageIds of a group: selectors separated by commas.

    Raises:
        WrongUseError: one of the selectors names no image that is done
    """
    image_ids: dict[str, None] = {}
    for selector in filter(None, (part.strip() for part in text.split(","))):
        ids = database.table(questions.selected(selector)).column(0).to_pylist()
        if not ids:
            raise WrongUseError(
                f"{selector} names no image that is done: use an ImageId, a host, a file or case=NAME"
            )
        image_ids.update(dict.fromkeys(ids))
    if not image_ids:
        raise WrongUseError("A and B must name at least one image each")
    return list(image_ids)
