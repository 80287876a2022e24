# What 32-bit system libraries look like: functions that can be patched, arguments popped by the callee, stubs of
# system calls without a frame.
    .intel_syntax noprefix
    .text

    .globl  _start
_start:
    push    ebp
    mov     ebp, esp
    push    3
    push    2
    push    1
    call    patchable
    push    7
    call    waits
    call    [pointer]
    call    thunk
    pop     ebp
    ret
    .p2align 4, 0xcc

# mov edi, edi first: two bytes that a jump can take the place of.
patchable:
    mov     edi, edi
    push    ebp
    mov     ebp, esp
    push    esi
    push    edi
    mov     esi, [ebp + 8]
    mov     edi, [ebp + 12]
    push    esi
    call    one_argument
    pop     edi
    pop     esi
    pop     ebp
    ret     12
    .p2align 4, 0xcc

one_argument:
    mov     edi, edi
    push    ebp
    mov     ebp, esp
    mov     eax, [ebp + 8]
    inc     eax
    mov     esp, ebp
    pop     ebp
    ret     4
    .p2align 4, 0xcc

# Calls a stub as kernelbase does one of ntdll's.
waits:
    mov     edi, edi
    push    ebp
    mov     ebp, esp
    sub     esp, 0x10
    push    ebx
    push    0
    lea     eax, [ebp - 8]
    push    eax
    call    stub
    call    old_stub
    pop     ebx
    leave
    ret     4
    .p2align 4, 0xcc

# The stub of a system call, 10: through a pointer in a register, then the arguments are popped.
stub:
    mov     eax, 0x1a0004
    mov     edx, offset transition
    call    edx
    ret     8
    nop
    .p2align 4, 0xcc

# The same, 7: its own slot for the arguments' address is released first.
old_stub:
    mov     eax, 4
    xor     ecx, ecx
    lea     edx, [esp + 4]
    push    edx
    call    transition
    add     esp, 4
    ret
    .p2align 4, 0xcc

transition:
    nop
    ret
    .p2align 4, 0xcc

framed:
    push    ebp
    mov     ebp, esp
    call    one_byte
    lea     esp, [ebp]
    pop     ebp
    ret
    .p2align 4, 0xcc

one_byte:
    ret
    .p2align 4, 0xcc

thunk:
    jmp     [pointer]

    .section .rdata, "dr"
    .p2align 2
pointer:
    .long   framed
