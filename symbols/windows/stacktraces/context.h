// Where registers are saved: CONTEXT, the switch frame, and what lies beside them on kernel stacks.
//
// On x86 CallerEbp and CallerReturn of _KSWITCH_FRAME are names of ours for what SwapContext's caller keeps above the frame.
// _KCALLOUT_FRAME is what KTHREAD.CallbackStack points to until Windows 7; it is taken only if its members agree with the
// stack that it lies on. On x64 that is _KEXCEPTION_FRAME, which the kernel's symbols have. _EXCEPTION_DISPATCH is a name of
// ours: the exception frame, the exception record and the trap frame (at the end) in the order in which KiExceptionDispatch
// has them since Vista. _WOW64_CPURESERVED is the head of the area in TLS slot 1 of a 64-bit TEB; the 32-bit CONTEXT follows
// it. _KTRAP_FRAME of x86 has only the members that lie the same in every version: it serves stacks in images whose own
// symbols describe the 64-bit trap frame. _FX_SAVE_AREA has only its size.

build 5.1 x86 = "described (winnt.h, the same in every version) and public symbols; measured: emulated entries of XP SP3";
build 5.2 x64 = "described (winnt.h, the same in every version) and public symbols; measured: a crash of 10.0.19041 and emulated entries of 2003 SP2 x64";
build 10.0.16299 arm64 = "described (winnt.h, ksarm64.h) and public symbols; measured: a crash of 10.0.22000";
source swap = "listings of SwapContext in 2003 SP2 x64, XP SP3 and 2003 SP2 x86; published listings of 14393 x64 agree";
source callout = "described (ReactOS, whose KiCallUserMode keeps the layout)";
source winnt = "described (winnt.h)";
source dispatch = "measured in a crash of 10.0.19041.804";
source ksarm64 = "described (ksarm64.h of the Windows SDK); public symbols of two kernels agree; measured in a crash of 10.0.22000: Fp and Return";
source trap = "public symbols of XP to 11: the members that lie the same in all";

struct _CONTEXT {
    sizeof                          @0x2cc/0x4d0;
    ULONG         ContextFlags      @0x0/0x30;
    ULONG         MxCsr             @-/0x34;
    ULONG_PTR     Dr0               @0x4/0x48;
    ULONG_PTR     Dr1               @0x8/0x50;
    ULONG_PTR     Dr2               @0xc/0x58;
    ULONG_PTR     Dr3               @0x10/0x60;
    ULONG_PTR     Dr6               @0x14/0x68;
    ULONG_PTR     Dr7               @0x18/0x70;
    ULONGLONG     Rax               @-/0x78;
    ULONGLONG     Rcx               @-/0x80;
    ULONGLONG     Rdx               @-/0x88;
    ULONGLONG     Rbx               @-/0x90;
    ULONGLONG     Rsp               @-/0x98;
    ULONGLONG     Rbp               @-/0xa0;
    ULONGLONG     Rsi               @-/0xa8;
    ULONGLONG     Rdi               @-/0xb0;
    ULONGLONG     R8                @-/0xb8;
    ULONGLONG     R9                @-/0xc0;
    ULONGLONG     R10               @-/0xc8;
    ULONGLONG     R11               @-/0xd0;
    ULONGLONG     R12               @-/0xd8;
    ULONGLONG     R13               @-/0xe0;
    ULONGLONG     R14               @-/0xe8;
    ULONGLONG     R15               @-/0xf0;
    ULONGLONG     Rip               @-/0xf8;
    ULONG         SegGs             @0x8c/-;
    USHORT        SegGs             @-/0x40;
    ULONG         SegFs             @0x90/-;
    USHORT        SegFs             @-/0x3e;
    ULONG         SegEs             @0x94/-;
    USHORT        SegEs             @-/0x3c;
    ULONG         SegDs             @0x98/-;
    USHORT        SegDs             @-/0x3a;
    ULONG         Edi               @0x9c/-;
    ULONG         Esi               @0xa0/-;
    ULONG         Ebx               @0xa4/-;
    ULONG         Edx               @0xa8/-;
    ULONG         Ecx               @0xac/-;
    ULONG         Eax               @0xb0/-;
    ULONG         Ebp               @0xb4/-;
    ULONG         Eip               @0xb8/-;
    ULONG         SegCs             @0xbc/-;
    USHORT        SegCs             @-/0x38;
    ULONG         EFlags            @0xc0/0x44;
    ULONG         Esp               @0xc4/-;
    ULONG         SegSs             @0xc8/-;
    USHORT        SegSs             @-/0x42;
    _XSAVE_FORMAT ExtendedRegisters @0xcc/-;
};

struct _XSAVE_FORMAT {
    sizeof       @0x200/-;
    ULONG  MxCsr @0x18/-;
};

struct _FX_SAVE_AREA {
    sizeof  @0x210/-;
};

struct _EXCEPTION_RECORD from winnt {
    sizeof                  @0x50/-;
    ULONG  ExceptionCode    @0x0/-;
    ULONG  ExceptionFlags   @0x4/-;
    ULONG  ExceptionRecord  @0x8/-;
    ULONG  ExceptionAddress @0xc/-;
    ULONG  NumberParameters @0x10/-;
};

struct _KSWITCH_FRAME from swap {
    sizeof                     @0x20/0x40;
    ULONGLONG Rbp              @-/0x30;
    ULONG     ExceptionList    @0x0/-;
    ULONG     ApcBypassDisable @0x4/-;
    ULONG_PTR Return           @0x8/0x38;
    ULONG     CallerEbp        @0xc/-;
    ULONG     CallerReturn     @0x1c/-;
};

struct _EXCEPTION_RECORD64 from winnt {
    sizeof                     @-/0x98;
    ULONG     ExceptionCode    @-/0x0;
    ULONG     ExceptionFlags   @-/0x4;
    ULONGLONG ExceptionRecord  @-/0x8;
    ULONGLONG ExceptionAddress @-/0x10;
    ULONG     NumberParameters @-/0x18;
};

struct _EXCEPTION_DISPATCH from dispatch {
    sizeof                              @-/0x1e0;
    _EXCEPTION_RECORD64 ExceptionRecord @-/0x138;
};

struct _WOW64_CPURESERVED {
    sizeof         @-/0x4;
    USHORT Flags   @-/0x0;
    USHORT Machine @-/0x2;
};

struct _KCALLOUT_FRAME from callout {
    sizeof               @0x20/-;
    ULONG  InitialStack  @0x0/-;
    ULONG  TrapFrame     @0x4/-;
    ULONG  CallbackStack @0x8/-;
    ULONG  Edi           @0xc/-;
    ULONG  Esi           @0x10/-;
    ULONG  Ebx           @0x14/-;
    ULONG  Ebp           @0x18/-;
    ULONG  Return        @0x1c/-;
};

struct _KTRAP_FRAME from trap {
    sizeof               @0x8c/-;
    ULONG  DbgEbp        @0x0/-;
    ULONG  DbgEip        @0x4/-;
    ULONG  DbgArgMark    @0x8/-;
    ULONG  Ebp           @0x60/-;
    ULONG  ErrCode       @0x64/-;
    ULONG  Eip           @0x68/-;
    ULONG  SegCs         @0x6c/-;
    ULONG  EFlags        @0x70/-;
    ULONG  HardwareEsp   @0x74/-;
    ULONG  HardwareSegSs @0x78/-;
};

struct _CONTEXT for arm64 {
    sizeof                 @0x390;
    ULONG     ContextFlags @0x0;
    ULONG     Cpsr         @0x4;
    ULONGLONG X0           @0x8;
    ULONGLONG X1           @0x10;
    ULONGLONG X2           @0x18;
    ULONGLONG X3           @0x20;
    ULONGLONG X4           @0x28;
    ULONGLONG X5           @0x30;
    ULONGLONG X6           @0x38;
    ULONGLONG X7           @0x40;
    ULONGLONG X8           @0x48;
    ULONGLONG X9           @0x50;
    ULONGLONG X10          @0x58;
    ULONGLONG X11          @0x60;
    ULONGLONG X12          @0x68;
    ULONGLONG X13          @0x70;
    ULONGLONG X14          @0x78;
    ULONGLONG X15          @0x80;
    ULONGLONG X16          @0x88;
    ULONGLONG X17          @0x90;
    ULONGLONG X18          @0x98;
    ULONGLONG X19          @0xa0;
    ULONGLONG X20          @0xa8;
    ULONGLONG X21          @0xb0;
    ULONGLONG X22          @0xb8;
    ULONGLONG X23          @0xc0;
    ULONGLONG X24          @0xc8;
    ULONGLONG X25          @0xd0;
    ULONGLONG X26          @0xd8;
    ULONGLONG X27          @0xe0;
    ULONGLONG X28          @0xe8;
    ULONGLONG Fp           @0xf0;
    ULONGLONG Lr           @0xf8;
    ULONGLONG Sp           @0x100;
    ULONGLONG Pc           @0x108;
    ULONGLONG V[64]        @0x110;
    ULONG     Fpcr         @0x310;
    ULONG     Fpsr         @0x314;
    ULONG     Bcr[8]       @0x318;
    ULONGLONG Bvr[8]       @0x338;
    ULONG     Wcr[2]       @0x378;
    ULONGLONG Wvr[2]       @0x380;
};

struct _KSWITCH_FRAME for arm64 from ksarm64 {
    sizeof               @0x20;
    UCHAR     ApcBypass  @0x0;
    ULONGLONG Tpidr      @0x8;
    ULONGLONG Fp         @0x10;
    ULONGLONG Return     @0x18;
};

struct _EXCEPTION_DISPATCH for arm64 {
};

struct _WOW64_CPURESERVED for arm64 {
    sizeof         @0x4;
    USHORT Flags   @0x0;
    USHORT Machine @0x2;
};
