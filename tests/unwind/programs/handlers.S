# Functions whose unwind data has a handler and no codes, although they move the stack pointer. Two shapes:
# assembly as OpenSSL's perlasm modules emit it (an entry for each function, the handler knows its labels), and
# a code cache as HotSpot registers it (one entry for all functions in it).
    .intel_syntax noprefix

    .macro entry begin, end, unwind
    .section .pdata, "dr"
    .rva    \begin, \end, \unwind
    .text
    .endm

    .text
# No entry and no frame.
leaf:
    lea     rax, [rcx + 1]
    ret

    .globl  start
start:
    push    rbx
start_1:
    sub     rsp, 0x20
start_2:
    mov     ebx, 3
again:
    call    spray
    call    perlasm
    lea     rax, [rip + perlasm]
    call    rax
    call    thunk
    call    spray
    call    cached_first
    lea     rax, [rip + cached_second]
    call    rax
    sub     ebx, 1
    jne     again
    nop
    add     rsp, 0x20
    pop     rbx
    ret
start_end:
    entry   start, start_end, start_unwind

# As an incremental linker makes it.
thunk:
    jmp     perlasm

# Leaves return addresses and other values below the stack in use.
spray:
    push    rbx
spray_1:
    sub     rsp, 0x100
spray_2:
    mov     ecx, 0x20
    lea     rax, [rip + behind_call]
    movabs  rdx, 0x0000fffffffffff7
    mov     r8d, 0x7fff0000
1:
    mov     [rsp + rcx * 8 - 8], rax
    xchg    rax, rdx
    xchg    rdx, r8
    sub     ecx, 1
    jne     1b
    call    leaf
behind_call:
    add     rsp, 0x100
    pop     rbx
    ret
spray_end:
    entry   spray, spray_end, spray_unwind

# OpenSSL: pushes, aligns the stack by hand, and calls a part that has no entry of its own.
perlasm:
    mov     rax, rsp
    push    rbx
    push    rbp
    push    r12
    push    r13
    push    r14
    push    r15
    sub     rsp, 0x88
    and     rsp, -64
    mov     [rsp + 0x40], rax
    lea     r12, [rip + behind_call]
    mov     [rsp], r12
    xor     ebx, ebx
    xor     ebp, ebp
    mov     ecx, 1
    call    perlasm_part
    lea     rax, [rip + perlasm_part]
    call    rax
    mov     rdx, [rsp + 0x40]
    mov     r15, [rdx - 48]
    mov     r14, [rdx - 40]
    mov     r13, [rdx - 32]
    mov     r12, [rdx - 24]
    mov     rbp, [rdx - 16]
    mov     rbx, [rdx - 8]
    lea     rsp, [rdx]
    ret
perlasm_end:
    entry   perlasm, perlasm_end, handler_unwind

perlasm_part:
    sub     rsp, 0x18
    mov     [rsp + 8], rcx
    call    leaf
    add     rsp, 0x18
    ret

# HotSpot: compiled methods with and without rbp, stubs, all in one entry.
cache:
    nop
    nop
cached_first:
    sub     rsp, 0x18
    mov     [rsp + 0x10], rbp
    lea     rax, [rip + behind_call]
    mov     [rsp], rax
    call    cached_second
    mov     rbp, [rsp + 0x10]
    add     rsp, 0x18
    ret
cached_second:
    push    rbp
    mov     rbp, rsp
    sub     rsp, 0x20
    movabs  rax, 0x7fff00001000
    mov     [rsp], rax
    call    cached_leaf
    mov     qword ptr [rsp], 0
    call    cached_leaf
    mov     rsp, rbp
    pop     rbp
    ret
cached_leaf:
    lea     rax, [rcx + 2]
    ret
cache_end:
    entry   cache, cache_end, handler_unwind

handler:
    mov     eax, 1
    ret

    .section .xdata, "dr"
    .balign 4
start_unwind:
    .byte   1, start_2 - start, 2, 0
    .byte   start_2 - start, 2 | 3 << 4
    .byte   start_1 - start, 0 | 3 << 4
    .balign 4
spray_unwind:
    .byte   1, spray_2 - spray, 3, 0
    .byte   spray_2 - spray, 1
    .short  0x100 / 8
    .byte   spray_1 - spray, 0 | 3 << 4
    .byte   0, 0
    .balign 4
handler_unwind:
    .byte   1 | 1 << 3, 0, 0, 0
    .rva    handler
