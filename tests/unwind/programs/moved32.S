# Functions whose seldom parts the compiler has moved away: before all functions, behind them, among other moved parts and
# without padding between two. Callers call directly.
    .intel_syntax noprefix
    .text

    .p2align 4, 0xcc
part_of_framed_1:
    push    esi
    call    one_argument
    mov     edx, offset leaf
    call    edx
    jmp     back_1
part_of_frameless_1:
    push    3
    call    one_argument
    call    framed
    jmp     back_2
part_that_returns:
    call    leaf
    mov     edx, offset frameless
    call    edx
    lea     esp, [ebp - 4]
    pop     esi
    pop     ebp
    ret     4
early_part:
    call    leaf
    nop
    ret     4
part_of_prolog:
    call    leaf
    mov     edx, offset framed
    call    edx
    jmp     back_5

    .skip   0x5000, 0xcc

    .globl  _start
_start:
    push    ebp
    {load} mov ebp, esp
    push    1
    call    framed_1
    call    frameless_1
    push    2
    call    framed_2
    push    0
    call    framed_3
    push    1
    call    framed_3
    call    with_prolog
    push    1
    call    ends_in_another
    call    never_comes_back
    push    1
    call    far_behind
    call    calls_and_goes_on
    pop     ebp
    ret
    .p2align 4, 0xcc

framed_1:
    {load} mov edi, edi
    push    ebp
    {load} mov ebp, esp
    push    esi
    mov     esi, [ebp + 8]
    test    esi, esi
    jne     part_of_framed_1
back_1:
    call    leaf
    pop     esi
    pop     ebp
    ret     4
    .p2align 4, 0xcc

frameless_1:
    {load} mov edi, edi
    push    esi
    push    edi
    mov     esi, 1
    test    esi, esi
    jne     part_of_frameless_1
back_2:
    call    leaf
    pop     edi
    pop     esi
    ret
    .p2align 4, 0xcc

framed_2:
    {load} mov edi, edi
    push    ebp
    {load} mov ebp, esp
    push    esi
    mov     esi, [ebp + 8]
    test    esi, esi
    jne     part_that_returns
    pop     esi
    pop     ebp
    ret     4
    .p2align 4, 0xcc

# Its part begins before the frame is set up.
framed_3:
    cmp     dword ptr [esp + 4], 0
    je      early_part
    push    ebp
    {load} mov ebp, esp
    call    leaf
    pop     ebp
    ret     4
    .p2align 4, 0xcc

with_prolog:
    push    8
    push    offset leaf
    call    prolog
    mov     eax, 1
    test    eax, eax
    jne     part_of_prolog
back_5:
    mov     dword ptr [ebp - 0x1c], 0
    call    epilog
    ret
    .p2align 4, 0xcc
#include "prolog32.inc"

# The end of what it calls is that of another function.
ends_in_another:
    push    ebp
    {load} mov ebp, esp
    push    [ebp + 8]
    call    goes_on
    pop     ebp
    ret     4
    .p2align 4, 0xcc
goes_on:
    push    ebp
    {load} mov ebp, esp
    call    leaf
    pop     ebp
    jmp     far_behind
    .p2align 4, 0xcc

# What it calls is also what it goes on in.
calls_and_goes_on:
    push    ebp
    {load} mov ebp, esp
    call    without_frame
    pop     ebp
    jmp     without_frame
    .p2align 4, 0xcc
    .skip   0x1000, 0xcc
without_frame:
    push    esi
    mov     eax, offset another_leaf
    call    eax
    nop
    pop     esi
    ret
    .p2align 4, 0xcc

# The part calls what never returns; another function, without a frame, lies right behind it.
never_comes_back:
    push    ebp
    {load} mov ebp, esp
    xor     eax, eax
    test    eax, eax
    jne     part_without_end
    mov     eax, offset between
    call    eax
    pop     ebp
    ret
    .p2align 4, 0xcc
between:
    push    esi
    mov     esi, offset neighbour
    call    esi
    pop     esi
    ret
    .p2align 4, 0xcc

framed:
    push    ebp
    {load} mov ebp, esp
    call    leaf
    leave
    ret
    .p2align 4, 0xcc
frameless:
    push    edi
    call    leaf
    pop     edi
    ret
    .p2align 4, 0xcc
one_argument:
    {load} mov edi, edi
    push    ebp
    {load} mov ebp, esp
    mov     eax, [ebp + 8]
    pop     ebp
    ret     4
    .p2align 4, 0xcc
leaf:
    mov     eax, 1
    inc     eax
    ret
    .p2align 4, 0xcc
another_leaf:
    xor     eax, eax
    ret
    .p2align 4, 0xcc
dies:
    jmp     dies

    .skip   0x5000, 0xcc
far_behind:
    {load} mov edi, edi
    push    ebp
    {load} mov ebp, esp
    push    esi
    mov     esi, [ebp + 8]
    test    esi, esi
    jne     part_far_behind
back_6:
    pop     esi
    pop     ebp
    ret     4
    .p2align 4, 0xcc
    .skip   0x5000, 0xcc
part_far_behind:
    call    leaf
    push    2
    call    one_argument
    jmp     back_6
part_without_end:
    call    dies
neighbour:
    push    edi
    xor     edi, edi
    call    leaf
    mov     edx, offset framed
    call    edx
    nop
    pop     edi
    ret
