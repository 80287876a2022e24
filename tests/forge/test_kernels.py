# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The forged kernels' tables: valid, complete, and true where they are fact."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, Iterator, Set, Tuple

import jsonschema
import pytest
import volatility3.schemas

from tests.forge import kernels
from tests.forge.isf import Isf
from tests.forge.kernel_names import EXPORTED, FUNCTIONS, OUR_TYPES, TRIMMED, VARIABLES, X64_TYPES

NAMES = [*kernels.KERNELS]
SCHEMA = pathlib.Path(volatility3.schemas.__file__).with_name("schema-6.2.0.json")

# Structure, size (- if it differs within a version), and where members are, in hexadecimal: as
# collected from the public symbols of each version.
FACTS = """
xp-x86 _KTHREAD 1c0 InitialStack:18 StackLimit:1c StackBase:168 KernelStack:28 TrapFrame:134
xp-x86 _KTHREAD 1c0 PreviousMode:140 State:2d NpxState:31 CallbackStack:12c
xp-x86 _KPRCB c50 CurrentThread:4 ProcessorState:1c
xp-x86 _PEB 210 NtGlobalFlag:68
xp-x86 _HANDLE_TABLE 44 DebugInfo:28 QuotaProcess:4 UniqueProcessId:8 HandleTableList:1c
xp-x86 _HEAP 588 AllocatorBackTraceIndex:16a Signature:8
xp-x86 _HANDLE_TRACE_DEBUG_INFO 50004 CurrentStackIndex:0 TraceDb:4
win7-x86 _KTHREAD 200 InitialStack:28 StackLimit:2c StackBase:190 KernelStack:30 TrapFrame:128
win7-x86 _KTHREAD 200 PreviousMode:13a State:68 NpxState:69 CallbackStack:130
win7-x86 _KPRCB 3628 CurrentThread:4 ProcessorState:18
win7-x86 _PEB 248 NtGlobalFlag:68
win7-x86 _HANDLE_TABLE 3c DebugInfo:1c QuotaProcess:4 UniqueProcessId:8 HandleTableList:10
win7-x86 _HEAP 138 Interceptor:5c AllocatorBackTraceIndex:b0 SegmentAllocatorBackTraceIndex:34
win7-x86 _HEAP 138 Encoding:50 Signature:64 SegmentSignature:8
win7-x86 _HANDLE_TRACE_DEBUG_INFO 80 TableSize:4 CurrentStackIndex:2c TraceDb:30
win7-x86 _KTRAP_FRAME 8c Edx:3c Ecx:40 Eax:44 Edi:54 Eip:68 HardwareEsp:74 V86Gs:88
win7-x86 _KERNEL_STACK_CONTROL 1c PreviousTrapFrame:0 StackControlFlags:4 Previous:8
win7-x86 _KERNEL_STACK_SEGMENT 14 StackBase:0 StackLimit:4 KernelStack:8 InitialStack:c
win10-x86 _KTHREAD 350 InitialStack:20 StackLimit:24 StackBase:28 KernelStack:48 TrapFrame:6c
win10-x86 _KTHREAD 350 PreviousMode:15a State:90 NpxState:340 StateSaveArea:4c
win10-x86 _KPRCB - CurrentThread:4 ProcessorState:18
win10-x86 _PEB 480 NtGlobalFlag:68 NtGlobalFlag2:478
win10-x86 _HANDLE_TABLE 80 DebugInfo:54 QuotaProcess:c UniqueProcessId:18 HandleTableList:10
win10-x86 _HEAP 258 Interceptor:58 AllocatorBackTraceIndex:ac SegmentAllocatorBackTraceIndex:34
win10-x86 _HEAP 258 Encoding:50 Signature:60 SegmentSignature:8
win10-x86 _HANDLE_TRACE_DEBUG_INFO 80 TableSize:4 CurrentStackIndex:2c TraceDb:30
win10-x86 _KTRAP_FRAME 8c FrameType:f Edx:38 Ecx:3c Eax:40 MxCsr:48 Edi:54 Eip:68 HardwareEsp:74
win10-x86 _KSTACK_CONTROL 20 PreviousTrapFrame:8 PreviousExceptionList:c Previous:10
win10-x86 _KERNEL_STACK_SEGMENT 10 StackBase:0 StackLimit:4 KernelStack:8 InitialStack:c
win10-x86 _SEGMENT_HEAP 580 Signature:8 GlobalFlags:c Interceptor:10 StackTraceInitVar:54
win10-x86 _OBJECT_HEADER 20 TypeIndex:c TraceFlags:d InfoMask:e Body:18
win7-x64 _KTHREAD 368 InitialStack:28 StackBase:278 KernelStack:38 TrapFrame:1d8 StateSaveArea:358
win7-x64 _KPRCB 6f00 CurrentThread:8 ProcessorState:40 RspBase:28 RspBaseShadow:5e88
win7-x64 _PEB 380 NtGlobalFlag:bc
win7-x64 _KTRAP_FRAME 190 Rax:30 Rcx:38 Rip:168 SegCs:170 Rsp:180 CodePatchCycle:18c
win7-x64 _KERNEL_STACK_CONTROL 50
win10-x64 _KTHREAD 430 InitialStack:28 StackBase:38 KernelStack:58 TrapFrame:90 StateSaveArea:60
win10-x64 _KPRCB af00 CurrentThread:8 ProcessorState:100 RspBase:28 RspBaseShadow:8e88
win10-x64 _PEB 7c8 NtGlobalFlag:bc NtGlobalFlag2:7c4
win10-x64 _HANDLE_TABLE 80 DebugInfo:60 QuotaProcess:10 UniqueProcessId:28 HandleTableList:18
win11-x64 _KTHREAD 480 InitialStack:28 StackBase:38 KernelStack:58 TrapFrame:90 State:184
win11-x64 _KPRCB bf00 CurrentThread:8 ProcessorState:100 RspBase:28 RspBaseShadow:9e88
win11-x64 _SEGMENT_HEAP 840 Signature:10 GlobalFlags:14 Interceptor:18 StackTraceInitVar:70
"""
for _kernel in NAMES:
    _wide = kernels.KERNELS[_kernel].arch == "x64"
    _index = "58" if _wide else "30"
    FACTS += f"{_kernel} _ERESOURCE - CreatorBackTraceIndex:{_index} SystemResourcesList:0\n"
    _index = "18" if _wide else "c"
    FACTS += f"{_kernel} _OBJECT_HEADER_CREATOR_INFO - CreatorBackTraceIndex:{_index}\n"


def _facts() -> Iterator[Tuple[str, str, str, Dict[str, int]]]:
    for line in FACTS.strip().splitlines():
        kernel, type_name, size, *members = line.split()
        pairs = (member.split(":") for member in members)
        yield kernel, type_name, size, {member: int(offset, 16) for member, offset in pairs}


def _held(what: Any) -> Iterator[str]:
    """The structures that a type is made of."""
    if what["kind"] in ("struct", "union", "class"):
        yield what["name"]
    elif what["kind"] in ("array", "pointer"):
        yield from _held(what["subtype"])


@pytest.mark.parametrize("kernel, type_name, size, members", list(_facts()))
def test_facts(kernel: str, type_name: str, size: str, members: Dict[str, int]) -> None:
    table = kernels.load(kernel).table
    assert {member: table.offset(type_name, member) for member in members} == members
    assert size == "-" or table.size(type_name) == int(size, 16)


@pytest.mark.parametrize("name", NAMES)
def test_schema(name: str) -> None:
    jsonschema.Draft7Validator(json.loads(SCHEMA.read_text())).validate(kernels.load(name).table.data)


@pytest.mark.parametrize("name", NAMES)
def test_types_are_closed_and_members_lie_within(name: str) -> None:
    table = kernels.load(name).table
    for type_name, user_type in table.types.items():
        for member, field in user_type["fields"].items():
            assert set(_held(field["type"])) <= set(table.types), f"{type_name}.{member}"
            place = table.place(type_name, member)
            assert place.offset + place.size <= user_type["size"], f"{type_name}.{member}"
            assert place.bits is None or sum(place.bits) <= place.size * 8, f"{type_name}.{member}"


@pytest.mark.parametrize("name", NAMES)
def test_size_of_the_file(name: str) -> None:
    assert (kernels.DATA / f"{name}.json.xz").stat().st_size <= 40 * 1024


@pytest.mark.parametrize("name", NAMES)
def test_identity(name: str) -> None:
    known = kernels.load(name)
    assert (known.table.pdb, known.table.guid) == (known.identity.pdb, known.identity.guid)
    assert known.table.pointer_size == known.identity.pointer_size
    assert known.version == kernels.KERNELS[name].version
    assert kernels.load(name) is known


def test_identities_differ() -> None:
    names = [*NAMES, "2003-x64"]
    assert len({kernels.load(name).table.guid for name in names}) == len(names)
    with pytest.raises(KeyError):
        kernels.load("win95-x86")


@pytest.mark.parametrize("name", NAMES)
def test_symbols_have_room(name: str) -> None:
    known = kernels.load(name)
    text, data = known.options()["sections"]
    symbols = {symbol: known.table.symbol(symbol) for symbol in known.table.symbols}
    variables = sorted((rva, VARIABLES[symbol]) for symbol, rva in symbols.items() if symbol in VARIABLES)
    for (rva, size), (following, _) in zip(variables, variables[1:]):
        assert rva + size <= following
    assert data.rva <= variables[0][0]
    assert sum(variables[-1]) <= data.rva + data.size
    functions = sorted(rva for symbol, rva in symbols.items() if symbol not in VARIABLES)
    assert len(functions) == len(set(functions)) >= 80
    assert text.rva <= functions[0]
    assert functions[-1] + 0x8000 < text.rva + text.size == data.rva
    assert set(known.exports) == set(EXPORTED) & set(symbols)
    assert len(known.exports) >= 40


def test_symbols_by_version() -> None:
    tables = {name: kernels.load(name).table.symbols for name in [*NAMES, "2003-x64"]}

    def with_mark(mark: str) -> Set[str]:
        return {name for name, symbols in tables.items() if mark in symbols}

    x64 = {"win7-x64", "win10-x64", "win11-x64", "2003-x64"}
    assert with_mark("RtlpStackTraceDataBase") == {"xp-x86", "2003-x64"}
    assert with_mark("RtlpStackTraceDatabase") == set(tables) - {"xp-x86", "2003-x64"}
    assert with_mark("KiSystemCall64") == with_mark("KiServiceLinkage") == x64
    assert with_mark("KiSystemCall64Shadow") == x64 - {"2003-x64"}
    assert with_mark("KiTrap0E") == with_mark("KiFastCallEntry") == set(tables) - x64
    assert with_mark("ObHeaderCookie") == {"win10-x86", "win10-x64", "win11-x64"}
    assert with_mark("NtGlobalFlag2") == {"win10-x86", "win10-x64", "win11-x64"}
    assert with_mark("ObTypeIndexTable") == set(tables) - {"xp-x86"}
    for mark in ("NtGlobalFlag", "ExpSystemResourcesList", "HandleTableListHead", "ObpStackTable"):
        assert with_mark(mark) == set(tables)


def test_types_by_architecture() -> None:
    for name in NAMES:
        table = kernels.load(name).table
        has = {type_name for type_name in OUR_TYPES if table.has_type(type_name)}
        if table.pointer_size == 4:
            assert not has & set(X64_TYPES)
        else:
            assert has >= {"_KEXCEPTION_FRAME", "_PEB32", "_TEB32", "_PEB64", "_KTSS64"}
        assert table.has_type("_EWOW64PROCESS") == (name in ("win10-x64", "win11-x64"))
        assert {"_KTRAP_FRAME", "_ETHREAD", "_EPROCESS", "_KPCR", "_CONTEXT"} <= has


def test_variant() -> None:
    seven = kernels.load("win7-x64")
    variant = seven.variant("mine", ["KiSystemCall64Shadow"], {"NtGlobalFlag": "Other"}, (6, 0, 6002))
    assert variant.version == (6, 0, 6002)
    assert variant.table.symbol("Other") == seven.table.symbol("NtGlobalFlag")
    gone = {"KiSystemCall64Shadow", "NtGlobalFlag"}
    assert set(variant.table.symbols) == set(seven.table.symbols) - gone | {"Other"}
    assert variant.table.types is seven.table.types
    assert variant.table.guid == variant.identity.guid != seven.table.guid
    assert "KiSystemCall64Shadow" in kernels.load("win7-x64").table.symbols
    with pytest.raises(KeyError):
        seven.variant("mine", ["NoSuchSymbol"])


def _real_tables(shared_dir: pathlib.Path) -> Dict[str, pathlib.Path]:
    folder = shared_dir / "isf" / "symbols" / "windows"
    return {
        path.name[:4]: path for pdb in ("ntkrnlmp.pdb", "ntkrnlpa.pdb") for path in (folder / pdb).iterdir()
    }


@pytest.mark.shared
def test_real_versions(shared_dir: pathlib.Path) -> None:
    versions = {key: kernels.real(path).version for key, path in _real_tables(shared_dir).items()}
    # 20348's public symbols have what 22000's have.
    assert versions.pop("0C3F") == (10, 0, 22000)
    assert versions == {
        "30B5": (5, 1, 2600),
        "339E": (6, 1, 7601),
        "06A5": (6, 3, 9600),
        "2E6D": (10, 0, 14393),
        "06F3": (10, 0, 17763),
        "5278": (10, 0, 19041),
        "0B0A": (10, 0, 22000),
    }


@pytest.mark.shared
@pytest.mark.parametrize(
    "name, real", [("xp-x86", "30B5"), ("win7-x64", "339E"), ("win10-x64", "5278"), ("win11-x64", "0B0A")]
)
def test_layouts_are_the_real_ones(shared_dir: pathlib.Path, name: str, real: str) -> None:
    theirs = kernels.real(_real_tables(shared_dir)[real]).table
    table = kernels.load(name).table
    assert {our_type for our_type in OUR_TYPES if theirs.has_type(our_type)} == {
        our_type for our_type in OUR_TYPES if table.has_type(our_type)
    }
    for type_name in OUR_TYPES:
        if theirs.has_type(type_name):
            _same(table, theirs, type_name)
    every = {*FUNCTIONS, *VARIABLES} & set(theirs.symbols)
    assert every <= set(table.symbols) <= set(theirs.symbols)


@pytest.mark.shared
def test_windows_10_x86_layouts_are_ntdlls(shared_dir: pathlib.Path) -> None:
    folder = shared_dir / "isf" / "symbols" / "windows" / "wntdll.pdb"
    theirs = kernels.real(next(folder.iterdir())).table
    table = kernels.load("win10-x86").table
    shared = [our_type for our_type in OUR_TYPES if theirs.has_type(our_type)]
    assert len(shared) >= 50
    for type_name in shared:
        _same(table, theirs, type_name)


def _same(table: Isf, theirs: Isf, type_name: str) -> None:
    """Size and every member, as deep as structures are embedded."""
    assert table.size(type_name) == theirs.size(type_name), type_name
    members = set(theirs.types[type_name]["fields"])
    if type_name in TRIMMED:
        members &= set(TRIMMED[type_name])
    assert set(table.types[type_name]["fields"]) == members, type_name
    for member in members:
        mine, real = table.place(type_name, member), theirs.place(type_name, member)
        assert mine[:3] == real[:3] and mine.bits == real.bits, f"{type_name}.{member}"
        if mine.kind == "struct" and mine.name not in TRIMMED:
            for inner in theirs.types[real.name]["fields"]:
                path = f"{member}.{inner}"
                assert table.place(type_name, path)[:3] == theirs.place(type_name, path)[:3], path
