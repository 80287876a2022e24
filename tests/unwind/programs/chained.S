# Functions that chained entries cut in two where it hurts: within an epilogue, between its parts, in the body. And
# version 2 data that promise what the code does not do.
    .intel_syntax noprefix

    .set PUSH_NONVOL, 0
    .set ALLOC_SMALL, 2
    .set EPILOG, 6
    .set CHAINED, 4 << 3
    .set reg_rbx, 3
    .set reg_rsi, 6
    .set reg_rdi, 7
    .set reg_r12, 12
    .set reg_r13, 13

    .macro entry begin, end, unwind
    .section .pdata, "dr"
    .rva    \begin, \end, \unwind
    .text
    .endm

    .macro code offset, operation, info
    .byte   \offset, \operation | (\info) << 4
    .endm

    .text
leaf:
    lea     rax, [rcx + 1]
    ret

    .globl  start
start:
    push    rbx
start_1:
    sub     rsp, 0x20
start_2:
    call    cut_before_return
    call    cut_between_pops
    call    cut_behind_release
    call    cut_twice
    mov     ecx, 1
    call    cut_in_body
    mov     ecx, 2
    call    cut_in_body
    call    promises_pops
    call    promises_less
    call    promises_end
    call    keeps_silent
    call    cut_2
    nop
    add     rsp, 0x20
    pop     rbx
    ret
start_end:
    entry   start, start_end, start_unwind

# A function's head: three pushes and an allocation, then a piece that is chained to it.
    .macro head name
\name:
    push    rdi
\name\()_1:
    push    r12
\name\()_2:
    push    r13
\name\()_3:
    sub     rsp, 0x20
\name\()_4:
\name\()_head:
    entry   \name, \name\()_head, \name\()_unwind
    .section .xdata, "dr"
    .p2align 2
\name\()_unwind:
    .byte   1, \name\()_4-\name, 4, 0
    code    \name\()_4-\name, ALLOC_SMALL, 3
    code    \name\()_3-\name, PUSH_NONVOL, reg_r13
    code    \name\()_2-\name, PUSH_NONVOL, reg_r12
    code    \name\()_1-\name, PUSH_NONVOL, reg_rdi
    .p2align 2
\name\()_chained:
    .byte   1 | CHAINED, 0, 0, 0
    .rva    \name, \name\()_head, \name\()_unwind
    .text
    xor     edi, edi
    xor     r12d, r12d
    xor     r13d, r13d
    call    leaf
    nop
    .endm

    .macro piece name, number, begin
\name\()_end_\number:
    entry   \begin, \name\()_end_\number, \name\()_chained
    .endm

# ntdll 7601.24384 has this in qsort's helper.
head cut_before_return
    add     rsp, 0x20
    pop     r13
    pop     r12
    pop     rdi
piece cut_before_return, 1, cut_before_return_head
    repz ret
piece cut_before_return, 2, cut_before_return_end_1

head cut_between_pops
    add     rsp, 0x20
    pop     r13
piece cut_between_pops, 1, cut_between_pops_head
    pop     r12
    pop     rdi
    ret
piece cut_between_pops, 2, cut_between_pops_end_1

head cut_behind_release
    add     rsp, 0x20
piece cut_behind_release, 1, cut_behind_release_head
    pop     r13
    pop     r12
    pop     rdi
    jmp     leaf
piece cut_behind_release, 2, cut_behind_release_end_1

head cut_twice
    add     rsp, 0x20
    pop     r13
piece cut_twice, 1, cut_twice_head
    pop     r12
piece cut_twice, 2, cut_twice_end_1
    pop     rdi
    ret
piece cut_twice, 3, cut_twice_end_2

# The body goes on in the next piece, by itself and by a jump.
head cut_in_body
    call    leaf
    cmp     eax, 2
    je      cut_in_body_end_1
    inc     rdi
piece cut_in_body, 1, cut_in_body_head
    inc     r12
    call    leaf
    add     rsp, 0x20
    pop     r13
    pop     r12
    pop     rdi
    ret
piece cut_in_body, 2, cut_in_body_end_1

# Version 2. The description takes the release for a part of the epilogue, and so promises pops too early.
promises_pops:
    push    rbx
pp_1:
    push    rsi
pp_2:
    sub     rsp, 0x38
pp_3:
    call    leaf
    test    ecx, ecx
pp_starts:
    add     rsp, 0x38
    pop     rsi
    pop     rbx
    ret
pp_end:
    entry   promises_pops, pp_end, pp_unwind

# ntdll 17763 has this at a3983: release and return.
promises_less:
    sub     rsp, 0x38
pl_1:
    call    leaf
    nop
pl_starts:
    add     rsp, 0x38
    ret
pl_end:
    entry   promises_less, pl_end, pl_unwind

# An epilogue is described where the function calls.
promises_end:
    push    rbx
pe_1:
    sub     rsp, 0x20
pe_2:
    xor     ebx, ebx
pe_starts:
    call    leaf
    call    leaf
    add     rsp, 0x20
    pop     rbx
    ret
pe_end:
    entry   promises_end, pe_end, pe_unwind

# An epilogue that is not described.
keeps_silent:
    push    rbx
ks_1:
    sub     rsp, 0x20
ks_2:
    xor     ebx, ebx
    call    leaf
    add     rsp, 0x20
    pop     rbx
    ret
ks_end:
    entry   keeps_silent, ks_end, ks_unwind

# Version 2 whose epilogue a chained entry cuts in two: neither piece describes it.
cut_2:
    push    rbx
c2_1:
    push    rsi
c2_2:
    sub     rsp, 0x28
c2_3:
    xor     ebx, ebx
    xor     esi, esi
    call    leaf
    add     rsp, 0x28
    pop     rsi
c2_middle:
    entry   cut_2, c2_middle, c2_unwind
    pop     rbx
    ret
c2_end:
    entry   c2_middle, c2_end, c2_chained

    .section .xdata, "dr"
    .p2align 2
start_unwind:
    .byte   1, start_2-start, 2, 0
    code    start_2-start, ALLOC_SMALL, 3
    code    start_1-start, PUSH_NONVOL, reg_rbx
    .p2align 2
pp_unwind:
    .byte   2, pp_3-promises_pops, 5, 0
    code    pp_end-pp_starts, EPILOG, 1
    code    0, EPILOG, 0
    code    pp_3-promises_pops, ALLOC_SMALL, 6
    code    pp_2-promises_pops, PUSH_NONVOL, reg_rsi
    code    pp_1-promises_pops, PUSH_NONVOL, reg_rbx
    .p2align 2
pl_unwind:
    .byte   2, pl_1-promises_less, 3, 0
    code    pl_end-pl_starts, EPILOG, 1
    code    0, EPILOG, 0
    code    pl_1-promises_less, ALLOC_SMALL, 6
    .p2align 2
pe_unwind:
    .byte   2, pe_2-promises_end, 4, 0
    code    5, EPILOG, 0
    code    pe_end-pe_starts, EPILOG, 0
    code    pe_2-promises_end, ALLOC_SMALL, 3
    code    pe_1-promises_end, PUSH_NONVOL, reg_rbx
    .p2align 2
ks_unwind:
    .byte   2, ks_2-keeps_silent, 4, 0
    code    1, EPILOG, 0
    code    0, EPILOG, 0
    code    ks_2-keeps_silent, ALLOC_SMALL, 3
    code    ks_1-keeps_silent, PUSH_NONVOL, reg_rbx
    .p2align 2
c2_unwind:
    .byte   2, c2_3-cut_2, 3, 0
    code    c2_3-cut_2, ALLOC_SMALL, 4
    code    c2_2-cut_2, PUSH_NONVOL, reg_rsi
    code    c2_1-cut_2, PUSH_NONVOL, reg_rbx
    .p2align 2
c2_chained:
    .byte   2 | CHAINED, 0, 0, 0
    .rva    cut_2, c2_middle, c2_unwind
