# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The kernel of a forged image: what Volatility looks for first, and the builders' root."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence, Union

from . import finding
from .cid import CidTable
from .cpu import Cpu
from .dump import Image
from .isf import Isf
from .kernel_image import kernel_spec
from .module import Module, Spec, fill_entry, load
from .obj import Obj, Value, filetime, ring
from .pe import DATA, Function, Section
from .phys import PAGE, PhysicalMemory
from .pool import Pool
from .process import Process
from .sections import Sections
from .session import Session
from .space import Space
from .unloaded import UnloadedDrivers

# Lists that are empty until somebody fills them.
_LIST_HEADS = ("ExpSystemResourcesList", "HandleTableListHead")


class Kernel:
    """A Windows kernel in an image, and what runs under it.

    Args:
        isf: its symbol table, 64-bit or 32-bit (PAE); a forged image holds what this table says.
        base: where it is loaded.
        cpus: number of processors.
        nt_global_flag: value of nt!NtGlobalFlag.
        version: (major, minor, build), as KUSER_SHARED_DATA and KdVersionBlock say; default: what
            the table's members suggest.
        highest_user: MmHighestUserAddress; default: the Windows version's.
        exports: names of the table's symbols, or name to RVA, that the kernel exports.
        functions, contents: its function table and bytes, by RVA (see `module.Spec`).
        sections: its section table, less .edata and .pdata, which are put behind all symbols;
            default: code around one .data that holds the lists.
        low_stub, kdbg: whether the image has these two hints to the kernel's base (x64; both).
        large_pages: its image lies in 2 MiB pages, as on real machines.
        shuffle: seed for shuffled page frames, None for ascending ones.
        phys: the image's frames, instead.
    """

    def __init__(
        self,
        isf: Isf,
        *,
        base: Optional[int] = None,
        cpus: int = 1,
        nt_global_flag: int = 0,
        version: Optional[tuple[int, int, int]] = None,
        highest_user: Optional[int] = None,
        exports: Union[Sequence[str], Mapping[str, int]] = (),
        functions: Sequence[Function] = (),
        contents: Optional[Mapping[int, bytes]] = None,
        sections: Optional[Sequence[Section]] = None,
        low_stub: bool = True,
        kdbg: bool = True,
        large_pages: bool = False,
        shuffle: Optional[int] = None,
        phys: Optional[PhysicalMemory] = None,
    ) -> None:
        wide = isf.pointer_size == 8
        self.isf = isf
        self.bits = isf.pointer_size * 8
        self.version = version or finding.guess_version(isf)
        self.base = base or (0xFFFFF80312200000 if wide else 0x82600000)
        self.phys = phys or PhysicalMemory(shuffle)
        arenas = (0xFFFFE00010000000, 0xFFFFE10000000000) if wide else (0x86000000, 0x90000000)
        self.space = Space(self.phys, self.bits, *arenas)
        self.space.write(self.kuser, bytes(PAGE))
        self.sections = Sections(self)
        paged = (0xFFFFC00010000000, 0xFFFFC10000000000) if wide else (0xA8000000, 0xB0000000)
        self.paged = self.space.view(*paged, self.space.pointer_size)
        # Processes share the tables of the kernel's half that there are when they are finished.
        self.paged.map(paged[0], PAGE)
        self._driver_arena = 0xFFFFF80340000000 if wide else 0x8B000000
        self.modules: list[Module] = []
        self.processes: list[Process] = []
        self.sessions: dict[int, Session] = {}
        self._files: dict[str, Obj] = {}
        self.handle_tables: list[Obj] = []
        self.cid: Optional[CidTable] = None

        if not isinstance(exports, Mapping):
            exports = {name: isf.symbol(name) for name in exports}
        spec = kernel_spec(isf, exports, functions, contents or {}, sections)
        if large_pages:
            self.space.map_large(self.base, spec.size)
        image = load(self.space, "ntoskrnl.exe", self.bits, self.base, "", spec)
        image.path = "\\SystemRoot\\system32\\ntoskrnl.exe"
        image.symbols = isf
        for section in image.pe.sections:
            if section.characteristics == DATA:
                self.space.map(self.base + section.rva, section.size)
        self.pool = Pool(self.space, isf, self.base)
        self.nt = self._list(image)
        self.highest_user = highest_user or finding.highest_user(isf)
        self.set("NtGlobalFlag", nt_global_flag, 4)
        self.set("MmHighestUserAddress", self.highest_user)
        if self.bits == 32 and "MmSystemRangeStart" in isf.symbols:
            self.set("MmSystemRangeStart", self.highest_user + 0x10001, 4)
        for name in _LIST_HEADS:
            if name in isf.symbols:
                ring(self.space, [self.symbol(name)])
        finding.describe(self, cpus, kdbg)
        if low_stub and wide:
            finding.low_stub(self)
        self.cpus = [Cpu(self, number) for number in range(cpus)]
        self.unloaded_drivers = UnloadedDrivers(self)
        self.system = self.process("System", pid=4, ppid=0)

    @property
    def kuser(self) -> int:
        """Address of KUSER_SHARED_DATA in the kernel half."""
        return 0xFFFFF78000000000 if self.bits == 64 else 0xFFDF0000

    def symbol(self, name: str) -> int:
        """Virtual address of one of the kernel's symbols. Raises KeyError."""
        return self.base + self.isf.symbol(name)

    def set(self, name: str, value: Value, size: Optional[int] = None) -> bool:
        """Sets a global: an integer of `size` bytes (default: pointer size), bytes, an Obj.

        Returns False, and does nothing, if this kernel's table does not have the symbol.
        """
        if name not in self.isf.symbols:
            return False
        if isinstance(value, Obj):
            value = value.address
        if isinstance(value, int):
            self.space.write_int(self.symbol(name), value, size)
        else:
            self.space.write(self.symbol(name), bytes(value))
        return True

    def obj(self, type_name: str, address: Optional[int] = None, tag: bytes = b"Frge") -> Obj:
        """A structure of the kernel's table in kernel memory, in a new pool block by default."""
        if address is None:
            return self.pool.obj(type_name, tag)
        self.space.map(address, self.isf.size(type_name))
        return Obj(self.space, self.isf, type_name, address)

    def file(self, path: str) -> Obj:
        """The `_FILE_OBJECT` of a path such as `\\Windows\\System32\\ntdll.dll`."""
        if path not in self._files:
            self._files[path] = self.pool.executive("_FILE_OBJECT", "File")
            self._files[path].text("FileName", path)
        return self._files[path]

    def process(self, name: str, pid: int, **options: Any) -> Process:
        """A process: see `process.Process`."""
        process = Process(self, name, pid, **options)
        self.processes.append(process)
        return process

    def session(self, number: int) -> Session:
        """A session, made on first use."""
        if number not in self.sessions:
            self.sessions[number] = Session(self, number)
        return self.sessions[number]

    def module(
        self,
        name: str,
        base: Optional[int] = None,
        *,
        path: Optional[str] = None,
        session: Optional[Session] = None,
        listed: bool = True,
        **options: Any,
    ) -> Module:
        """A driver: see `module.Spec` for the options.

        With `session`, its image is in that session's space only (as win32k.sys is); unlisted, it
        is in memory but not in PsLoadedModuleList.
        """
        spec = Spec(**options)
        if base is None:
            base = self._driver_arena if session is None else session.reserve(0x400000)
            size = spec.pe(name, self.bits, base).size
            if session is None:
                self._driver_arena += -(-size // 0x10000) * 0x10000 + 0x10000
        space = self.space if session is None else session.space
        path = path or f"\\SystemRoot\\System32\\drivers\\{name}"
        module = load(space, name, self.bits, base, path, spec)
        return self._list(module) if listed else module

    def unloaded(self, name: str, start: int, end: int, time: Optional[int] = None) -> None:
        """Remembers an unloaded driver; `time` is a FILETIME."""
        self.unloaded_drivers.add(name, start, end, filetime() if time is None else time)

    def image(self) -> Image:
        """Links what was built and returns the image to be written; building may go on after."""
        heads = [self.symbol("PsLoadedModuleList")]
        entries = [module.entry for module in self.modules if module.entry is not None]
        ring(self.space, heads + [entry.at("InLoadOrderLinks") for entry in entries])
        for process in self.processes:
            process.finish()
        for section in self.sections:
            section.finish()
        links = [process.eprocess.at("ActiveProcessLinks") for process in self.processes]
        listed = [link for link, process in zip(links, self.processes) if process.listed]
        ring(self.space, [self.symbol("PsActiveProcessHead"), *listed])
        if self.isf.has_type("_HANDLE_TABLE") and "PspCidTable" in self.isf.symbols:
            self.cid = self.cid or CidTable(self)
            self.cid.write()
        if self.handle_tables:
            links = [table.at("HandleTableList") for table in self.handle_tables]
            ring(self.space, [self.symbol("HandleTableListHead"), *links])
        self.pool.finish()
        modules = self.modules + self.user_modules()
        tables = [module.symbols for module in modules if module.symbols is not None]
        return Image(self, tables)

    def user_modules(self) -> List[Module]:
        """Returns the modules of all processes."""
        return [module for process in self.processes for module in process.all()]

    def _list(self, module: Module) -> Module:
        types = ("_KLDR_DATA_TABLE_ENTRY", "_LDR_DATA_TABLE_ENTRY")
        entry = self.obj(next(name for name in types if self.isf.has_type(name)), tag=b"MmLd")
        fill_entry(entry, module)
        self.modules.append(module)
        return module
