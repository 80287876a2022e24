# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Stacks of a clean image, of the same with pages missing, and of that with the files of its modules.

A frame is right if the whole image has it: the same address at the same place of the stack of the same
thread. Of a module a forged image has only pages with content, while files have all. So the whole image is
read with the files as well.
"""

from __future__ import annotations

import pathlib
from typing import Dict, NamedTuple, Optional, Sequence, Set, Tuple

from tests.forge import context, modulefile
from tests.forge.dump import Image
from winstacks.names.modulefiles import GivenFiles, module_files
from winstacks.names.symbolizer import Symbolizer
from winstacks.stacks.lister import StackLister

from .clean import images

Frame = Tuple[Optional[int], Optional[int], str, int, int]
"""PID, TID, part of the stack, address, stack pointer."""


class Stacks(NamedTuple):
    """The frames of an image: those that are sure, with their names, and those that are not."""

    sure: Dict[Frame, str]
    unsure: Set[Frame]


class Scores(NamedTuple):
    """What became of the frames of a whole image when pages went missing.

    Attributes:
        whole: frames that are sure in the whole image
        without: how many of these are there and sure with pages missing
        given: the same with files
        named: how many of these have the name that they have in the whole image
        wrong: frames that are sure with files, and not in the whole image
    """

    whole: int
    without: int
    given: int
    named: int
    wrong: Set[Frame]

    @property
    def back(self) -> float:
        """The share of the lost frames that files bring back."""
        lost = self.whole - self.without
        return (self.given - self.without) / lost if lost else 1.0


def score(name: str, seed: int, folder: pathlib.Path, of_files: bool) -> Scores:
    """Counts the frames of a clean image.

    Args:
        name: of its kernel
        seed: which pages are missing
        folder: an empty one
        of_files: whether only pages of modules are missing, or those of stacks and lists as well
    """
    clean = images.build(name)
    modules = clean.kernel.user_modules()
    # Both halves of a WoW64 process have an ntdll.dll, forged with the same stamp and size.
    files = [
        modulefile.save([module for module in modules if module.pe.bits == bits], folder / f"files{bits}")
        for bits in (64, 32)
    ]
    modulefile.save(clean.kernel.modules, files[0])
    whole = _stacks(clean.kernel.image(), folder / "whole", files)
    lost = images.build(name)
    images.lose_pages(lost, seed, of_files=of_files)
    image = lost.kernel.image()
    without = _stacks(image, folder / "without")
    with_files = _stacks(image, folder / "given", files)
    kept = with_files.sure.keys() & whole.sure.keys()
    return Scores(
        len(whole.sure),
        len(without.sure.keys() & whole.sure.keys()),
        len(kept),
        sum(with_files.sure[frame] == whole.sure[frame] for frame in kept),
        with_files.sure.keys() - whole.sure.keys() - whole.unsure,
    )


def _stacks(image: Image, folder: pathlib.Path, files: Sequence[pathlib.Path] = ()) -> Stacks:
    folder.mkdir(parents=True)
    opened = context.open_image(image, folder)
    if files:
        opened.image.providing(module_files)(GivenFiles([str(file) for file in files]))
    symbolizer = Symbolizer(opened.image)
    sure: Dict[Frame, str] = {}
    unsure: Set[Frame] = set()
    for stack in StackLister.list_stacks(opened.image, symbolizer):
        names = symbolizer.for_space(stack.space)
        for frame in stack.frames:
            key = (stack.space.pid, stack.thread.tid, stack.part, frame.address, frame.sp)
            if frame.sure:
                sure[key] = names.name(frame.address, frame.returns).symbol
            else:
                unsure.add(key)
    return Stacks(sure, unsure)
