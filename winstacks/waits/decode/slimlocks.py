# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""SRW locks, condition variables and run-once variables: the chain of waiting threads begins in one word.

The word leads to the newest wait block, on the stack of the thread that came last; each block leads to an
older one. So the lock of a thread is the word from which a chain leads to a block on the thread's own stack.
The first block with Notify names the oldest block that still waits. Behind that one lie blocks of threads
that went on. Source: measured on ntdll's own code, 7 to 22000 (x64, x86, WoW64). The bits of RTL_SRWLOCK are
public symbols: Locked, Waiting, Waking, MultipleShared.
"""

from __future__ import annotations

from functools import cached_property
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from ...columns import words
from ...memory.decode.memo import Memo
from ...memory.decode.records import NamedTuple
from ...memory.decode.structure import Structure, Structures
from .answer import Answer
from .processview import INNERMOST, ProcessView, ThreadView

LOCKED, WAITING, LOW_BITS = 1, 2, 0xF
ONCE_BITS, ONCE_PENDING = 3, 1
EXCLUSIVE_WAITER = 1
"""A bit of the block's Flags."""

ALIGNMENT = 16
"""Wait blocks begin at multiples of this."""

OUTER = 0x2000
"""Bytes of a stack that are searched if its inner part has no lock: callers' frames may have it."""

MAX_CHAIN = 1 << 12
"""The most blocks of one chain that are followed."""

MOST_BLOCKS = 1 << 19
"""The most blocks of all chains of a process that are followed."""


class SlimBlock(NamedTuple):
    """A wait block. `thread_id` is None in Windows 7, which has no such member."""

    address: int
    back: int
    notify: int
    next: int
    thread_id: Optional[int]
    share_count: int
    flags: int
    lock: int


class BlockLayout:
    """The wait block of one bitness and generation of Windows."""

    def __init__(self, structure: Structure) -> None:
        names = ["Back", "Notify", "Next", "ShareCount", "Flags", "SRWLock"]
        self.names_thread = structure.has("ThreadId")
        self.size = structure.size
        self._read = structure.reader(*names, *(["ThreadId"] if self.names_thread else []))

    def block(self, view: ProcessView, address: int) -> Optional[SlimBlock]:
        """Returns the block at an address, None if it is not there."""
        data = view.read(address, self.size)
        if data is None:
            return None
        back, notify, following, count, flags, lock, *thread = self._read(data, 0)
        return SlimBlock(address, back, notify, following, thread[0] if thread else None, count, flags, lock)


class SlimQueue(NamedTuple):
    """The threads that wait for one word, the newest first.

    Attributes:
        blocks: the wait blocks, each with the thread on whose stack it lies
        complete: whether the chain was followed to its oldest block
        names_threads: whether the blocks have the IDs of the threads
    """

    word: int
    value: int
    blocks: Tuple[Tuple[SlimBlock, ThreadView], ...]
    complete: bool
    names_threads: bool


class SlimLocks:
    """Finds the slim lock or condition variable of each thread of a process. `layouts` has
    `_RTLP_SRWLOCK_WAIT_BLOCK` of each generation, the newest first. `limited` says whether chains were left
    out, because the process has more than MOST_BLOCKS blocks."""

    def __init__(self, view: ProcessView, layouts: Sequence[Structures]) -> None:
        self._view = view
        self._layouts = [BlockLayout(types["_RTLP_SRWLOCK_WAIT_BLOCK"]) for types in layouts]
        self._chains: Memo[int, Optional[SlimQueue]] = Memo(self._chain)
        self._own: Memo[int, Dict[int, SlimBlock]] = Memo(self._own_blocks)
        self._left = MOST_BLOCKS
        self.limited = False

    def find(self, thread: ThreadView, in_ntdll: bool = False) -> List[Answer]:
        """Returns what a thread waits for: each word whose chain leads to the thread's stack. `in_ntdll` says
        whether ntdll made its system call. Without that, only blocks with the IDs of their threads are
        believed; with that, it is worth a search further up the stack, and among the words that other threads
        have."""
        if thread.sp is None:
            return []
        found = self._of(thread, self._candidates(thread), in_ntdll)
        if in_ntdll:
            found = found or self._once(thread)
        if not found and in_ntdll:
            found = self._of(thread, self._candidates(thread, OUTER)) or self._of(
                thread, self._of_others.get(thread.tid, ())
            )
        return found

    def _of(self, thread: ThreadView, candidates: Iterable[int], in_ntdll: bool = True) -> List[Answer]:
        """Returns the words among some addresses whose chain leads to a thread's stack."""
        found: Dict[int, Answer] = {}
        for address in candidates:
            chain = self._chains[address]
            own = None if chain is None else self._own[address].get(id(thread))
            known = chain is not None and (chain.names_threads or in_ntdll)
            if chain is not None and own is not None and known and address not in found:
                found[address] = _answer(chain, own, thread)
        named = [answer for answer in found.values() if self._is_named(answer)]
        return named or list(found.values())

    @cached_property
    def _of_others(self) -> Dict[int, List[int]]:
        """The words that begin a chain and to which any thread points, by the threads in the chain."""
        words = (address for thread in self._view.threads for address in self._candidates(thread))
        found: Dict[int, List[int]] = {}
        for address in dict.fromkeys(words):
            chain = self._chains[address]
            for tid in dict.fromkeys(owner.tid for _, owner in chain.blocks) if chain is not None else ():
                found.setdefault(tid, []).append(address)
        return found

    def _candidates(self, thread: ThreadView, length: int = INNERMOST) -> Iterator[int]:
        """Yields the addresses in a thread's registers and on the inner part of its stack."""
        size = self._view.pointer_size
        known = (*filter(None, thread.arguments), *thread.hints, *thread.registers.values())
        values = (*known, *self._view.innermost(thread, length))
        for value in dict.fromkeys(values):
            if value > 0xFFFF and not value % size and not self._view.in_teb(value):
                yield value

    def _is_named(self, answer: Answer) -> bool:
        """Returns whether the thread's own block names the lock that was found."""
        return answer.lock == answer.address

    def _chain(self, address: int) -> Optional[SlimQueue]:
        """Returns the chain that begins with the word at an address; None if it is none."""
        value = self._view.pointer(address)
        return None if value is None else self._walk(address, value)

    def _walk(self, word: int, value: int) -> Optional[SlimQueue]:
        newest, bits = value & ~LOW_BITS, value & LOW_BITS
        if not newest or (bits and not bits & WAITING) or self._view.thread_on(newest) is None:
            return None
        if not bits and self._within_block(word):
            return None
        for layout in self._layouts:
            chain = self._follow(layout, word, value, newest)
            if chain is not None:
                return chain
        return None

    def _within_block(self, word: int) -> bool:
        """Returns whether a word looks like the Back, Notify or Next of a wait block, perhaps a stale one."""
        owner = self._view.thread_on(word)
        if owner is None:
            return False
        starts = [word - place * self._view.pointer_size for place in range(3)]
        return any(
            block is not None and (block.thread_id == owner.tid or self._looks_sound(block))
            for start in starts
            for block in (layout.block(self._view, start) for layout in self._layouts)
        )

    def _looks_sound(self, block: SlimBlock) -> bool:
        """Returns whether nothing contradicts that a wait block is or was at its address."""
        links = (block.back, block.notify, block.next)
        return (
            not block.address % ALIGNMENT
            and all(not link or self._view.thread_on(link) is not None for link in links)
            and block.flags <= LOW_BITS
            and abs(block.share_count) <= MAX_CHAIN
            and not block.lock % self._view.pointer_size
        )

    def _follow(self, layout: BlockLayout, word: int, value: int, newest: int) -> Optional[SlimQueue]:
        blocks: List[Tuple[SlimBlock, ThreadView]] = []
        seen: Set[int] = set()
        at, oldest = newest, 0
        while len(blocks) < MAX_CHAIN:
            if at in seen or not self._may_follow():
                return None
            seen.add(at)
            block, owner = layout.block(self._view, at), self._view.thread_on(at)
            if owner is None or (block is not None and not self._is_sound(block, owner, layout)):
                return None
            if block is None:
                break
            blocks.append((block, owner))
            oldest = oldest or block.notify
            if at == oldest:
                return SlimQueue(word, value, tuple(blocks), True, layout.names_thread)
            at = block.back
        # A block is not in the image: the IDs of threads still prove the newer ones.
        proven = bool(blocks) and layout.names_thread
        return SlimQueue(word, value, tuple(blocks), False, True) if proven else None

    def _may_follow(self) -> bool:
        """Returns whether one more block may be followed."""
        self._left -= 1
        self.limited |= self._left < 0
        return self._left >= 0

    def _is_sound(self, block: SlimBlock, owner: ThreadView, layout: BlockLayout) -> bool:
        """Returns whether a block is the live wait block of the thread on whose stack it lies."""
        if block.address % ALIGNMENT or (owner.sp is not None and block.address < owner.sp):
            return False
        if not layout.names_thread:
            return self._looks_sound(block)
        # The thread pool links its workers in a list on their stacks, with their IDs: its head is elsewhere.
        leads = not block.notify or self._view.thread_on(block.notify) is not None
        return leads and block.thread_id == owner.tid

    def _own_blocks(self, address: int) -> Dict[int, SlimBlock]:
        """Returns the newest block of each thread in the chain of a word, by the identity of its view."""
        chain = self._chains[address]
        return {} if chain is None else {id(owner): block for block, owner in reversed(chain.blocks)}

    def _once(self, thread: ThreadView) -> List[Answer]:
        """Returns the run-once variable for which a thread waits."""
        view, found = self._view, []
        for address in self._candidates(thread):
            value = view.pointer(address)
            if value is None or value & ONCE_BITS != ONCE_PENDING:
                continue
            at = value & ~ONCE_BITS
            seen: Set[int] = set()
            own = 0
            while at and at not in seen and len(seen) < MAX_CHAIN:
                owner = view.thread_on(at)
                if owner is None or (owner.sp is not None and at < owner.sp) or not self._may_follow():
                    own = 0
                    break
                seen.add(at)
                own = at if owner is thread else own
                at = view.pointer(at) or 0
            if own:
                evidence = f"word {value:#x}, wait block {own:#x}"
                found.append(Answer(thread.tid, words.RUN_ONCE, address, "", words.BY_CHAIN, evidence, own))
        return found


def _answer(chain: SlimQueue, own: SlimBlock, thread: ThreadView) -> Answer:
    bits = chain.value & LOW_BITS
    oldest, _ = chain.blocks[-1]
    evidence = f"word {chain.value:#x}, wait block {own.address:#x}, {len(chain.blocks)} in the chain"
    if not bits:
        kind, mode, lock = words.CONDITION_VARIABLE, "", own.lock
    else:
        kind, lock = words.SRW_LOCK, chain.word
        mode = words.FOR_EXCLUSIVE if own.flags & EXCLUSIVE_WAITER else words.FOR_SHARED
        shared = oldest.share_count if chain.complete else 0
        if 0 < shared < 1 << 31:
            evidence += f", held by {shared} sharers"
    return Answer(thread.tid, kind, chain.word, mode, words.BY_CHAIN, evidence, own.address, None, lock)
