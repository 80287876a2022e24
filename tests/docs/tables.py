# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The tables of the documentation that are made from the code: columns, options, words of Status, plugins.

    <!-- made: plugins docs/ -->               every plugin by the question that it answers, and its page
    <!-- made: columns locks -->               the columns of windows.locks; of shared ones the names
    <!-- made: options locks -->               its options; of shared ones the names
    <!-- made: shared columns -->              columns that several plugins have, and their words
    <!-- made: shared options -->              options that most plugins have
    <!-- made: words Locks; freed; stale -->   words of Status: a group of `StatusCode`, and single ones
    <!-- made: values How -->                  the words of a column, and what each means
    <!-- made: machines -->                    the last measurement of whole machines (tests.machines)
    <!-- made: machines missed -->             the techniques that most of its draws miss
    <!-- made: machines in short -->           sentences about it
    <!-- made: duckdb traces -->               how DuckDB reads JSON lines of a flat table

The groups of `StatusCode` are the comments between its members, their meanings the docstrings below them.
"""

from __future__ import annotations

import ast
import collections
import functools
import importlib
import inspect
import re
import textwrap
from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Sequence, Tuple

from volatility3.framework import interfaces
from volatility3.framework.configuration import requirements

from tests.conftest import ROOT
from tests.machines import measuring
from winstacks import options
from winstacks.checkedoptions import OutputFolderRequirement
from winstacks.columns import dictionary
from winstacks.columns.dictionary import COLUMNS, Column
from winstacks.columns.tables import FLAT, TABLES
from winstacks.columns.words import Words
from winstacks.findings import registry
from winstacks.memory.decode import statuscodes

WINDOWS = ROOT / "volatility3_plugins" / "windows"

_NO_OPTIONS = (
    requirements.ModuleRequirement,
    requirements.TranslationLayerRequirement,
    requirements.VersionRequirement,
    OutputFolderRequirement,
)
"""What a plugin requires and no user gives."""

_TYPES = {
    dictionary.STR: "text",
    dictionary.INT: "number",
    dictionary.BOOL: "true or false",
    dictionary.HEX: "hexadecimal",
    dictionary.ADDRESS: "address",
    dictionary.REGISTER: "register",
    dictionary.HEXSTR: "hexadecimal, as text",
    dictionary.TIME: "time, UTC",
}

DUCKDB_TYPES = {
    dictionary.STR: "VARCHAR",
    dictionary.INT: "BIGINT",
    dictionary.BOOL: "BOOLEAN",
    dictionary.HEX: "UBIGINT",
    dictionary.ADDRESS: "UBIGINT",
    dictionary.HEXSTR: "VARCHAR",
    dictionary.TIME: "TIMESTAMP",
}


QUESTIONS: Dict[str, Tuple[str, ...]] = {
    "Which stacks matter, and why?": ("tracefindings", "tracereport"),
    "What does each thread do, and what did it do last?": ("callstacks", "trapframes"),
    "Who waits for whom?": ("waits", "locks"),
    "Who allocated this memory, who opened this handle, who holds this object?": (
        *("heaptraces", "handletraces", "objecttraces"),
    ),
    "What was recorded, and by which flags?": ("gflags", "stacktracedb"),
    "How do I look at many stacks, or hand them on?": (
        *("tracegraph", "minidump", "traces", "traceframes", "tracewaits", "traceimage"),
    ),
}
"""The questions that README's table has, each with the plugins that answer it."""

SHARED_COLUMNS, SHARED_OPTIONS = 3, 8
"""How many plugins have a column or an option that stands on one page of its own."""
COLUMNS_PAGE = "columns.md"


class WordMeaning(NamedTuple):
    """A word of Status: its text, the group that it stands in, and what it means."""

    text: str
    group: str
    meaning: str


def plugin_names() -> List[str]:
    """Returns the modules of our plugins; the module that finds the library is none."""
    return sorted(path.stem for path in WINDOWS.glob("*.py") if path.stem != "winstacks_library")


def page(name: str) -> str:
    """Returns the page of a plugin. `minidump.md` is about dumps that others wrote, and not that of one."""
    own = f"windows-{name}.md"
    return own if (ROOT / "docs" / own).exists() else f"{name}.md"


def plugin(name: str) -> type:
    """Returns the plugin class of a module: of images, or of process dumps where only these have it."""
    folder = "windows" if name in plugin_names() else "minidump"
    module = importlib.import_module(f"volatility3.plugins.{folder}.{name}")
    found = [
        attribute
        for attribute in vars(module).values()
        if inspect.isclass(attribute)
        and issubclass(attribute, interfaces.plugins.PluginInterface)
        and attribute.__module__ == module.__name__
    ]
    (only,) = found
    return only


def words() -> Dict[str, WordMeaning]:
    """Returns all words of Status by their text."""
    source = inspect.getsource(statuscodes)
    (body,) = (
        node.body
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == statuscodes.StatusCode.__name__
    )
    lines = source.split("\n")
    found: Dict[str, WordMeaning] = {}
    last = ""
    for node in body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            last = ast.literal_eval(node.value.elts[0])
            found[last] = WordMeaning(last, _group(lines, node.lineno), "")
        elif isinstance(node, ast.Expr) and last:
            meaning = " ".join(str(ast.literal_eval(node.value)).split())
            found[last] = found[last]._replace(meaning=meaning)
    return found


def _group(lines: Sequence[str], number: int) -> str:
    comments = (re.match(r"    # (.*)\.$", line) for line in reversed(lines[:number]))
    return next(comment.group(1) for comment in comments if comment)


def make(what: str) -> str:
    """Returns the text of a made part."""
    kind, _, rest = what.partition(" ")
    makers = {
        "plugins": _plugins,
        "columns": _columns,
        "options": _options,
        "words": _words,
        "values": _values,
        "duckdb": _duckdb,
        "checks": _checks,
        "machines": _machines,
        "shared": _shared,
    }
    return "".join(f"{line}\n" for line in makers[kind](rest))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> List[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines]


def _plugins(folder: str) -> List[str]:
    rows = []
    for question, names in QUESTIONS.items():
        rows.append([f"**{question}**", ""])
        for name in names:
            first = inspect.getdoc(plugin(name)).split("\n\n")[0]  # type: ignore[union-attr]
            rows.append([f"[windows.{name}]({folder}{page(name)})", " ".join(first.split())])
    return _table(["plugin", "what it does"], rows)


def column_names(name: str) -> List[str]:
    """Returns the columns of a plugin."""
    return [column.name for column in TABLES[name]]


def _meaning(column: Column) -> str:
    return f"{column.meaning} Values: {_listed(column.values)}." if column.values else column.meaning


@functools.lru_cache(maxsize=None)
def shared_columns() -> FrozenSet[str]:
    """Returns the names of the columns that mean the same in several plugins."""
    counts = collections.Counter(
        column.name
        for name in plugin_names()
        for column in TABLES[name]
        if column == COLUMNS.get(column.name)
    )
    return frozenset(name for name, count in counts.items() if count >= SHARED_COLUMNS)


def _is_shared(column: Column) -> bool:
    return column.name in shared_columns() and column == COLUMNS[column.name]


def _columns(name: str) -> List[str]:
    """Returns the table of a plugin's own columns; of a flat table all, as their order is fixed."""
    shared = [column for column in TABLES[name] if _is_shared(column)]
    if name in FLAT:
        rows = [
            [f"`{column.name}`", _TYPES[column.type], "yes" if column.nullable else "no", _pointed(column)]
            for column in TABLES[name]
        ]
        return _table(["column", "type", "null", "meaning"], rows)
    rows = [
        [f"`{column.name}`", _TYPES[column.type], _meaning(column)]
        for column in TABLES[name]
        if not _is_shared(column)
    ]
    names = ", ".join(f"`{column.name}`" for column in shared)
    return [
        *_table(["column", "type", "meaning"], rows),
        "",
        f"Also [columns that mean the same in every plugin]({COLUMNS_PAGE}#columns): {names}.",
    ]


def _pointed(column: Column) -> str:
    """Returns the meaning of a column; of a shared one, its words stand on the page of columns."""
    if column.values and _is_shared(column):
        return f"{column.meaning} [Values]({COLUMNS_PAGE}#columns)."
    return _meaning(column)


def _shared(what: str) -> List[str]:
    """Returns what stands once: the columns or the options that plugins share, in alphabetical order."""
    if what == "options":
        chosen = sorted(shared_options())
        return _table(["option", "what it does"], ([f"`{option}`", meaning] for option, meaning in chosen))
    columns = (COLUMNS[name] for name in sorted(shared_columns(), key=str.lower))
    return _table(
        ["column", "type", "meaning"],
        ([f"`{column.name}`", _TYPES[column.type], _meaning(column)] for column in columns),
    )


def _listed(values: Words) -> str:
    """Returns words, each with what it means if it does not explain itself."""
    return ", ".join(f"`{word}` ({meaning})" if meaning else f"`{word}`" for word, meaning in values.items())


def _values(name: str) -> List[str]:
    values = COLUMNS[name].values
    return _table([name, "meaning"], ([f"`{word}`", meaning] for word, meaning in values.items()))


def duckdb_columns(name: str) -> str:
    """Returns what DuckDB's read_json wants to know of the columns of a flat table."""
    return ", ".join(f"{column.name}: '{DUCKDB_TYPES[column.type]}'" for column in FLAT[name])


def _duckdb(name: str) -> List[str]:
    # A column and its type stay on one line.
    joined = duckdb_columns(name).replace(": ", ":\0")
    wrapped = [line.replace("\0", " ") for line in textwrap.wrap(joined, 110)]
    return [
        "```sql",
        "SELECT count(*) AS Rows",
        f"FROM read_json('{name}.jsonl', format='newline_delimited', columns={{",
        *(f"    {line}" for line in wrapped),
        "})",
        "```",
    ]


def _option_rows(name: str) -> List[Tuple[str, str]]:
    """Returns the options of a plugin with their arguments, and what each does."""
    rows = []
    for requirement in plugin(name).get_requirements():  # type: ignore[attr-defined]
        if isinstance(requirement, _NO_OPTIONS):
            continue
        option = f"--{requirement.name.replace('_', '-')}"
        takes = ""
        if isinstance(requirement, requirements.ChoiceRequirement):
            takes = f" {'|'.join(requirement.choices)}"
        elif isinstance(requirement, requirements.ListRequirement):
            element = requirement.element_type
            number = isinstance(element, type) and issubclass(element, int)
            takes = " N ..." if number else " TEXT ..."
        elif isinstance(requirement, interfaces.configuration.SimpleTypeRequirement):
            kind = requirement.instance_type
            takes = "" if kind is bool else " N" if issubclass(kind, int) else " TEXT"
        rows.append((option + takes, requirement.description))
    return rows


@functools.lru_cache(maxsize=None)
def shared_options() -> FrozenSet[Tuple[str, str]]:
    """Returns the options, with what they do, that most plugins have."""
    counts = collections.Counter(row for name in plugin_names() for row in _option_rows(name))
    return frozenset(row for row, count in counts.items() if count >= SHARED_OPTIONS)


def _options(name: str) -> List[str]:
    rows = _option_rows(name)
    own = [[f"`{option}`", meaning] for option, meaning in rows if (option, meaning) not in shared_options()]
    shared = ", ".join(f"`{option.split()[0]}`" for option, _ in sorted(set(rows) & shared_options()))
    return [
        *(_table(["option", "what it does"], own) if own else []),
        "",
        f"Also [options of most plugins]({COLUMNS_PAGE}#options): {shared}.",
    ]


def _checks(_: str) -> List[str]:
    known = [registry.check_named(name) for name in options.CHECKS]
    rows = [[f"`{finding.name}`", finding.innocent, finding.next_steps] for finding in known]
    return _table(["check", "what else gives such findings", "what to do next"], rows)


def _machines(rest: str) -> List[str]:
    if rest == "in short":
        return [measuring.sentence()]
    if rest == "missed":
        short = ["missed by most draws", "behind the first ten rows in most draws"]
        return _table(["techniques", "Windows", "pages missing", *short], measuring.missed())
    head = ["what", "Windows", "pages missing", "seeds", "above `low`", "among the first ten rows"]
    old = "", "This table was measured before the last changes of the rules and of the model."
    return [
        *_table([*head, "stacks in the image"], measuring.table()),
        *(old if measuring.is_old() else ()),
    ]


def _words(text: str) -> List[str]:
    known = words()
    rows = []
    for name in text.split("; "):
        chosen = [known[name]] if name in known else [word for word in known.values() if word.group == name]
        assert chosen, f"{name} is no word of Status and no group of them"
        rows += [[f"`{_shown(word.text)}`", word.meaning] for word in chosen]
    return _table(["Status", "meaning"], rows)


def _shown(text: str) -> str:
    return text.replace("{members}", "MEMBER ...").replace("{}", "N")
