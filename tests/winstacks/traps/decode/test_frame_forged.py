# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Forged frames of every kind over every poison, and bytes that an adversary chose."""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Optional, Set, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forge import kernels, trapframes
from tests.forge import trapentries as entries
from tests.forge.code import RBP, RBX, RSI, Routine, trap_handler
from tests.forge.trapentries import X64, X86_BLUE, X86_OLD, Entry
from tests.support import traplayouts
from tests.support.deep import rounds
from tests.support.trapsets import (
    FILLS,
    KERNEL_64,
    KERNEL_86,
    LINKAGE,
    USER_64,
    USER_86,
    every_entry,
    expected_kind,
    filled,
    registers_64,
    registers_86,
)
from winstacks.columns.registers import REGISTERS
from winstacks.names.decode.unwindinfo import read_unwind_info
from winstacks.traps.decode.frame import NO_FACTS, EntryFacts, TrapBounds, TrapFrameLayout

TABLES = {
    X64: ("win7-x64", "win10-x64", "win11-x64"),
    X86_OLD: ("xp-x86", "win7-x86"),
    X86_BLUE: ("win10-x86",),
}
BOUNDS = {
    X64: TrapBounds(0x7FFFFFF0000, 0xFFFF800000000000, (0xFFFFF80001000000, 0xFFFFF80001400000)),
    X86_OLD: TrapBounds(0x7FFF0000, 0x80000000),
    X86_BLUE: TrapBounds(0x7FFF0000, 0x80000000),
}


def place(entry: Entry, architecture: str) -> int:
    if architecture == X64:
        if entry.kind == entries.NMI:
            return 0xFFFFFADFF0045E70
        kernel = trapframes.kernel_address(X64, entry.kind, KERNEL_64)
        return kernel if entry.mode == "kernel" else USER_64
    return KERNEL_86 - 0x74 if entry.mode == "kernel" else USER_86


def forms(architecture: str) -> List[TrapFrameLayout]:
    return [traplayouts.trap_frame_layout(kernels.load(name).table) for name in TABLES[architecture]]


def make(architecture: str, entry: Entry, poison: trapframes.Poison) -> Tuple[int, trapframes.Forged]:
    registers = registers_64(entry.mode) if architecture == X64 else registers_86(entry.mode)
    address = place(entry, architecture)
    return address, trapframes.forge(architecture, entry, registers, address, poison)


def facts_of(architecture: str, entry: Entry) -> EntryFacts:
    return EntryFacts(
        service_linkage=LINKAGE[architecture] if architecture == X64 else 0,
        saves_arguments=entry.mitigated,
        system_call_return=registers_86("user")["system_call_return"],
        clears_dr7=entry.clears_dr7,
    )


def check(architecture: str, entry: Entry, poison: trapframes.Poison) -> Dict[str, int]:
    address, forged = make(architecture, entry, poison)
    for form in forms(architecture):
        frame = form.decode(address, forged.data, facts_of(architecture, entry))
        where = f"{architecture} {entry}"
        shown = {name: value for name, value in frame.registers.items() if name in forged.expected}
        assert shown == forged.expected, where
        assert set(frame.registers) - set(forged.expected) <= set(frame.unsure), where
        assert frame.kind == expected_kind(entry, architecture), where
        assert frame.mode == ("kernel" if entry.mode == "kernel" else "user"), where
    return {"expected": len(forged.expected), "unsure": len(frame.unsure)}


@pytest.mark.parametrize("architecture", [X64, X86_OLD, X86_BLUE])
@pytest.mark.parametrize("fill", FILLS)
def test_every_kind_over_every_fill(architecture: str, fill: bytes) -> None:
    for entry in every_entry(architecture):
        check(architecture, entry, filled(fill))


@settings(max_examples=rounds(60), deadline=None)
@given(
    data=st.binary(min_size=0x190, max_size=0x190),
    architecture=st.sampled_from([X64, X86_OLD, X86_BLUE]),
    choice=st.integers(0, 1 << 16),
)
def test_any_poison(data: bytes, architecture: str, choice: int) -> None:
    known = list(every_entry(architecture))
    check(architecture, known[choice % len(known)], lambda address, length: data[:length])


@pytest.mark.parametrize("architecture", [X64, X86_OLD, X86_BLUE])
def test_every_kind_is_found_on_a_stack(architecture: str) -> None:
    for entry in every_entry(architecture):
        address, forged = make(architecture, entry, filled(b"\0"))
        bounds = BOUNDS[architecture]
        if entry.kind == entries.NMI:
            bounds = bounds._replace(ist_tops=frozenset([address + 0x190]))
        for form in forms(architecture):
            marked = architecture == X64 or entry.kind != entries.NMI
            assert form.accepts(address, forged.data, bounds) == marked, entry


@settings(max_examples=rounds(300), deadline=None)
@given(
    data=st.binary(min_size=0x190, max_size=0x190),
    name=st.sampled_from([name for names in TABLES.values() for name in names]),
    address=st.integers(0, (1 << 64) - 1),
    code_segment=st.sampled_from([0x10, 0x33, 0x23, 8, 0x1B]),
    active=st.integers(0, 3),
)
def test_any_bytes_decode_without_a_fault(
    data: bytes, name: str, address: int, code_segment: int, active: int
) -> None:
    form = traplayouts.trap_frame_layout(kernels.load(name).table)
    changed = bytearray(data)
    for member, value in (("SegCs", code_segment), ("ExceptionActive", active), ("FrameType", active)):
        if member in form.members:
            changed[form.members[member].offset] = value
    frame = form.decode(address, bytes(changed))
    assert set(frame.unsure) <= set(frame.registers) <= set(REGISTERS)
    assert len(list(form.list_members(frame, bytes(changed)))) == len(form.members)


@given(cut=st.integers(0, 0x190))
def test_a_cut_frame_is_none(cut: int) -> None:
    form = forms(X64)[0]
    assert not form.accepts(USER_64, bytes(cut), BOUNDS[X64])
    form.decode(USER_64, bytes(cut))


def test_a_system_call_whose_thread_is_instrumented() -> None:
    """DebugActive without debug registers in use: the arguments may have been stored."""
    address, forged = make(X64, Entry(entries.SYSCALL, "user64"), filled(b"\x07"))
    frame = forms(X64)[0].decode(address, forged.data, EntryFacts(debug_active=2))
    assert set(frame.unsure) == {"Rax", "Rdx", "R8", "R9"}
    assert "Rcx" not in frame.registers


def test_three_slots_with_the_first_argument() -> None:
    entry = Entry(entries.SYSCALL, "user64", mitigated=True)
    address, forged = make(X64, entry, filled(b"\0"))
    data = bytearray(forged.data)
    data[0x58:0x68] = data[0x38:0x40] * 2
    frame = forms(X64)[0].decode(address, bytes(data), facts_of(X64, entry))
    assert set(frame.unsure) == {"R8", "R9", "R10"}
    assert frame.registers["R10"] == registers_64("user64")["r10"]
    assert "R11" not in frame.registers
    assert "Rcx" not in frame.registers


def test_the_way_out_into_an_apc() -> None:
    entry = Entry(entries.SYSCALL, "user64", mitigated=True)
    address, forged = make(X64, entry, filled(b"\0"))
    data = bytearray(forged.data)
    data[0x30:0x68] = (0x103).to_bytes(8, "little") + bytes(0x30)
    frame = forms(X64)[0].decode(address, bytes(data), facts_of(X64, entry))
    assert set(frame.unsure) == {"Rax", "Rdx"}


def test_a_service_that_an_exception_could_have_left() -> None:
    """Zeros in the slots that a service does not write, and KiServiceLinkage's address is not known."""
    address, forged = make(X64, Entry(entries.ZW, "kernel", linkage=LINKAGE[X64]), filled(b"\0"))
    frame = forms(X64)[0].decode(address, forged.data, NO_FACTS)
    assert frame.kind == ""
    assert set(frame.unsure) == set(frame.registers)


@pytest.mark.parametrize("stale", [0, 1])
def test_a_trap_that_a_service_could_have_left(stale: int) -> None:
    """x86: Edx is 0 in both the register's slot and the argument pointer's, over an older mode byte."""
    registers = dict(registers_86("user"), edx=0)
    data = bytearray(
        trapframes.forge(X86_OLD, Entry(entries.DEVICE, "user"), registers, USER_86, filled(b"\x77")).data
    )
    data[0x48:0x4C] = stale.to_bytes(4, "little")
    frame = forms(X86_OLD)[0].decode(USER_86, bytes(data))
    assert frame.kind == ""
    assert set(frame.unsure) == {"Rax", "Rcx", "Rdx", "ErrorCode", "SegGs", "SegEs", "SegDs"}


@pytest.mark.parametrize(("active", "shown"), [(None, "unsure"), (0, "absent"), (3, "sure")])
def test_debug_registers_of_a_kernel_that_does_not_clear_them(active: Optional[int], shown: str) -> None:
    """5.1: what the slots hold may be stale, and the thread says whether it uses the registers."""
    entry = Entry(entries.FAULT, "user", debug=True, clears_dr7=False)
    address, forged = make(X86_OLD, entry, filled(b"\0"))
    frame = forms(X86_OLD)[0].decode(
        address, forged.data, facts_of(X86_OLD, entry)._replace(debug_active=active)
    )
    names = {"Dr0", "Dr1", "Dr2", "Dr3", "Dr6", "Dr7"}
    assert names & set(frame.registers) == (set() if shown == "absent" else names)
    assert names & set(frame.unsure) == (names if shown == "unsure" else set())


@pytest.mark.parametrize(
    ("code", "shown"), [(0x7FFFFFFF, True), (0x80000000, True), (0xFFFFFFFF, True), (1 << 32, False)]
)
def test_what_may_be_an_error_code_has_32_bits(code: int, shown: bool) -> None:
    """Bit 31 is one of a page fault's (AMD64 Architecture Programmer's Manual, volume 2, RMP violations)."""
    address, forged = make(X64, Entry(entries.PAGE_FAULT, "kernel"), filled(b"\0"))
    form = forms(X64)[0]
    data, (offset, size) = bytearray(forged.data), form.members["ErrorCode"][:2]
    data[offset : offset + size] = code.to_bytes(size, "little")
    frame = form.decode(address, bytes(data), NO_FACTS)
    assert frame.kind == "exception"
    assert frame.registers.get("ErrorCode") == (code if shown else None)
    assert ("ErrorCode" in frame.unsure) == shown


def test_a_service_called_from_the_kernel_saves_no_ecx() -> None:
    for mode, shown in (("kernel", False), ("user", True)):
        entry = Entry(entries.INT2E, mode)
        address, forged = make(X86_OLD, entry, filled(b"\0"))
        frame = forms(X86_OLD)[0].decode(address, forged.data, facts_of(X86_OLD, entry))
        assert ("Rcx" in frame.registers) == shown


@pytest.mark.parametrize(
    ("stored", "shown"), [(None, "unsure"), (frozenset(), "absent"), (frozenset(["Rsi"]), "sure")]
)
def test_unwind_data_tell_whether_an_interrupt_stored_rsi(
    stored: Optional[FrozenSet[str]], shown: str
) -> None:
    address, forged = make(X64, Entry(entries.DEVICE, "kernel"), filled(b"\0"))
    frame = forms(X64)[0].decode(address, forged.data, EntryFacts(stored_registers=stored))
    assert ("Rsi" in frame.registers) == (shown != "absent")
    assert ("Rsi" in frame.unsure) == (shown == "unsure")
    assert frame.registers.get("Rsi") in (None, registers_64("kernel")["rsi"])


@pytest.mark.parametrize(
    ("routine", "stored"),
    [
        (Routine(0, machine_frame=True, pushes=(RBP, RSI), alloc=0x150, frame=(RBP, 0x80)), {"Rsi"}),
        (
            Routine(0, machine_frame=True, pushes=(RBP,), saves={RBX: 0x140, RSI: 0x150}, alloc=0x158),
            {"Rbx", "Rsi"},
        ),
        # Where Rsi goes to another place than the member's, the frame has none.
        (Routine(0, machine_frame=True, pushes=(RSI, RBP), alloc=0x150), set()),
        (trap_handler(0), set()),
        # A frame of another size, and code that no interrupt enters, tell nothing of this one.
        (Routine(0, machine_frame=True, pushes=(RBP, RSI), alloc=0x140), None),
        (Routine(0, machine_frame=True, error_code=False, pushes=(RBP, RSI), alloc=0x150), None),
        (Routine(0, pushes=(RBP, RSI), alloc=0x150), None),
    ],
)
def test_what_unwind_data_say_of_a_frame(routine: Routine, stored: Optional[Set[str]]) -> None:
    data = routine.info()
    info = read_unwind_info(lambda rva, length: data[rva : rva + length], 0)
    for form in forms(X64):
        assert form.stored_registers([info]) == stored
    assert forms(X86_OLD)[0].stored_registers([info]) is None


def test_a_frame_that_the_thread_names_is_a_service() -> None:
    """The bytes alone could be those of an exception, which never sets KTHREAD.TrapFrame."""
    address, forged = make(X64, Entry(entries.ZW, "kernel", linkage=LINKAGE[X64]), filled(b"\0"))
    frame = forms(X64)[0].decode(address, forged.data, EntryFacts(chained=True))
    assert (frame.kind, frame.unsure) == ("service", ())


@pytest.mark.parametrize(("argument", "sure"), [(0, True), (8, False)])
def test_the_thread_confirms_what_a_system_call_stored(argument: int, sure: bool) -> None:
    address, forged = make(X64, Entry(entries.SYSCALL, "user64"), filled(b"\x07"))
    stored = int.from_bytes(b"\x07" * 8, "little")
    facts = EntryFacts(debug_active=2, system_call=(stored, stored + argument))
    frame = forms(X64)[0].decode(address, forged.data, facts)
    assert {"Rax", "Rdx", "R8", "R9"} <= set(frame.registers)
    assert set(frame.unsure) == (set() if sure else {"Rax", "Rdx", "R8", "R9"})


@pytest.mark.parametrize(
    ("rax", "number", "argument", "sure"),
    [(0x34, 0x34, 0, True), (0x34, 0x35, 0, False), (0x34, 0x34, 4, False), (0xC0, 0xC0, 0, False)],
)
def test_the_thread_tells_a_system_call_from_the_way_out_into_an_apc(
    rax: int, number: int, argument: int, sure: bool
) -> None:
    entry = Entry(entries.SYSCALL, "user64", mitigated=True)
    address, forged = make(X64, entry, filled(b"\0"))
    data = bytearray(forged.data)
    data[0x30:0x68] = rax.to_bytes(8, "little") + bytes(0x30)
    facts = facts_of(X64, entry)._replace(system_call=(number, argument))
    assert set(forms(X64)[0].decode(address, bytes(data), facts).unsure) == (
        set() if sure else {"Rax", "Rdx"}
    )


@pytest.mark.parametrize(
    ("instruction", "clears_dr7", "shown"),
    [
        (b"", True, "unsure"),
        (b"", None, "unsure"),
        (b"", False, "absent"),
        (b"\xcd\x2b", True, "sure"),
        (b"\xcd\x2e", True, "absent"),
        (b"\xcd\x03", True, "unsure"),
    ],
)
def test_the_callers_instruction_tells_kicallbackreturn(
    instruction: bytes, clears_dr7: Optional[bool], shown: str
) -> None:
    entry = Entry(entries.INT2E, "user")
    address, forged = make(X86_OLD, entry, filled(b"\0"))
    facts = EntryFacts(instruction=instruction, clears_dr7=clears_dr7)
    frame = forms(X86_OLD)[0].decode(address, forged.data, facts)
    assert ("Rcx" in frame.registers) == (shown != "absent")
    assert ("Rcx" in frame.unsure) == (shown == "unsure")


@pytest.mark.parametrize(
    ("instruction", "system_call_return", "service"),
    [(b"\x8b\xc0", 0x7C90EB94, False), (b"\xcd\x2e", 0x7C90EB94, True), (b"\x8b\xc0", 0, True)],
)
def test_what_is_not_behind_a_call_is_a_trap(
    instruction: bytes, system_call_return: int, service: bool
) -> None:
    registers = dict(registers_86("user"), edx=0)
    data = bytearray(
        trapframes.forge(X86_OLD, Entry(entries.DEVICE, "user"), registers, USER_86, filled(b"\x77")).data
    )
    data[0x48:0x4C] = bytes(4)
    facts = EntryFacts(instruction=instruction, system_call_return=system_call_return)
    frame = forms(X86_OLD)[0].decode(USER_86, bytes(data), facts)
    assert ("Rax" in frame.unsure) == service
    assert frame.registers["Rax"] == registers["eax"]
    # KiFastSystemCallRet itself is where a system call returns to, whatever lies before it.
    registers["eip"] = system_call_return
    data[0x68:0x6C] = system_call_return.to_bytes(4, "little")
    assert "Rax" in forms(X86_OLD)[0].decode(USER_86, bytes(data), facts).unsure


@pytest.mark.parametrize(
    ("handler", "shown"), [("", "unsure"), ("KiInterruptDispatch", "absent"), ("KiTrap0E", "sure")]
)
def test_the_handler_tells_whether_selectors_were_stored(handler: str, shown: str) -> None:
    """x86, from kernel mode, over the selectors of an earlier exception."""
    address, forged = make(X86_OLD, Entry(entries.DEVICE, "kernel"), filled(b"\x30\0\0\0"))
    frame = forms(X86_OLD)[0].decode(address, forged.data, EntryFacts(handler=handler))
    for name in ("SegDs", "SegEs", "SegFs", "SegGs"):
        assert (name in frame.registers) == (shown != "absent")
        assert (name in frame.unsure) == (shown == "unsure")


@pytest.mark.parametrize("active", [0, 1])
@pytest.mark.parametrize(
    ("code", "chained", "expected"),
    [(b"\xcc", False, "exception"), (b"\x90", False, ""), (b"\xcc", True, "service")],
)
def test_the_byte_before_rip_distinguishes_a_breakpoint_from_a_service(
    active: int, code: bytes, chained: bool, expected: str
) -> None:
    """With interrupts off, an int3 of the kernel leaves a frame that a Zw call could have left."""
    for form in forms(X64):
        data, address = bytearray(form.size), KERNEL_64
        values = {"SegCs": 0x10, "SegSs": 0x18, "EFlags": 0x46, "Rsp": address + form.size + 8}
        values.update(Rip=0xFFFFF80001001000)
        for member, value in {**values, "ExceptionActive": active}.items():
            offset, size = form.members[member][:2]
            data[offset : offset + size] = value.to_bytes(size, "little")
        assert form.code_size(address, bytes(data)) == 1
        kind, _ = form.classify(address, bytes(data), EntryFacts(instruction=code, chained=chained))
        assert kind == expected
