# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The unmodified command line opens forged images, in every format, and reads back what was built."""

from __future__ import annotations

import pathlib

import pytest

from tests.forge import isf, kernels, vol
from tests.forge.dump import BITMAP, Image
from tests.forge.kernel import Kernel
from tests.forge.unloaded import UnloadedDll, remember_unloads

DTB = 0x1A0000
BASE = {64: 0xF80312200000, 32: 0x82800000}
FORMATS = (
    ("x64", "a.raw", 0),
    ("x64", "a.dmp", 0),
    ("x64", "b.dmp", BITMAP),
    ("x64", "a.raw.xz", 0),
    ("x64", "b.dmp.xz", BITMAP),
    ("x86", "a.raw", 0),
    ("x86", "a.dmp", 0),
    ("x86", "a.dmp.xz", 0),
    ("x86", "c.dmp", BITMAP),
)


def build(table: isf.Isf, **options: object) -> Kernel:
    """A kernel with a bit of everything that Volatility's own plugins list."""
    kernel = Kernel(table, **options)  # type: ignore[arg-type]
    kernel.module("tcpip.sys")
    kernel.unloaded("gone.sys", kernel.base + 0x8000000, kernel.base + 0x8010000)
    process = kernel.process("app.exe", pid=1000, session=1)
    process.module("app.exe", dll=False)
    process.module("ntdll.dll", exports={"NtClose": 0x1100})
    process.thread(1004)
    kernel.process("done.exe", pid=1008, exited=True)
    return kernel


@pytest.fixture(scope="module")
def images() -> dict[str, Image]:
    names = {"x64": "win10-x64", "x86": "win7-x86"}
    loaded = {arch: kernels.load(name) for arch, name in names.items()}
    return {arch: build(kernel.table, **kernel.options(), cpus=2).image() for arch, kernel in loaded.items()}


@pytest.fixture(scope="module")
def symbols(images: dict[str, Image], tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("forged") / "symbols"
    for image in images.values():
        image.install(directory)
    return directory


def info(path: pathlib.Path, symbols: pathlib.Path) -> dict[str, str]:
    result = vol.run(path, "windows.info", symbols=symbols, plugins=None)
    assert result.returncode == 0, result.stdout + result.stderr
    return {row["Variable"]: row["Value"] for row in result.rows}


@pytest.mark.cli
@pytest.mark.parametrize(("arch", "name", "bitmap"), FORMATS)
def test_every_format_opens(
    images: dict[str, Image],
    symbols: pathlib.Path,
    tmp_path: pathlib.Path,
    arch: str,
    name: str,
    bitmap: int,
) -> None:
    seen = info(images[arch].save(tmp_path / name, bitmap), symbols)
    bits = 64 if arch == "x64" else 32
    assert int(seen["DTB"], 16) == DTB == images[arch].dtb
    assert int(seen["Kernel Base"], 16) == BASE[bits]
    assert seen["KeNumberProcessors"] == "2"
    assert seen["NtSystemRoot"] == "C:\\Windows"
    assert seen["IsPAE"] == str(bits == 32)
    assert "forge_release" in seen["NTBuildLab"]


@pytest.mark.cli
@pytest.mark.parametrize(
    "options", [{"low_stub": False}, {"kdbg": False}, {"shuffle": 7}, {"large_pages": True}]
)
def test_kernel_is_found_without_one_hint(tmp_path: pathlib.Path, options: dict[str, object]) -> None:
    known = kernels.load("win10-x64")
    image = build(known.table, **known.options(), **options).image()
    seen = info(image.save(tmp_path / "a.dmp"), image.install(tmp_path / "symbols"))
    assert int(seen["DTB"], 16) == DTB
    assert int(seen["Kernel Base"], 16) == BASE[64]
    assert ("KdDebuggerDataBlock" in seen) == options.get("kdbg", True)


@pytest.mark.cli
def test_lists_come_back(images: dict[str, Image], symbols: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = images["x64"].save(tmp_path / "a.raw")

    def rows(plugin: str) -> list[dict]:
        return vol.run(path, plugin, symbols=symbols, plugins=None).rows

    processes = rows("windows.pslist")
    assert [(row["PID"], row["ImageFileName"], row["Threads"]) for row in processes] == [
        (4, "System", 0),
        (1000, "app.exe", 1),
        (1008, "done.exe", 0),
    ]
    assert processes[1]["SessionId"] == 1
    assert processes[2]["ExitTime"] is not None
    assert [row["Name"] for row in rows("windows.modules")] == ["ntoskrnl.exe", "tcpip.sys"]
    assert [row["Name"] for row in rows("windows.dlllist")] == ["app.exe", "ntdll.dll"]
    assert [row["Name"] for row in rows("windows.unloadedmodules")] == ["gone.sys"]


@pytest.mark.shared
@pytest.mark.cli
@pytest.mark.parametrize(
    ("table", "base"),
    [
        ("ntkrnlmp.pdb/339E74133576439CBCDF7E0229DA3773-1.json.xz", 0xF80312200000),
        ("ntkrnlmp.pdb/0B0A89438BE7729EB33FD00A7D6FA816-1.json.xz", 0xF80312200000),
        ("ntkrnlpa.pdb/30B5FB31AE7E4ACAABA750AA241FF331-1.json.xz", 0x82600000),
    ],
)
def test_real_tables(shared_dir: pathlib.Path, tmp_path: pathlib.Path, table: str, base: int) -> None:
    real = isf.load(shared_dir / "isf" / "symbols" / "windows" / table)
    image = build(real).image()
    symbols = image.install(tmp_path / "symbols")
    path = image.save(tmp_path / "a.dmp")
    seen = info(path, symbols)
    assert (int(seen["DTB"], 16), int(seen["Kernel Base"], 16)) == (DTB, base)
    rows = vol.run(path, "windows.dlllist", symbols=symbols, plugins=None).rows
    assert [row["Name"] for row in rows] == ["app.exe", "ntdll.dll"]


def test_same_calls_same_bytes(tmp_path: pathlib.Path) -> None:
    known = kernels.load("win7-x64")

    def once(name: str, shuffle: int) -> tuple[bytes, str]:
        image = build(known.table, **known.options(), shuffle=shuffle).image()
        return image.save(tmp_path / name).read_bytes(), image.digest()

    first, again, other = once("a.dmp.xz", 1), once("b.dmp.xz", 1), once("c.dmp.xz", 2)
    assert first == again
    assert first[0] != other[0] and first[1] != other[1]


def test_image_is_small_and_sparse(images: dict[str, Image], tmp_path: pathlib.Path) -> None:
    path = images["x64"].save(tmp_path / "a.raw")
    assert path.stat().st_size == 0x2A0000
    assert path.stat().st_blocks * 512 < path.stat().st_size
    assert images["x64"].save(tmp_path / "a.dmp.xz").stat().st_size < 0x4000


@pytest.mark.parametrize(("bits", "size"), [(64, 0x68), (32, 0x5C)])
def test_unload_traces_wrap(bits: int, size: int) -> None:
    kernel = Kernel(kernels.load("win10-x64").table)
    process = kernel.process("app.exe", pid=1000)
    owner = process if bits == 64 else process.wow64()
    names = {"": 0x7000, "Ex": 0x7800, "ExSize": 0x7810, "ExNumber": 0x7814}
    ntdll = owner.module(
        "ntdll.dll", symbols={f"RtlpUnloadEventTrace{suffix}": rva for suffix, rva in names.items()}
    )
    remember_unloads(ntdll, [UnloadedDll(f"m{number}.dll", 0x1000 * number, 0x800) for number in range(20)])

    def record(array: int, slot: int) -> tuple[int, int, str]:
        at, word = array + slot * size, bits // 8
        name = process.space.read(at + 2 * word + 12, 64).decode("utf-16-le").rstrip("\0")
        return process.space.read_int(at, word), process.space.read_int(at + 2 * word, 4), name

    array = ntdll.at("RtlpUnloadEventTrace")
    assert record(array, 3) == (0x13000, 19, "m19.dll")
    assert record(array, 4) == (0x4000, 4, "m4.dll")
    ring = process.space.read_int(ntdll.at("RtlpUnloadEventTraceEx"), bits // 8)
    assert record(ring, 19) == (0x13000, 19, "m19.dll")
    assert process.space.read_int(ntdll.at("RtlpUnloadEventTraceExSize"), 4) == size
