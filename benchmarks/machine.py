# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A machine as users have it, forged: a Windows 11 with 32 GB of memory and 300 processes.

    python3 -m benchmarks.machine FOLDER                 # image.raw and image.dmp, 32 GB each, sparse
    python3 -m benchmarks.machine FOLDER --scale 0.1     # a tenth of it
    vol -f FOLDER/image.raw -s FOLDER/symbols -p volatility3_plugins windows.callstacks

Pages lie all over the memory. Processes load 120 modules each, whose pages they share. Of what Windows may
page out 5 % is not in the image: pages of files in the section or in a process, stacks, heaps, databases.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import random
import struct
from typing import Dict, List, Tuple

from tests.forge import vol
from tests.forge.code import system_call_stub
from tests.forge.module import Module
from tests.forge.paging import State
from tests.forge.phys import ScatteredMemory
from tests.forge.process import Process
from tests.forge.thread import Thread
from tests.support.callstackimages import BEHIND_SYSCALL, DISPATCHERS, MAIN, NUMBER, STUB, USER_START, WAIT_EX

from . import stacks
from .images import DRIVERS, Image, module_options
from .machinefiles import MISSING, File, Files, data_rva
from .machineowners import Owners
from .stacks import DeepStacks

KERNEL = "win11-x64"
DUMP = "image.dmp"
FRAMES = 25
"""Frames of a thread, in its kernel and its user part together."""
_USER_CALLS, _KERNEL_CALLS = 9, 7
_STACK_LIBRARIES, _FILTERS = 30, 20
_FIRST_PID, _FIRST_TID = 1000, 0x10000
_SYSTEM32 = "C:\\Windows\\System32"
_NTDLL_FUNCTIONS = 6000
_NTDLL_EXPORTS, _KERNEL32_EXPORTS, _KERNELBASE_EXPORTS = 2400, 1500, 1900
_GETTER = 0x1900
"""RVA of RtlGetFunctionTableListHead in ntdll."""
_LEAST_MEMORY = 1 << 30
_FEW = 500

ROUTINES = tuple(
    dataclasses.replace(routine, rva=0x1080 + 0x80 * (4 * copy + number))
    for copy in range(6)
    for number, routine in enumerate(stacks.ROUTINES)
)
"""The functions of a library that are on stacks."""


@dataclasses.dataclass(frozen=True)
class Size:
    """How much the machine holds. The first `traced` processes have databases and heaps."""

    memory: int = 32 << 30
    processes: int = 300
    modules: int = 120
    files: int = 280
    programs: int = 60
    threads: int = 6000
    traced: int = 20
    traces: int = 10_000
    blocks: int = 20_000
    resources: int = 30_000
    handles: int = 300_000
    objects: int = 120_000

    def scaled(self, factor: float) -> Size:
        """A machine with less of all, but as many modules in a process."""
        if factor == 1:
            return self
        few = {
            field.name: max(int(getattr(self, field.name) * factor), 1) for field in dataclasses.fields(self)
        }
        few.update(traces=max(few["traces"], _FEW), blocks=max(few["blocks"], _FEW))
        few.update(memory=max(few["memory"] >> 20 << 20, _LEAST_MEMORY), modules=self.modules)
        few["files"] = self.modules + int((self.files - self.modules) * factor)
        return Size(**few)


class Machine(DeepStacks):
    """A machine of a size. `frames` has those of each thread whose stacks are in memory, by thread ID."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.random = random.Random(size.processes)
        self.frames: Dict[int, List[int]] = {}
        phys = ScatteredMemory(size.memory)
        super().__init__(KERNEL, phys=phys, nt_global_flag=0x2000, large_pages=True, cpus=8)
        for number in range(DRIVERS):
            self.kernel.module(f"driver{number:03}.sys", **module_options(64))
        options = stacks.library_options(ROUTINES)
        filters = [self.kernel.module(f"filter{number:02}.sys", **options) for number in range(_FILTERS)]
        self._filters = [(module.base, routine) for module in filters for routine in ROUTINES]
        self.processes = [self.app, *map(self._process, range(1, size.processes))]
        self.listed = [
            self._thread(_FIRST_TID + 4 * number, self.processes[number % size.processes])
            for number in range(size.threads)
        ]
        owners = Owners(self.kernel, self.processes, self.listed, self._ntdll, self._libraries, self.random)
        owners.traces(self.processes[: size.traced], size.traces, size.blocks)
        owners.resources(size.resources)
        owners.handles(size.handles, size.objects)
        owners.objects()

    def _first_process(self) -> Process:
        self._lay_out_files()
        return self._process(0)

    def _user_modules(self, process: Process) -> Dict[str, Module]:
        return {}

    def _lay_out_files(self) -> None:
        files, choose = Files(self.kernel, self.random), self.random
        self._files = files
        count = self.size.files
        self._ntdll = _ntdll(files)
        self._system = [
            files.add(f"{_SYSTEM32}\\kernel32.dll", 3000, _KERNEL32_EXPORTS, complete=True),
            files.add(
                f"{_SYSTEM32}\\kernelbase.dll",
                5000,
                _KERNELBASE_EXPORTS,
                [WAIT_EX],
                {"WaitEx": WAIT_EX.rva},
                complete=True,
            ),
        ]
        self._libraries = [
            files.add(f"{_SYSTEM32}\\library{number:03}.dll", 1500, 300, ROUTINES, complete=True)
            for number in range(min(_STACK_LIBRARIES, count - 4))
        ]
        self._called = [routine for library in self._libraries for routine in library.called]
        self._others = [
            files.add(
                f"{_SYSTEM32}\\extension{number:03}.dll",
                choose.randrange(200, 4000),
                choose.randrange(5, 800),
            )
            for number in range(count - 3 - len(self._libraries))
        ]
        self._programs = [
            files.add(
                f"C:\\Program Files\\App{number:02}\\app{number:02}.exe", 2000, 0, [MAIN], complete=True
            )
            for number in range(self.size.programs)
        ]

    def _process(self, number: int) -> Process:
        program = self._programs[number % len(self._programs)]
        process = self.kernel.process(
            program.path.rsplit("\\", 1)[-1],
            pid=_FIRST_PID + 4 * number,
            session=number % 2,
            nt_global_flag=0x1000 if number < self.size.traced else 0,
        )
        always = [program, self._ntdll, *self._system, *self._libraries]
        more = self.random.sample(self._others, min(self.size.modules - len(always), len(self._others)))
        loaded = self._files.load(process, [*always, *more], number)
        ntdll = loaded["ntdll"]
        head = ntdll.base + self._ntdll.private.start
        process.space.write(head, struct.pack("<QQ", head, head))
        return process

    def _thread(self, tid: int, process: Process) -> Thread:
        program = process.modules[0]
        base = {
            "app": program.base,
            "ntdll": self._ntdll.base,
            "kernelbase": self._system[1].base,
        }
        libraries = self.random.sample(self._called, _USER_CALLS)
        filters = self.random.sample(self._filters, _KERNEL_CALLS)
        thread = process.thread(tid)
        expected = self.wait_deep(thread, base, libraries, filters)
        assert len(expected) == FRAMES
        if self.random.random() < MISSING:
            process.kernel.space.set_state(
                thread.stack_limit, thread.stack_base - thread.stack_limit, State.PAGEFILE
            )
            thread.kthread.maybe("KernelStackResident", 0)
        elif self.random.random() < MISSING:
            process.space.set_state(
                thread.user_stack_limit, thread.user_stack_base - thread.user_stack_limit, State.PAGEFILE
            )
        else:
            self.frames[tid] = [entry.address for entry in expected]
        return thread


def _ntdll(files: Files) -> File:
    """ntdll with the functions that are on every stack, and the getter of the list of function tables."""
    head = data_rva(_NTDLL_FUNCTIONS, _NTDLL_EXPORTS)
    # lea rax, [rip + ...]; ret
    getter = b"\x48\x8d\x05" + struct.pack("<i", head - _GETTER - 7) + b"\xc3"
    named = {
        "NtWait": STUB.rva,
        "RtlUserThreadStart": USER_START.rva,
        **{name: routine.rva for name, routine in DISPATCHERS.items()},
        "RtlGetFunctionTableListHead": _GETTER,
    }
    return files.add(
        f"{_SYSTEM32}\\ntdll.dll",
        _NTDLL_FUNCTIONS,
        _NTDLL_EXPORTS,
        [STUB, USER_START, *DISPATCHERS.values()],
        named,
        {STUB.rva: system_call_stub(NUMBER, BEHIND_SYSCALL), _GETTER: getter},
        complete=True,
    )


def make(folder: pathlib.Path, scale: float = 1, dump: bool = False) -> Tuple[Machine, Image]:
    """Makes a machine and writes its image.

    Args:
        folder: gets `image.raw`, `symbols` and `cache`
        scale: 1 for the whole machine
        dump: write `image.dmp`, the same memory as a crash dump, too
    """
    machine = Machine(Size().scaled(scale))
    image = machine.kernel.image()
    found = Image(image.save(folder / "image.raw"), image.install(folder / "symbols"), folder / "cache")
    if dump:
        image.save(folder / DUMP)
    vol.trust(found.symbols, found.cache)
    return machine, found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path, help="where the image goes")
    parser.add_argument("--scale", type=float, default=1, help="of 1 (all) or less")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    make(arguments.folder, arguments.scale, dump=True)


if __name__ == "__main__":
    main()
