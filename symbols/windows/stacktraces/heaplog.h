// The heap's trace log behind ntdll's RtlpHeapStackTraceLog, its records, and a trace within a block (7 to 8.1).
//
// No public symbols describe these structures; the names are ours.

build 6.1 x86 = "a listing of a 32-bit ntdll; measured: 10 1709";
build 6.1 x64 = "listings of ntdll 7600 to 22000; measured: 7 SP1, 10 21H2; the trace within a block: 7 SP1";
build 10.0.16299 arm64 = "inferred: as x64";
source prefix 6.1 x86 = "inferred from x64";

struct _RTLP_HEAP_STACK_TRACE_RECORD {
    sizeof                                    @0x8c/0x110;
    _RTLP_HEAP_STACK_TRACE_RECORD* Next       @0x0;
    ULONG                          Hash       @0x4/0x8;
    ULONG                          Depth      @0x8/0xc;
    void*                          Frames[32] @0xc/0x10;
};

struct _RTLP_HEAP_STACK_TRACE_BUCKET {
    sizeof                                 @0x8/0x10;
    _RTLP_HEAP_STACK_TRACE_RECORD* Head    @0x0;
    _RTLP_HEAP_STACK_TRACE_RECORD* LastHit @0x4/0x8;
};

struct _RTLP_HEAP_STACK_TRACE_LOG {
    sizeof                                             @0xc90/0x1920;
    void*                         MemoryBlockLookaside @0x0;
    ULONG                         TraceCount           @0x4/0x8;
    _RTLP_HEAP_STACK_TRACE_BUCKET Buckets[401]         @0x8/0x10;
};

struct _RTLP_STACK_TRACE_PREFIX from prefix {
    sizeof               @0x88/0x110;
    ULONG_PTR Depth      @0x0;
    ULONG_PTR Sum        @0x4/0x8;
    void*     Frames[32] @0x8/0x10;
};
