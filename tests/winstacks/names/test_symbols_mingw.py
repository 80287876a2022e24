# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Real modules, built by mingw-w64: every return site against the module's own symbol table."""

from __future__ import annotations

import bisect
import pathlib
import re
import shutil
import subprocess
from typing import Dict, Iterator, List, NamedTuple, Set, Tuple

import pefile
import pytest

from tests.forge import context, kernels
from tests.forge.kernel import Kernel
from tests.support.flatimage import Flat
from winstacks.memory.decode.status import NOTHING
from winstacks.names.decode import pe as peimage
from winstacks.names.decode.functiontable import FunctionTable
from winstacks.names.decode.rules import PdbNames, sort_labels
from winstacks.names.symbolizer import AddressNamer, Name, Symbolizer
from winstacks.process.spaces import AddressSpaces

PREFIX = {"x64": "x86_64-w64-mingw32-", "x86": "i686-w64-mingw32-"}
KERNEL = {"x64": "win10-x64", "x86": "xp-x86"}
FUNCTIONS = 60
DISASSEMBLY = re.compile(r"^\s*([0-9a-f]+):\t(?:[0-9a-f]{2} )+\s*(\w+)?", re.MULTILINE)
CALL = re.compile(r"calll?q?$")


class Built(NamedTuple):
    """A module that was compiled, as it lies in memory, and the truth about it; all addresses are RVAs."""

    image: bytes
    symbols: List[Tuple[int, str]]
    exports: Set[str]
    returns: List[int]

    def owner(self, return_site: int) -> Tuple[int, str]:
        """The function that holds the call before a return site."""
        return self.symbols[bisect.bisect_right(self.symbols, (return_site - 1, "\xff")) - 1]


def source(hidden: bool) -> str:
    """C with exported functions, hidden ones if wanted, calls that never return, and cold code."""
    lines = [
        "volatile int sink;",
        "#define APART __attribute__((noinline, noclone))",
        "__attribute__((dllexport, noreturn, noinline)) void stop(int x) { for (;;) sink = x; }",
        "APART int leaf(int x) { return x * 3; }",
    ]
    for number in range(FUNCTIONS):
        secret = hidden and number % 2
        linkage = "static APART" if secret else "__attribute__((dllexport)) APART"
        calls = "".join(f"sink += f{other}(x + {other});" for other in range(max(number - 3, 0), number))
        rare = f"if (__builtin_expect(x == {number}, 0)) {{ sink += leaf(x); stop(x); }}"
        end = f"stop(x + {number}); __builtin_unreachable();" if number % 7 == 3 else "return leaf(sink) + 1;"
        lines.append(f"{linkage} int f{number}(int x) {{ {rare} {calls} {end} }}")
    lines.append(f"__attribute__((dllexport)) int start(int x) {{ return f{FUNCTIONS - 1}(x) + 1; }}")
    return "\n".join(lines)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def compiled(folder: pathlib.Path, arch: str, hidden: bool) -> Built:
    tool = PREFIX[arch]
    if shutil.which(tool + "gcc") is None:
        pytest.skip(f"mingw-w64 is not installed: no {tool}gcc")
    (folder / "sample.c").write_text(source(hidden))
    target = str(folder / "sample.dll")
    options = [
        "-O2",
        "-falign-functions=1",
        "-shared",
        "-nostdlib",
        "-nostartfiles",
        "-Wl,-e,0",
        "-o",
        target,
    ]
    run(tool + "gcc", *options, str(folder / "sample.c"), "-lgcc")
    pe = pefile.PE(target)
    base = pe.OPTIONAL_HEADER.ImageBase
    underscore = "_" if arch == "x86" else ""
    lines = [line.split() for line in run(tool + "nm", target).splitlines()]
    symbols = sorted(
        (int(address, 16) - base, name[len(underscore) :])
        for address, kind, name in (line for line in lines if len(line) == 3)
        if kind in "tT" and not name.startswith(".")
    )
    image = bytes(pe.get_memory_mapped_image()).ljust(pe.OPTIONAL_HEADER.SizeOfImage, b"\0")
    exports = {symbol.name.decode() for symbol in pe.DIRECTORY_ENTRY_EXPORT.symbols}
    return Built(image, symbols, exports, list(return_sites(run(tool + "objdump", "-d", target), base)))


def return_sites(disassembly: str, base: int) -> Iterator[int]:
    """The addresses behind calls, each instruction being a line (or two, if it is long)."""
    found = [(int(match[1], 16) - base, match[2] or "") for match in DISASSEMBLY.finditer(disassembly)]
    for (_, mnemonic), (following, _) in zip(found, found[1:]):
        if CALL.match(mnemonic):
            yield following


def names_of(built: Built, arch: str, folder: pathlib.Path) -> Tuple[int, AddressNamer]:
    """Puts the module into a process of a forged image; returns its base and the process' names."""
    known = kernels.load(KERNEL[arch])
    kernel = Kernel(known.table, **known.options())
    process = kernel.process("app.exe", pid=1000)
    process.module("app.exe", dll=False)
    module = process.module("sample.dll", size=len(built.image), pdb=False)
    module.write(0, built.image)
    opened = context.open_image(kernel.image(), folder)
    image = opened.image
    space = next(AddressSpaces.list_spaces(image, [1000]))
    return module.base, Symbolizer(image).for_space(space)


def expected(start: int, name: str, site: int, sources: str) -> Name:
    return Name(f"sample!{name}+{site - start:#x}", sources, NOTHING, "image")


@pytest.mark.parametrize("arch, source_word", [("x64", "export"), ("x86", "nearest")])
def test_every_return_site_of_a_module_that_exports_its_functions(
    arch: str, source_word: str, tmp_path: pathlib.Path
) -> None:
    built = compiled(tmp_path, arch, hidden=False)
    base, names = names_of(built, arch, tmp_path)
    assert len(built.returns) > 3 * FUNCTIONS
    cold = 0
    for site in built.returns:
        start, owner = built.owner(site)
        found = names.name(base + site)
        if owner in built.exports:
            assert found == expected(start, owner, site, source_word), owner
        elif arch == "x64":
            # The compiler's cold parts are functions of their own to the function table.
            assert found == Name(f"sample+{site:#x}", "module", NOTHING, "image"), owner
            cold += 1
    assert cold < len(built.returns) / 2


def test_a_function_that_is_not_exported_never_borrows_a_name(tmp_path: pathlib.Path) -> None:
    built = compiled(tmp_path, "x64", hidden=True)
    base, names = names_of(built, "x64", tmp_path)
    counts: Dict[bool, int] = {True: 0, False: 0}
    for site in built.returns:
        start, owner = built.owner(site)
        counts[owner in built.exports] += 1
        plain = Name(f"sample+{site:#x}", "module", NOTHING, "image")
        expected_name = expected(start, owner, site, "export") if owner in built.exports else plain
        assert names.name(base + site) == expected_name, owner
    assert min(counts.values()) > FUNCTIONS


def test_behind_a_call_that_never_returns_the_next_function_may_start(tmp_path: pathlib.Path) -> None:
    # On x64 compilers put an instruction between, for the unwinder's sake.
    built = compiled(tmp_path, "x86", hidden=False)
    base, names = names_of(built, "x86", tmp_path)
    starts = dict(built.symbols)
    ends = [site for site in built.returns if starts.get(site) in built.exports]
    assert ends
    for site in ends:
        start, owner = built.owner(site)
        assert names.name(base + site, return_address=False).symbol == f"sample!{starts[site]}"
        if owner in built.exports:
            assert names.name(base + site).symbol == f"sample!{owner}+{site - start:#x}"


@pytest.mark.parametrize("arch", ["x64", "x86"])
def test_with_its_symbols_every_return_site_has_its_functions_name(arch: str, tmp_path: pathlib.Path) -> None:
    built = compiled(tmp_path, arch, hidden=True)
    memory = Flat(built.image)
    headers = peimage.read_headers(memory.read)
    rva, size = headers.directory(peimage.DIRECTORY_EXCEPTION)
    pdata = memory.read(rva, size)
    functions = FunctionTable.from_bytes(pdata, memory.read) if pdata and arch == "x64" else None
    names = PdbNames(*sort_labels(built.symbols), headers.sections, functions)
    for site in built.returns:
        assert names.find_label(site - 1) == (*built.owner(site), "pdb")
