# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Images of the cases that no builder of the tests makes by itself."""

from __future__ import annotations

import os
import pathlib
from typing import Callable, Tuple

from tests.conftest import SHARED
from tests.forge import context, kernels, real_sets, sample, smalldump, trapframes
from tests.forge.dump import Image
from tests.forge.kernel import Kernel
from tests.forge.smalldump import Driver, SmallDump
from tests.forge.std import Std
from tests.forge.std_damage import Damaged
from tests.forge.trapentries import FAULT, X86_OLD, Entry
from tests.support import deadlockimages, realtruth, smalldumps, strangers, tracedkernels
from tests.support.clean import images as clean_images

ImageFiles = Tuple[pathlib.Path, pathlib.Path]
"""The file of an image, and its folder of symbols."""
Build = Callable[[], Image]

DATABASE = 0x1D2A0000000
PRIVATE = 0x1F00000000
EXITED = 0x01D9_0000_0000_0000
ISF_8_1 = "windows/ntkrnlmp.pdb/06A508F37B81478E855A3542E272C084-1.json.xz"


def forged(build: Build, name: str = "image.dmp") -> Callable[[pathlib.Path], ImageFiles]:
    """Puts a forged image into a folder. A crash dump opens faster than a raw one."""

    def make(folder: pathlib.Path) -> ImageFiles:
        image = build()
        return image.save(folder / name), image.install(folder / "symbols")

    return make


def small_of_sample(folder: pathlib.Path) -> ImageFiles:
    """The small kernel dump of the sample, with the symbols of its kernel."""
    image = sample.build().image()
    smalldumps.write_of_sample(context.open_image(image, folder), folder / smalldumps.SAMPLE)
    return folder / smalldumps.SAMPLE, image.install(folder / "symbols")


def small_of_xp(folder: pathlib.Path) -> ImageFiles:
    """A small kernel dump of XP, of whose kernel no symbols are there, with a trap frame on its stack."""
    kernel, driver, stack = 0x804D7000, 0xF8A10000, 0xF7A34000
    frame = stack + 0x100
    registers = dict.fromkeys(("eax", "ebx", "ecx", "edx", "esi", "edi", "error_code"), 0x10)
    registers.update(eip=driver + 0x1234, esp=frame + 0x74, ebp=stack + 0x180, eflags=0x10246)
    registers.update(cs=8, ss=0x10, ds=0x23, es=0x23, fs=0x30, gs=0, exception_list=0xFFFFFFFF)
    fault = trapframes.forge(X86_OLD, Entry(FAULT, "kernel"), registers, frame, trapframes.stack_poison_86)
    dump = SmallDump(wide=False, build=2600, entry=0x50)
    dump.crash(0xA, (0x10, 2, 0, driver + 0x1234), smalldump.context(False, kernel + 0x4000, stack + 0x20))
    data = bytearray(0x200)
    data[0x100 : 0x100 + len(fault.data)] = fault.data
    dump.stack(stack, bytes(data))
    dump.drivers([Driver("ntoskrnl.exe", kernel, 0x214000), Driver("bad.sys", driver, 0x8000)])
    dump.unloaded([Driver("gone.sys", 0xF8B00000, 0x4000)])
    (folder / "Mini.dmp").write_bytes(dump.file())
    (folder / "symbols").mkdir()
    return folder / "Mini.dmp", folder / "symbols"


def undamaged(name: str) -> Build:
    """An image of those that nobody has altered."""

    def build() -> Image:
        from tests.hostile.undamaged import BUILDERS

        return BUILDERS[name]()

    return build


def subject(name: str) -> Build:
    """An image of those that are attacked, before that."""

    def build() -> Image:
        from tests.hostile.subjects import BUILDERS

        return BUILDERS[name]()

    return build


def vista() -> Image:
    """A kernel and a process with databases of 6.0, in the kernel of 7: the forge has none of Vista."""
    known = kernels.load("win7-x64")
    kernel = Kernel(known.table, **{**known.options(), "nt_global_flag": 0x2000})
    tracedkernels.put_database(kernel, "6.0", tracedkernels.traces_of(kernel))
    _with_database(kernel, "6.0")
    return kernel.image()


def damaged_database() -> Image:
    """A process whose database has lost pages, and fields of which say what cannot be."""
    known = kernels.load("win10-x64")
    kernel = Kernel(known.table, **known.options())
    _with_database(kernel, "6.1", damage=True)
    return kernel.image()


def _with_database(kernel: Kernel, generation: str, damage: bool = False) -> None:
    process = kernel.process("app.exe", pid=1000, nt_global_flag=0x1000)
    process.thread(1004)
    ntdll = process.module("ntdll.dll", **sample.NTDLL.options())
    std = Std(generation, "x64", DATABASE)
    for number in range(150):
        stack = [ntdll.base + 0x1000 + 0x20 * number + frame for frame in range(number % 32 + 1)]
        std.log(stack, number=number % 7 != 0)
        std.log(stack[::-1])
    process.space.write_int(ntdll.base + sample.POINTER_RVA, std.base)
    if not damage:
        sample.write(process, std)
        return
    damaged = Damaged(std)
    entries = list(std.entries())
    damaged.depth(entries[3], 200)
    damaged.count(entries[5], 0)
    damaged.pointer(entries[8].va, entries[8].va)
    damaged.pointer(damaged.head(damaged.longest_chain()), 0x1234)
    damaged.pointer(damaged.slot(20), 0xFFFF800000000000)
    damaged.drop(entries[60].va)
    for address, data in damaged.regions().items():
        process.space.write(address, data)


def damaged_lists() -> Image:
    """Something is missing of every source in the kernel, and its list of processes leads nowhere."""
    from tests.windows.test_traces_gaps import holes

    kernel = holes()
    image = kernel.image()
    kernel.space.write_int(kernel.symbol("PsActiveProcessHead"), 0)
    return image


def smeared() -> Image:
    """A process has ended while the image was taken: its threads are of an earlier time."""
    kernel = sample.build()
    image = kernel.image()
    eprocess = kernel.processes[1].eprocess
    eprocess["ExitTime.QuadPart"] = EXITED
    eprocess["ActiveThreads"] = 0
    eprocess["ObjectTable"] = 0
    return image


def truncated(folder: pathlib.Path) -> ImageFiles:
    """The sample without its last third."""
    image, symbols = forged(lambda: sample.build().image(), "image.raw")(folder)
    os.truncate(image, image.stat().st_size // 3 * 2)
    return image, symbols


def implant(name: str) -> Build:
    """A process with code in private memory: in a thread, in its database, as the opener of a handle."""

    def build() -> Image:
        from tests.forge.handles import named
        from tests.support.findingimages import FindingImage

        image = FindingImage(name)
        place = PRIVATE if image.wide else 0x5000000
        image.app.region(place, b"\x55\x48\x8b\xec" * 0x40, size=0x1000, protection=0x40)
        image.interrupted_at(place + 0x24)
        image.breaks_at(image.stacks.modules["ntdll"].base + 0x1100, 1)
        image.recorded(place + 0x10, image.stacks.modules["ntdll"].base + 0x1105)
        victim = image.beside("lsass.exe", 700)
        image.opens(victim.eprocess, 0x1F0FFF, place + 0x20)
        image.opens(named(image.kernel, "_KEVENT", "Event", "Ready"), 0x1F0003, place + 0x30)
        return image.image()

    return build


def clean(name: str, missing: bool = False) -> Build:
    """A machine in which nothing is wrong, whole or with three pages of ten missing."""

    def build() -> Image:
        image = clean_images.build(name)
        if missing:
            clean_images.lose_pages(image, 1)
        return image.kernel.image()

    return build


def deadlock() -> Image:
    """Three threads, each of which waits for what another holds."""
    return deadlockimages.build(deadlockimages.Scenario()).image


def real_database(name: str, kernel: str) -> Build:
    """A database that Windows wrote, in a forged image."""

    def build() -> Image:
        return realtruth.image_of(real_sets.load(SHARED / "real_std" / f"{name}.tar.xz"), kernel, False)

    return build


def real_frame(build_name: str, mode: str) -> Build:
    """A stack with a trap frame that a real kernel made, in a forged image."""

    def build() -> Image:
        from tests.hostile.undamaged import real_trap_frames

        for label, kernel in real_trap_frames(build_name, SHARED):
            if label.split("/")[1].endswith(mode):
                return kernel.image()
        raise LookupError(f"no frame of {build_name} was entered from {mode}")

    return build


def windows_8_1() -> Image:
    """A kernel with the public structures of 8.1, and a database of its own."""
    known = kernels.real(SHARED / "isf" / "symbols" / ISF_8_1)
    kernel = Kernel(known.table, **{**known.options(), "nt_global_flag": 0x2000})
    tracedkernels.put_database(kernel, "6.1", tracedkernels.traces_of(kernel))
    kernel.process("app.exe", pid=1000).thread(1004)
    return kernel.image()


def reactos(name: str) -> Callable[[pathlib.Path], ImageFiles]:
    """A whole system that nobody here wrote."""

    def make(folder: pathlib.Path) -> ImageFiles:
        return strangers.unpacked(SHARED / "reactos" / f"{name}.raw.xz", folder), folder / "symbols"

    return make
