# Functions whose frame a helper of the C++ runtime sets up, functions that begin right behind the end of another, and
# functions without a frame that call what is not known: what they pop has to come out even.
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
    both    with_eh_prolog
    both    with_eh_prolog_3
    both    with_cookie
    both    calls_unknown
    both    calls_two_unknown
    both    behind_a_return
    both    keeps_ebp
    call    clears_ebp
    call    uses_ebp
    call    waits
    pop     ebp
    ret
    .p2align 4, 0xcc

# The end of XP's KiSwapThread: it lowers the IRQL through an import that it has loaded into Esi.
waits:
    frame
    push    7
    call    switches_threads
    leave
    ret
    .p2align 4, 0xcc
switches_threads:
    {load} mov edi, edi
    push    esi
    push    edi
    mov     edi, 1
    call    switches_context
    test    al, al
    mov     esi, [import]
    je      1f
    nop
1:
    push    2
    call    esi
    mov     eax, edi
    pop     edi
    pop     esi
    ret     4
    .p2align 4, 0xcc
switches_context:
    sub     esp, 16
    mov     [esp + 12], ebx
    call    leaf
    mov     ebx, [esp + 12]
    add     esp, 16
    ret
    .p2align 4, 0xcc

with_eh_prolog:
    mov     eax, offset handler
    call    eh_prolog
    push    esi
    mov     esi, [ebp + 8]
    through_register leaf
    call    frameless
    pop     esi
    leave
    ret     4
    .p2align 4, 0xcc
with_eh_prolog_3:
    push    0x20
    mov     eax, offset handler
    call    eh_prolog_3
    mov     esi, [ebp + 8]
    through_register leaf
    call    frameless
    call    eh_epilog_3
    ret     4
    .p2align 4, 0xcc
with_cookie:
    push    0x84
    mov     eax, offset handler
    call    eh_prolog_3
    mov     esi, [ebp + 8]
    test    esi, esi
    je      1f
    call    frameless
    through_register frameless
1:
    call    eh_epilog_cookie
    ret     4
    .p2align 4, 0xcc

calls_unknown:
    push    ecx
    push    esi
    mov     esi, offset object
    push    esi
    push    2
    mov     eax, [esi]
    call    [eax + 4]
    mov     eax, esi
    test    eax, eax
    je      1f
    call    leaf
1:
    pop     esi
    pop     ecx
    ret     4
calls_two_unknown:
    push    ebx
    push    edi
    mov     edi, offset object
    push    edi
    push    2
    mov     eax, [edi]
    call    [eax + 4]
    push    edi
    mov     eax, [edi]
    call    [eax]
    call    leaf
    pop     edi
    pop     ebx
    ret     4
    nop
    ret
behind_a_return:
    mov     eax, [esp + 4]
    push    eax
    call    one_argument
    call    leaf
    ret     4
    .p2align 4, 0xcc

keeps_ebp:
    push    ebx
    push    ebp
    mov     ebp, [esp + 12]
    push    ebp
    mov     eax, offset object
    mov     eax, [eax]
    call    [eax]
    call    leaf
    pop     ebp
    pop     ebx
    ret     4
    .p2align 4, 0xcc

# Ebp is 0 for another reason than that a thread begins here.
uses_ebp:
    push    ebp
    xor     ebp, ebp
    mov     ecx, 16
    sub     esp, ecx
    call    below_uses_ebp
    test    eax, eax
    lea     esp, [esp + ecx]
    pop     ebp
    ret
    .p2align 4, 0xcc
below_uses_ebp:
    mov     eax, 1
    ret
    .p2align 4, 0xcc
clears_ebp:
    push    ebp
    mov     ebp, [nothing]
    push    7
    mov     eax, offset object
    mov     eax, [eax]
    call    [eax]
    mov     edx, offset leaf
    jmp     1f
2:
    mov     ebp, [esp]
    pop     ebp
    ret
1:
    call    edx
    jmp     2b
    .p2align 4, 0xcc

frameless:
    push    edi
    call    leaf
    pop     edi
    ret
    .p2align 4, 0xcc
one_argument:
    frame
    mov     eax, [ebp + 8]
    call    leaf
    pop     ebp
    ret     4
    .p2align 4, 0xcc
two_arguments:
    frame
    mov     eax, [ebp + 8]
    call    leaf
    pop     ebp
    ret     8
    .p2align 4, 0xcc
leaf:
    mov     eax, 1
    inc     eax
    ret
    .p2align 4, 0xcc

eh_prolog:
    push    -1
    push    eax
    mov     eax, [nothing]
    push    eax
    mov     eax, [esp + 12]
    mov     [esp + 12], ebp
    lea     ebp, [esp + 12]
    push    eax
    ret
    .p2align 4, 0xcc
eh_prolog_3:
    push    eax
    push    [nothing]
    lea     eax, [esp + 12]
    sub     esp, [esp + 12]
    push    ebx
    push    esi
    push    edi
    mov     [eax], ebp
    {load} mov ebp, eax
    mov     eax, [nothing]
    xor     eax, ebp
    push    eax
    push    [ebp - 4]
    mov     dword ptr [ebp - 4], -1
    lea     eax, [ebp - 12]
    ret
    .p2align 4, 0xcc
eh_epilog_cookie:
    mov     ecx, [ebp - 16]
    xor     ecx, ebp
    call    leaf
    jmp     eh_epilog_3
    .p2align 4, 0xcc
eh_epilog_3:
    mov     ecx, [ebp - 12]
    pop     ecx
    pop     edi
    pop     edi
    pop     esi
    pop     ebx
    {load} mov esp, ebp
    pop     ebp
    push    ecx
    ret
    .p2align 4, 0xcc

    .section .rdata, "dr"
    .p2align 2
nothing:
    .long   0
handler:
    .long   0
import:
    .long   one_argument
object:
    .long   table
table:
    .long   one_argument, two_arguments
