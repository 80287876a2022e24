# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Innocent situations in several forms each: other registers, lengths, machines, interrupted or waiting."""

from __future__ import annotations

import struct
from typing import Callable, Dict, List, Sequence, Set, Union

import pytest

from tests.forge import trapentries as entries
from tests.forge.code import Routine
from tests.forge.vad import EXECUTE_READ, EXECUTE_READWRITE
from tests.machines import programs
from tests.support.clean import codelists
from tests.support.clean.everyday import breaks_at
from tests.support.clean.host64 import Host64, Link, Private
from tests.support.clean.narrow import WAIT_EX as WAIT_EX_32
from tests.support.clean.narrow import Private32, code_of
from tests.support.clean.wow import Program32
from tests.support.findingimages import found

KERNEL = "win10-x64"
WAIT_EX = "kernelbase!WaitForSingleObjectEx"
CODE, OTHER, SIZE = 0x21000000, 0x21800000, 0x4000
VENDOR = "C:\\Program Files\\Vendor\\"
CLR = ("clr!Thread::intermediateThreadProc", "clr!CallDescrWorkerInternal")
CLR_WAIT = "clr!CLREvent::WaitEx"
JVM = ("jvm!JavaThread::run", "jvm!JavaCalls::call_helper")
Link32 = Union[str, Private32]
Situation = Callable[[Host64], object]


def above_low(situation: Situation, kernel: str = KERNEL) -> Dict[str, Set[str]]:
    """The severities above `low` of each check in a situation."""
    host = Host64(kernel)
    situation(host)
    rows: Dict[str, Set[str]] = {}
    for row in found(host.kernel.image()):
        if row["Severity"] != "low":
            rows.setdefault(row["Finding"], set()).add(row["Severity"])
    return rows


def narrow(
    *files: str, chain: Sequence[Link32], faults: bool = False, exports: str = "", apart: bool = True
) -> Situation:
    """A 32-bit program with code of a runtime that no list has, in two ranges or in one.

    Args:
        files: modules besides those that all have
        chain: who called whom
        faults: the thread was interrupted in the last one, else it waits
        exports: functions of the program
        apart: the ranges are two
    """

    def make(host: Host64) -> None:
        program = Program32(host, "tool.exe", *files, functions=f"main {exports}".strip())
        ranges = ((CODE, SIZE), (OTHER, SIZE)) if apart else ((CODE, OTHER + SIZE - CODE),)
        for base, size in ranges:
            program.wide.process.region(base, size=size, protection=EXECUTE_READWRITE)
        for base in (CODE, OTHER):
            program.narrow.space.write(base + 0x100, code_of(Routine(0x100)))
        if "clr.dll" in files:
            codelists.no_clr(program.narrow)
        if faults:
            program.faults(*chain)
        else:
            program.waits(*chain, WAIT_EX_32)

    return make


MONO = "mono-2.0-bdwgc"
WINDOW = ("user32!DispatchMessageWorker", "user32!UserCallWinProcCheckWow")
DECORATED = "?New@Isolate@v8@@SAPAV12@XZ"


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        (narrow("clr.dll", chain=(*CLR, Private32(CODE), Private32(CODE), CLR_WAIT)), set()),
        (narrow("clr.dll", chain=(*CLR, Private32(CODE)), faults=True), set()),
        (narrow("clr.dll", chain=(*CLR, Private32(CODE), Private32(CODE)), faults=True), set()),
        (narrow("clr.dll", chain=(*CLR, Private32(OTHER), Private32(CODE)), faults=True), {"medium"}),
        (narrow("clr.dll", chain=(*CLR, Private32(CODE))), {"medium"}),
        (
            narrow(
                *("clr.dll", "user32.dll"),
                chain=(*CLR, Private32(CODE), *WINDOW, Private32(CODE), CLR_WAIT),
            ),
            set(),
        ),
        (
            narrow(
                *("clr.dll", "user32.dll"),
                chain=(*CLR, Private32(CODE), *WINDOW, Private32(OTHER), CLR_WAIT),
                apart=False,
            ),
            set(),
        ),
        (narrow("jvm.dll", chain=(*JVM, Private32(CODE), Private32(CODE)), faults=True), set()),
        (narrow("jvm.dll", chain=(*JVM, Private32(CODE), "jvm!Monitor::wait")), set()),
        (narrow("lua51.dll", chain=("main", "lua51!lua_pcall", Private32(CODE)), faults=True), set()),
        (
            narrow("mono-2.0-bdwgc.dll", chain=(f"{MONO}!mono_runtime_invoke", Private32(CODE)), faults=True),
            set(),
        ),
        (narrow(chain=("main", "Call", Private32(CODE), "Wait"), exports=f"Call Wait {DECORATED}"), set()),
        (
            narrow(chain=("main", "Call", Private32(CODE)), exports="Call napi_get_cb_info", faults=True),
            set(),
        ),
        (narrow(chain=("main", "Call", Private32(CODE)), exports="Call Wait", faults=True), {"high"}),
    ],
)
def test_runtimes_of_32_bits_without_a_list(situation: Situation, expected: Set[str]) -> None:
    assert above_low(situation).get("unbacked", set()) == expected


def wide(
    *files: str,
    chain: Sequence[Union[str, int]],
    functions: str = "main",
    kind: str = entries.DEVICE,
    waits: bool = False,
) -> Situation:
    """A program of 64 bits with code that nothing registers; a number is a frame in the range of that number.

    Args:
        files: modules besides those that all have
        chain: who called whom
        functions: of the program
        kind: how it was interrupted
        waits: it waits instead
    """

    def make(host: Host64) -> None:
        program = host.program("tool.exe", *files, functions=functions)
        ranges = [program.jitted(0x2000, EXECUTE_READWRITE) for _ in range(2)]
        links: List[Link] = [Private(ranges[link]) if isinstance(link, int) else link for link in chain]
        thread = program.thread("main")
        if waits:
            program.waits(*links, WAIT_EX, thread=thread)
        else:
            program.interrupted(*links, kind=kind, thread=thread)

    return make


LUA = ("main", "lua51!lua_pcall", "lua51!lj_vm_call")
NODE = "main .v8::Execution::Call .Builtins_Wait"


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        (wide("lua51.dll", chain=(*LUA, 0)), set()),
        (wide("lua51.dll", chain=(*LUA, 0, 0, 0), kind=entries.PAGE_FAULT), set()),
        (wide("lua51.dll", chain=(*LUA, 0, "lua51!lua_sleep"), waits=True), set()),
        (wide("lua51.dll", chain=(*LUA, 0), waits=True), {"medium"}),
        (wide("lua51.dll", chain=(*LUA, 1, 0)), {"medium"}),
        (wide("lua51.dll", chain=(1, *LUA, 0)), {"medium"}),
        (wide("lua51.dll", chain=("main", 0)), {"high"}),
        (wide("lua51.dll", chain=("main", 0, "lua51!lj_vm_call", 0)), set()),
        (wide("lua51.dll", chain=("main", 1, "lua51!lj_vm_call", 0)), {"medium"}),
        (wide(chain=("main", "v8::Execution::Call", 0, 0), functions=NODE), set()),
        (wide(chain=("main", "v8::Execution::Call", 0, "Builtins_Wait"), functions=NODE, waits=True), set()),
        (wide(chain=("main", "Run", 0), functions=f"main .Run {DECORATED}"), set()),
        (wide(chain=("main", "Run", 0), functions="main .Run DotNetRuntimeInfo"), set()),
        (wide("mono-2.0-bdwgc.dll", chain=(f"{MONO.replace('.', '_')}!mono_runtime_invoke", 0)), set()),
        (wide("vk_swiftshader.dll", chain=("vk_swiftshader!sw::PixelProcessor::draw", 0)), set()),
        (wide("mpengine.dll", chain=("mpengine!ScanThread", "mpengine!DTContext::Run", 0, 0)), set()),
        (wide("mpengine.dll", chain=("mpengine!ScanThread", 0), kind=entries.PAGE_FAULT), set()),
    ],
)
def test_code_of_64_bits_that_nothing_registers(situation: Situation, expected: Set[str]) -> None:
    assert above_low(situation).get("unbacked", set()) == expected


@pytest.mark.parametrize(
    ("registered", "leaf", "expected"),
    [(True, True, set()), (True, False, {"medium"}), (False, True, {"high"})],
)
def test_a_barrier_that_clr_copies_to_memory_of_its_own(
    registered: bool, leaf: bool, expected: Set[str]
) -> None:
    """It has not moved the stack: managed code called it, and is registered."""

    def make(host: Host64) -> None:
        program = host.program("service.exe", "clr.dll", functions="main")
        base, stub = program.jitted(0x2000), program.jitted(0x1000)
        if registered:
            program.register((base, base + 0x2000))
        if leaf:
            program.interrupted("main", Private(base), at=stub + 0x80)
        else:
            program.interrupted("main", Private(base), Private(stub))

    rows = above_low(make).get("unbacked", set())
    assert rows == (expected if registered else {"high"})


NEW, OLD = 0x1111111122334455, 0x1111111199887766


def barrier_64(number: int, cards: int, grown: bool = False) -> bytes:
    """A barrier: store, compare with the limit of the young objects, mark the card."""
    other = b"\x49\xb8" + struct.pack("<Q", number + 0x100000) + b"\x49\x3b\xd0\x73\x19" if grown else b""
    compare = b"\x48\xb8" + struct.pack("<Q", number) + b"\x48\x3b\xd0\x72" + bytes((0x18 + len(other),))
    mark = b"\x48\xc1\xe9\x0b\x48\xb8" + struct.pack("<Q", cards)
    mark += b"\x80\x3c\x01\xff\x75\x02\xf3\xc3\xc6\x04\x01\xff\xc3"
    return b"\x48\x89\x11" + compare + b"\x90\x90" + other + mark


def barrier_32(number: int, cards: int, grown: bool = False) -> bytes:
    """The same of 32 bits: the place is in Edx."""
    compare = (b"\x81\xf9" if grown else b"\x3d") + struct.pack("<I", number & 0xFFFFFFFF) + b"\x72\x12"
    mark = b"\xc1\xea\x0a\x80\xba" + struct.pack("<I", cards & 0xFFFFFFFF) + b"\xff\x75\x01\xc3"
    return (b"\x89\x0a" if grown else b"\x89\x02") + compare + mark + b"\xc6\x82" + mark[5:9] + b"\xff\xc3"


@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize("grown", [False, True])
@pytest.mark.parametrize("tail", [b"", b"\xe8\0\0\0\0\xc3"])
def test_a_barrier_without_a_name(others: int, grown: bool, tail: bytes) -> None:
    """CLR wrote another body over it than in other processes; a call is no barrier's."""
    host = Host64(KERNEL)
    for number in range(others + 1):
        program = host.program(f"net{number}.exe", functions="main")
        code = barrier_64(OLD, OLD + 5).ljust(0x80, b"\xcc")
        module = program.load(
            "clr.dll", functions=".Run .Other", contents={0x1100: code, 0x1180: bytes(0x80)}
        )
        if not number:
            body = barrier_64(NEW, NEW + 7, grown) + tail
            program.process.space.write(module.base + 0x1100, body.ljust(0x80, b"\xcc"))
            program.interrupted("main", at=module.base + 0x1103)
    rows = [row for row in found(host.kernel.image(), "modified_code") if row["Severity"] != "low"]
    assert bool(rows) == bool(tail)


@pytest.mark.parametrize("others", [1, 3])
@pytest.mark.parametrize("grown", [False, True])
def test_a_barrier_of_32_bits_without_a_name(others: int, grown: bool) -> None:
    host = Host64(KERNEL)
    for number in range(others + 1):
        program = Program32(host, f"net{number}.exe", "clr.dll", functions="main")
        base = program.narrow.modules["clr"][0].base
        place = base + 0x1100
        program.wide.process.space.write_file(place, barrier_32(OLD, OLD + 5).ljust(0x80, b"\xcc"))
        if not number:
            program.wide.process.space.write(place, barrier_32(NEW, NEW + 7, grown).ljust(0x80, b"\xcc"))
            program.faults("main", "clr!Thread::intermediateThreadProc")
    assert not [row for row in found(host.kernel.image(), "modified_code") if row["Severity"] != "low"]


HOOKED = "ntdll!NtCreateFile"


def hooks_64(place: int, relay: int) -> Sequence[bytes]:
    """Hooks that reach far: by a register, by push and return, through a pointer."""
    low, high = struct.pack("<I", relay & 0xFFFFFFFF), struct.pack("<I", relay >> 32)
    return (
        b"\xe9" + struct.pack("<i", relay - place - 5),
        b"\x48\xb8" + struct.pack("<Q", relay) + b"\xff\xe0",
        b"\x68" + low + b"\xc7\x44\x24\x04" + high + b"\xc3",
        b"\xff\x25\0\0\0\0" + struct.pack("<Q", relay),
        b"\xff\x25" + struct.pack("<i", relay + 0x200 - place - 6),
    )


def relays_64(target: int) -> Sequence[bytes]:
    """Relays of other products than that of the machines."""
    address = struct.pack("<Q", target)
    return (
        b"\x51\x48\xb9" + address + b"\x48\x87\x0c\x24\xc3",
        b"\x41\x53\x49\xbb" + address + b"\x4c\x87\x1c\x24\xc3",
        b"\x48\x8d\x64\x24\xf8\x50\x48\xb8" + address + b"\x48\x89\x44\x24\x08\x58\xc3",
        b"\x9c\x50\x51\x52\x48\x83\xec\x28\x49\xba"
        + address
        + b"\x41\xff\xd2\x48\x83\xc4\x28\x5a\x59\x58\x9d\xc3",
        b"\x54\x48\x83\xec\x20\xff\x15\x02\0\0\0\xeb\x08" + address + b"\x48\x83\xc4\x20\x5c\xc3",
        b"\x68" + address[:4] + b"\xc7\x44\x24\x04" + address[4:] + b"\xc3",
    )


@pytest.mark.parametrize(
    ("hook", "relay", "processes"),
    [(0, 0, 4), (1, 1, 2), (2, 2, 4), (3, 3, 2), (4, 4, 4), (0, 5, 2), (3, 0, 4), (2, 3, 2)],
)
def test_hooks_of_a_product_in_all_processes(hook: int, relay: int, processes: int) -> None:
    """A thread waits in the hooked function, in each process behind another relay."""
    host = Host64(KERNEL)
    for number in range(processes):
        program = host.program(f"app{number}.exe", "guard.dll", functions="main")
        place, space = program.at(HOOKED), program.process.space
        base = place // 0x10000 * 0x10000 + 0x8000000 + (number + 1) * 0x130000
        program.process.region(base, size=0x1000, protection=EXECUTE_READ)
        space.write(base, relays_64(program.at("guard!HookNtCreateFile"))[relay])
        space.write_int(base + 0x200, base, 8)
        space.write(place, hooks_64(place, base)[hook])
        program.waits("main", "kernelbase!CreateFileW", call=HOOKED)
    assert not [row for row in found(host.kernel.image()) if row["Severity"] != "low"]


def relays_32(relay: int, target: int) -> Sequence[bytes]:
    """Relays of 32 bits."""
    address, distance = struct.pack("<I", target), struct.pack("<i", target - relay - 7)
    return (
        b"\x50\xb8" + address + b"\x87\x04\x24\xc3",
        b"\x9c\x60\xe8" + distance + b"\x61\x9d\xc3",
        b"\x51\xb9" + address + b"\xff\xd1\x59\xc3",
        b"\x83\xec\x04\xc7\x04\x24" + address + b"\xc3",
    )


@pytest.mark.parametrize("relay", range(4))
@pytest.mark.parametrize("hook", [b"\xe9", b"\x68"])
def test_hooks_of_a_product_in_32_bit_halves(relay: int, hook: bytes) -> None:
    host = Host64(KERNEL)
    for number in range(4):
        program = Program32(host, f"app{number}.exe", "guard32.dll", functions="main")
        place, space = program.narrow.at("ntdll!NtWaitForSingleObject"), program.narrow.space
        base = 0x22000000 + number * 0x130000
        program.wide.process.region(base, size=0x1000, protection=EXECUTE_READ)
        target = program.narrow.at("guard32!HookNtCreateFile")
        space.write(base, relays_32(base, target)[relay])
        led = b"\x68" + struct.pack("<I", base) + b"\xc3"
        space.write(place, led if hook == b"\x68" else hook + struct.pack("<i", base - place - 5))
        program.waits("main", WAIT_EX_32)
    assert not [row for row in found(host.kernel.image()) if row["Severity"] != "low"]


@pytest.mark.parametrize("kernel", ["win7-x64", "win10-x64", "win11-x64"])
def test_a_program_with_two_names(kernel: str) -> None:
    assert above_low(lambda host: programs.hard_link(host, "rustc.exe"), kernel) == {}


@pytest.mark.parametrize(
    "code",
    [
        b"\x0f\x01\xc1\xc3".ljust(0x1000, b"\x90"),
        b"\x0f\x01\xd9\xc3".ljust(0x1000, b"\xcc"),
        (b"\x0f\x01\xc1\xc3\x8b\xc8\xb8\x11\0\0\0\x0f\x01\xc1\xc3").ljust(0x1000, b"\0"),
    ],
)
def test_the_hypervisors_page(code: bytes) -> None:
    assert above_low(lambda host: programs.hypercall(host, code)) == {}


@pytest.mark.parametrize(
    ("module", "functions", "path"),
    [
        ("cygwin1.dll", "._sigbe .call", "C:\\cygwin64\\bin\\cygwin1.dll"),
        ("boost_context.dll", "._finish .call", f"{VENDOR}boost_context.dll"),
        ("msvcrt-ruby320.dll", ".coroutine_transfer .call", "C:\\Ruby32-x64\\bin\\msvcrt-ruby320.dll"),
    ],
)
@pytest.mark.parametrize("offset", [0, 0x11, 0x33])
@pytest.mark.parametrize("ground", [True, False])
def test_an_address_that_hand_written_code_pushed(
    module: str, functions: str, path: str, offset: int, ground: bool
) -> None:
    """Its own module has it pushed: the first address of a function, or one in the middle."""

    def make(host: Host64) -> None:
        program = host.program("shell.exe", functions="main work")
        program.load(module, functions=functions, key="lib", path=path)
        thread = program.thread("main")
        pushed, call = (f"lib!{name.lstrip('.')}" for name in functions.split())
        if ground:
            program.waits("main", pushed, call, WAIT_EX, thread=thread)
            low, size = thread.user_stack_limit, thread.user_stack_base - thread.user_stack_limit
        else:
            low, size = program.process.space.reserve(0x4000), 0x4000
            program.process.region(low, size=size)
            assert thread.teb is not None
            thread.teb["NtTib.StackBase"], thread.teb["NtTib.StackLimit"] = low + size, low
            program.waits(call, WAIT_EX, ground=(pushed,), base=low + size, thread=thread)
        base, routine = program.frame(pushed)
        space = program.process.space
        place = next(
            at for at in range(low, low + size, 8) if space.read_int(at, 8) == base + routine.returns()
        )
        space.write_int(place, base + routine.rva + offset, 8)

    assert above_low(make) == {}


FAR = struct.Struct("<Q")


@pytest.mark.parametrize(
    ("form", "file", "function"),
    [
        ("4c8d15f9ffffff ff2503000000 0f1f00 TARGET", "libffi-8.dll", "libffi-8!ffi_closure_win64_inner"),
        ("49ba 8877665500000000 48b8 TARGET 48ffe0", "clr.dll", "clr!CallDescrWorkerInternal"),
        ("4c8b1506000000 ff2508000000 9090909090909090 TARGET", "clr.dll", "clr!CallDescrWorkerInternal"),
        ("48b9 8877665500000000 48b8 TARGET ffe0", "_ctypes.dll", "_ctypes!closure_fcn"),
    ],
)
def test_a_thread_that_was_started_at_a_closure(form: str, file: str, function: str) -> None:
    def make(host: Host64) -> None:
        program = host.program("script.exe", file, functions="main")
        base = program.process.space.reserve(0x1000)
        code = bytes.fromhex(form.replace("TARGET", FAR.pack(program.at(function)).hex()))
        program.process.region(base, code, size=0x1000, protection=EXECUTE_READWRITE)
        program.waits(function, WAIT_EX, thread=program.thread(win32_start=base))

    assert above_low(make) == {}


@pytest.mark.parametrize(
    ("form", "file", "function"),
    [
        ("b8 88776655 b9 TARGET ffe1", "clr.dll", "clr!CallDescrWorkerInternal"),
        ("68 88776655 b8 TARGET ffe0", "jvm.dll", "jvm!Monitor::wait"),
    ],
)
def test_a_thread_of_32_bits_that_was_started_at_a_closure(form: str, file: str, function: str) -> None:
    def make(host: Host64) -> None:
        program = Program32(host, "script.exe", file, functions="main")
        code = form.replace("TARGET", struct.pack("<I", program.narrow.at(function)).hex())
        program.wide.process.region(CODE, size=SIZE, protection=EXECUTE_READWRITE)
        program.narrow.space.write(CODE, bytes.fromhex(code))
        program.waits(function, WAIT_EX_32)
        program.wide.process.threads[-1].ethread["Win32StartAddress"] = CODE

    assert above_low(make) == {}


@pytest.mark.parametrize("size", [0x1000, 0x3000, 0x80000])
@pytest.mark.parametrize("file", ["", "guard.dll"])
def test_a_size_that_a_protector_wrote(size: int, file: str) -> None:
    def make(host: Host64) -> None:
        program = host.program("copyguard.exe", *([file] if file else []), functions="main")
        entry = program.modules[file.partition(".")[0]][0].entry
        assert entry is not None
        entry["SizeOfImage"] = size
        program.waits("main", *(["guard!HookNtCreateFile"] if file else []), WAIT_EX)

    assert above_low(make) == {}


@pytest.mark.parametrize(("offset", "control"), [(0x1C, 0xF0401), (0x20, 0x30401), (0x1C, 0x90401)])
def test_a_guard_of_export_tables(offset: int, control: int) -> None:
    def make(host: Host64) -> None:
        program = host.program("winword.exe", functions="main")
        thread = program.thread()
        program.waits("main", WAIT_EX, thread=thread)
        base = program.modules["ntdll"][0].base
        breaks_at(host, thread, base + program.process.space.read_int(base + 0x108, 4) + offset)
        frame = thread.kthread["TrapFrame"] + host.kernel.isf.offset("_KTRAP_FRAME", "Dr7")
        host.kernel.space.write_int(frame, control, 8)

    assert above_low(make) == {}
