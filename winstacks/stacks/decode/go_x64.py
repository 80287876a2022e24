# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The way from a thread's own stack back to the stack of a goroutine, in x64 programs of Go.

`asmcgocall` of Go's runtime calls Windows, and C, on the thread's own stack. Meanwhile the goroutine's stack
may be copied, so neither a stack pointer nor a saved Rbp leads back: the runtime keeps the goroutine
and its stack's depth. The code behind the call shows where both are kept. Source: asm_amd64.s of Go 1.19 and
1.27.
"""

from __future__ import annotations

import re
from typing import Optional

from ...memory.decode.memory import ReadMemory
from .frames import FindImage
from .leaf_x64 import code_at
from .registers import MASK, RBP, Registers

_BACK = re.compile(
    rb".{0,24}?\x48\x8b\x7c\x24(.)\x48\x8b\x77(.)\x48\x2b(?:\x74\x24(.)|\x34\x24)"
    rb"\x48\x89(?:\x39|\xb9.{4})\x48\x89\xf4\x89\x44\x24.(\x5d?)\xc3",
    re.DOTALL,
)
"""mov rdi, [rsp + place of the goroutine]; mov rsi, [rdi + end of its stack]; sub rsi, [rsp + place of the
depth]; mov [rcx], rdi; mov rsp, rsi; mov [rsp + …], eax; pop rbp; ret. Before them is the address of the
thread's data in Rcx."""
_LONGEST = 64
_SLOT = 8


def back_to_goroutine(find_image: FindImage, read: ReadMemory, registers: Registers) -> Optional[Registers]:
    """Returns the caller of `asmcgocall` on the goroutine's stack.

    None elsewhere than behind the call in `asmcgocall`, or if the goroutine is not in the image. None, too,
    without a function table, as before Go 1.21: a walk could not go on there. Go keeps no register but Rbp.
    """
    image = find_image(registers.ip)
    if image is None or image.table is None:
        return None
    code = code_at(find_image, read, registers.ip, _LONGEST)
    found = None if code is None else _BACK.match(bytes(code))
    if found is None:
        return None

    def slot(address: Optional[int], offset: Optional[bytes] = None) -> Optional[int]:
        """Reads a slot; None if its address is unknown or it is not in the image."""
        if address is None:
            return None
        data = read(address + int.from_bytes(offset or b"", "little") & MASK, _SLOT)
        return None if data is None else int.from_bytes(data, "little")

    end, depth = slot(slot(registers.sp, found[1]), found[2]), slot(registers.sp, found[3])
    if end is None or depth is None:
        return None
    sp = end - depth & MASK
    bp = registers.general[RBP]
    if found[4]:
        bp, sp = slot(sp), sp + _SLOT
    ip = slot(sp)
    return None if ip is None else Registers.from_known(ip, sp + _SLOT).with_bp(bp)
