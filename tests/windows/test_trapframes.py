# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`windows.trapframes` on forged images: every kind of entry, every kernel, every origin."""

from __future__ import annotations

import pathlib
from typing import Callable, Dict, List, Optional

import pytest

from tests.forge import kernels, vol
from tests.forge.kernels import KnownKernel
from tests.hostile import forking
from tests.support.trapforge import TrapImage
from tests.support.trapimages import LiveImage
from winstacks.rows import traps

OWN = ("xp-x86", "win7-x86", "win10-x86", "2003-x64", "win7-x64", "win10-x64", "win11-x64")
REAL = (
    "339E74133576439CBCDF7E0229DA3773",
    "06A508F37B81478E855A3542E272C084",
    "2E6DEB6CFD444100AC0E803337A56E8E",
    "06F33B5BE23EF96AC9D93825124DAA16",
    "5278AFF86C341677D7D7835C85B7B844",
    "0C3FB08B9223E2EFB08FA14331050B26",
    "0B0A89438BE7729EB33FD00A7D6FA816",
)


def real_kernel(shared: pathlib.Path, guid: str) -> KnownKernel:
    return kernels.real(shared / "isf/symbols/windows/ntkrnlmp.pdb" / f"{guid}-1.json.xz")


def before_2018(known: KnownKernel) -> KnownKernel:
    shadows = [name for name in known.table.symbols if name.startswith("Ki") and name.endswith("Shadow")]
    return known.variant(f"{known.name}-before-2018", drop=shadows)


def test_columns() -> None:
    names = (
        "PID Process TID Arch Origin TrapFrame TrapKind Mode Rip Symbol Source Backing"
        " Rsp Rbp Rax Rcx Rdx Rbx Rsi Rdi R8 R9 R10 R11 R12 R13 R14 R15"
        " EFlags ErrorCode FaultAddress Unsure NotSaved Status"
        " SegCs SegSs SegDs SegEs SegFs SegGs GsSwap PreviousMode PreviousIrql"
        " Dr0 Dr1 Dr2 Dr3 Dr6 Dr7 MxCsr State Processor Member Value"
    )
    columns = [name for name, _ in traps.GRID.columns]
    of_both, of_arm64 = columns[: len(names.split())], columns[len(names.split()) :]
    assert of_both == names.split()
    assert (of_arm64[0], len(of_arm64)) == ("Pc", 34)


@pytest.mark.parametrize("name", OWN)
def test_every_kind(name: str, tmp_path: pathlib.Path) -> None:
    image = TrapImage(kernels.load(name))
    print(name, image.check(LiveImage(image.kernel, tmp_path, suffix=".dmp").rows(scan_stacks=True)))


@pytest.mark.parametrize("name", ["win7-x64", "win10-x64"])
def test_every_kind_before_2018(name: str, tmp_path: pathlib.Path) -> None:
    image = TrapImage(before_2018(kernels.load(name)))
    print(name, image.check(LiveImage(image.kernel, tmp_path, suffix=".dmp").rows(scan_stacks=True)))


def run(image: TrapImage, folder: pathlib.Path, *options: str) -> List[vol.Row]:
    built = image.kernel.image()
    symbols = folder / "symbols"
    symbols.mkdir()
    built.install(symbols)
    cache = folder / "cache"
    vol.trust(symbols, cache)
    file = built.save(folder / "a.dmp")
    result = vol.run(file, "windows.trapframes", *options, symbols=symbols, cache=cache)
    assert result.returncode == 0, result.stderr
    return result.rows


@pytest.mark.cli
@pytest.mark.parametrize("name", ["win11-x64", "win10-x86"])
def test_every_kind_on_the_command_line(name: str, tmp_path: pathlib.Path) -> None:
    image = TrapImage(kernels.load(name))
    print(name, image.check(run(image, tmp_path, "--scan-stacks")))


@pytest.mark.shared
@pytest.mark.parametrize("change", [None, before_2018], ids=["now", "before 2018"])
@pytest.mark.parametrize("guid", REAL)
def test_every_kind_with_real_tables(
    guid: str,
    change: Optional[Callable[[KnownKernel], KnownKernel]],
    shared_dir: pathlib.Path,
    tmp_path: pathlib.Path,
) -> None:
    known = real_kernel(shared_dir, guid)
    image = TrapImage(change(known) if change is not None else known)

    def check() -> Dict[str, int]:
        return image.check(LiveImage(image.kernel, tmp_path, suffix=".dmp").rows(scan_stacks=True))

    # A context stays in memory for good, and such a table takes hundreds of megabytes.
    done = forking.call(check)
    assert not done.error, done.error
    print(guid, done.value)
