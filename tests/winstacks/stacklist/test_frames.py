# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What is kept of frames and modules: each process is read once, and memory is bounded."""

from __future__ import annotations

import collections
from typing import Any, Counter, List, Tuple

import pytest

from tests.forge import context
from tests.forge.context import Opened
from tests.forge.handles import OPEN, HandleTable, Ring, named
from tests.support import flattables
from tests.support.tracedkernels import new_kernel
from winstacks.names import symbolizer as names
from winstacks.names.loaderlists import LoaderLists
from winstacks.names.symbolizer import Symbolizer
from winstacks.process.spaces import AddressSpaces
from winstacks.process.vads import Vads
from winstacks.stacklist import frames as flatframes
from winstacks.stacklist.frames import NamedFrame, NamedFrames

PROCESSES = 20
EVENTS = 200
BASE = 0x10000000


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """A process whose handles many other processes opened in turn."""
    kernel = new_kernel("win10-x64", 0)
    app = kernel.process("app.exe", pid=1000)
    table = HandleTable(app, 0)
    table.add(0x84, named(kernel, "_KEVENT", "Event", "Ready"))
    table.finish()
    for number in range(PROCESSES):
        kernel.process(f"p{number}.exe", pid=2000 + 4 * number).module(f"p{number}.exe", base=BASE)
    ring = Ring(table, 256)
    for number in range(EVENTS):
        frames = [kernel.symbol("ObpCreateHandle") + 4, BASE + 0x1000 + number]
        ring.event(OPEN, 0x84, 2000 + 4 * (number % PROCESSES), 1004, frames)
    return context.open_image(kernel.image(), tmp_path_factory.mktemp("frames"))


def test_processes_that_alternate_are_read_once(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    done: Counter[str] = collections.Counter()
    for owner, method in ((Vads, "_walk"), (LoaderLists, "_read")):
        plain = getattr(owner, method)

        def counted(*args: Any, plain: Any = plain, method: str = method) -> Any:
            done[method] += 1
            return plain(*args)

        monkeypatch.setattr(owner, method, counted)
    rows = flattables.stacks(opened, kinds=["handle"])
    assert len(rows) == EVENTS
    assert max(done.values()) <= PROCESSES + 1, done


def every_frame(opened: Opened) -> List[Tuple[object, ...]]:
    """The frames of many processes, looked up in turn, by what must not keep more than its limit."""
    looked_up = NamedFrames(Symbolizer(opened.image))
    spaces = [space for space in AddressSpaces.list_spaces(opened.image) if (space.pid or 0) >= 2000]
    assert len(spaces) == PROCESSES
    found: List[NamedFrame] = []
    for number in range(EVENTS):
        found += looked_up.for_space(spaces[number % PROCESSES]).stack([BASE + 0x1000 + number, None, BASE])
        held = sum(len(frames._returns) + len(frames._exact) for frames in looked_up._kept.values())
        assert held == len(looked_up) <= flatframes.MAX_FRAMES
    return [(entry.address, entry.name, entry.shown, entry.unbacked, entry.details) for entry in found]


@pytest.mark.parametrize("most", [1, 7, 50])
def test_frames_of_all_processes_together_are_bounded(
    opened: Opened, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = every_frame(opened)
    monkeypatch.setattr(flatframes, "MAX_FRAMES", most)
    assert every_frame(opened) == plain


def test_names_that_the_symbolizer_drops_are_not_kept(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "MAX_KEPT", 0)
    symbolizer = Symbolizer(opened.image)
    looked_up = NamedFrames(symbolizer)
    for space in AddressSpaces.list_spaces(opened.image):
        looked_up.for_space(space).frame(BASE + 0x1010)
        assert set(looked_up._kept) <= set(symbolizer.kept_namers())
        assert len(looked_up._kept) <= 2


def test_a_frame_is_made_once(opened: Opened) -> None:
    looked_up = NamedFrames(Symbolizer(opened.image))
    space = next(space for space in AddressSpaces.list_spaces(opened.image) if (space.pid or 0) >= 2000)
    address = BASE + 0x1010
    frame = looked_up.for_space(space).frame(address)
    assert looked_up.for_space(space).frame(address) is frame
    assert frame.details is frame.details
    # The byte before it may belong to another function.
    assert looked_up.for_space(space).frame(address, returns=False) is not frame
