# Functions without frame pointers, as optimising compilers make them: Ebp is a register like any other, a callee that
# was called through a register pops its arguments, blocks lie behind returns, and jumps go through unbounded tables.
    .intel_syntax noprefix
    .text

    .macro  through_register function
    mov     eax, offset \function
    call    eax
    .endm

    .globl  _start
_start:
    push    ebp
    {load} mov ebp, esp
    through_register ebp_is_zero
    through_register ebp_is_large
    call    has_blocks
    mov     eax, 1
    call    has_blocks
    xor     ecx, ecx
    call    has_cases
    mov     ecx, 2
    call    has_cases
    mov     ecx, 7
    call    has_cases
    call    has_room
    call    has_room_gnu
    call    has_room_old
    pop     ebp
    ret
    .p2align 4, 0xcc

# With Ebp 0 the chain of frame pointers seems to end here.
    .globl  ebp_is_zero
ebp_is_zero:
    push    ebp
    push    esi
    {load} mov esi, ecx
    mov     ebp, 0
    push    2
    push    1
    call    takes_two
    add     ebp, 1
    pop     esi
    pop     ebp
    ret
    .p2align 4, 0xcc

    .globl  ebp_is_large
ebp_is_large:
    push    ebp
    sub     esp, 0x98
    mov     ebp, 0x7fff0000
    push    2
    push    1
    mov     eax, offset takes_two
    call    eax
    call    leaf
    add     esp, 0x98
    pop     ebp
    ret
    .p2align 4, 0xcc

# The block behind the first return looks like a function with a return of its own.
    .globl  has_blocks
has_blocks:
    sub     esp, 0x24
    test    eax, eax
    jne     1f
    push    1
    call    one_argument
    add     esp, 0x24
    ret
1:
    mov     edx, [esp + 8]
    push    1
    call    one_argument
    mov     edx, [esp + 4]
    call    leaf
    add     esp, 0x24
    ret
    .p2align 4, 0xcc

# The number of the case is made of bits: no comparison bounds the table, which lies behind the function.
    .globl  has_cases
has_cases:
    push    ebx
    push    esi
    sub     esp, 0x10
    and     ecx, 3
    jmp     dword ptr [ecx*4 + cases]
case_0:
    mov     eax, offset leaf
    jmp     2f
case_1:
    mov     eax, offset leaf_2
    jmp     2f
case_2:
    mov     eax, offset leaf
2:
    push    ecx
    call    eax
    pop     ecx
    add     esp, 0x10
    pop     esi
    pop     ebx
    ret
    .byte   0x66, 0x90
cases:
    .long   case_0, case_1, case_2, case_2
    .long   0x90909090
    .p2align 4, 0xcc

    .globl  has_room
has_room:
    mov     eax, 0x2034
    call    _chkstk
    push    ebp
    mov     ebp, 0x1234
    push    1
    call    one_argument
    mov     [esp + 0x40], ebp
    call    leaf
    pop     ebp
    add     esp, 0x2034
    ret
    .p2align 4, 0xcc

    .globl  _chkstk
_chkstk:
    push    ecx
    lea     ecx, [esp + 4]
    {load} sub ecx, eax
    {load} sbb eax, eax
    not     eax
    {load} and ecx, eax
    {load} mov eax, esp
    and     eax, 0xfffff000
3:
    {load} cmp ecx, eax
    jb      4f
    {load} mov eax, ecx
    pop     ecx
    xchg    eax, esp
    mov     eax, [eax]
    mov     [esp], eax
    ret
4:
    sub     eax, 0x1000
    test    dword ptr [eax], eax
    jmp     3b
    .p2align 4, 0xcc

    .globl  takes_two
takes_two:
    push    ebx
    mov     ebx, [esp + 8]
    call    leaf
    pop     ebx
    ret     8
    .p2align 4, 0xcc

    .globl  one_argument
one_argument:
    mov     edx, [esp + 4]
    ret     4
    .p2align 4, 0xcc

    .globl  leaf
leaf:
    lea     eax, [ecx + 1]
    ret
    .p2align 4, 0xcc

    .globl  leaf_2
leaf_2:
    lea     eax, [ecx + 2]
    ret
    .p2align 4, 0xcc

# GNU's compiler: the probe changes no register, and the function lowers Esp. The size is loaded before the registers
# are saved.
    .globl  has_room_gnu
has_room_gnu:
    push    edi
    mov     eax, 0x2040
    push    esi
    push    ebp
    call    ___chkstk_ms
    sub     esp, eax
    mov     ebp, 0x1234
    push    1
    call    one_argument
    mov     [esp + 0x40], ebp
    call    leaf
    add     esp, 0x2040
    pop     ebp
    pop     esi
    pop     edi
    ret
    .p2align 4, 0xcc

    .globl  has_room_old
has_room_old:
    push    ebp
    mov     eax, 0x3010
    call    ___chkstk
    mov     ebp, 0x1234
    push    1
    call    one_argument
    mov     [esp + 0x40], ebp
    call    leaf
    add     esp, 0x3010
    pop     ebp
    ret
    .p2align 4, 0xcc

    .macro  touch_pages
    cmp     eax, 0x1000
    jb      6f
5:
    sub     ecx, 0x1000
    or      dword ptr [ecx], 0
    sub     eax, 0x1000
    cmp     eax, 0x1000
    ja      5b
6:
    sub     ecx, eax
    or      dword ptr [ecx], 0
    .endm

    .globl  ___chkstk_ms
___chkstk_ms:
    push    ecx
    push    eax
    lea     ecx, [esp + 12]
    touch_pages
    pop     eax
    pop     ecx
    ret
    .p2align 4, 0xcc

    .globl  ___chkstk
___chkstk:
    push    ecx
    lea     ecx, [esp + 8]
    touch_pages
    mov     eax, esp
    mov     esp, ecx
    mov     ecx, [eax]
    push    dword ptr [eax + 4]
    ret
    .p2align 4, 0xcc
