# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Attacks the rules that lower a finding: docs/trust.md has a row for each write that achieves it.

An attack forges the same evidence twice, without and with the write.
"""

from __future__ import annotations

import pathlib
import struct
from typing import Callable, Dict, Iterator, Tuple

import pytest

from tests.forge.dump import Image
from tests.forge.paging import State
from tests.forge.phys import PAGE
from tests.forge.vad import EXECUTE_READWRITE
from tests.machines.implants import memory
from tests.support.callstackimages import STUB
from tests.support.callstackimages import WAIT_EX as WAITS
from tests.support.clean import codelists, libraries
from tests.support.clean.host64 import JITTED, Host64, Private, Program
from tests.support.clean.narrow import Private32, code_of
from tests.support.clean.wow import Program32
from tests.support.findingimages import PRIVATE, RETURNS, TID, FindingImage, found
from tests.support.only import only
from winstacks.options import SEVERITIES

from .checks.test_context_on_stack import PreparedContext
from .checks.test_kernel import AWAY, on_a_thread_of_the_kernel, process_of, processes, recorded, unlink
from .checks.test_modified_code import OTHER_CODE, RELAYS, changed, hook, relay
from .checks.test_module_mismatch import renamed, unlisted
from .checks.test_syscall_outside import Calling
from .checks.test_truncated import cut
from .code import test_lostsections as lostsections
from .code.test_returns import ELSEWHERE, library

KERNEL = "win10-x64"
TRUST = pathlib.Path(__file__).resolve().parents[3] / "docs" / "trust.md"
HEADING = "## Writes that make a finding low"
NONE = "none"
CLR, WAIT_EX, SLEEP = "clr!CallDescrWorkerInternal", "kernelbase!WaitForSingleObjectEx", "kernelbase!SleepEx"
NARROW = 0x21000000
VENDOR = "C:\\Program Files\\Vendor\\vendor.dll"


def returning() -> FindingImage:
    """A thread that returns to private executable memory."""
    forged = FindingImage(KERNEL)
    forged.private()
    forged.returns_to(RETURNS)
    return forged


def function_table(write: bool) -> Image:
    forged = returning()
    if write:
        forged.register_table(PRIVATE, PRIVATE + 0x1000)
    return forged.image()


def list_of_tables(write: bool) -> Image:
    host, program, base = wide("mpengine.dll")
    program.waits("main", "mpengine!DTContext::Run", Private(base), WAIT_EX)
    image = host.kernel.image()
    if write:
        head = program.modules["ntdll"][0].base + libraries.HEAD_RVA
        program.process.space.write(head, bytes(16))
        program.process.space.set_state(head - head % PAGE, PAGE, State.PAGEFILE)
    return image


def clr_range(write: bool) -> Image:
    host = Host64(KERNEL)
    program = Program32(host, "app.exe", "clr.dll", functions="main")
    program.wide.process.region(NARROW, size=0x4000, protection=EXECUTE_READWRITE)
    program.narrow.space.write(NARROW + 0x100, code_of(JITTED))
    codelists.clr(program.narrow, NARROW, NARROW + (0x4000 if write else 0x100))
    program.waits(CLR, Private32(NARROW), WAIT_EX)
    return host.kernel.image()


def clr_list(write: bool) -> Image:
    """The list lacks the code; without CLR's variables nothing leads to the list."""
    host = Host64(KERNEL)
    program = Program32(host, "app.exe", "clr.dll", functions="main")
    program.wide.process.region(NARROW, size=0x4000, protection=EXECUTE_READWRITE)
    program.narrow.space.write(NARROW + 0x100, code_of(JITTED))
    codelists.clr(program.narrow, NARROW, NARROW + 0x100)
    program.waits(CLR, Private32(NARROW), WAIT_EX)
    image = host.kernel.image()
    if write:
        module = program.narrow.modules["clr"][0]
        program.narrow.space.set_state(module.base + libraries.DATA_RVA, PAGE, State.PAGEFILE)
        assert module.section is not None
        module.section.set_state(libraries.DATA_RVA, PAGE, State.PAGEFILE)
    return image


def wide(*files: str) -> Tuple[Host64, Program, int]:
    """A program and private executable memory in it."""
    host = Host64(KERNEL)
    program = host.program("app.exe", *files, functions="main")
    return host, program, program.jitted(0x2000, EXECUTE_READWRITE)


def beside_a_runtime(write: bool) -> Image:
    host, program, base = wide("mpengine.dll")
    program.waits("main", *(["mpengine!DTContext::Run"] if write else []), Private(base), WAIT_EX)
    return host.kernel.image()


def interrupted_below_a_runtime(write: bool) -> Image:
    host, program, base = wide("mpengine.dll")
    function = "mpengine!DTContext::Run" if write else "kernelbase!WaitForSingleObjectEx"
    program.interrupted("main", function, at=base + JITTED.rva)
    return host.kernel.image()


def interrupted_below_a_module(write: bool) -> Image:
    host = Host64(KERNEL)
    program = host.program("app.exe", functions="main Work", folder="C:\\Program Files\\Vendor")
    *_, base = (program.jitted() for _ in range(4))
    function = "Work" if write else "kernelbase!WaitForSingleObjectEx"
    program.interrupted("main", function, at=base + JITTED.rva)
    return host.kernel.image()


def _pivoted(folder: str = "", limits: bool = False) -> Image:
    host = Host64(KERNEL)
    program = host.program("app.exe", functions="main", folder=folder)
    stack = program.process.space.reserve(0x4000)
    program.process.region(stack, size=0x4000)
    thread = program.thread()
    program.waits("main", WAIT_EX, base=stack + 0x4000, thread=thread)
    assert thread.teb is not None
    if limits:
        thread.teb["NtTib.StackBase"], thread.teb["NtTib.StackLimit"] = stack + 0x4000, stack
    return host.kernel.image()


def limits(write: bool) -> Image:
    return _pivoted(limits=write)


def module_on_the_stack(write: bool) -> Image:
    return _pivoted("C:\\Program Files\\Vendor" if write else "")


def lost_exports(write: bool) -> Image:
    host, program, base = wide()
    module = program.load("vendor.dll", functions="Run", path=VENDOR)
    program.waits("main", "vendor!Run", Private(base), WAIT_EX)
    image = host.kernel.image()
    if write:
        headers = program.process.space.read_int(module.base + 0x3C, 4)
        exports = module.base + program.process.space.read_int(module.base + headers + 0x88, 4)
        program.process.space.write(exports, bytes(8))
        program.process.space.set_state(exports - exports % PAGE, PAGE, State.PAGEFILE)
        assert module.section is not None
        rva = exports - module.base
        module.section.set_state(rva - rva % PAGE, PAGE, State.PAGEFILE)
    return image


def leaf_below_registered_code(write: bool) -> Image:
    host, program, base = wide("clr.dll")
    managed = program.jitted()
    program.register((managed, managed + 0x2000))
    if write:
        program.interrupted("main", Private(managed), at=base + JITTED.rva)
    else:
        program.interrupted("main", Private(managed), Private(base))
    return host.kernel.image()


def lost_stack(write: bool) -> Image:
    host, program, base = wide("mpengine.dll")
    thread = program.thread()
    program.interrupted("main", Private(base), thread=thread)
    image = host.kernel.image()
    if write:
        program.process.space.set_state(thread.user_stack_limit, 0x4000, State.PAGEFILE)
    return image


def guessed_way(write: bool) -> Image:
    forged = FindingImage(KERNEL)
    forged.private()
    forged.returns_to(PRIVATE + 0x20)
    if write:
        forged.stacks.modules["kernelbase"].write(WAITS.rva + 0x60, b"\x90")
    return forged.image()


def by_way_of_a_module(write: bool) -> Image:
    host = Host64(KERNEL)
    program = host.program("app.exe", functions="main")
    program.load("vendor.dll", functions="Wait", path=VENDOR)
    base = memory(program, masked=True)
    program.waits("main", Private(base), *(["vendor!Wait"] if write else []), WAIT_EX)
    return host.kernel.image()


def sandbox(write: bool) -> Image:
    forged = Calling(KERNEL)
    forged.from_private()
    if write:
        forged.thunk(forged.stacks.modules["app"].base + 0x1100)
    return forged.image()


def in_a_relay(write: bool) -> Image:
    forged = changed(KERNEL, 0x1800, b"\xcc", beside=3)
    target = forged.app.module("guard.dll", exports={"Hook": 0x1100}).base + 0x1100
    for number, process in enumerate(process for process in forged.kernel.processes if process.pid >= 1000):
        if process is not forged.app:
            process.module("guard.dll", target - 0x1100)
        relay(forged, process, number, target, RELAYS[2])
    at = forged.stacks.modules["ntdll"].base + 0x1000000 + (0x20 if write else 0x400)
    forged.app.space.write(at, b"\x48\xff\xc0\xff\xd0")
    forged.returns_to(at + 5)
    return forged.image()


def write_barrier(write: bool) -> Image:
    forged = FindingImage(KERNEL)
    name = "JIT_WriteBarrier" if write else "JIT_New"
    module = forged.app.module("clr.dll", exports={name: 0x1100}, contents={0x1100: bytes(0x100)})
    for number in range(3):
        other = forged.beside(f"other{number}.exe", 2000 + 4 * number)
        other.module("clr.dll", module.base, exports={name: 0x1100}, contents={0x1100: bytes(0x100)})
    forged.app.space.write(module.base + 0x1108, b"\xcc" * 0x30)
    forged.interrupted_at(module.base + 0x1110)
    return forged.image()


def jump_into_an_image(write: bool) -> Image:
    forged = changed(KERNEL, 0x1800, b"\xcc")
    entry = forged.stacks.modules["ntdll"].base + 0x1100
    if write:
        hook(forged, forged.stacks.modules["kernelbase"].base + 0x1100)
    else:
        forged.app.space.write(entry, b"\xcc\xcd\xce")
    return forged.image()


def vad_of_another_file(write: bool) -> Image:
    forged = changed(KERNEL, STUB.rva, OTHER_CODE)
    image = forged.image()
    if write:
        lostsections.name_another(forged)
    return image


def lost_section(write: bool) -> Image:
    forged = lostsections.with_ntdll(everywhere=True)
    image = forged.image()
    if write:
        lostsections.write_member(forged, "_MMVAD", "FirstPrototypePte", 0)
    return image


def loader_list(write: bool) -> Image:
    forged = changed(KERNEL, STUB.rva, OTHER_CODE)
    image = forged.image()
    if write:
        assert forged.app.peb is not None
        forged.app.peb["Ldr"] = 0
    return image


def no_call(write: bool) -> Image:
    forged = FindingImage(KERNEL)
    module = library(forged, ELSEWHERE, b"", None, VENDOR if write else None)
    forged.returns_to(module.base + ELSEWHERE)
    return forged.image()


def closure(write: bool) -> Image:
    forged = FindingImage(KERNEL)
    forged.private()
    target = forged.app.module("vendor.dll", path=VENDOR, exports={"Run": 0x1100}).base + 0x1100
    if write:
        forged.app.space.write(PRIVATE + 0x40, b"\x48\xb8" + struct.pack("<Q", target) + b"\xff\xe0")
    forged.thread.ethread["Win32StartAddress"] = PRIVATE + 0x40
    return forged.image()


def export_guard(write: bool) -> Image:
    forged = FindingImage(KERNEL)
    base, space = forged.stacks.modules["ntdll"].base, forged.app.space
    exports = base + space.read_int(base + space.read_int(base + 0x3C, 4) + 0x88, 4)
    forged.breaks_at(exports + 0x1C if write else base + 0x1100, 0x30401)
    return forged.image()


def debugger(write: bool) -> Image:
    forged = FindingImage(KERNEL)
    forged.breaks_at(forged.stacks.modules["ntdll"].base + 0x1100, 0x401)
    if write:
        forged.app.eprocess["DebugPort"] = forged.kernel.base + 0x10000
    return forged.image()


def exception_record(write: bool) -> Image:
    context = PreparedContext(KERNEL)
    if write:
        context.raised()
    return context.forged.image()


def fiber(write: bool) -> Image:
    forged = FindingImage(KERNEL)
    cut(forged, left=2)
    image = forged.image()
    assert forged.thread.teb is not None
    forged.thread.teb["HasFiberData"] = int(write)
    return image


def switching_runtime(write: bool) -> Image:
    forged = FindingImage(KERNEL)
    cut(forged, left=2)
    if write:
        forged.app.module("lua51.dll")
    return forged.image()


def dot_net_header(write: bool) -> Image:
    return unlisted(KERNEL, 1 if write else None, "clr.dll").image()


def list_of_modules(write: bool) -> Image:
    kernel = recorded(KERNEL, AWAY + 0x105)
    kernel.module("tcpip.sys")
    image = kernel.image()
    if write:
        kernel.space.write_int(kernel.symbol("PsLoadedModuleList"), 0, 8)
    return image


def list_of_unloaded(write: bool) -> Image:
    kernel = recorded(KERNEL, AWAY + 0x105)
    kernel.unloaded("gone.sys", kernel.base + 2 * AWAY, kernel.base + 2 * AWAY + 0x4000)
    image = kernel.image()
    if write:
        kernel.space.write_int(kernel.space.read_int(kernel.symbol("MmUnloadedDrivers")) + 0x10, 0, 8)
    return image


def unloaded_module(write: bool) -> Image:
    return recorded(KERNEL, AWAY + 0x105, gone=write).image()


def thread_state(write: bool) -> Image:
    kernel = processes(KERNEL)
    app = process_of(kernel, 1008)
    app.thread(1012)
    thread = app.thread(1028, state=0 if write else 5)
    image = kernel.image()
    unlink(kernel, thread.ethread.at("ThreadListEntry"))
    return image


def own_name(write: bool) -> Image:
    return renamed(KERNEL, "setup.tmp", "stacks.pdb" if write else "calc.pdb").image()


def into_a_vendor(write: bool) -> Image:
    forged = changed(KERNEL, 0x1800, b"\xcc", beside=3)
    target = forged.app.module("vendor.dll", path=VENDOR, exports={"Run": 0x1100}).base + 0x1100
    relay(forged, forged.app, 0, target if write else 0x1234, RELAYS[0])
    return forged.image()


def work_item(write: bool) -> Image:
    return on_a_thread_of_the_kernel(*["ExpWorkerThread"] * write).kernel.image()


ATTACKS: Dict[str, Tuple[str, Callable[[bool], Image]]] = {
    "a registered function table": ("unbacked", function_table),
    "a range in CLR's list": ("unbacked", clr_range),
    "the runtime's frame beside it": ("unbacked", beside_a_runtime),
    "the exports of the caller are lost": ("unbacked", lost_exports),
    "interrupted below a runtime": ("unbacked", interrupted_below_a_runtime),
    "interrupted below a module of the program": ("unbacked", interrupted_below_a_module),
    "the list of function tables, beside a runtime": ("unbacked", list_of_tables),
    "a runtime's own list, beside the runtime": ("unbacked", clr_list),
    "a leaf below registered code": ("unbacked", leaf_below_registered_code),
    "the stack above is lost": ("unbacked", lost_stack),
    "the way to the frame is a guess": ("unbacked", guessed_way),
    "a call of Windows through another module": ("unbacked", by_way_of_a_module),
    "the relay of a hook": ("unbacked", in_a_relay),
    "a sandbox's copy of a stub": ("syscall_outside", sandbox),
    "a write barrier of CLR": ("modified_code", write_barrier),
    "an entry that jumps into an image": ("modified_code", jump_into_an_image),
    "a loader list that leads nowhere": ("modified_code", loader_list),
    "a VAD that names another file": ("modified_code", vad_of_another_file),
    "a lost image section": ("modified_code", lost_section),
    "no call outside Windows' DLLs": ("no_call", no_call),
    "a start that jumps as a closure does": ("start_mismatch", closure),
    "a breakpoint on data of an export table": ("debug_registers", export_guard),
    "a debugger": ("debug_registers", debugger),
    "an exception's record beside a CONTEXT": ("context_on_stack", exception_record),
    "the limits of the stack": ("stack_pivot", limits),
    "a module outside Windows' folder on the stack": ("stack_pivot", module_on_the_stack),
    "a fiber": ("truncated", fiber),
    "a runtime that switches stacks": ("truncated", switching_runtime),
    "a .NET image in no list": ("module_mismatch", dot_net_header),
    "the loader's name in the file's own headers": ("module_mismatch", own_name),
    "a relay that leads into a program's DLL": ("modified_code", into_a_vendor),
    "a worker thread of the kernel": ("kernel_no_module", work_item),
    "a damaged list of modules": ("kernel_no_module", list_of_modules),
    "a list of unloaded drivers with impossible values": ("kernel_no_module", list_of_unloaded),
    "a module that was unloaded": ("kernel_no_module", unloaded_module),
    "a thread that never ran": ("hidden", thread_state),
}
"""The check and the attack of each row of the table."""


def rows_of_the_page() -> Iterator[Tuple[str, str, str]]:
    """Yields the rows of the table in docs/trust.md: rule, severities before and after, write."""
    text = TRUST.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith("| rule"):
            rule, severities, write, *_ = (cell.strip() for cell in line.strip("|").split(" | "))
            yield rule, severities.replace("`", ""), write


def worst(image: Image, check: str) -> str:
    """Returns the worst severity of a check."""
    severities = [
        row["Severity"] for row in found(image, check) if row["PID"] in (0, 1000, 1008) or row["TID"] != TID
    ]
    return min(severities, key=SEVERITIES.index, default=NONE)


def test_each_row_of_the_page_is_tried() -> None:
    rows = list(rows_of_the_page())
    assert [rule for rule, _, _ in rows] == list(ATTACKS)
    assert all(write for _, _, write in rows)


@pytest.mark.parametrize("rule", ATTACKS)
def test_one_write(rule: str) -> None:
    expected = only(severities for name, severities, _ in rows_of_the_page() if name == rule)
    check, forge = ATTACKS[rule]
    assert f"{worst(forge(False), check)} to {worst(forge(True), check)}" == expected
