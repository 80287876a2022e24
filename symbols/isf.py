# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Makes this project's symbol tables (ISF, Volatility's JSON) from declarations: `python3 dev.py symbols`.

A text `<kind>.h` declares the structures of one kind of tables, for all builds of Windows and both bitnesses:

    source phnt = "described (System Informer's phnt)";
    source phnt 6.0 x64 = "described (System Informer's phnt), measured: Vista";
    build 5.1 x86 = "public symbols of ntdll";
    build 6.0 x64 = "public symbols of ntdll 6.0.6002";

    struct _NAME from phnt {
        sizeof                        @0x18/0x28;
        void*     BaseAddress         @0x0;
        USHORT    TraceCount : 11 << 0 @0x4/0x8  since 6.0;
        ULONG     Version[2]          @0x14/-   since 6.0 until 6.2 from phnt;
    };

Each `build` is one table, `<kind>-<version>-<arch>.json`, with the source of its content; it is valid until
the next build of its bitness. `@x86/x64` are offsets (for `sizeof`: sizes of the structure in bytes). One
number means both bitnesses, `-` neither; numbers of elements and of bits are pairs in the same way. `: 11 <<
0` are 11 bits from bit 0 on. A declaration holds for the builds from `since` to before `until`, and gives way
to one of the same name with a later `since`. A table has the structures that have a `sizeof`. `from` names a
source other than the build's; a source stated only for other builds leaves the build's. `basic.h` has
structures that each kind may use. ULONG_PTR is as wide as a pointer, the other types are Windows' own.

A structure of arm64 lies as the one of x64, unless `struct _NAME for arm64 {` declares it: then only that
declaration counts, each number is for arm64, and one without members removes the structure.
"""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

FOLDER = pathlib.Path(__file__).resolve().parent / "windows" / "stacktraces"
BASIC = "basic"
"""The text whose structures a table includes when it names them."""

ARCHES = ("x86", "x64", "arm64")
POINTER_SIZES = {"x86": 4, "x64": 8, "arm64": 8}
_OWN = ("arm64",)
"""Architectures that may have declarations of their own."""
_SIZEOF = "sizeof"

_BASE = {
    "void": ("void", 0, False),
    "UCHAR": ("unsigned char", 1, False),
    "USHORT": ("unsigned short", 2, False),
    "ULONG": ("unsigned long", 4, False),
    "LONG": ("long", 4, True),
    "ULONGLONG": ("unsigned long long", 8, False),
}
"""Windows' names of types: the name in ISF, size in bytes, whether the type is signed."""

_WIDE = {"x86": "ULONG", "x64": "ULONGLONG", "arm64": "ULONGLONG"}
"""ULONG_PTR by bitness."""

_ARCH = "|".join(ARCHES)
_VERSION = r"\d+(?:\.\d+)*"
_PAIR = r"(?:\w+|-)(?:/(?:\w+|-))?"
_SOURCE = re.compile(
    rf'source (?P<label>\w+)(?: (?P<version>{_VERSION}) (?P<arch>{_ARCH}))? = "(?P<text>[^"]+)";'
)
_BUILD = re.compile(rf'build (?P<version>{_VERSION}) (?P<arch>{_ARCH}) = "(?P<text>[^"]+)";')
_OPEN = re.compile(
    rf"(?P<kind>struct|union) (?P<name>\w+)(?: for (?P<own>{'|'.join(_OWN)}))?(?: from (?P<source>\w+))? \{{"
)
_MEMBER = re.compile(
    rf"(?:{_SIZEOF}|(?P<type>\w+)(?P<stars>\**) +(?P<name>\w+)(?:\[(?P<count>{_PAIR})\])?"
    rf"(?: : (?P<bits>{_PAIR}) << (?P<shift>\d+))?) +@(?P<place>{_PAIR})"
    rf"(?: +since (?P<since>{_VERSION}))?(?: +until (?P<until>{_VERSION}))?(?: +from (?P<source>\w+))?;"
)

Json = Dict[str, Any]
Version = Tuple[int, ...]
Pair = Mapping[str, Optional[int]]
"""A number for each bitness; None: it does not exist for the bitness."""


class DeclarationError(ValueError):
    """A text cannot be parsed, or declares something impossible. The message begins with the file and
    line."""


class Build(NamedTuple):
    """A table: a version of Windows, a bitness, and the source of the table."""

    version: str
    arch: str
    source: str


class Member(NamedTuple):
    """A declaration of a member, or of the size of a structure.

    Attributes:
        where: file and line
        name: name of the member, or `sizeof`
        type: type as written, without stars; empty for `sizeof`
        stars: number of pointers to the type
        elements: number of elements of an array, None for no array
        bits: number of bits of a bit field, None for no bit field
        shift: lowest bit of the bit field
        place: offsets, or sizes for `sizeof`
        since, until: versions, empty without a limit
        source: source of the member, empty for the source of the structure
    """

    where: str
    name: str
    type: str
    stars: int
    elements: Optional[Pair]
    bits: Optional[Pair]
    shift: int
    place: Pair
    since: Version
    until: Version
    source: str


class Declared(NamedTuple):
    """A structure with the declarations of its members in the order of the text; `source` may be empty.

    `own` is the only architecture for which the declaration counts, empty if it counts for all without their
    own.
    """

    where: str
    kind: str
    name: str
    own: str
    source: str
    members: List[Member]


Sources = Dict[str, Dict[Tuple[Optional[str], Optional[str]], str]]
"""Sources by label, then by version and bitness; None, None for all other builds."""


class Text(NamedTuple):
    """The content of a text: sources, builds, structures by name and own architecture."""

    sources: Sources
    builds: List[Build]
    structures: Dict[Tuple[str, str], Declared]


def make(folder: pathlib.Path = FOLDER) -> Dict[str, str]:
    """Returns the contents of all tables by file name, made from the texts in a folder.

    Raises:
        DeclarationError: a text is wrong
    """
    basic = read(folder / f"{BASIC}.h")
    files: Dict[str, str] = {}
    for path in sorted(folder.glob("*.h")):
        if path.stem == BASIC:
            continue
        text = read(path)
        if not text.builds:
            raise DeclarationError(f"{path.name}: no build")
        for build in text.builds:
            files[f"{path.stem}-{build.version}-{build.arch}.json"] = _Table(text, basic, build).written()
    return files


def update(folder: pathlib.Path = FOLDER) -> List[str]:
    """Writes the tables of a folder again, and removes tables without a text.

    Returns:
        The names of the files that are new, changed or removed.

    Raises:
        DeclarationError: a text is wrong; then nothing is written
    """
    files = make(folder)
    kept = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
    changed = sorted(name for name in {*files, *kept} if files.get(name) != kept.get(name))
    for name in changed:
        if name in files:
            (folder / name).write_text(files[name], encoding="utf-8", newline="\n")
        else:
            (folder / name).unlink()
    return changed


def read(path: pathlib.Path) -> Text:
    """Returns the declarations of a text.

    Raises:
        DeclarationError: the file is no UTF-8, a line cannot be parsed, or declares something twice
    """
    text = Text({}, [], {})
    current: Optional[Declared] = None
    where = path.name
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise DeclarationError(f"{path.name}: it is no text in UTF-8") from None
    for number, line in enumerate(lines, 1):
        where, line = f"{path.name}:{number}", line.split("//")[0].strip()
        if not line:
            continue
        if current is not None:
            if line == "};":
                current = None
            else:
                current.members.append(_member(where, line, text))
            continue
        opened = _OPEN.fullmatch(line)
        if opened:
            name, own, source = opened["name"], opened["own"] or "", opened["source"] or ""
            current = Declared(where, opened["kind"], name, own, source, [])
            if (name, own) in text.structures:
                raise DeclarationError(f"{where}: {current.name} is declared twice")
            _check_source(where, current.source, text)
            text.structures[name, own] = current
        else:
            _head(where, line, text)
    if current is not None:
        raise DeclarationError(f"{where}: the text ends within {current.name}")
    return text


def _head(where: str, line: str, text: Text) -> None:
    """Reads a line outside structures: a source or a build."""
    source, build = _SOURCE.fullmatch(line), _BUILD.fullmatch(line)
    stated = text.sources.setdefault(source["label"], {}) if source else {}
    if source and source.group("version", "arch") not in stated:
        stated[source["version"], source["arch"]] = source["text"]
    elif build and not any(known_build[:2] == build.group("version", "arch") for known_build in text.builds):
        text.builds.append(Build(*build.group("version", "arch", "text")))
    else:
        raise DeclarationError(
            f"{where}: {'declared twice' if source or build else 'not understood'}: {line}"
        )


def _member(where: str, line: str, text: Text) -> Member:
    found = _MEMBER.fullmatch(line)
    if found is None:
        raise DeclarationError(f"{where}: not understood: {line}")
    _check_source(where, found["source"] or "", text)
    return Member(
        where,
        found["name"] or _SIZEOF,
        found["type"] or "",
        len(found["stars"] or ""),
        _pair(where, found["count"]) if found["count"] else None,
        _pair(where, found["bits"]) if found["bits"] else None,
        int(found["shift"] or 0),
        _pair(where, found["place"]),
        version_of(found["since"] or ""),
        version_of(found["until"] or ""),
        found["source"] or "",
    )


def _check_source(where: str, label: str, text: Text) -> None:
    if label and label not in text.sources:
        raise DeclarationError(f"{where}: there is no source {label}")


def _pair(where: str, written: str) -> Pair:
    parts = written.split("/")
    try:
        numbers = [None if part == "-" else int(part, 0) for part in parts]
    except ValueError:
        raise DeclarationError(f"{where}: not a number: {written}") from None
    return dict(zip(ARCHES, (numbers[0], numbers[-1], numbers[-1])))


def version_of(written: str) -> Version:
    """Returns a version in comparable form: `10.0.26100` is (10, 0, 26100)."""
    return tuple(int(part) for part in written.split(".") if part)


class _Table:
    """One table: the structures of a text in one build."""

    def __init__(self, text: Text, basic: Text, build: Build) -> None:
        self._build, self._basic = build, basic
        self._arch = build.arch
        self._structures: Dict[str, Tuple[Declared, Dict[str, Member]]] = {}
        self._elsewhere: List[str] = []
        for (name, own), structure in text.structures.items():
            if own == (self._arch if (name, self._arch) in text.structures else ""):
                self._add_structure(structure, text.sources)
        named = {member.type for _, members in self._structures.values() for member in members.values()}
        for (name, _), structure in basic.structures.items():
            if name in named:
                self._add_structure(structure, basic.sources)

    def written(self) -> str:
        """Returns the file: one line for each member, so that a diff shows the moved ones."""
        lines = [
            "{",
            f'"metadata": {json.dumps(self._metadata())},',
            '"base_types": {',
            ",\n".join(
                f"  {json.dumps(name)}: {json.dumps(base_type)}" for name, base_type in self._base_types()
            ),
            "},",
            '"user_types": {',
            ",\n".join(self._user_types()),
            "},",
            '"enums": {},',
            '"symbols": {}',
            "}",
        ]
        return "\n".join(lines) + "\n"

    def _add_structure(self, declared: Declared, sources: Sources) -> None:
        """Adds a structure if the build has it."""
        members = self._of_build(declared)
        if _SIZEOF not in members:
            if members:
                raise DeclarationError(f"{declared.where}: {declared.name} has no size in {self._name()}")
            return
        self._structures[declared.name] = declared, members
        labels = [(declared.name, declared.source)]
        labels += [(f"{declared.name}.{name}", member.source) for name, member in members.items()]
        for name, label in labels:
            stated = sources.get(label, {})
            source = stated.get((self._build.version, self._arch)) or stated.get((None, None))
            if source:
                self._elsewhere.append(f"{name}: {source}")

    def _of_build(self, declared: Declared) -> Dict[str, Member]:
        """Returns the declarations that apply to the build, by name."""
        version = version_of(self._build.version)
        found: Dict[str, Member] = {}
        for member in declared.members:
            if member.place[self._arch] is None or member.since > version:
                continue
            if member.until and version >= member.until:
                continue
            known = found.get(member.name)
            if known is not None and known.since == member.since:
                raise DeclarationError(f"{member.where}: {member.name} is declared twice for {self._name()}")
            if known is None or known.since < member.since:
                found[member.name] = member
        return found

    def _name(self) -> str:
        return f"{self._build.version} {self._arch}"

    def _metadata(self) -> Json:
        comment = "; ".join([self._build.source, *self._elsewhere])
        producer = {
            "name": "volatility3-stacktraces",
            "version": "3.0.0",
            "datetime": "2025-01-01T00:00:00",
            "comment": comment,
        }
        return {"format": "6.2.0", "producer": producer}

    def _base_types(self) -> Iterator[Tuple[str, Json]]:
        pointer = ("pointer", POINTER_SIZES[self._arch], False)
        for name, size, signed in (*_BASE.values(), pointer):
            kind = "int" if size else "void"
            yield name, {"size": size, "signed": signed, "kind": kind, "endian": "little"}

    def _user_types(self) -> Iterator[str]:
        for name, (declared, members) in self._structures.items():
            size = self._size_of(name)
            fields = []
            for member in members.values():
                if member.name != _SIZEOF:
                    fields.append(f"    {json.dumps(member.name)}: {json.dumps(self._field(member, size))}")
            head = f'  {json.dumps(name)}: {{"kind": "{declared.kind}", "size": {size}, "fields": {{'
            yield "\n".join([head, ",\n".join(fields), "  }}"]) if fields else head + "}}"

    def _field(self, member: Member, size: int) -> Json:
        """Returns a member in ISF form.

        Raises:
            DeclarationError: the member does not lie within its structure
        """
        kind, length = self._typed(member)
        if member.elements is not None:
            count = member.elements[self._arch]
            if not count:
                raise DeclarationError(f"{member.where}: an array without elements")
            kind, length = {"kind": "array", "count": count, "subtype": kind}, length * count
        if member.bits is not None:
            bits = member.bits[self._arch] or 0
            if not 0 < bits <= 8 * length - member.shift:
                raise DeclarationError(f"{member.where}: these bits are not in a {member.type}")
            kind = {"kind": "bitfield", "bit_position": member.shift, "bit_length": bits, "type": kind}
        offset = member.place[self._arch] or 0
        if offset + length > size:
            raise DeclarationError(
                f"{member.where}: {member.name} goes beyond the {size:#x} bytes of {self._name()}"
            )
        return {"offset": offset, "type": kind}

    def _typed(self, member: Member) -> Tuple[Json, int]:
        """Returns the type of a member without its array or bits, and the size of that type in bytes."""
        name = _WIDE[self._arch] if member.type == "ULONG_PTR" else member.type
        kind: Json
        if name in _BASE:
            kind = {"kind": "base", "name": _BASE[name][0]}
            length = _BASE[name][1]
        elif name in self._structures:
            kind = {"kind": self._structures[name][0].kind, "name": name}
            length = self._size_of(name)
        else:
            raise DeclarationError(f"{member.where}: {self._name()} has no {name}")
        for _ in range(member.stars):
            kind, length = {"kind": "pointer", "subtype": kind}, POINTER_SIZES[self._arch]
        return kind, length

    def _size_of(self, name: str) -> int:
        return self._structures[name][1][_SIZEOF].place[self._arch] or 0
