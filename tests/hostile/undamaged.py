# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Images that nobody has altered: every kind of whole image that the forge makes.

Left out are those that contradict themselves on purpose (`namedimage`: modules off one list, VADs of other
files; `names`: modules by the name of no file; `tests.windows.test_owners_hostile`: owners that no lock
counts).
"""

from __future__ import annotations

import pathlib
from typing import Callable, Dict, Iterator, Tuple

from tests.forge import kernels, pageheaps, sample, segmentheaps, trapentries
from tests.forge.dump import Image
from tests.forge.handles import CLOSE, OPEN, HandleTable, Ring, named
from tests.forge.kernel import Kernel
from tests.forge.kernels import KERNELS
from tests.forge.locks import Resources, Sections
from tests.forge.objecttraces import Event, ObjectTraces
from tests.support import real_trapframes, tracedkernels
from tests.support.callbackimages import CallbackImage
from tests.support.callbackimages86 import CallbackImage86
from tests.support.callstackimages import StackImage
from tests.support.callstackimages86 import StackImage86, Wow64Threads
from tests.support.heapimage import HEAP, HeapImage
from tests.support.tracedkernels import new_kernel, put_database, traces_of
from tests.support.trapforge import TrapImage
from tests.windows import test_trapframes_real

from .subjects import BUILDERS as SUBJECTS
from .subjects import Build

X64 = tuple(name for name, kernel in KERNELS.items() if kernel.arch == "x64")
X86 = tuple(name for name, kernel in KERNELS.items() if kernel.arch == "x86")
HPA = 0x02000000
UST = 0x1000

HEAPS: Tuple[Tuple[str, bool], ...] = (
    *((name, False) for name in KERNELS),
    *((name, True) for name in X64),
)
"""Kernel, and whether the heaps are those of a 32-bit half."""


def _plain(name: str) -> Image:
    """Drivers, one that has gone, processes and threads that live, others that have ended, two processors."""
    known = kernels.load(name)
    kernel = Kernel(known.table, **known.options(), cpus=2)
    kernel.module("tcpip.sys")
    kernel.module("win32k.sys", session=kernel.session(1))
    kernel.unloaded("gone.sys", kernel.base + 0x8000000, kernel.base + 0x8010000)
    kernel.system.thread(12)
    app = kernel.process("app.exe", pid=1000, session=1)
    app.module("app.exe", dll=False)
    app.module("ntdll.dll", exports={"NtClose": 0x1100})
    app.region(0x20000000, size=0x3000)
    kernel.cpus[0].current(app.thread(1004))
    kernel.process("done.exe", pid=1008, exited=True)
    if name in X64:
        wow = kernel.process("wow.exe", pid=1012)
        wow.module("ntdll.dll")
        half = wow.wow64()
        half.module("ntdll.dll")
        half.thread(wow.thread(1016))
    return kernel.image()


def traced(name: str) -> Kernel:
    """Databases, locks with their owners, handles and objects with their events."""
    kernel = new_kernel(name, 0x6000)
    generation = dict(tracedkernels.KERNELS)[name]
    indices = put_database(kernel, generation, traces_of(kernel))
    app = kernel.process("app.exe", pid=1000, nt_global_flag=UST)
    owner, other = kernel.system.thread(100), app.thread(1004)
    resources = Resources(kernel)
    resources.add(index=indices[0], active=1, exclusive=owner, contention=3)
    resources.add(
        index=indices[1], active=2, table=[(0, 0), (owner.ethread.address, 1), (other.ethread.address, 4)]
    )
    resources.add(index=indices[2])
    resources.link()
    ntdll = app.module("ntdll.dll", data=0x2000, resident=True)
    sections = Sections(ntdll, ntdll.base + 0x7100, kernel.bits == 64)
    for number in range(5):
        sections.add(index=number)
    sections.link()
    table = HandleTable(app, level=1)
    ring = Ring(table, 4096 if name in ("xp-x86", "2003-x64") else 16)
    for handle in range(4, 64, 4):
        if handle != 8:
            table.add(handle, named(kernel, "_KEVENT", "Event", "Ready", (1000, indices[0])), creator=1)
        ring.event(OPEN, handle, 1000, 1004, traces_of(kernel)[0])
    ring.event(CLOSE, 8, 1000, 1004, traces_of(kernel)[0])
    table.finish()
    if kernel.isf.has_type("_OBJECT_REF_INFO"):
        traces = ObjectTraces(kernel)
        number = traces.stack(traces_of(kernel)[0])
        for _ in range(8):
            event = named(kernel, "_KEVENT", "Event")
            traces.object(event, "app.exe", [Event(place, True, number) for place in range(4)])
        traces.finish()
    return kernel


def _traps(name: str) -> Image:
    return TrapImage(kernels.load(name)).kernel.image()


def _segment_heap(name: str, wow64: bool) -> Image:
    forged = HeapImage(name, wow64)
    heap = segmentheaps.SegmentHeap(HEAP, forged.arch)
    heap.segment(HEAP + 0x100000)
    for place in (0x100230, 0x100500, 0x1FFF00):
        heap.extra(HEAP + place, forged.record(1))
    heap.large(HEAP + 0x1000000, 0x54321, forged.record(2))
    forged.put(heap.regions(), HEAP)
    return forged.image()


def _page_heap(name: str, wow64: bool) -> Image:
    forged = HeapImage(name, wow64, flags=HPA)
    normal = forged.heap(HEAP, interceptor=0, flags=2, segment_creator=0)
    page = pageheaps.PageHeap(HEAP + 0x1000000, forged.arch, HEAP, creator=forged.entry(1))
    page.block(HEAP + 0x2000000, 100, forged.entry(2))
    page.block(HEAP + 0x3000000, 60, forged.entry(3), freed=True, mapped=False)
    forged.put(normal.regions(), HEAP)
    forged.put(page.regions())
    return forged.image()


def _stacks(name: str) -> Image:
    image = StackImage(name)
    image.system(12)
    image.waiting(1004)
    image.interrupted(1008)
    image.faulted(1012)
    image.preempted(1016, trapentries.DEVICE, entered=True)
    return image.kernel.image()


def _wow64_stacks(name: str) -> Image:
    image = StackImage(name)
    half = Wow64Threads(image)
    half.in_system_call(1016)
    half.in_32_bit_code(1020)
    return image.kernel.image()


def _stacks86(name: str) -> Image:
    image = StackImage86(name)
    image.waiting(1004, interrupted=False)
    image.waiting(1008, interrupted=True)
    image.preempted(1012, entered=True)
    return image.kernel.image()


def _callbacks(name: str) -> Image:
    image = CallbackImage(name)
    image.called_back(1004, 2)
    image.called_back(1008, 2, expanded=1)
    return image.kernel.image()


def _callbacks86(name: str) -> Image:
    image = CallbackImage86(name)
    image.called_back(1004, 2)
    return image.kernel.image()


def _builder(make: Callable[..., Image], *arguments: object) -> Build:
    return lambda: make(*arguments)


BUILDERS: Dict[str, Build] = {
    **{f"plain-{name}": _builder(_plain, name) for name in (*KERNELS, "2003-x64")},
    **{
        f"traced-{name}": _builder(lambda name: traced(name).image(), name)
        for name, _ in tracedkernels.KERNELS
    },
    **{f"sample-{name}": _builder(lambda name: sample.build(name).image(), name) for name in X64},
    **{
        f"traps-{name}": _builder(lambda name: TrapImage(kernels.load(name)).kernel.image(), name)
        for name in KERNELS
    },
    **{f"stacks-{name}": _builder(_stacks, name) for name in (*X64, "2003-x64")},
    **{f"stacks-{name}": _builder(_stacks86, name) for name in X86},
    **{f"stacks-wow64-{name}": _builder(_wow64_stacks, name) for name in X64},
    **{f"callbacks-{name}": _builder(_callbacks, name) for name in X64},
    **{f"callbacks-{name}": _builder(_callbacks86, name) for name in X86},
    **{
        f"segment-heap-{name}{'-wow64' * half}": _builder(_segment_heap, name, half)
        for name, half in HEAPS
        if name.startswith("win10")
    },
    **{
        f"page-heap-{name}{'-wow64' * half}": _builder(_page_heap, name, half)
        for name, half in HEAPS
        if not name.startswith("xp")
    },
    **{name: build for name, build in SUBJECTS.items() if name.startswith(("heaps", "real"))},
}
"""The images, by what they hold and the kernel."""


def real_trap_frames(build: str, shared_dir: pathlib.Path) -> Iterator[Tuple[str, Kernel]]:
    """Yields (label, kernel with it on a stack) of real frames: the first user and the first kernel one."""
    frames = real_trapframes.load(shared_dir, build)
    for mode in dict.fromkeys(frame.mode for frame in frames):
        real = next(frame for frame in frames if frame.mode == mode)
        kernel, pointer, active = test_trapframes_real.kernel_of(build, frames)
        kernel.space.write(real.stack_address, real.stack)
        kernel.space.write(active, bytes([real.debug_active]))
        kernel.space.write_int(pointer, real.address)
        yield real.label, kernel
