# Every .seh_ directive, every form of epilogue, and what looks like an epilogue but is none.
# `start` calls everything; what is called keeps the non-volatile registers, as the ABI wants it.
    .intel_syntax noprefix
    .text

# A leaf without unwind data: the function table does not know it.
bare_leaf:
    lea     rax, [rcx + 1]
    add     rax, rcx
    ret

    .globl  start
    .seh_proc start
start:
    push    rbx
    .seh_pushreg rbx
    push    rbp
    .seh_pushreg rbp
    sub     rsp, 0x28
    .seh_stackalloc 0x28
    .seh_endprologue
    mov     ebx, 7
    mov     ebp, 0x5a5a
    call    change_all
    call    push_all
    call    alloc_one_slot
    call    alloc_small
    call    alloc_large
    call    alloc_huge
    call    set_rbp
    call    set_rbp_far_lea
    call    set_rbx_plain
    call    set_r12
    call    set_r13
    call    save_near
    call    save_far
    call    save_vectors
    call    save_vectors_far
    call    moves_before_allocation
    call    dynamic
    call    dynamic_in_prologue
    call    ends_rep_ret
    call    ends_bnd_ret
    call    ends_ret_with_size
    call    ends_short_jump
    call    ends_near_jump
    call    ends_memory_jump
    call    ends_register_jump
    call    ends_bnd_jump
    mov     ecx, 3
    call    starts_anew
    call    two_ends
    mov     ecx, 1
    call    two_ends
    call    flags_pushed
    xor     ecx, ecx
    call    table_jump
    mov     ecx, 1
    call    table_jump
    call    jumps_inside
    call    no_release
    call    split_hot
    lea     rcx, [rip + alloc_small]
    call    calls_register
    mov     rax, rbx
    add     rsp, 0x28
    pop     rbp
    pop     rbx
    ret
    .seh_endproc

# Gives every non-volatile register another value and back, so that a walk that lost one would show it.
    .seh_proc change_all
change_all:
    push    r15
    .seh_pushreg r15
    push    r14
    .seh_pushreg r14
    push    r13
    .seh_pushreg r13
    push    r12
    .seh_pushreg r12
    push    rdi
    .seh_pushreg rdi
    push    rsi
    .seh_pushreg rsi
    push    rbx
    .seh_pushreg rbx
    sub     rsp, 0xc0
    .seh_stackalloc 0xc0
    movaps  [rsp + 0x20], xmm6
    .seh_savexmm xmm6, 0x20
    movaps  [rsp + 0x30], xmm7
    .seh_savexmm xmm7, 0x30
    movups  [rsp + 0x40], xmm8
    .seh_savexmm xmm8, 0x40
    movups  [rsp + 0x50], xmm9
    .seh_savexmm xmm9, 0x50
    movups  [rsp + 0x60], xmm10
    .seh_savexmm xmm10, 0x60
    movups  [rsp + 0x70], xmm11
    .seh_savexmm xmm11, 0x70
    movups  [rsp + 0x80], xmm12
    .seh_savexmm xmm12, 0x80
    movups  [rsp + 0x90], xmm13
    .seh_savexmm xmm13, 0x90
    movups  [rsp + 0xa0], xmm14
    .seh_savexmm xmm14, 0xa0
    movups  [rsp + 0xb0], xmm15
    .seh_savexmm xmm15, 0xb0
    .seh_endprologue
    mov     rbx, 0x1111
    mov     rsi, 0x2222
    mov     rdi, 0x3333
    mov     r12, 0x4444
    mov     r13, 0x5555
    mov     r14, 0x6666
    mov     r15, 0x7777
    movq    xmm6, rbx
    movq    xmm7, rsi
    movq    xmm8, rdi
    movq    xmm9, r12
    movq    xmm15, r15
    mov     rcx, rbx
    call    push_all
    call    save_vectors
    movaps  xmm6, [rsp + 0x20]
    movaps  xmm7, [rsp + 0x30]
    movups  xmm8, [rsp + 0x40]
    movups  xmm9, [rsp + 0x50]
    movups  xmm15, [rsp + 0xb0]
    add     rsp, 0xc0
    pop     rbx
    pop     rsi
    pop     rdi
    pop     r12
    pop     r13
    pop     r14
    pop     r15
    ret
    .seh_endproc

    .seh_proc push_all
push_all:
    push    rbx
    .seh_pushreg rbx
    push    rbp
    .seh_pushreg rbp
    push    rsi
    .seh_pushreg rsi
    push    rdi
    .seh_pushreg rdi
    push    r12
    .seh_pushreg r12
    push    r13
    .seh_pushreg r13
    push    r14
    .seh_pushreg r14
    push    r15
    .seh_pushreg r15
    sub     rsp, 0x28
    .seh_stackalloc 0x28
    .seh_endprologue
    mov     rbx, rsp
    mov     rbp, rbx
    mov     rsi, rbp
    mov     rdi, rsi
    mov     r12, rdi
    mov     r13, r12
    mov     r14, r13
    mov     r15, r14
    call    bare_leaf
    call    alloc_one_slot
    nop
    add     rsp, 0x28
    pop     r15
    pop     r14
    pop     r13
    pop     r12
    pop     rdi
    pop     rsi
    pop     rbp
    pop     rbx
    ret
    .seh_endproc

    .seh_proc alloc_one_slot
alloc_one_slot:
    sub     rsp, 8
    .seh_stackalloc 8
    .seh_endprologue
    mov     qword ptr [rsp], 0x1234
    call    bare_leaf
    add     rsp, 8
    ret
    .seh_endproc

    .seh_proc alloc_small
alloc_small:
    sub     rsp, 0x78
    .seh_stackalloc 0x78
    .seh_endprologue
    call    bare_leaf
    nop
    add     rsp, 0x78
    ret
    .seh_endproc

    .seh_proc alloc_large
alloc_large:
    push    rsi
    .seh_pushreg rsi
    sub     rsp, 0x7fff0
    .seh_stackalloc 0x7fff0
    .seh_endprologue
    xor     esi, esi
    call    bare_leaf
    nop
    add     rsp, 0x7fff0
    pop     rsi
    ret
    .seh_endproc

    .seh_proc alloc_huge
alloc_huge:
    push    rdi
    .seh_pushreg rdi
    mov     eax, 0x100000
    sub     rsp, rax
    .seh_stackalloc 0x100000
    .seh_endprologue
    xor     edi, edi
    call    bare_leaf
    nop
    add     rsp, 0x100000
    pop     rdi
    ret
    .seh_endproc

    .seh_proc set_rbp
set_rbp:
    push    rbp
    .seh_pushreg rbp
    sub     rsp, 0x40
    .seh_stackalloc 0x40
    lea     rbp, [rsp + 0x20]
    .seh_setframe rbp, 0x20
    .seh_endprologue
    call    bare_leaf
    sub     rsp, 0x100
    call    bare_leaf
    lea     rsp, [rbp + 0x20]
    pop     rbp
    ret
    .seh_endproc

    .seh_proc set_rbp_far_lea
set_rbp_far_lea:
    push    rbp
    .seh_pushreg rbp
    push    rbx
    .seh_pushreg rbx
    sub     rsp, 0x208
    .seh_stackalloc 0x208
    lea     rbp, [rsp + 0xf0]
    .seh_setframe rbp, 0xf0
    .seh_endprologue
    sub     rsp, 0x30
    mov     rbx, rsp
    call    bare_leaf
    lea     rsp, [rbp + 0x118]
    pop     rbx
    pop     rbp
    ret
    .seh_endproc

    .seh_proc set_rbx_plain
set_rbx_plain:
    push    rbx
    .seh_pushreg rbx
    mov     rbx, rsp
    .seh_setframe rbx, 0
    .seh_endprologue
    sub     rsp, 0x20
    call    bare_leaf
    lea     rsp, [rbx + 0]
    pop     rbx
    ret
    .seh_endproc

    .seh_proc set_r12
set_r12:
    push    r12
    .seh_pushreg r12
    push    r14
    .seh_pushreg r14
    sub     rsp, 0x28
    .seh_stackalloc 0x28
    lea     r12, [rsp + 0x10]
    .seh_setframe r12, 0x10
    .seh_endprologue
    mov     r14, r12
    sub     rsp, 0x1000
    call    bare_leaf
    lea     rsp, [r12 + 0x18]
    pop     r14
    pop     r12
    ret
    .seh_endproc

    .seh_proc set_r13
set_r13:
    push    r13
    .seh_pushreg r13
    sub     rsp, 0x320
    .seh_stackalloc 0x320
    lea     r13, [rsp + 0x80]
    .seh_setframe r13, 0x80
    mov     [rsp + 0x310], rsi
    .seh_savereg rsi, 0x310
    .seh_endprologue
    mov     rsi, r13
    sub     rsp, 0x10
    call    bare_leaf
    mov     rsi, [r13 + 0x290]
    lea     rsp, [r13 + 0x2a0]
    pop     r13
    ret
    .seh_endproc

    .seh_proc save_near
save_near:
    sub     rsp, 0x68
    .seh_stackalloc 0x68
    mov     [rsp + 0x20], rbx
    .seh_savereg rbx, 0x20
    mov     [rsp + 0x28], rbp
    .seh_savereg rbp, 0x28
    mov     [rsp + 0x30], rsi
    .seh_savereg rsi, 0x30
    mov     [rsp + 0x38], rdi
    .seh_savereg rdi, 0x38
    mov     [rsp + 0x40], r12
    .seh_savereg r12, 0x40
    mov     [rsp + 0x48], r15
    .seh_savereg r15, 0x48
    .seh_endprologue
    xor     ebx, ebx
    xor     ebp, ebp
    xor     esi, esi
    xor     edi, edi
    xor     r12d, r12d
    xor     r15d, r15d
    call    bare_leaf
    call    push_all
    mov     rbx, [rsp + 0x20]
    mov     rbp, [rsp + 0x28]
    mov     rsi, [rsp + 0x30]
    mov     rdi, [rsp + 0x38]
    mov     r12, [rsp + 0x40]
    mov     r15, [rsp + 0x48]
    add     rsp, 0x68
    ret
    .seh_endproc

    .seh_proc save_far
save_far:
    sub     rsp, 0x90008
    .seh_stackalloc 0x90008
    mov     [rsp + 0x88000], rdi
    .seh_savereg rdi, 0x88000
    mov     [rsp + 0x80008], r14
    .seh_savereg r14, 0x80008
    .seh_endprologue
    xor     edi, edi
    xor     r14d, r14d
    call    bare_leaf
    call    alloc_small
    mov     rdi, [rsp + 0x88000]
    mov     r14, [rsp + 0x80008]
    add     rsp, 0x90008
    ret
    .seh_endproc

    .seh_proc save_vectors
save_vectors:
    sub     rsp, 0x48
    .seh_stackalloc 0x48
    movups  [rsp + 0x20], xmm6
    .seh_savexmm xmm6, 0x20
    movups  [rsp + 0x30], xmm15
    .seh_savexmm xmm15, 0x30
    .seh_endprologue
    xorps   xmm6, xmm6
    xorps   xmm15, xmm15
    call    bare_leaf
    call    alloc_small
    movups  xmm6, [rsp + 0x20]
    movups  xmm15, [rsp + 0x30]
    add     rsp, 0x48
    ret
    .seh_endproc

    .seh_proc save_vectors_far
save_vectors_far:
    sub     rsp, 0x120008
    .seh_stackalloc 0x120008
    movups  [rsp + 0x110000], xmm7
    .seh_savexmm xmm7, 0x110000
    movups  [rsp + 0x118000], xmm12
    .seh_savexmm xmm12, 0x118000
    .seh_endprologue
    xorps   xmm7, xmm7
    xorps   xmm12, xmm12
    call    alloc_small
    movups  xmm7, [rsp + 0x110000]
    movups  xmm12, [rsp + 0x118000]
    add     rsp, 0x120008
    ret
    .seh_endproc

# As Microsoft's compiler does it: saves into the home space before the allocation, described at the end.
    .seh_proc moves_before_allocation
moves_before_allocation:
    mov     [rsp + 8], rbx
    mov     [rsp + 0x10], rsi
    push    rdi
    .seh_pushreg rdi
    sub     rsp, 0x20
    .seh_stackalloc 0x20
    .seh_savereg rbx, 0x30
    .seh_savereg rsi, 0x38
    .seh_endprologue
    xor     ebx, ebx
    xor     esi, esi
    xor     edi, edi
    call    bare_leaf
    mov     rbx, [rsp + 0x30]
    mov     rsi, [rsp + 0x38]
    add     rsp, 0x20
    pop     rdi
    ret
    .seh_endproc

    .seh_proc dynamic
dynamic:
    push    rbp
    .seh_pushreg rbp
    push    rsi
    .seh_pushreg rsi
    sub     rsp, 8
    .seh_stackalloc 8
    mov     rbp, rsp
    .seh_setframe rbp, 0
    .seh_endprologue
    mov     eax, 0x2340
    sub     rsp, rax
    xor     esi, esi
    call    bare_leaf
    sub     rsp, 0x20
    call    alloc_small
    lea     rsp, [rbp + 8]
    pop     rsi
    pop     rbp
    ret
    .seh_endproc

# Calls in the prologue, before the frame is whole, as a stack probe is called.
    .seh_proc dynamic_in_prologue
dynamic_in_prologue:
    push    rdi
    .seh_pushreg rdi
    mov     eax, 0x1230
    call    probe
    sub     rsp, rax
    .seh_stackalloc 0x1230
    .seh_endprologue
    xor     edi, edi
    call    bare_leaf
    nop
    add     rsp, 0x1230
    pop     rdi
    ret
    .seh_endproc

    .seh_proc probe
probe:
    sub     rsp, 0x10
    .seh_stackalloc 0x10
    .seh_endprologue
    mov     [rsp], r10
    mov     [rsp + 8], r11
    mov     r10, [rsp]
    mov     r11, [rsp + 8]
    add     rsp, 0x10
    ret
    .seh_endproc

    .macro small_function name
    .seh_proc \name
\name:
    push    rbx
    .seh_pushreg rbx
    push    r14
    .seh_pushreg r14
    sub     rsp, 0x28
    .seh_stackalloc 0x28
    .seh_endprologue
    xor     ebx, ebx
    xor     r14d, r14d
    call    bare_leaf
    lea     rax, [rip + alloc_small]
    nop
    add     rsp, 0x28
    pop     r14
    pop     rbx
    .endm

    small_function ends_rep_ret
    rep ret
    .seh_endproc

    small_function ends_bnd_ret
    bnd ret
    .seh_endproc

    small_function ends_ret_with_size
    ret     0
    .seh_endproc

    small_function ends_short_jump
    jmp     near_target
    .seh_endproc

    .seh_proc near_target
near_target:
    sub     rsp, 0x28
    .seh_stackalloc 0x28
    .seh_endprologue
    call    bare_leaf
    nop
    add     rsp, 0x28
    ret
    .seh_endproc

    small_function ends_near_jump
    jmp     push_all
    .seh_endproc

    small_function ends_memory_jump
    jmp     [rip + pointer]
    .seh_endproc

    small_function ends_register_jump
    rex.w jmp rax
    .seh_endproc

    small_function ends_bnd_jump
    bnd jmp push_all
    .seh_endproc

# Its last jump goes to its own start: a recursion, and an epilogue.
    .seh_proc starts_anew
starts_anew:
    push    rbx
    .seh_pushreg rbx
    sub     rsp, 0x20
    .seh_stackalloc 0x20
    .seh_endprologue
    mov     rbx, rcx
    call    bare_leaf
    lea     rcx, [rbx - 1]
    test    rcx, rcx
    jz      1f
    add     rsp, 0x20
    pop     rbx
    jmp     starts_anew
1:
    add     rsp, 0x20
    pop     rbx
    ret
    .seh_endproc

    .seh_proc two_ends
two_ends:
    push    rsi
    .seh_pushreg rsi
    push    r13
    .seh_pushreg r13
    sub     rsp, 0x88
    .seh_stackalloc 0x88
    .seh_endprologue
    xor     esi, esi
    xor     r13d, r13d
    test    rcx, rcx
    jnz     1f
    call    bare_leaf
    add     rsp, 0x88
    pop     r13
    pop     rsi
    ret
1:
    call    alloc_small
    add     rsp, 0x88
    pop     r13
    pop     rsi
    ret
    .seh_endproc

    .seh_proc flags_pushed
flags_pushed:
    pushfq
    .seh_stackalloc 8
    push    rbp
    .seh_pushreg rbp
    sub     rsp, 0x20
    .seh_stackalloc 0x20
    .seh_endprologue
    xor     ebp, ebp
    call    bare_leaf
    nop
    add     rsp, 0x20
    pop     rbp
    pop     rcx
    ret
    .seh_endproc

# Jumps that are no epilogue: through a register without a REX prefix, through a table.
    .seh_proc table_jump
table_jump:
    push    rbx
    .seh_pushreg rbx
    sub     rsp, 0x20
    .seh_stackalloc 0x20
    .seh_endprologue
    mov     ebx, ecx
    lea     rax, [rip + 1f]
    jmp     rax
1:
    lea     rdx, [rip + jumps]
    movsxd  rax, dword ptr [rdx + rbx * 4]
    add     rax, rdx
    notrack jmp rax
case_0:
    call    bare_leaf
case_1:
    mov     rdx, rcx
    jmp     4f
    .p2align 4
4:
    nop
    add     rsp, 0x20
    pop     rbx
    ret
    .seh_endproc

    .seh_proc jumps_inside
jumps_inside:
    push    rdi
    .seh_pushreg rdi
    sub     rsp, 0x30
    .seh_stackalloc 0x30
    .seh_endprologue
    mov     edi, 2
1:
    call    bare_leaf
    dec     edi
    jz      2f
    jmp     1b
2:
    jmp     3f
    .fill   200, 1, 0x90
3:
    add     rsp, 0x30
    pop     rdi
    ret
    .seh_endproc

# Nothing to release but what was pushed.
    .seh_proc no_release
no_release:
    push    r15
    .seh_pushreg r15
    .seh_endprologue
    xor     r15d, r15d
    call    alloc_one_slot
    nop
    pop     r15
    ret
    .seh_endproc

# A part that was moved away, described as GCC does: the whole frame before its first instruction, no chain.
    .seh_proc split_hot
split_hot:
    push    rbx
    .seh_pushreg rbx
    sub     rsp, 0x40
    .seh_stackalloc 0x40
    .seh_endprologue
    xor     ebx, ebx
    call    bare_leaf
    jmp     split_cold
split_back:
    nop
    add     rsp, 0x40
    pop     rbx
    ret
    .seh_endproc

    .seh_proc calls_register
calls_register:
    sub     rsp, 0x28
    .seh_stackalloc 0x28
    .seh_endprologue
    mov     [rsp + 0x20], rcx
    mov     r11, rcx
    call    r11
    call    [rsp + 0x20]
    mov     rax, rsp
    call    [rax + 0x20]
    lea     r10, [rsp - 0x1000]
    call    [r10 + 0x1020]
    mov     rax, [rip + pointer]
    call    [rip + pointer]
    nop
    add     rsp, 0x28
    ret
    .seh_endproc

# Interrupt handlers: a machine frame below them, with and without an error code.
    .seh_proc handler
    .globl  handler
handler:
    .seh_pushframe
    push    rbp
    .seh_pushreg rbp
    push    rbx
    .seh_pushreg rbx
    push    rax
    .seh_stackalloc 8
    push    rcx
    .seh_stackalloc 8
    push    rdx
    .seh_stackalloc 8
    push    r10
    .seh_stackalloc 8
    push    r11
    .seh_stackalloc 8
    push    r8
    .seh_stackalloc 8
    sub     rsp, 0x28
    .seh_stackalloc 0x28
    .seh_endprologue
    mov     rbp, 0x77
    mov     rbx, 0x78
    call    push_all
    call    alloc_small
    add     rsp, 0x28
    pop     r8
    pop     r11
    pop     r10
    pop     rdx
    pop     rcx
    pop     rax
    pop     rbx
    pop     rbp
    iretq
    .seh_endproc

# As the kernel's trap entries are: a trap frame over the machine frame, its middle in the frame register.
    .seh_proc handler_with_code
    .globl  handler_with_code
handler_with_code:
    .seh_pushframe code
    push    rbp
    .seh_pushreg rbp
    sub     rsp, 0x158
    .seh_stackalloc 0x158
    lea     rbp, [rsp + 0x80]
    .seh_setframe rbp, 0x80
    mov     [rsp + 0x140], rbx
    .seh_savereg rbx, 0x140
    mov     [rsp + 0x148], rdi
    .seh_savereg rdi, 0x148
    mov     [rsp + 0x150], rsi
    .seh_savereg rsi, 0x150
    .seh_endprologue
    mov     [rbp - 0x50], rax
    mov     [rbp - 0x48], rcx
    mov     [rbp - 0x40], rdx
    mov     [rbp - 0x38], r8
    mov     [rbp - 0x30], r9
    mov     [rbp - 0x28], r10
    mov     [rbp - 0x20], r11
    xor     ebx, ebx
    xor     edi, edi
    xor     esi, esi
    call    dispatches
    mov     rax, [rbp - 0x50]
    mov     rcx, [rbp - 0x48]
    mov     rdx, [rbp - 0x40]
    mov     r8, [rbp - 0x38]
    mov     r9, [rbp - 0x30]
    mov     r10, [rbp - 0x28]
    mov     r11, [rbp - 0x20]
    mov     rbx, [rbp + 0xc0]
    mov     rdi, [rbp + 0xc8]
    mov     rsi, [rbp + 0xd0]
    mov     r11, [rbp - 0x20]
    mov     rbp, [rbp + 0xd8]
    .globl  handler_without_frame
handler_without_frame:
    add     rsp, 0x168
    iretq
    .seh_endproc

    .seh_proc dispatches
dispatches:
    push    r12
    .seh_pushreg r12
    push    r13
    .seh_pushreg r13
    sub     rsp, 0x28
    .seh_stackalloc 0x28
    .seh_endprologue
    xor     r12d, r12d
    xor     r13d, r13d
    call    push_all
    nop
    add     rsp, 0x28
    pop     r13
    pop     r12
    ret
    .seh_endproc

    .section .text.moved, "x"
    .seh_proc split_cold
split_cold:
    .seh_pushreg rbx
    .seh_stackalloc 0x40
    .seh_endprologue
    call    bare_leaf
    inc     ebx
    jmp     split_back
    .seh_endproc

    .section .rdata, "dr"
    .p2align 3
pointer:
    .quad   push_all
jumps:
    .long   case_0 - jumps
    .long   case_1 - jumps
