# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Processes: EPROCESS, address space, PEB, modules, memory and the structures to which these point."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Optional

from .loader import Loader
from .module import Module
from .obj import Obj, filetime, ring
from .paging import State
from .phys import PAGE
from .session import Session
from .space import Space
from .thread import Thread
from .vad import EXECUTE_WRITECOPY, READONLY, READWRITE, Vad, write_tree
from .wow64 import Wow64

if TYPE_CHECKING:
    from .kernel import Kernel

_SHARED_DATA = 0x7FFE0000


class Process:
    """A process; made by `Kernel.process`.

    Args:
        name, pid, ppid: as EPROCESS has them. The process of pid 4 is the kernel's own.
        session: number of its session, None for none.
        nt_global_flag: PEB.NtGlobalFlag.
        peb: address of the PEB; default: one of its own.
        exited: it has an exit time and no PEB, threads or ranges any more, but is still listed.
        minimal: it has no PEB, no modules, and threads of the kernel only, as Registry has.
        listed: False keeps it out of the process list.
        command_line: in its process parameters.
    """

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        pid: int,
        *,
        ppid: int = 4,
        session: Optional[int] = None,
        nt_global_flag: int = 0,
        peb: Optional[int] = None,
        exited: bool = False,
        minimal: bool = False,
        listed: bool = True,
        command_line: Optional[str] = None,
    ) -> None:
        self.kernel = kernel
        self.name = name
        self.pid = pid
        self.listed = listed
        self.exited = exited
        self.threads: list[Thread] = []
        self.vads: list[Vad] = []
        self.wow: Optional[Wow64] = None
        wide = kernel.bits == 64
        system = pid == 4
        self.user = self.audited = not (system or exited or minimal)
        arenas = (0xE000000000, 0xE100000000) if wide else (0x05000000, 0x0A000000)
        self.space = kernel.space if system else Space(kernel.phys, kernel.bits, *arenas, kernel.space)
        self.eprocess = kernel.pool.executive("_EPROCESS", "Process")
        self.session: Optional[Session] = None if session is None else kernel.session(session)
        self._describe(ppid)
        self.peb: Optional[Obj] = None
        self.loader: Optional[Loader] = None
        if self.user:
            self._user_half(peb or (0xEF00000000 if wide else 0x7FFD3000), nt_global_flag)
            self._parameters(command_line or name)

    def _describe(self, ppid: int) -> None:
        eprocess = self.eprocess
        eprocess["Pcb.Header.Type"] = 3
        eprocess["Pcb.DirectoryTableBase"] = self.space.tables.root
        eprocess["UniqueProcessId"] = self.pid
        eprocess["ImageFileName"] = self.name.encode()[:14]
        eprocess.maybe("InheritedFromUniqueProcessId", ppid)
        eprocess.maybe("CreateTime.QuadPart", 0 if self.pid == 4 else filetime(seconds=self.pid))
        if self.exited:
            eprocess["ExitTime.QuadPart"] = filetime(seconds=3600)
        if self.session is not None:
            eprocess["Session"] = self.session.block
        eprocess.maybe("HighestUserAddress", self.kernel.highest_user)

    def _user_half(self, peb: int, nt_global_flag: int) -> None:
        kernel = self.kernel
        self.space.map_frame(_SHARED_DATA, kernel.space, kernel.kuser)
        self.vads.append(Vad(_SHARED_DATA, PAGE, protection=READONLY))
        self.region(peb, size=kernel.isf.size("_PEB"))
        self.peb = Obj(self.space, kernel.isf, "_PEB", peb)
        self.peb["NtGlobalFlag"] = nt_global_flag
        self.eprocess["Peb"] = peb
        major, minor, build = kernel.version
        self.peb.put(OSMajorVersion=major, OSMinorVersion=minor, OSBuildNumber=build)
        self.peb.put(NumberOfProcessors=1, OSPlatformId=2)
        arena = 0x7FE00000000 if kernel.bits == 64 else 0x70000000
        self.loader = Loader(self.space, kernel.isf, arena, "C:\\Windows\\System32", kernel.sections)

    def _parameters(self, command_line: str) -> None:
        type_name = "_RTL_USER_PROCESS_PARAMETERS"
        if self.peb is None or not self.kernel.isf.has_type(type_name):
            return
        block = self.obj(type_name)
        for member in ("CommandLine", "ImagePathName"):
            if block.has(member):
                block.text(member, command_line)
        self.peb.maybe("ProcessParameters", block)

    def obj(self, type_name: str, address: Optional[int] = None) -> Obj:
        """A structure of the kernel's table in the process' memory (default: a fresh place)."""
        size = self.kernel.isf.size(type_name)
        if address is None:
            address = self.space.allocate(size)
        self.space.map(address, size)
        return Obj(self.space, self.kernel.isf, type_name, address)

    @property
    def modules(self) -> list[Module]:
        """Those of its own bitness."""
        return self.loader.modules if self.loader is not None else []

    def module(self, name: str, base: Optional[int] = None, *, vad: bool = True, **options: Any) -> Module:
        """A module; the first one is the program itself.

        Args:
            name: name of its file without the extension.
            base: its address; None for the next free one.
            vad: False gives it no range.
            options: `path` of its file; `listed`: False leaves it out of the loader's lists; `orders`: the
                lists that it is in ("InLoadOrderModuleList", ...), all by default; others: see `module.Spec`.
        """
        if self.loader is None:
            raise ValueError(f"{self.name} has no user half")
        module = self.loader.module(name, base, **options)
        if vad:
            self.image_range(module)
        return module

    def image_range(self, module: Module) -> None:
        """Adds the range of a mapped image."""
        file = module.path[2:] if module.path[1:2] == ":" else module.path
        vad = Vad(module.base, module.size, file, EXECUTE_WRITECOPY, True, section=module.section)
        self.vads.append(vad)

    def region(
        self,
        address: int,
        data: bytes = b"",
        *,
        size: int = 0,
        state: State = State.VALID,
        file: Optional[str] = None,
        protection: int = READWRITE,
        vad: bool = True,
    ) -> None:
        """Memory at an address, `size` bytes that begin with `data`, in a range of its own.

        With `file` a mapped file's view. No range is added where one is already.
        """
        size = max(size, len(data))
        self.space.map(address, size)
        self.space.write(address, data)
        if state is not State.VALID:
            self.space.set_state(address, size, state)
        if vad and not any(vad.covers(address) for vad in self.vads):
            self.vads.append(Vad(address, size, file, protection))

    def thread(self, tid: int, **options: Any) -> Thread:
        """A thread: see `thread.Thread`."""
        thread = Thread(self, tid, **options)
        self.threads.append(thread)
        return thread

    def next_teb(self) -> int:
        """Where the next thread's TEB goes: above the PEB on x64, below the shared data on x86."""
        number = len(self.threads)
        if self.kernel.bits == 32:
            return 0x7FFDE000 - number * PAGE
        return 0xEF00004000 + number * 4 * PAGE

    def wow64(self, **options: Any) -> Wow64:
        """Makes this the 64-bit side of a 32-bit process: see `wow64.Wow64`."""
        self.wow = Wow64(self, **options)
        return self.wow

    def all(self) -> list[Module]:
        """The modules of both halves."""
        return self.modules + (self.wow.modules if self.wow is not None else [])

    def finish(self) -> None:
        """Joins lists and ranges as they are now."""
        kernel = self.kernel
        rings = (
            ("ThreadListHead", "ThreadListEntry"),
            ("Pcb.ThreadListHead", "Tcb.ThreadListEntry"),
        )
        listed = [thread for thread in self.threads if thread.listed]
        for head, entry in rings:
            links = [self.eprocess.at(head)]
            ring(kernel.space, links + [thread.ethread.at(entry) for thread in listed])
        self.eprocess.maybe("ActiveThreads", len(listed))
        self._finish_audit()
        if self.space is kernel.space:
            return
        self.space.tables.share(kernel.space.tables)
        if self.session is not None:
            self.space.tables.share(self.session.space.tables)
        if self.peb is not None and self.loader is not None:
            self._finish_modules(self.peb, self.loader)
        elif not self.vads:
            return
        for view in [self.space] + ([self.wow.space] if self.wow is not None else []):
            self._heap_range(*view.allocated)
        write_tree(kernel, self.eprocess, self.vads)

    def _finish_audit(self) -> None:
        """Writes the path under which the kernel opened the program; a minimal process has none."""
        member, isf = "SeAuditProcessCreationInfo.ImageFileName", self.kernel.isf
        if not self.audited or not isf.has("_EPROCESS", member) or self.eprocess[member]:
            return
        text = f"\\Device\\HarddiskVolume2\\Windows\\System32\\{self.name}".encode("utf-16-le")
        pointer = self.kernel.space.pointer_size
        string = self.kernel.pool.allocate(2 * pointer + len(text), b"SeOp")
        lengths = struct.pack("<HH", len(text), len(text)).ljust(pointer, b"\0")
        buffer = (string + 2 * pointer).to_bytes(pointer, "little")
        self.kernel.space.write(string, lengths + buffer + text)
        self.eprocess[member] = string

    def _finish_modules(self, peb: Obj, loader: Loader) -> None:
        loader.link()
        peb["Ldr"] = loader.head
        if self.modules:
            peb["ImageBaseAddress"] = self.modules[0].base
            self.eprocess.maybe("SectionBaseAddress", self.modules[0].base)
        if self.wow is not None:
            self.wow.finish()

    def _heap_range(self, start: int, size: int) -> None:
        """Adds or extends the range of what was allocated one by one."""
        known = next((vad for vad in self.vads if vad.start == start), None)
        if known is not None:
            known.size = size
        elif size:
            self.vads.append(Vad(start, size))
