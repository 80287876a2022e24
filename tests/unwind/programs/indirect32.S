# Functions that are called through registers only, so that nothing but their own code tells where they start: such
# that begin with something else than push ebp, such without a frame, and parts of either that were moved away.
    .intel_syntax noprefix
    .text

    .macro  through_register function
    mov     eax, offset \function
    call    eax
    .endm
    .macro  patchable
    {load} mov edi, edi
    .endm
    .macro  frame
    push    ebp
    {load} mov ebp, esp
    .endm

    .p2align 4, 0xcc
part_of_saves_first:
    push    3
    call    one_argument
    through_register framed
    jmp     back_1
part_of_frameless:
    push    3
    call    one_argument
    call    framed
    jmp     back_2
part_of_prolog:
    through_register leaf
    jmp     back_3
    .skip   0x5000, 0xcc

    .globl  _start
_start:
    frame
    push    esi
    through_register patchable_1
    through_register saves_first
    through_register frameless
    through_register frameless_2
    through_register with_prolog
    through_register pads_within
    through_register sets_up_late
    through_register behind_the_end
    mov     esi, offset frameless
    call    esi
    call    calls_frameless
    pop     esi
    pop     ebp
    ret
    .p2align 4, 0xcc

    .skip   5, 0x90
patchable_1:
    patchable
    push    ecx
    mov     eax, [esp + 4]
    frame
    call    leaf
    through_register leaf
    pop     ebp
    pop     ecx
    ret
    .skip   5, 0x90

# Its frame is set up behind a jump; its part lies elsewhere.
saves_first:
    patchable
    mov     eax, 1
    test    eax, eax
    je      1f
    frame
    push    esi
    test    eax, eax
    jne     part_of_saves_first
back_1:
    call    leaf
    pop     esi
    pop     ebp
    ret
1:
    xor     eax, eax
    ret
    .skip   5, 0x90

frameless:
    patchable
    push    ebx
    push    esi
    mov     esi, 1
    test    esi, esi
    jne     part_of_frameless
back_2:
    call    framed
    call    leaf
    pop     esi
    pop     ebx
    ret
    .p2align 4, 0xcc

frameless_2:
    sub     esp, 0x90
    push    esi
    call    leaf
    push    4
    call    one_argument
    call    framed
    pop     esi
    add     esp, 0x90
    ret
    .p2align 4, 0xcc

with_prolog:
    push    8
    push    offset leaf
    call    prolog
    mov     eax, 1
    test    eax, eax
    jne     part_of_prolog
back_3:
    call    leaf
    call    epilog
    ret
    .p2align 4, 0xcc
#include "prolog32.inc"

# What lies behind the padding within it is no function.
pads_within:
    push    esi
    push    edi
    mov     eax, 1
    test    eax, eax
    jne     1f
    call    dies
    int3
    int3
1:
    call    framed
    xor     eax, eax
    call    leaf
    pop     edi
    pop     esi
    ret
    .p2align 4, 0xcc

sets_up_late:
    push    ebx
    xor     ebx, ebx
    call    leaf
    frame
    call    leaf
    pop     ebp
    pop     ebx
    ret
    .p2align 4, 0xcc

# It lies right behind a call that never returns.
never_called:
    frame
    push    1
    call    [pointer]
behind_the_end:
    frame
    call    leaf
    through_register leaf
    pop     ebp
    ret
    .p2align 4, 0xcc

# The one without a frame is called by one with a frame, which proves how much its own callee has popped.
calls_frameless:
    frame
    push    5
    call    pops_one
    leave
    ret
    .p2align 4, 0xcc
pops_one:
    push    esi
    mov     esi, [esp + 8]
    push    esi
    call    one_argument
    call    framed
    pop     esi
    ret     4
    .p2align 4, 0xcc

framed:
    frame
    call    leaf
    leave
    ret
    .p2align 4, 0xcc
one_argument:
    patchable
    frame
    mov     eax, [ebp + 8]
    call    leaf
    pop     ebp
    ret     4
    .p2align 4, 0xcc
leaf:
    mov     eax, 1
    inc     eax
    ret
    .p2align 4, 0xcc
dies:
    jmp     dies

    .section .rdata, "dr"
    .p2align 2
pointer:
    .long   dies
