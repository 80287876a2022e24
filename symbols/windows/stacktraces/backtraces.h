// What Windows returns when it is asked for a whole stack trace database.

build 5.1 x86 = "described (Geoff Chappell); measured: what XP, 7, 8.1, 10 and 11 return";
build 5.2 x64 = "described (Geoff Chappell); measured: what XP, 7, 8.1, 10 and 11 return";
build 10.0.16299 arm64 = "inferred: as x64";

struct _RTL_PROCESS_BACKTRACE_INFORMATION {
    sizeof                   @0x8c/0x110;
    UCHAR* SymbolicBackTrace @0x0;
    ULONG  TraceCount        @0x4/0x8;
    USHORT Index             @0x8/0xc;
    USHORT Depth             @0xa/0xe;
    void*  BackTrace[32]     @0xc/0x10;
};

struct _RTL_PROCESS_BACKTRACES {
    sizeof                                                      @0x9c/0x128;
    ULONG_PTR                          CommittedMemory          @0x0;
    ULONG_PTR                          ReservedMemory           @0x4/0x8;
    ULONG                              NumberOfBackTraceLookups @0x8/0x10;
    ULONG                              NumberOfBackTraces       @0xc/0x14;
    _RTL_PROCESS_BACKTRACE_INFORMATION BackTraces[1]            @0x10/0x18;
};
