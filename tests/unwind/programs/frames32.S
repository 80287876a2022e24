# Frames of other shapes: that align the stack and keep a copy of the return address, whose frame pointer is biased, or
# that push a register before Ebp. Each is called directly, and through a register.
    .intel_syntax noprefix
    .text

    .macro  through_register function
    mov     eax, offset \function
    call    eax
    .endm
    .macro  frame
    push    ebp
    {load} mov ebp, esp
    .endm
    .macro  both function
    push    7
    call    \function
    push    8
    through_register \function
    .endm

    .globl  _start
_start:
    frame
    both    aligned_by_ebx
    both    aligned_by_ebx_2
    both    aligned_by_ecx
    both    biased
    both    pushed_before
    both    without_frame
    pop     ebp
    ret
    .p2align 4, 0xcc

aligned_by_ebx:
    push    ebx
    {load} mov ebx, esp
    sub     esp, 8
    and     esp, -16
    add     esp, 4
    push    ebp
    mov     ebp, [ebx + 4]
    mov     [esp + 4], ebp
    {load} mov ebp, esp
    sub     esp, 0x28
    push    esi
    mov     esi, [ebx + 8]
    push    esi
    call    one_argument
    through_register leaf
    call    without_argument
    pop     esi
    {load} mov esp, ebp
    pop     ebp
    {load} mov esp, ebx
    pop     ebx
    ret     4
    .p2align 4, 0xcc

aligned_by_ebx_2:
    {load} mov edi, edi
    push    ebx
    {load} mov ebx, esp
    push    ecx
    push    ecx
    and     esp, -8
    add     esp, 4
    push    ebp
    mov     ebp, [ebx + 4]
    mov     [esp + 4], ebp
    {load} mov ebp, esp
    sub     esp, 0x108
    mov     eax, [ebx + 8]
    test    eax, eax
    jne     part_of_aligned
back_1:
    call    leaf
    {load} mov esp, ebp
    pop     ebp
    {load} mov esp, ebx
    pop     ebx
    ret     4
    .p2align 4, 0xcc

aligned_by_ecx:
    lea     ecx, [esp + 4]
    and     esp, -16
    push    [ecx - 4]
    push    ebp
    mov     ebp, esp
    push    ecx
    sub     esp, 0x14
    call    leaf
    push    7
    call    one_argument
    mov     ecx, [ebp - 4]
    leave
    lea     esp, [ecx - 4]
    ret     4
    .p2align 4, 0xcc

biased:
    push    ebp
    lea     ebp, [esp - 0x78]
    sub     esp, 0x88
    push    esi
    mov     esi, [ebp + 0x80]
    push    esi
    call    one_argument
    through_register leaf
    call    without_argument
    pop     esi
    add     ebp, 0x78
    leave
    ret     4
    .p2align 4, 0xcc

pushed_before:
    push    ebx
    push    esi
    push    ebp
    {load} mov ebp, esp
    sub     esp, 0x10
    through_register leaf
    push    7
    call    one_argument
    {load} mov esp, ebp
    pop     ebp
    pop     esi
    pop     ebx
    ret     4
    .p2align 4, 0xcc

# Ebp is a register like any other.
without_frame:
    push    ebp
    push    esi
    mov     ebp, [esp + 12]
    mov     esi, ebp
    push    ebp
    call    one_argument
    push    esi
    call    aligned_by_ebx
    call    without_argument
    pop     esi
    pop     ebp
    ret     4
    .p2align 4, 0xcc

# Its caller needs to be found although Ebp is not its own.
without_argument:
    push    edi
    call    framed
    pop     edi
    ret
    .p2align 4, 0xcc
framed:
    frame
    call    leaf
    pop     ebp
    ret
    .p2align 4, 0xcc
one_argument:
    {load} mov edi, edi
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

    .skip   0x5000, 0xcc
part_of_aligned:
    push    eax
    call    one_argument
    through_register leaf
    jmp     back_1
