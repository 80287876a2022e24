# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a function has done to the stack is undone by its unwind codes. Code itself is never read."""

import struct

import pytest
from volatility3.framework import contexts, exceptions
from volatility3.framework.layers import physical
from volatility3.plugins.windows import kernelstacks

BASE, STACK, RETURN = 0x1000, 0x3000, 0x1234
UNWIND = 0x800


def slots(*pairs):
    return b"".join(bytes(pair) if isinstance(pair, tuple) else struct.pack("<H", pair) for pair in pairs)


def module(codes, stack, flags=0, frame=0, tail=b""):
    """A module of one function, from RVA 0x100 to 0x200, whose prologue has 0x20 bytes."""
    memory = bytearray(0x4000)
    info = bytes((1 | flags << 3, 0x20, len(codes) // 2, frame)) + codes
    memory[BASE + UNWIND : BASE + UNWIND + len(info)] = info
    memory[BASE + UNWIND + 0x100 : BASE + UNWIND + 0x100 + 4] = bytes((1, 0, 1, 0))
    memory[BASE + UNWIND + 0x104 : BASE + UNWIND + 0x106] = bytes((0, 3 << 4))
    after = BASE + UNWIND + 4 + (len(codes) + 3 & ~3)
    memory[after : after + len(tail)] = tail
    for offset, value in stack.items():
        struct.pack_into("<Q", memory, STACK + offset, value)
    context = contexts.Context()
    layer = physical.BufferDataLayer(context, "layer", "layer", bytes(memory))
    context.add_layer(layer)
    entries = struct.pack("<III", 0x100, 0x200, UNWIND)
    return kernelstacks.Functions("a.sys", BASE, 0x1000, layer, entries)


PUSH_RBX, PUSH_RBP = (1, 3 << 4), (2, 5 << 4)
CASES = {
    "push, and a small area": (slots((8, 2 | 3 << 4), PUSH_RBX), {0x20: 7, 0x28: RETURN}, 0, 0x30, {3: 7}),
    "a large area": (slots((8, 1), 0x20), {0x100: RETURN}, 0, 0x108, {}),
    "a huge area": (slots((8, 0x11), 0x200, 0), {0x200: RETURN}, 0, 0x208, {}),
    "a saved register": (
        slots((8, 4 | 6 << 4), 2, (4, 2 | 3 << 4)),
        {0x10: 9, 0x20: RETURN},
        0,
        0x28,
        {6: 9},
    ),
    "a frame register": (slots((8, 3), PUSH_RBP), {0x80: 5, 0x88: RETURN}, 5 | 1 << 4, 0x90, {5: 5}),
    "a saved XMM register": (slots((8, 8 | 6 << 4), 1, (4, 2)), {8: RETURN}, 0, 0x10, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_function_is_undone(case):
    codes, stack, frame, moved, kept = CASES[case]
    registers = {kernelstacks.RSP: STACK, kernelstacks.RBP: STACK + 0x90}
    assert module(codes, stack, frame=frame).unwind(BASE + 0x180, registers) == RETURN
    assert registers[kernelstacks.RSP] == STACK + moved
    assert {number: registers[number] for number in kept} == kept


def test_in_a_prologue_only_what_was_done_is_undone():
    made = module(slots((8, 2 | 3 << 4), PUSH_RBX), {0: 7, 8: RETURN})
    assert made.unwind(BASE + 0x104, {kernelstacks.RSP: STACK}) == RETURN


def test_a_leaf_has_no_entry():
    registers = {kernelstacks.RSP: STACK}
    assert module(b"", {0: RETURN}).unwind(BASE + 0x300, registers) == RETURN
    assert registers[kernelstacks.RSP] == STACK + 8


def test_a_machine_frame_has_both_pointers():
    registers = {kernelstacks.RSP: STACK}
    made = module(slots((8, 2), (4, 10 | 1 << 4)), {0x10: RETURN, 0x28: 0x5000})
    assert made.unwind(BASE + 0x180, registers) == RETURN
    assert registers[kernelstacks.RSP] == 0x5000


def test_a_chained_entry_is_undone_too():
    tail = struct.pack("<III", 0x200, 0x300, UNWIND + 0x100)
    made = module(slots((8, 2)), {8: 3, 0x10: RETURN}, flags=4, tail=tail)
    registers = {kernelstacks.RSP: STACK}
    assert made.unwind(BASE + 0x180, registers) == RETURN
    assert registers[3] == 3


def test_a_chain_that_never_ends_does():
    tail = struct.pack("<III", 0x100, 0x200, UNWIND)
    made = module(slots((8, 2)), {0x100: RETURN}, flags=4, tail=tail)
    registers = {kernelstacks.RSP: STACK}
    made.unwind(BASE + 0x180, registers)
    assert registers[kernelstacks.RSP] < STACK + 0x200


def test_an_operation_that_nobody_defined_is_refused():
    with pytest.raises(exceptions.LayerException):
        module(slots((8, 13)), {}).unwind(BASE + 0x180, {kernelstacks.RSP: STACK})
