# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The images that are attacked: between them every structure that the plugins read."""

from __future__ import annotations

import pathlib
from typing import Callable, Dict

from tests.forge import kernels, lfh, real_sets, sample
from tests.forge.dump import Image
from tests.support import heapimage, namedimage, realtruth
from tests.support.callstackimages import StackImage
from tests.support.trapforge import TrapImage
from tests.windows.test_owners_hostile import build as owners

from . import names

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "real_std"

Build = Callable[[], Image]


def _named(kernel: str) -> Build:
    return lambda: namedimage.build(kernel).kernel.image()


def _real(name: str, kernel: str) -> Build:
    return lambda: realtruth.image_of(real_sets.load(DATA / f"{name}.tar.xz"), kernel, symbols=False)


def _traps(kernel: str) -> Build:
    return lambda: TrapImage(kernels.load(kernel)).kernel.image()


def _owners(kernel: str) -> Build:
    return lambda: owners(kernel)[0].image()


def _stacks() -> Image:
    image = StackImage()
    image.waiting(1004)
    image.interrupted(1008)
    image.faulted(1012)
    image.system(8)
    return image.kernel.image()


def _heaps(kernel: str, wow64: bool) -> Build:
    """A heap of every kind that the kernel's generation has."""

    def build() -> Image:
        image = heapimage.HeapImage(kernel, wow64)
        if image.form.startswith("5"):
            heap = image.heap(creator=image.index(1), segment_creator=image.index(2))
            for number, size in enumerate((40, 50, 60, 60)):
                heap.plain(size, index=image.index(number))
            heap.free(30, index=image.index(3))
        else:
            heap = image.heap(creator=0, segment_creator=image.index(50))
            for number, size in enumerate((100, 200, 300, 300)):
                heap.extended(size, image.record(number))
            heap.plain(20)
            heap.segment(heapimage.HEAP + 0x100000, creator=image.index(51))
            heap.extended(7, image.record(2))
            lfh.add(
                heap,
                image.form,
                0x60,
                [lfh.Wanted(10, image.record(2)), lfh.Wanted(9, image.record(1), freed=True)],
            )
            heap.virtual(heapimage.HEAP + 0x800000, 0x90000, image.record(2), image.index(52))
        image.put(heap.regions(), heapimage.HEAP)
        return image.image()

    return build


BUILDERS: Dict[str, Build] = {
    "sample": lambda: sample.build().image(),
    "names-win10-x64": lambda: names.image("win10-x64"),
    "names-xp-x86": lambda: names.image("xp-x86"),
    "named-win10-x64": _named("win10-x64"),
    "named-win7-x86": _named("win7-x86"),
    "real-7601": _real("7601.24384-x64-lazy", "win7-x64"),
    "real-19044": _real("19044.1766-x64-heap", "win10-x64"),
    "traps-win10-x64": _traps("win10-x64"),
    "traps-win7-x86": _traps("win7-x86"),
    "traps-xp-x86": _traps("xp-x86"),
    "stacks-win10-x64": _stacks,
    "owners-win10-x64": _owners("win10-x64"),
    "owners-win7-x64": _owners("win7-x64"),
    "owners-xp-x86": _owners("xp-x86"),
    "heaps-win10-x64": _heaps("win10-x64", False),
    "heaps-wow64": _heaps("win7-x64", True),
    "heaps-xp-x86": _heaps("xp-x86", False),
}
