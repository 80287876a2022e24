# What hides a caller from the chain of frame pointers: functions without a frame of their own between those that have
# one, and code that looks like a part of another function.
    .intel_syntax noprefix
    .text

    .globl  _start
_start:
    push    ebp
    mov     ebp, esp
    call    [pointers]
    push    5
    call    [pointers + 4]
    push    5
    call    with_finally
    call    jumps_away
    call    returns_early
    push    3
    push    2
    push    1
    call    pops_three
    call    where_it_is
    call    with_prolog
    call    switches
    push    1
    call    tail_calls
    call    saves_first
    mov     eax, offset between
    call    eax
    pop     ebp
    ret
    .p2align 4, 0xcc

# A. Its caller calls through a pointer, it has no frame and calls one that has.
outer:
    push    ebp
    mov     ebp, esp
    mov     ecx, 7
    mov     eax, offset between
    call    eax
    pop     ebp
    ret
    .p2align 4, 0xcc
between:
    push    esi
    mov     esi, ecx
    call    framed
    mov     edx, offset framed
    call    edx
    mov     eax, esi
    pop     esi
    ret
    .p2align 4, 0xcc
framed:
    mov     edi, edi
    push    ebp
    mov     ebp, esp
    push    ecx
    call    leaf
    mov     edx, offset leaf
    call    edx
    leave
    ret
    .p2align 4, 0xcc
leaf:
    mov     eax, 1
    inc     eax
    ret
    .p2align 4, 0xcc

# The same twice, with an argument that the one without a frame pops.
outer_2:
    push    ebp
    mov     ebp, esp
    push    [ebp + 8]
    mov     eax, offset between_2
    call    eax
    pop     ebp
    ret     4
    .p2align 4, 0xcc
between_2:
    sub     esp, 8
    mov     eax, [esp + 12]
    mov     [esp], eax
    mov     edx, offset between
    call    edx
    add     esp, 8
    ret     4
    .p2align 4, 0xcc

# B. A __finally: called, with the frame of the function around it.
with_finally:
    push    ebp
    mov     ebp, esp
    push    ecx
    mov     dword ptr [ebp - 4], 1
    call    1f
    mov     eax, [ebp + 8]
    leave
    ret     4
1:
    cmp     dword ptr [ebp - 4], 0
    je      2f
    call    leaf
2:
    nop
    ret
    .p2align 4, 0xcc

# A neighbour behind a jump and padding, and one behind a jump alone.
jumps_away:
    push    ebp
    mov     ebp, esp
    call    neighbour
    call    neighbour_2
    pop     ebp
    jmp     leaf
    int3
    int3
    int3
neighbour:
    xor     ecx, ecx
    call    leaf
    nop
    ret
    .p2align 4, 0xcc
returns_early:
    push    ebp
    mov     ebp, esp
    call    neighbour_2
    mov     eax, offset neighbour_3
    call    eax
    pop     ebp
    ret
neighbour_2:
    xor     ecx, ecx
    call    leaf
    nop
    ret
neighbour_3:
    xor     edx, edx
    call    leaf
    nop
    ret
    .p2align 4, 0xcc

# C. The frame is set up by what is called first.
with_prolog:
    push    8
    push    offset leaf
    call    prolog
    call    leaf
    mov     edx, offset framed
    call    edx
    mov     dword ptr [ebp - 0x1c], 0
    call    epilog
    ret
    .p2align 4, 0xcc
#include "prolog32.inc"

# D. Arguments that the callee pops, then an exit without anything before it.
pops_three:
    push    ebp
    mov     ebp, esp
    push    2
    push    1
    call    two_arguments
    pop     ebp
    ret     12
    .p2align 4, 0xcc
two_arguments:
    push    ebp
    mov     ebp, esp
    call    leaf
    pop     ebp
    ret     8
    .p2align 4, 0xcc

# A call that only asks where it is.
where_it_is:
    push    ebp
    mov     ebp, esp
    push    ebx
    call    1f
1:
    pop     ebx
    call    without_frame
    pop     ebx
    pop     ebp
    ret
    .p2align 4, 0xcc
without_frame:
    push    edi
    call    1f
1:
    pop     edi
    nop
    call    leaf
    pop     edi
    ret
    .p2align 4, 0xcc

# A jump through a table within the function.
switches:
    push    ebp
    mov     ebp, esp
    mov     eax, 1
    jmp     [table + 4 * eax]
case_0:
    nop
case_1:
    call    leaf
    mov     eax, offset between
    call    eax
    pop     ebp
    ret
    .p2align 4, 0xcc

# The frame is gone when it jumps to another function.
tail_calls:
    push    ebp
    mov     ebp, esp
    call    leaf
    pop     ebp
    jmp     two_ways
    .p2align 4, 0xcc
two_ways:
    cmp     dword ptr [esp + 4], 0
    je      1f
    push    ebp
    mov     ebp, esp
    call    leaf
    leave
    ret     4
1:
    ret     4
    .p2align 4, 0xcc

# What is pushed before Ebp is no return address.
saves_first:
    push    ebx
    push    ebp
    mov     ebp, esp
    call    leaf
    mov     eax, offset framed
    call    eax
    pop     ebp
    pop     ebx
    ret
    .p2align 4, 0xcc

    .section .rdata, "dr"
    .p2align 2
pointers:
    .long   outer, outer_2
table:
    .long   case_0, case_1
