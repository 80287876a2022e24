# What the kernel lets a 32-bit thread go on in instead of what it did: the dispatchers of ntdll. Each ends where the
# kernel is called to go back.
    .intel_syntax noprefix
    .text

    .globl  _start
_start:
    push    ebp
    mov     ebp, esp
    push    3
    call    work
    mov     eax, offset framed
    call    eax
    pop     ebp
    ret
    .p2align 4, 0xcc

work:
    push    ebp
    mov     ebp, esp
    sub     esp, 0x10
    push    esi
    call    framed
    call    stub
    pop     esi
    leave
    ret     4
    .p2align 4, 0xcc

framed:
    mov     edi, edi
    push    ebp
    mov     ebp, esp
    push    ecx
    call    stub
    pop     ecx
    pop     ebp
    ret
    .p2align 4, 0xcc

# The stub of a system call.
stub:
    mov     eax, 0x1234
    ret
    .p2align 4, 0xcc

# An APC's routine, and what a callback calls: they pop three and two arguments.
routine:
    push    ebp
    mov     ebp, esp
    push    ebx
    call    framed
    call    deepest
    pop     ebx
    pop     ebp
    ret     12
    .p2align 4, 0xcc
called_back:
    push    ebp
    mov     ebp, esp
    call    deepest
    pop     ebp
    ret     8
    .p2align 4, 0xcc
dispatch_exception:
    push    ebp
    mov     ebp, esp
    push    edi
    call    framed
    call    deepest
    pop     edi
    pop     ebp
    ret     8
    .p2align 4, 0xcc

    .globl  deepest
deepest:
    ret
    .p2align 4, 0xcc

    .globl  exception_dispatcher
exception_dispatcher:
    cld
    mov     ecx, [esp + 4]
    mov     ebx, [esp]
    push    ecx
    push    ebx
    call    dispatch_exception
    jmp     goes_back
    .p2align 4, 0xcc

    .globl  apc_dispatcher
apc_dispatcher:
    lea     edi, [esp + 0x10]
    pop     eax
    call    eax
    .globl  behind_apc
behind_apc:
    jmp     goes_back
    .p2align 4, 0xcc

    .globl  callback_dispatcher
callback_dispatcher:
    add     esp, 4
    pop     edx
    call    [callbacks + edx * 4]
    jmp     goes_back
    .p2align 4, 0xcc

    .globl  goes_back
goes_back:
    nop
    hlt
    .p2align 4, 0xcc

    .data
    .globl  callbacks
callbacks:
    .long   called_back
    .globl  apc_routine
apc_routine:
    .long   routine
