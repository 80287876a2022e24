# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A walk up an ARM64 stack: by unwind data, across the frames that the kernel makes.

Where no unwind data is to be had, the chain of {fp, lr} pairs is followed. Its frames are unsure: a function
without a pair is missing in it, and so is the caller of code that stopped in a prologue or a leaf.

A function without unwind data is a leaf. Hand-written code lacks unwind data, too, and may move the stack
pointer. So a leaf is sure only if no code around it, up to the next functions with unwind data, writes to
the stack pointer (measured: in 1,278 points of such code the link register was right each time, and the
stack pointer was wrong).
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Tuple

from ...columns.words import FRAME_POINTER, LEAF, LINK_REGISTER, SCAN, TRAP, UNWIND
from ...memory.decode.memo import Kept
from ...memory.decode.memory import ReadMemory
from ...memory.decode.records import NamedTuple
from ...memory.decode.statuscodes import StatusCode
from ...memory.decode.structure import Structures
from ...names.decode.functiontable import MOST_DERIVED
from ...names.decode.functiontable_arm64 import ISLAND_SIZE, FunctionTableArm64
from ...names.decode.hybrid import X64
from ...names.decode.pointers_arm64 import strip
from ...names.decode.unwind_arm64 import (
    CONTEXT,
    FLAG_MASK,
    INSTRUCTION,
    ISLAND,
    MACHINE_FRAME,
)
from ...names.decode.unwindinfo import UnwindDataError
from ...traps.decode.context import UNWOUND_TO_CALL
from . import code_arm64
from .frame_arm64 import Look, look
from .frames import (
    CodeImage,
    FindImage,
    Frame,
    MayExecute,
    OwnCopy,
    UnwindError,
    UserTransition,
    may_execute_anywhere,
    shared,
)
from .go_arm64 import step_in_go
from .registers import MASK
from .registers_arm64 import COUNT, FP_AT, LR_AT, SP_AT, RegistersArm64, Values
from .rule_arm64 import EffectArm64, RuleArm64, SlotAt, of_codes, single_read
from .surroundings import UNKNOWN, Surroundings
from .walk import Walker, WalkStep

_SLOT = 8
_USER_LEVEL = 0xC
"""Bits of Spsr that are 0 for code of user mode: the exception level."""

_LONGEST_GAP = 0x8000
"""Bytes between two functions with unwind data up to which the code there may be proven to be leaves."""

_NEAR = 0x1000
"""Bytes between two pieces of code up to which both may be parts of one builtin of V8."""

_NOTHING: Values = (None,) * COUNT


class SiteArm64(NamedTuple):
    """Facts about a return address.

    Attributes:
        effect: the unwinding from there, None if a single read cannot express it
        no_call: whether no call precedes the address, as far as is known
    """

    effect: Optional[EffectArm64]
    no_call: bool


class WalkerArm64(Walker[RegistersArm64]):
    """Walks ARM64 stacks of one address space.

    Args:
        trap_frames: addresses of trap frames known to lie on the stack, each with the registers in it
        replaced: returns whether the function at an address is other code than its unwind data describes
        sites: what earlier walks found about return addresses in the same address space
    """

    slot_size = _SLOT

    def __init__(
        self,
        find_image: FindImage,
        read: ReadMemory,
        types: Structures,
        trap_frames: Optional[Mapping[int, RegistersArm64]] = None,
        may_execute: MayExecute = may_execute_anywhere,
        replaced: OwnCopy = shared,
        sites: Optional[Kept[int, SiteArm64]] = None,
        surroundings: Surroundings = UNKNOWN,
    ) -> None:
        super().__init__(find_image, read, may_execute, surroundings)
        self._types = types
        self._trap_frames = trap_frames or {}
        self._replaced = replaced
        self._sites: Kept[int, SiteArm64] = Kept(MOST_DERIVED) if sites is None else sites
        self._quiet: Kept[Tuple[int, int], Optional[bool]] = Kept(MOST_DERIVED)

    def step(self, registers: RegistersArm64, interrupted: bool) -> WalkStep[RegistersArm64]:
        """Finds the caller of a frame; raises UnwindError."""
        sent = self._sent_nowhere(registers) if interrupted and self.is_no_code(registers.ip) else None
        if sent is not None:
            return sent
        probe = registers.ip if interrupted else registers.ip - INSTRUCTION
        image = self._find_image(probe)
        if image is None:
            return self._chained(registers, interrupted, self._surroundings.no_code)
        if image.kind(probe) == X64:
            raise UnwindError(StatusCode.OTHER_ARCHITECTURE)
        go_stack = self.go_stack(image)
        in_go = None if go_stack is None else step_in_go(go_stack, registers, interrupted)
        if in_go is not None:
            return in_go
        if not isinstance(image.table, FunctionTableArm64):
            return self._undescribed(registers, image, interrupted, StatusCode.NO_FUNCTION_TABLE)
        try:
            rule = _rule_at(image, image.table, probe - image.base)
        except UnwindDataError as error:
            return self._undescribed(registers, image, interrupted, error.code)
        if rule is not None:
            seen = look(image, image.table, probe - image.base) if interrupted else Look()
            held = self._held(registers) if seen.in_link or seen.own is not None else None
            if held is not None and seen.in_link:
                return held
            step = self._unwound(rule[0], registers)
            to = step.registers.ip if held is None else held.registers.ip
            if held is not None and to != step.registers.ip and not seen.is_own(to - image.base):
                step = step if abs(to - probe) < _NEAR else held
                step.doubt = StatusCode.CODE_AND_UNWIND_DATA_DIFFER
            begins = interrupted and image.entry_begins(probe)
            if step.doubt is None and (seen.differs or (self._replaced(probe) and not begins)):
                step.doubt = StatusCode.CODE_AND_UNWIND_DATA_DIFFER
            return step
        if not image.table.complete_at(probe - image.base):
            return self._undescribed(registers, image, interrupted, StatusCode.FUNCTION_TABLE_UNREADABLE)
        if not interrupted:
            return self._chained(registers, interrupted, StatusCode.NO_UNWIND_DATA)
        return self._leaf(registers, image, image.table)

    def take_slot(self, slot: int, value: int) -> Optional[WalkStep[RegistersArm64]]:
        """Returns the step to a known trap frame, or to a possible return address."""
        if slot in self._trap_frames:
            return self._entered(self._trap_frames[slot], slot)
        address = strip(value)
        if not self.may_return(address):
            return None
        fp = self.read_stack(slot - _SLOT)
        known = {} if fp is None or not slot < fp <= (self._stacks.limit(slot) or 0) else {"Fp": fp}
        return WalkStep(RegistersArm64.from_known(address, slot + _SLOT, known), SCAN)

    def follow(self, registers: RegistersArm64, frames: List[Frame], sure: bool) -> Optional[RegistersArm64]:
        """Continues from a return address as long as each step needs only one read within a stack page."""
        make, sites, values = tuple.__new__, self._sites, registers.values
        ip, sp, limit = registers.ip, registers.sp, self._stacks.reach(registers.sp)
        effect = (sites.get(ip) or self._site(ip)).effect
        low, page = self.read_page(sp)
        while effect is not None and len(frames) < self.most_frames:
            base = values[effect.base]
            if base is None:
                break
            place = base + effect.start - low
            if not 0 <= place <= len(page) - effect.size:
                low, page = self.read_page(base + effect.start)
                place = base + effect.start - low
                if not 0 <= place <= len(page) - effect.size:
                    break
            slots = effect.unpack(page, place)
            ip, to = strip(slots[effect.returns]), base + effect.release
            if not ip:
                return None
            site = sites.get(ip) or self._site(ip)
            if site.no_call or not sp < to <= limit:
                break
            values = effect.values((*values, *slots, to, None))
            effect, sp = site.effect, to
            # Builds the NamedTuples directly: calling their constructors would take longer than the rest of a
            # step.
            registers = make(RegistersArm64, (ip, values))
            frames.append(make(Frame, (ip, sp, UNWIND, True, sure, registers, 0, None)))
        return registers

    def behind_call(self, read: ReadMemory, address: int) -> Optional[bool]:
        """Returns whether the code before an address is a call; None if that code cannot be read."""
        if address % INSTRUCTION:
            return False
        code = read(address - INSTRUCTION, INSTRUCTION) if address >= INSTRUCTION else None
        return None if code is None else code_arm64.is_call(code)

    def _site(self, address: int) -> SiteArm64:
        """Returns the analysis of a return address, made once per address space."""
        site = self._sites.get(address)
        if site is None:
            site = self._sites.keep(address, SiteArm64(self._effect(address), self._is_no_call(address)))
        return site

    def _effect(self, address: int) -> Optional[EffectArm64]:
        image = self._find_image(address - INSTRUCTION) if address else None
        if image is None or not isinstance(image.table, FunctionTableArm64):
            return None
        if image.kind(address - INSTRUCTION) == X64 or self._replaced(address - INSTRUCTION):
            return None
        try:
            rule = _rule_at(image, image.table, address - INSTRUCTION - image.base)
        except UnwindDataError:
            return None
        return None if rule is None else rule[1]

    def _is_no_call(self, address: int) -> bool:
        """Returns whether an address is no return address: absent code of a module may have the call, memory
        that belongs to nothing may not."""
        if not address:
            return False
        image, called = self._find_image(address - 1), self.is_behind_call(address)
        return not called if image is None else called is False or not image.executable(address - 1)

    def _unwound(self, rule: RuleArm64, registers: RegistersArm64) -> WalkStep[RegistersArm64]:
        loaded: List[Optional[int]] = []
        values: List[Optional[int]] = list(registers.values)
        for slot in rule.loads:
            loaded.append(self.read_stack(_resolved(slot, registers, loaded)))
        for place, number in rule.saved.items():
            values[place] = loaded[number]
        sp = _resolved(rule.sp, registers, loaded)
        values[SP_AT] = sp
        if rule.frame is not None:
            return self._made_by_the_kernel(rule.frame, values, sp)
        lr = values[LR_AT]
        if lr is None:
            saved = LR_AT in rule.saved
            raise UnwindError(StatusCode.STACK_UNREADABLE if saved else StatusCode.NO_UNWIND_DATA)
        ip = strip(lr)
        values[LR_AT] = None
        doubt = StatusCode.NOT_BEHIND_A_CALL if ip and self._site(ip).no_call else None
        return WalkStep(
            RegistersArm64(ip, tuple(values)),
            UNWIND,
            rule.interrupted,
            doubt,
            return_register=None if LR_AT in rule.saved else LINK_REGISTER,
        )

    def _held(self, registers: RegistersArm64) -> Optional[WalkStep[RegistersArm64]]:
        """Returns the step to the return address in the link register, None if it holds none."""
        ip = strip(registers.lr or 0)
        if not ip or not self.is_return(ip):
            return None
        remark = StatusCode.CODE_AND_UNWIND_DATA_DIFFER
        return WalkStep(registers.returned(ip), LEAF, remark=remark, return_register=LINK_REGISTER)

    def _sent_nowhere(self, registers: RegistersArm64) -> Optional[WalkStep[RegistersArm64]]:
        """Returns the step to the code whose call sent a thread to a place without code, None if no call did.

        The call left its return address in the link register. It was indirect: the target of a direct call
        is part of the code.
        """
        ip = strip(registers.lr or 0)
        if not ip or not self.is_return(ip):
            return None
        image = self._find_image(ip - INSTRUCTION)
        read, base = (self._read, 0) if image is None else (image.read_rva, image.base)
        code = read(ip - base - INSTRUCTION, INSTRUCTION)
        if code is None or code_arm64.is_direct_call(code):
            return None
        return WalkStep(registers.returned(ip), LEAF, return_register=LINK_REGISTER)

    def _leaf(
        self, registers: RegistersArm64, image: CodeImage, table: FunctionTableArm64
    ) -> WalkStep[RegistersArm64]:
        """Steps out of a function without unwind data, by the link register."""
        ip = strip(registers.lr or 0)
        caller = registers.returned(ip)
        if registers.lr == 0:
            return WalkStep(caller, LEAF, return_register=LINK_REGISTER)
        proven = self.is_return(ip) if ip else False
        if not proven and not self.may_return(ip):
            return self._chained(registers, True, StatusCode.NO_UNWIND_DATA)
        quiet = self._is_quiet(image, table, registers.ip - image.base)
        if not quiet and strip(self.read_stack((registers.fp or 0) + _SLOT) or 0) == ip:
            # The code has stored the pair itself. Another pair has the address only in a recursion: then one
            # of its frames is missing.
            return self._chained(registers, True, StatusCode.NO_UNWIND_DATA)
        doubt = None if proven and quiet else StatusCode.NO_UNWIND_DATA
        if quiet is None or proven is None:
            doubt = StatusCode.CODE_UNREADABLE
        return WalkStep(caller, LEAF, doubt=doubt, return_register=LINK_REGISTER)

    def _undescribed(
        self, registers: RegistersArm64, image: CodeImage, interrupted: bool, reason: StatusCode
    ) -> WalkStep[RegistersArm64]:
        """Steps out of code whose unwind data is not to be had: by the link register where the code returns
        at once, such as the end of a stub of a system call; elsewhere by the chain of {fp, lr} pairs."""
        code = image.read_rva(registers.ip - image.base, INSTRUCTION) if interrupted else None
        returns = code is not None and code_arm64.returns(int.from_bytes(code, "little"))
        ip = strip(registers.lr or 0) if returns else 0
        if ip and self._find_image(ip - INSTRUCTION) is not None and self.is_return(ip) is not False:
            return WalkStep(registers.returned(ip), LEAF, return_register=LINK_REGISTER)
        return self._chained(registers, interrupted, reason)

    def _is_quiet(self, image: CodeImage, table: FunctionTableArm64, rva: int) -> Optional[bool]:
        """Returns whether no code around an RVA, between the entries of the function table, writes to the
        stack pointer; None if that code cannot be read. Long stretches count as code that may."""
        low, high = table.gap_around(rva)
        if image.code is not None:
            low, high = _within(image.code, rva, low, high)
        key = image.base, low
        if key not in self._quiet:
            self._quiet.keep(key, _no_writes(image, low, high))
        return self._quiet[key]

    def _chained(
        self, registers: RegistersArm64, interrupted: bool, reason: StatusCode
    ) -> WalkStep[RegistersArm64]:
        """Follows the chain of {fp, lr} pairs; raises UnwindError with the reason if the chain leads nowhere.

        The caller's stack pointer is not in the chain: the end of the pair is the lowest value that it can
        have. The first pair may begin a slot below the stack pointer: Go stores lr at the stack pointer, and
        fp below (measured).
        """
        fp, sp = registers.fp, registers.sp
        if fp == 0 and not interrupted:
            return WalkStep(RegistersArm64.from_known(0, sp), FRAME_POINTER, doubt=reason)
        limit = self._stacks.limit(sp)
        if fp is None or fp % _SLOT or limit is None or not sp - _SLOT <= fp <= limit - 2 * _SLOT:
            raise UnwindError(reason)
        pair = self._read(fp, 2 * _SLOT)
        if pair is None:
            raise UnwindError(reason)
        next_fp, lr = (int.from_bytes(pair[start : start + _SLOT], "little") for start in (0, _SLOT))
        ip = strip(lr)
        proven = self.is_return(ip) if ip else fp >= sp
        if proven is None:
            proven = self._find_image(ip - INSTRUCTION) is not None
        if not proven:
            raise UnwindError(reason)
        known = {"Fp": next_fp}
        return WalkStep(RegistersArm64.from_known(ip, fp + 2 * _SLOT, known), FRAME_POINTER, doubt=reason)

    def _made_by_the_kernel(
        self, kind: int, values: List[Optional[int]], address: int
    ) -> WalkStep[RegistersArm64]:
        """Steps to the code that the kernel interrupted, whose registers lie at an address.

        The registers that the codes before had restored stay: a trap frame lacks x19 to x28.
        """
        if kind == MACHINE_FRAME:
            sp, pc = self.read_stack(address), self.read_stack(address + _SLOT)
            if sp is None or pc is None:
                raise UnwindError(StatusCode.STACK_UNREADABLE)
            return WalkStep(_interrupted(values, pc, sp), TRAP, True, trap=address)
        structure = self._types["_CONTEXT" if kind == CONTEXT else "_KTRAP_FRAME"]
        data = self._read(address, structure.size)
        if data is None:
            raise UnwindError(StatusCode.STACK_UNREADABLE)
        view = structure.view(data)
        for place, name in NAMED.items():
            if structure.has(name):
                values[place] = view[name]
        registers = _interrupted(values, view["Pc"], view["Sp"])
        if kind == CONTEXT:
            called = structure.has("ContextFlags") and view["ContextFlags"] & UNWOUND_TO_CALL
            return WalkStep(registers, TRAP, not called, trap=address)
        return self._entered(registers, address, not view["Spsr"] & _USER_LEVEL)

    def _entered(
        self, registers: RegistersArm64, address: int, from_user: Optional[bool] = None
    ) -> WalkStep[RegistersArm64]:
        """Returns the step to interrupted code."""
        if from_user is None:
            from_user = registers.ip >> 63 == 0 and address >> 63 == 1
        border = UserTransition(address, registers.ip, registers.sp, 0, registers) if from_user else None
        return WalkStep(registers, TRAP, True, trap=address, border=border)


NAMED: Dict[int, str] = {
    **{place: f"X{19 + place}" for place in range(10)},
    FP_AT: "Fp",
    LR_AT: LINK_REGISTER,
}
"""Members of CONTEXT and KTRAP_FRAME that hold the registers of a walk, by their places."""


def _interrupted(values: List[Optional[int]], pc: int, sp: int) -> RegistersArm64:
    values[SP_AT] = sp
    return RegistersArm64(pc, tuple(values))


def _resolved(slot: SlotAt, registers: RegistersArm64, loaded: List[Optional[int]]) -> int:
    """Returns the address of a slot; raises UnwindError if its base is unknown."""
    base = slot.base
    value = loaded[base.place] if base.loaded else registers.values[base.place]
    if value is None:
        raise UnwindError(StatusCode.STACK_UNREADABLE if base.loaded else StatusCode.FRAME_REGISTER_UNKNOWN)
    return value + slot.offset & MASK


def _rule_at(
    image: CodeImage, table: FunctionTableArm64, rva: int
) -> Optional[Tuple[RuleArm64, Optional[EffectArm64]]]:
    """Returns the rule of unwinding from an instruction, and its form as one read; None in a leaf.

    The table keeps both. In a branch island, the rule of the place to which the island jumps holds. Raises
    UnwindDataError if the unwind data is unreadable or invalid.
    """
    entry = table.find_entry(rva)
    if entry is not None and entry.unwind & FLAG_MASK == ISLAND:
        code = image.read_rva(entry.begin, ISLAND_SIZE)
        target = None if code is None else code_arm64.island_target(code, entry.begin)
        if target is None:
            missing = code is None
            raise UnwindDataError(StatusCode.CODE_UNREADABLE if missing else StatusCode.UNWIND_DATA_INVALID)
        rva, entry = target, table.find_entry(target)
        if entry is not None and entry.unwind & FLAG_MASK == ISLAND:
            raise UnwindDataError(StatusCode.UNWIND_DATA_INVALID)
    if entry is None:
        return None
    record = table.record(entry)
    first = record.at_instruction((rva - entry.begin) // INSTRUCTION)
    rules, key = table.derived, (entry.unwind, first)
    found: Optional[Tuple[RuleArm64, Optional[EffectArm64]]] = rules.get(key)
    if found is None:
        rule = of_codes(record.codes, first)
        found = rules.keep(key, (rule, single_read(rule)))
    return found


def _within(code: Tuple[Tuple[int, int], ...], rva: int, low: int, high: int) -> Tuple[int, int]:
    """Returns the part of a range that lies in the section with an RVA."""
    start, end = next((part for part in code if part[0] <= rva < part[1]), (low, high))
    return max(low, start), min(high, end)


def _no_writes(image: CodeImage, low: int, high: int) -> Optional[bool]:
    """Returns whether no code in a range of RVAs writes to the stack pointer; None if it is unreadable."""
    if high - low > _LONGEST_GAP:
        return False
    code = image.read_rva(low, high - low)
    return None if code is None else not code_arm64.moves_sp(code)
