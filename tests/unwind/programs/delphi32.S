# Delphi's shapes: functions without a frame, aligned to 4 bytes, behind padding of Delphi's own or none; and
# constructors, which make room for an exception handler on one of two ways.
    .intel_syntax noprefix
    .text

    .macro  frame
    push    ebp
    {load} mov ebp, esp
    .endm
# A function with a frame that reaches its neighbour by way of another function, and the neighbour behind padding.
    .macro  neighbours name, fillers, padding:vararg
    .p2align 2, 0xcc
\name:
    frame
    push    ecx
    push    ebx
    call    to_\name
    test    eax, eax
    je      1f
    nop
1:
    .fill   \fillers, 1, 0x90
    pop     ebx
    pop     ecx
    pop     ebp
    ret     0
    \padding
behind_\name:
    push    ebx
    mov     ebx, 7
    call    leaf
    lea     eax, [ebx + 1]
    pop     ebx
    ret
    .endm
    .macro  leads_to name
to_\name:
    push    esi
    call    behind_\name
    pop     esi
    ret
    .p2align 4, 0xcc
    .endm

    .globl  _start
_start:
    frame
    call    nothing
    call    nop
    call    move
    call    load
    mov     edx, 1
    call    constructor
    xor     edx, edx
    call    constructor
    pop     ebp
    ret
    .p2align 4, 0xcc

    neighbours nothing, 3
    neighbours nop, 2, .byte 0x90
    neighbours move, 1, .byte 0x8b, 0xc0
    neighbours load, 0, .byte 0x8d, 0x40, 0
    .p2align 4, 0xcc
    leads_to nothing
    leads_to nop
    leads_to move
    leads_to load

constructor:
    push    ebx
    push    esi
    test    dl, dl
    je      1f
    add     esp, -16
    call    leaf
1:
    mov     ebx, edx
    mov     esi, eax
    call    leaf
    mov     eax, esi
    test    bl, bl
    je      2f
    pop     dword ptr [room]
    add     esp, 12
2:
    pop     esi
    pop     ebx
    ret
    .p2align 4, 0xcc

leaf:
    mov     eax, 1
    ret

    .data
    .p2align 2
room:
    .long   0
