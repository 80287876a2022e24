# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""As much of Windows as a C++ program needs that throws: memory, thread storage, and structured exceptions.

RaiseException and RtlUnwindEx unwind with the walker under test. So a program runs to the right result only
if every landing pad is entered with the right registers. Sources of the structures: Microsoft's public SDK
headers (CONTEXT, EXCEPTION_RECORD) and "x64 exception handling" (DISPATCHER_CONTEXT, language-specific
handlers).
"""

from __future__ import annotations

import struct
from typing import Dict, Generator, Iterator, NamedTuple, Optional, Tuple, Union

from winstacks.names.decode.unwindinfo import EHANDLER, UHANDLER, RuntimeFunction, UnwindInfo
from winstacks.stacks.decode.frames import CodeImage, FindImage
from winstacks.stacks.decode.registers import Registers
from winstacks.stacks.decode.walk_x64 import Walker64

from .emulator import KEPT_XMM, Call, Import, Machine, Resume

UNWINDING, TARGET_UNWIND = 2, 0x20
CONTEXT_SIZE = 0x4D0
_RAX, _RIP, _XMM = 0x78, 0xF8, 0x1A0

Dispatch = Generator[Call, int, Union[int, Resume]]


class Scope(NamedTuple):
    """A frame that an exception passes: its registers, its caller's, and its function."""

    here: Registers
    above: Registers
    entry: RuntimeFunction
    info: UnwindInfo

    @property
    def establisher(self) -> int:
        """The address by which Windows names the frame: the base of its fixed allocation."""
        if not self.info.frame_register:
            return self.here.sp
        return (self.here.general[self.info.frame_register] or 0) - self.info.frame_offset


def argument(machine: Machine, number: int) -> int:
    """Returns an argument of the imported function that has just been called."""
    if number < 4:
        return machine.register((1, 2, 8, 9)[number])
    return word(machine, machine.register(4) + 8 + 8 * number)


def word(machine: Machine, address: int) -> int:
    """Reads eight bytes."""
    return int.from_bytes(machine.cpu.mem_read(address, 8), "little")


def text(machine: Machine, address: int) -> bytes:
    """Reads a string that ends in a zero."""
    return bytes(machine.cpu.mem_read(address, 256)).split(b"\0")[0]


class Exceptions:
    """Structured exception handling for one program: `find_image` finds it, and the module of its imports."""

    def __init__(self, program: CodeImage, find_image: FindImage) -> None:
        assert program.table is not None
        self._program = program
        self._table = program.table
        self._find_image = find_image

    def imports(self) -> Dict[str, Import]:
        """Returns the functions that a program imports for exceptions."""
        return {
            "RaiseException": self.raise_exception,
            "RtlUnwindEx": self.unwind,
            "RtlCaptureContext": self.capture,
        }

    def caller(self, machine: Machine) -> Registers:
        """Returns the registers of the function that called an import."""
        sp = machine.register(4)
        general = list(machine.registers())
        general[4] = sp + 8
        return Registers(word(machine, sp), tuple(general), (*[None] * 6, *machine.xmm()))

    def capture(self, machine: Machine) -> int:
        """RtlCaptureContext: stores the caller's registers."""
        self._store(machine, argument(machine, 0), self.caller(machine))
        return 0

    def raise_exception(self, machine: Machine) -> Dispatch:
        """RaiseException: looks for a frame whose language handler takes the exception."""
        code, flags, count, values = (argument(machine, number) for number in range(4))
        record = machine.allocate(0x98)
        parameters = bytes(machine.cpu.mem_read(values, 8 * count))
        header = struct.pack("<IIQQII", code & 0xFFFFFFFF, flags & 1, 0, 0, count, 0)
        machine.cpu.mem_write(record, header + parameters)
        original = machine.allocate(CONTEXT_SIZE)
        start = self.caller(machine)
        self._store(machine, original, start)
        for scope in self._scopes(machine, start):
            handler = self._handler(scope, EHANDLER)
            if handler is not None:
                dispatcher = self._dispatcher(machine, scope, handler, scope.above, 0)
                yield Call(handler[0], (record, scope.establisher, original, dispatcher))
        raise AssertionError("nobody caught the exception")

    def unwind(self, machine: Machine) -> Dispatch:
        """RtlUnwindEx: has every frame up to the target cleaned up, and goes on in the target."""
        target, ip, record, value = (argument(machine, number) for number in range(4))
        flags = int.from_bytes(machine.cpu.mem_read(record + 4, 4), "little")
        for scope in self._scopes(machine, self.caller(machine)):
            last = scope.establisher == target
            machine.cpu.mem_write(
                record + 4, (flags | UNWINDING | last * TARGET_UNWIND).to_bytes(4, "little")
            )
            handler = self._handler(scope, UHANDLER)
            state = scope.here
            if handler is not None:
                dispatcher = self._dispatcher(machine, scope, handler, scope.here, ip)
                context = word(machine, dispatcher + 0x28)
                yield Call(handler[0], (record, scope.establisher, context, dispatcher))
                state = self._load(machine, context)
            if last:
                general = [number or 0 for number in state.general]
                return Resume(ip, [value, *general[1:]], [state.xmm[number] or 0 for number in KEPT_XMM])
        raise AssertionError("the target of the unwind is not on the stack")

    def _scopes(self, machine: Machine, state: Registers) -> Iterator[Scope]:
        """Yields the frames of the program from a state upwards."""
        walker = Walker64(self._find_image, machine.read)
        while state.ip:
            above = walker.step(state, False).registers
            entry = self._table.find_entry(state.ip - self._program.base - 1)
            if entry is not None:
                yield Scope(state, above, entry, self._table.unwind_info(entry))
            state = above

    def _handler(self, scope: Scope, kind: int) -> Optional[Tuple[int, int]]:
        """Returns the addresses of a frame's language handler and of its data, if it has one of a kind."""
        if not scope.info.flags & kind:
            return None
        head = self._program.read_rva(scope.entry.unwind, 4)
        assert head is not None
        rva = scope.entry.unwind + 4 + 2 * (head[2] + head[2] % 2)
        handler = self._program.read_rva(rva, 4)
        assert handler is not None
        return self._program.base + int.from_bytes(handler, "little"), self._program.base + rva + 4

    def _dispatcher(
        self, machine: Machine, scope: Scope, handler: Tuple[int, int], registers: Registers, target: int
    ) -> int:
        """Returns the address of a new DISPATCHER_CONTEXT."""
        context, entry = machine.allocate(CONTEXT_SIZE), machine.allocate(12)
        self._store(machine, context, registers)
        machine.cpu.mem_write(entry, struct.pack("<III", *scope.entry))
        frame = (scope.here.ip, self._program.base, entry, scope.establisher)
        dispatcher = machine.allocate(0x50)
        machine.cpu.mem_write(dispatcher, struct.pack("<10Q", *frame, target, context, *handler, 0, 0))
        return dispatcher

    def _store(self, machine: Machine, context: int, registers: Registers) -> None:
        """Writes a CONTEXT."""
        general = [value or 0 for value in registers.general]
        machine.cpu.mem_write(context + _RAX, struct.pack("<17Q", *general, registers.ip))
        for number in KEPT_XMM:
            value = registers.xmm[number] or 0
            machine.cpu.mem_write(context + _XMM + 16 * number, value.to_bytes(16, "little"))

    def _load(self, machine: Machine, context: int) -> Registers:
        """Reads a CONTEXT."""
        *general, ip = struct.unpack("<17Q", machine.cpu.mem_read(context + _RAX, 17 * 8))
        vectors = bytes(machine.cpu.mem_read(context + _XMM, 256))
        xmm = [int.from_bytes(vectors[at : at + 16], "little") for at in range(0, 256, 16)]
        return Registers(ip, tuple(general), tuple(xmm))


def c_library() -> Dict[str, Import]:
    """Returns what a program imports besides exceptions, as far as it calls it."""
    storage: Dict[int, int] = {}

    def allocate_storage(machine: Machine) -> int:
        storage[len(storage) + 1] = 0
        return len(storage)

    def set_storage(machine: Machine) -> int:
        storage[argument(machine, 0)] = argument(machine, 1)
        return 1

    def allocate(machine: Machine) -> int:
        return machine.allocate(argument(machine, 0))

    def allocate_many(machine: Machine) -> int:
        return machine.allocate(argument(machine, 0) * argument(machine, 1))

    def copy(machine: Machine) -> int:
        to, source, length = (argument(machine, number) for number in range(3))
        machine.cpu.mem_write(to, bytes(machine.cpu.mem_read(source, length)))
        return to

    def fill(machine: Machine) -> int:
        to, value, length = (argument(machine, number) for number in range(3))
        machine.cpu.mem_write(to, bytes([value & 0xFF]) * length)
        return to

    def compare(machine: Machine) -> int:
        first, second = text(machine, argument(machine, 0)), text(machine, argument(machine, 1))
        return (first > second) - (first < second) & 0xFFFFFFFF

    return {
        "TlsAlloc": allocate_storage,
        "TlsGetValue": lambda machine: storage.get(argument(machine, 0), 0),
        "TlsSetValue": set_storage,
        "malloc": allocate,
        "calloc": allocate_many,
        "memcpy": copy,
        "memset": fill,
        "strcmp": compare,
        "strlen": lambda machine: len(text(machine, argument(machine, 0))),
        "GetCurrentThreadId": lambda machine: 4,
    }


def nothing(machine: Machine) -> int:
    """An imported function without effect."""
    return 0
