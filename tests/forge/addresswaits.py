# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What a thread of Windows 10 leaves in memory while it waits for a critical section.

Measured on ntdll's own code (10586 to 22000): the block on the stack, and the table in the PEB.
"""

from __future__ import annotations

from .process import Process
from .thread import Thread

TABLE = {8: 0x3A0, 4: 0x25C}
LOCK_COUNT = {8: 8, 4: 4}
LOCK_SEMAPHORE = {8: 0x18, 4: 0x10}
BUCKETS = 128


def clear(process: Process) -> None:
    """Empties the table of a process, so that nothing of it tells which thread waits."""
    size = process.space.pointer_size
    assert process.peb is not None
    process.space.write(process.peb.address + TABLE[size], bytes(BUCKETS * size))


def wait(process: Process, thread: Thread, section: int, block: int) -> None:
    """Lets a thread wait for a critical section.

    Args:
        process: the process
        thread: the thread
        section: address of the section
        block: address on the thread's stack, for its wait block
    """
    size = process.space.pointer_size
    address = section + LOCK_COUNT[size]
    assert process.peb is not None
    bucket = process.peb.address + TABLE[size] + (address >> 5 & BUCKETS - 1) * size
    process.space.map(process.peb.address, 0x1000)
    process.space.write_int(section + LOCK_SEMAPHORE[size], (1 << 8 * size) - 1, size)
    older = process.space.read_int(bucket, size)
    if older:
        process.space.write_int(older + 3 * size, block, size)
    for number, value in enumerate((address, thread.tid, older, 0, older or block)):
        process.space.write_int(block + number * size, value, size)
    process.space.write_int(bucket, block, size)
