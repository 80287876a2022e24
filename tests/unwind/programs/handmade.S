# Function tables and unwind data written by hand: what no assembler directive makes. Version 2 (epilogues
# described by UWOP_EPILOG), chained pieces (flag 4) and indirect entries (bit 0 of UnwindData).
    .intel_syntax noprefix

    .set PUSH_NONVOL, 0
    .set ALLOC_LARGE, 1
    .set ALLOC_SMALL, 2
    .set SET_FPREG, 3
    .set SAVE_NONVOL, 4
    .set EPILOG, 6
    .set SAVE_XMM128, 8
    .set reg_rbx, 3
    .set reg_rbp, 5
    .set reg_rsi, 6
    .set reg_rdi, 7
    .set reg_r12, 12
    .set reg_r14, 14

# An entry of the function table.
    .macro entry begin, end, unwind
    .section .pdata, "dr"
\begin\()_entry:
    .rva    \begin, \end, \unwind
    .text
    .endm

# An unwind code: the offset behind its instruction, the operation, its info.
    .macro code offset, operation, info
    .byte   \offset, \operation | (\info) << 4
    .endm

# The first epilogue code: the size of all, and whether one is at the function's end.
    .macro epilogs size, at_end
    code    \size, EPILOG, \at_end
    .endm

# A further one: where an epilogue starts, counted from the function's end.
    .macro epilog distance
    .byte   (\distance) & 0xff, EPILOG | (\distance) >> 8 << 4
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
    call    one_epilogue
    xor     ecx, ecx
    call    two_epilogues
    mov     ecx, 1
    call    two_epilogues
    call    far_epilogue
    call    frame_register
    call    only_return
    call    jump_at_end
    call    with_flags
    call    not_described
    mov     ecx, 1
    call    pieces
    mov     ecx, 2
    call    pieces
    mov     ecx, 3
    call    pieces
    mov     ecx, 4
    call    pieces
    mov     ecx, 1
    call    pieces_2
    call    pieces_2_again
    mov     ecx, 1
    call    indirect
    mov     ecx, 0
    call    indirect
    nop
    add     rsp, 0x20
start_epilogue:
    pop     rbx
    ret
start_end:
    entry   start, start_end, start_unwind

# One epilogue, at the end: pops of one byte and of two.
one_epilogue:
    push    rbx
one_1:
    push    r12
one_2:
    push    rbp
one_3:
    sub     rsp, 0x30
one_4:
    xor     ebx, ebx
    xor     r12d, r12d
    xor     ebp, ebp
    call    leaf
    nop
    add     rsp, 0x30
one_epilogue_starts:
    pop     rbp
    pop     r12
    pop     rbx
    ret
one_end:
    entry   one_epilogue, one_end, one_unwind

# Two epilogues, neither at the end of the function.
two_epilogues:
    push    rsi
two_1:
    push    r14
two_2:
    sub     rsp, 0x28
two_3:
    xor     esi, esi
    xor     r14d, r14d
    test    ecx, ecx
    jnz     1f
    call    leaf
    add     rsp, 0x28
two_first:
    pop     r14
    pop     rsi
    ret
1:
    jmp     2f
3:
    call    leaf
    add     rsp, 0x28
two_second:
    pop     r14
    pop     rsi
    ret
2:
    mov     r14, rsi
    jmp     3b
two_end:
    entry   two_epilogues, two_end, two_unwind

# An epilogue more than 255 bytes before the end: the distance takes the info bits too.
far_epilogue:
    push    rdi
far_1:
    sub     rsp, 0x20
far_2:
    xor     edi, edi
    jmp     1f
2:
    call    leaf
    add     rsp, 0x20
far_starts:
    pop     rdi
    ret
1:
    jmp     3f
    .fill   700, 1, 0xcc
3:
    jmp     2b
far_end:
    entry   far_epilogue, far_end, far_unwind

# A frame register: the lea that releases the frame is before the epilogue.
frame_register:
    push    rbp
fr_1:
    push    r12
fr_2:
    sub     rsp, 0x48
fr_3:
    lea     rbp, [rsp + 0x20]
fr_4:
    movups  [rbp + 0x10], xmm6
fr_5:
    xorps   xmm6, xmm6
    sub     rsp, 0x100
    xor     r12d, r12d
    call    leaf
    movups  xmm6, [rbp + 0x10]
    lea     rsp, [rbp + 0x28]
fr_starts:
    pop     r12
    pop     rbp
    ret
fr_end:
    entry   frame_register, fr_end, fr_unwind

only_return:
    sub     rsp, 0x28
or_1:
    call    leaf
    call    one_epilogue
    add     rsp, 0x28
or_starts:
    ret
or_end:
    entry   only_return, or_end, or_unwind

# An epilogue that ends in a jump: its size includes that.
jump_at_end:
    push    rbx
je_1:
    sub     rsp, 0x20
je_2:
    xor     ebx, ebx
    call    leaf
    nop
    add     rsp, 0x20
je_starts:
    pop     rbx
    jmp     [rip + pointer]
je_end:
    entry   jump_at_end, je_end, je_unwind

# Flags pushed first are an allocation of eight bytes, and popped by a pop of one byte.
with_flags:
    pushfq
wf_1:
    push    r14
wf_2:
    sub     rsp, 0x20
wf_3:
    xor     r14d, r14d
    call    leaf
    nop
    add     rsp, 0x20
wf_starts:
    pop     r14
    pop     rcx
    ret
wf_end:
    entry   with_flags, wf_end, wf_unwind

# In version 2 what is not described is no epilogue, whatever the code looks like: a jump out of the function
# with the frame still there, and back.
not_described:
    push    rbx
nd_1:
    sub     rsp, 0x20
nd_2:
    xor     ebx, ebx
    jmp     elsewhere
nd_back:
    call    leaf
    nop
    add     rsp, 0x20
nd_starts:
    pop     rbx
    ret
nd_end:
    entry   not_described, nd_end, nd_unwind

elsewhere:
    call    leaf
    jmp     nd_back
elsewhere_end:
    entry   elsewhere, elsewhere_end, elsewhere_unwind

# A function in pieces: a piece before it and two behind, the last chained to the other. Pieces save more.
piece_before:
    mov     [rsp + 0x28], rsi
pb_1:
    xor     esi, esi
    call    leaf
    mov     rsi, [rsp + 0x28]
    jmp     pieces_back
pb_end:
    entry   piece_before, pb_end, pb_unwind

pieces:
    push    rbx
p_1:
    sub     rsp, 0x40
p_2:
    xor     ebx, ebx
    cmp     ecx, 1
    je      piece_before
    cmp     ecx, 2
    je      1f
    cmp     ecx, 3
    je      2f
pieces_back:
    nop
    add     rsp, 0x40
    pop     rbx
    ret
1:
    jmp     piece_behind
2:
    mov     eax, 1
    jmp     piece_behind
p_end:
    entry   pieces, p_end, p_unwind

    .fill   32, 1, 0xcc
piece_behind:
    mov     [rsp + 0x30], rdi
pd_1:
    movups  [rsp + 0x20], xmm9
pd_2:
    xor     edi, edi
    xorps   xmm9, xmm9
    call    leaf
    cmp     eax, 2
    jne     piece_last
    movups  xmm9, [rsp + 0x20]
    mov     rdi, [rsp + 0x30]
    add     rsp, 0x40
    pop     rbx
    ret
pd_end:
    entry   piece_behind, pd_end, pd_unwind

piece_last:
    mov     [rsp + 0x38], rsi
pl_1:
    xor     esi, esi
    call    one_epilogue
    mov     rsi, [rsp + 0x38]
    movups  xmm9, [rsp + 0x20]
    mov     rdi, [rsp + 0x30]
    jmp     pieces_back
pl_end:
    entry   piece_last, pl_end, pl_unwind

# Version 2 in pieces: the epilogue of a piece pops what the first piece pushed.
pieces_2:
    push    rbx
p2_1:
    push    r12
p2_2:
    sub     rsp, 0x28
p2_3:
    xor     ebx, ebx
    xor     r12d, r12d
    jmp     piece_2
p2_end:
    entry   pieces_2, p2_end, p2_unwind

pieces_2_again:
    sub     rsp, 0x28
pa_1:
    mov     ecx, 1
    call    pieces_2
    add     rsp, 0x28
pa_starts:
    ret
pa_end:
    entry   pieces_2_again, pa_end, pa_unwind

piece_2:
    mov     [rsp + 0x20], rdi
q2_1:
    xor     edi, edi
    call    leaf
    mov     rdi, [rsp + 0x20]
    add     rsp, 0x28
q2_starts:
    pop     r12
    pop     rbx
    ret
q2_end:
    entry   piece_2, q2_end, q2_unwind

# A piece whose entry is indirect: it stands for the entry of the first piece.
indirect:
    push    r14
i_1:
    sub     rsp, 0x30
i_2:
    xor     r14d, r14d
    test    ecx, ecx
    jnz     indirect_piece
    call    leaf
    add     rsp, 0x30
    pop     r14
    ret
i_end:
    entry   indirect, i_end, i_unwind

indirect_piece:
    call    leaf
    inc     r14
    call    one_epilogue
    jmp     indirect_tail
ip_end:
    entry   indirect_piece, ip_end, indirect_entry + 1

indirect_tail:
    nop
    mov     eax, 5
    call    only_return
    jmp     1f
    .byte   0xcc
1:
    mov     rax, r14
    add     rsp, 0x30
    pop     r14
    ret
it_end:
    entry   indirect_tail, it_end, indirect_piece_entry + 1

    .section .xdata, "dr"
    .p2align 2
# version | flags << 3, size of the prologue, count of codes, frame register | offset / 16 << 4
start_unwind:
    .byte   2, start_2-start, 4, 0
    epilogs start_end-start_epilogue, 1
    epilog  0
    code    start_2-start, ALLOC_SMALL, 3
    code    start_1-start, PUSH_NONVOL, reg_rbx
    .p2align 2
one_unwind:
    .byte   2, one_4-one_epilogue, 6, 0
    epilogs one_end-one_epilogue_starts, 1
    epilog  0
    code    one_4-one_epilogue, ALLOC_SMALL, 5
    code    one_3-one_epilogue, PUSH_NONVOL, reg_rbp
    code    one_2-one_epilogue, PUSH_NONVOL, reg_r12
    code    one_1-one_epilogue, PUSH_NONVOL, reg_rbx
    .p2align 2
two_unwind:
    .byte   2, two_3-two_epilogues, 7, 0
    epilogs 4, 0
    epilog  two_end-two_first
    epilog  two_end-two_second
    epilog  0
    code    two_3-two_epilogues, ALLOC_SMALL, 4
    code    two_2-two_epilogues, PUSH_NONVOL, reg_r14
    code    two_1-two_epilogues, PUSH_NONVOL, reg_rsi
    .p2align 2
far_unwind:
    .byte   2, far_2-far_epilogue, 4, 0
    epilogs 2, 0
    epilog  far_end-far_starts
    code    far_2-far_epilogue, ALLOC_SMALL, 3
    code    far_1-far_epilogue, PUSH_NONVOL, reg_rdi
    .p2align 2
fr_unwind:
    .byte   2, fr_5-frame_register, 8, reg_rbp | 0x20 / 16 << 4
    epilogs fr_end-fr_starts, 1
    epilog  0
    code    fr_5-frame_register, SAVE_XMM128, 6
    .short  0x30 / 16
    code    fr_4-frame_register, SET_FPREG, 0
    code    fr_3-frame_register, ALLOC_SMALL, 8
    code    fr_2-frame_register, PUSH_NONVOL, reg_r12
    code    fr_1-frame_register, PUSH_NONVOL, reg_rbp
    .p2align 2
or_unwind:
    .byte   2, or_1-only_return, 3, 0
    epilogs or_end-or_starts, 1
    epilog  0
    code    or_1-only_return, ALLOC_SMALL, 4
    .p2align 2
je_unwind:
    .byte   2, je_2-jump_at_end, 4, 0
    epilogs je_end-je_starts, 1
    epilog  0
    code    je_2-jump_at_end, ALLOC_SMALL, 3
    code    je_1-jump_at_end, PUSH_NONVOL, reg_rbx
    .p2align 2
wf_unwind:
    .byte   2, wf_3-with_flags, 5, 0
    epilogs wf_end-wf_starts, 1
    epilog  0
    code    wf_3-with_flags, ALLOC_SMALL, 3
    code    wf_2-with_flags, PUSH_NONVOL, reg_r14
    code    wf_1-with_flags, ALLOC_SMALL, 0
    .p2align 2
nd_unwind:
    .byte   2, nd_2-not_described, 4, 0
    epilogs nd_end-nd_starts, 1
    epilog  0
    code    nd_2-not_described, ALLOC_SMALL, 3
    code    nd_1-not_described, PUSH_NONVOL, reg_rbx
    .p2align 2
elsewhere_unwind:
    .byte   2, 0, 2, 0
    code    0, ALLOC_SMALL, 3
    code    0, PUSH_NONVOL, reg_rbx
    .p2align 2
p_unwind:
    .byte   1, p_2-pieces, 2, 0
    code    p_2-pieces, ALLOC_SMALL, 7
    code    p_1-pieces, PUSH_NONVOL, reg_rbx
    .p2align 2
pb_unwind:
    .byte   1 | 4 << 3, pb_1-piece_before, 2, 0
    code    pb_1-piece_before, SAVE_NONVOL, reg_rsi
    .short  0x28 / 8
    .rva    pieces, p_end, p_unwind
    .p2align 2
pd_unwind:
    .byte   1 | 4 << 3, pd_2-piece_behind, 4, 0
    code    pd_2-piece_behind, SAVE_XMM128, 9
    .short  0x20 / 16
    code    pd_1-piece_behind, SAVE_NONVOL, reg_rdi
    .short  0x30 / 8
    .rva    pieces, p_end, p_unwind
    .p2align 2
pl_unwind:
    .byte   1 | 4 << 3, pl_1-piece_last, 2, 0
    code    pl_1-piece_last, SAVE_NONVOL, reg_rsi
    .short  0x38 / 8
    .rva    piece_behind, pd_end, pd_unwind
    .p2align 2
p2_unwind:
    .byte   2, p2_3-pieces_2, 3, 0
    code    p2_3-pieces_2, ALLOC_SMALL, 4
    code    p2_2-pieces_2, PUSH_NONVOL, reg_r12
    code    p2_1-pieces_2, PUSH_NONVOL, reg_rbx
    .p2align 2
pa_unwind:
    .byte   2, pa_1-pieces_2_again, 3, 0
    epilogs pa_end-pa_starts, 1
    epilog  0
    code    pa_1-pieces_2_again, ALLOC_SMALL, 4
    .p2align 2
q2_unwind:
    .byte   2 | 4 << 3, q2_1-piece_2, 4, 0
    epilogs q2_end-q2_starts, 1
    epilog  0
    code    q2_1-piece_2, SAVE_NONVOL, reg_rdi
    .short  0x20 / 8
    .rva    pieces_2, p2_end, p2_unwind
    .p2align 2
i_unwind:
    .byte   1, i_2-indirect, 2, 0
    code    i_2-indirect, ALLOC_SMALL, 5
    code    i_1-indirect, PUSH_NONVOL, reg_r14

    .section .rdata, "dr"
    .p2align 3
pointer:
    .quad   leaf
