# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Structures of the symbol tables that Volatility has loaded: the kernel's tables and our own.

Our own tables (ISF) hold types that the symbols of an image's kernel lack.
"""

from __future__ import annotations

import functools
import os
import pathlib
import re
from typing import Callable, Dict, List, Optional, Sequence, Set, Tuple

from volatility3 import symbols
from volatility3.framework import constants, exceptions, interfaces, objects
from volatility3.framework.symbols import intermed

from .decode.structure import Field, Structure, Structures
from .together import TOGETHER

Report = Callable[[str], None]
"""Takes the name of something that a table should have and lacks."""


def of_table(
    context: interfaces.context.ContextInterface, table_name: str, report: Report = lambda what: None
) -> Structures:
    """Returns the structures of a symbol table; none if the table's name is empty. `report` is called with
    the name of each requested member that the table lacks, although it has other members of the same Windows
    (`together.TOGETHER`)."""
    return Structures(functools.partial(_structure, context, table_name, report))


def _structure(
    context: interfaces.context.ContextInterface, table_name: str, report: Report, name: str
) -> Optional[Structure]:
    full_name = table_name + constants.BANG + name
    if not table_name or not context.symbol_space.has_type(full_name):
        return None
    template = context.symbol_space.get_type(full_name)
    lookup = functools.partial(_field, context, report, template)
    return Structure(name, int(template.size), lookup, tuple(getattr(template.vol, "members", ())))


def _field(
    context: interfaces.context.ContextInterface,
    report: Report,
    template: interfaces.objects.Template,
    path: str,
) -> Optional[Field]:
    """Returns the field of a member, which may belong to an embedded structure (`u.VadFlags.VadType`).

    An integer member is signed if the table's type is signed (SHORT, LONG). A CHAR is not an integer here:
    the values that Windows stores in one (a processor mode, an IRQL) are never negative. If the table names
    the type of a member and lacks that type, the result is None.
    """
    try:
        return _found(context, report, template, path)
    except exceptions.SymbolError:
        report(f"the type of a member in {_name(template)}.{path}")
        return None


def _name(template: interfaces.objects.Template) -> str:
    return str(template.vol.type_name).rpartition(constants.BANG)[2]


def _found(
    context: interfaces.context.ContextInterface,
    report: Report,
    template: interfaces.objects.Template,
    path: str,
) -> Optional[Field]:
    offset = 0
    for member in path.split("."):
        if not template.has_member(member):
            witness = TOGETHER.get(_name(template), {}).get(member)
            if witness is not None and template.has_member(witness):
                report(f"{_name(template)} has no member {member}")
            return None
        offset += template.relative_child_offset(member)
        template = template.child_template(member)
        if isinstance(template, interfaces.objects.Template) and "start_bit" not in template.vol:
            template = _resolved(context, template)
    if "start_bit" in template.vol:
        width = template.vol.end_bit - template.vol.start_bit
        return Field(offset, template.size, template.vol.start_bit, (1 << width) - 1)
    return Field(offset, template.size, signed=_is_signed(template))


def _is_signed(template: interfaces.objects.Template) -> bool:
    kind = template.vol.get("object_class")
    number = isinstance(kind, type) and issubclass(kind, objects.Integer)
    return number and bool(template.vol.data_format.signed)


def _resolved(
    context: interfaces.context.ContextInterface, template: interfaces.objects.Template
) -> interfaces.objects.Template:
    """Returns a member's full template: only the table knows the members of a structure."""
    name = template.vol.type_name
    kind = name.rsplit(constants.BANG, 1)[-1]
    if kind in ("pointer", "array", "void", "enum") or not context.symbol_space.has_type(name):
        return template
    return context.symbol_space.get_type(name)


SUB_PATH = "windows/stacktraces"
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_BESIDE = [_ROOT / "symbols" / SUB_PATH, _ROOT / "volatility3" / "symbols" / SUB_PATH]
"""The folders of our tables: in a copy of the source tree, and where the wheel puts them."""


KINDS = (
    "backtraces",
    "context",
    "crash",
    "heap",
    "heap-page",
    "heap-segment",
    "heaplog",
    "process",
    "std",
    "trapframe",
    "unload",
    "waits",
)
"""The kinds of our tables: one table for each layout that Windows has had, in each bitness."""

_FILE = re.compile(r"(?P<kind>.+)-(?P<version>\d+(?:\.\d+)*)-(?P<arch>\w+)\.json(?:\..*)?")


class MissingTableError(FileNotFoundError):
    """One of our symbol tables is neither beside the code nor on the symbol path.

    The installation is incomplete. Whatever needs the table raises this: docstrings do not name it.
    """


class KernelSymbolsError(ValueError):
    """A table that the user named is unusable; the text is a sentence for users."""


def load(context: interfaces.context.ContextInterface, config_path: str, name: str) -> str:
    """Loads `symbols/windows/stacktraces/<name>.json` once per context.

    A table beside the code is preferred to one on Volatility's symbol path, which may be an older installed
    copy. Returns the name of the table in the context's symbol space. `name` is the file's name without
    extension. Raises MissingTableError if the file is not found.
    """
    table_name = f"stacktraces_{name}"
    if table_name in context.symbol_space:
        return table_name
    table = intermed.IntermediateSymbolTable(
        context,
        interfaces.configuration.path_join(config_path, table_name),
        table_name,
        isf_url=find_table(name),
    )
    context.symbol_space.append(table)
    return table_name


def find_table(name: str) -> str:
    """Returns the URL of one of our tables. Raises MissingTableError if the file is not found."""
    for folder in _BESIDE:
        for extension in constants.ISF_EXTENSIONS:
            path = folder / (name + extension)
            if path.is_file():
                return path.as_uri()
    for url in intermed.IntermediateSymbolTable.file_symbol_url(SUB_PATH, name):
        return url
    raise MissingTableError(
        f"The symbol table {SUB_PATH}/{name} is missing: copy the 'symbols' folder beside the plugin folder"
    )


def check(arch: str) -> None:
    """Looks for all tables of a bitness; the content of an image decides which of them are used. `arch` is
    `x64`, `x86` or `arm64`. Raises MissingTableError if one of them is not found."""
    _generations(KINDS, arch)


def generations(kind: str, arch: str) -> List[str]:
    """Returns the versions of our tables of a kind of structures, the newest first.

    Each file `<kind>-<version>-<arch>.json` is found by its name: a new layout needs a new file and no change
    of code. The decoders find out from the content of an image which layout it has. `kind` is a word such as
    `std`. Raises MissingTableError if there is no such file.
    """
    return _generations((kind,), arch)[kind]


def _generations(kinds: Sequence[str], arch: str) -> Dict[str, List[str]]:
    """Returns the versions of some kinds: those in the first folder that has any of the kind."""
    versions: Dict[str, Set[str]] = {kind: set() for kind in kinds}
    for folder in (*_BESIDE, *(pathlib.Path(root, SUB_PATH) for root in symbols.__path__)):
        missing = {kind for kind in kinds if not versions[kind]}
        for name in os.listdir(folder) if missing and folder.is_dir() else []:
            match = _FILE.fullmatch(name)
            if match and match["arch"] == arch and match["kind"] in missing:
                versions[match["kind"]].add(match["version"])
    for kind in kinds:
        if not versions[kind]:
            raise MissingTableError(
                f"The symbol tables {SUB_PATH}/{kind}-*-{arch} are missing: "
                "copy the 'symbols' folder beside the plugin folder"
            )
    return {kind: sorted(found, key=version, reverse=True) for kind, found in versions.items()}


def version(text: str) -> Tuple[int, ...]:
    """Returns the version of a table in a comparable form: `10.0.26100` is (10, 0, 26100)."""
    return tuple(map(int, text.split(".")))
