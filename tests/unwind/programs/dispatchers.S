# What the kernel lets a thread go on in instead of what it did: the three dispatchers of ntdll. Each has a machine
# frame below what the kernel put on the user stack, and ends by going back to what is in it.
    .intel_syntax noprefix
    .text

bare_leaf:
    lea     rax, [rcx + 1]
    ret

    .globl  start
    .seh_proc start
start:
    push    rbx
    .seh_pushreg rbx
    push    r12
    .seh_pushreg r12
    sub     rsp, 0x28
    .seh_stackalloc 0x28
    .seh_endprologue
    mov     ebx, 7
    mov     r12d, 9
    call    work
    call    with_frame_register
    call    stub
    add     rsp, 0x28
    pop     r12
    pop     rbx
    ret
    .seh_endproc

    .seh_proc work
work:
    push    rsi
    .seh_pushreg rsi
    push    r14
    .seh_pushreg r14
    sub     rsp, 0x38
    .seh_stackalloc 0x38
    movups  [rsp + 0x20], xmm7
    .seh_savexmm xmm7, 0x20
    .seh_endprologue
    mov     esi, 3
    mov     r14d, 4
    xorps   xmm7, xmm7
    call    bare_leaf
    call    stub
    movups  xmm7, [rsp + 0x20]
    add     rsp, 0x38
    pop     r14
    pop     rsi
    ret
    .seh_endproc

    .seh_proc with_frame_register
with_frame_register:
    push    rbp
    .seh_pushreg rbp
    push    rdi
    .seh_pushreg rdi
    sub     rsp, 0x28
    .seh_stackalloc 0x28
    lea     rbp, [rsp + 0x20]
    .seh_setframe rbp, 0x20
    .seh_endprologue
    sub     rsp, 0x40
    mov     edi, 5
    call    stub
    lea     rsp, [rbp + 8]
    pop     rdi
    pop     rbp
    ret
    .seh_endproc

# The stub of a system call: what the kernel interrupts for a callback.
stub:
    mov     r10, rcx
    mov     eax, 0x1234
behind_system_call:
    ret

    .seh_proc changes
changes:
    push    rbx
    .seh_pushreg rbx
    push    rbp
    .seh_pushreg rbp
    push    rdi
    .seh_pushreg rdi
    push    r15
    .seh_pushreg r15
    sub     rsp, 0x28
    .seh_stackalloc 0x28
    .seh_endprologue
    mov     ebx, 0x11
    mov     ebp, 0x22
    mov     edi, 0x33
    mov     r15d, 0x44
    call    bare_leaf
    call    stub
    nop
    add     rsp, 0x28
    pop     r15
    pop     rdi
    pop     rbp
    pop     rbx
    ret
    .seh_endproc

    .globl  deepest
deepest:
    ret

# KiUserExceptionDispatcher: CONTEXT and EXCEPTION_RECORD, then the machine frame.
    .seh_proc exception_dispatcher
    .globl  exception_dispatcher
exception_dispatcher:
    .seh_pushframe
    .seh_stackalloc 0x590
    .seh_endprologue
    cld
    lea     rcx, [rsp + 0x4f0]
    mov     rdx, rsp
    call    changes
    call    deepest
    nop
    add     rsp, 0x590
    iretq
    .seh_endproc

# KiUserApcDispatcher: a CONTEXT.
    .seh_proc apc_dispatcher
    .globl  apc_dispatcher
apc_dispatcher:
    .seh_pushframe
    .seh_stackalloc 0x4d0
    .seh_endprologue
    mov     rcx, [rsp]
    lea     rax, [rip + changes]
    call    rax
    call    deepest
    nop
    add     rsp, 0x4d0
    iretq
    .seh_endproc

# KiUserCallbackDispatcher: the callback's arguments.
    .seh_proc callback_dispatcher
    .globl  callback_dispatcher
callback_dispatcher:
    .seh_pushframe
    .seh_stackalloc 0x30
    .seh_endprologue
    mov     rcx, [rsp + 0x20]
    mov     edx, [rsp + 0x28]
    call    changes
    call    deepest
    nop
    add     rsp, 0x30
    iretq
    .seh_endproc
