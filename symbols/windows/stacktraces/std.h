// Stack trace databases of the kernel and of processes, and their entries.
//
// _RTL_STD_LIST_HEAD_KERNEL is a name of ours: a kernel's bucket head keeps the saved interrupt level behind its lock.
// Which of the two heads a database has is told by its own LowerMemoryStart. AcquireLockRoutine, ReleaseLockRoutine and
// OkayToLockRoutine are names of ours, too; 5.2 has nothing there. Locks are declared as bytes or integers: nothing reads
// them. On x64 an _SLIST_ENTRY (FreeChain of 6.1) has 16 bytes, of which only the first 8 were overwritten in the databases
// that were measured.

build 5.1 x86 = "listings of XP SP3 ntdll and ntoskrnl, with the names of later public symbols; measured: XP SP3, ntdll and kernel";
build 5.2 x86 = "listings of Server 2003 SP2 ntdll and ntoskrnl";
build 5.2 x64 = "listings of Server 2003 SP2 x64 ntdll and ntoskrnl; measured: 2003 SP2 x64, ntdll";
build 6.0 x86 = "public symbols of ntdll (Vista)";
build 6.0 x64 = "public symbols of ntdll (Vista)";
build 6.1 x86 = "public symbols of ntdll (7 SP1, 10); measured: 10 1709, ntdll";
build 6.1 x64 = "public symbols of ntdll (7 SP1 to 11); listings of 7600 to 22000; measured: 7 SP1, 8.1, 10 21H2, 11 21H2, ntdll";
build 10.0.16299 arm64 = "inferred: as x64";
source entry 5.1 x86 = "public symbols";
source head 6.1 x64 = "listings of the kernels 10586, 19041, 26100 and 28000";
source head 6.1 x86 = "inferred from the listing of a 32-bit ARM kernel";

struct _RTL_STD_LIST_ENTRY {
    sizeof                    @0x4/0x8 since 6.1;
    _RTL_STD_LIST_ENTRY* Next @0x0     since 6.1;
};

struct _RTL_STD_LIST_HEAD {
    sizeof                    @0x8/0x10 since 6.1;
    _RTL_STD_LIST_ENTRY* Next @0x0      since 6.1;
    ULONG_PTR            Lock @0x4/0x8  since 6.1;
};

struct _RTL_STD_LIST_HEAD_KERNEL from head {
    sizeof                       @0xc/0x18 since 6.1;
    _RTL_STD_LIST_ENTRY* Next    @0x0      since 6.1;
    ULONG_PTR            Lock    @0x4/0x8  since 6.1;
    UCHAR                OldIrql @0x8/0x10 since 6.1;
};

struct _SLIST_HEADER {
    sizeof              @0x8/0x10 since 6.1;
    ULONGLONG Alignment @0x0      since 6.1;
    ULONGLONG Region    @-/0x8    since 6.1;
};

struct _SLIST_ENTRY {
    sizeof             @-/0x10 since 6.1;
    _SLIST_ENTRY* Next @-/0x0  since 6.1;
};

struct _SINGLE_LIST_ENTRY {
    sizeof                   @0x4/- since 6.1;
    _SINGLE_LIST_ENTRY* Next @0x0/- since 6.1;
};

struct _RTL_STACK_TRACE_ENTRY from entry {
    sizeof                                       @0x8c/0x110;
    _RTL_STACK_TRACE_ENTRY* HashChain            @0x0        until 6.1;
    _RTL_STD_LIST_ENTRY     HashChain            @0x0        since 6.1;
    _RTL_STACK_TRACE_ENTRY* FreeChain            @0x0        since 6.0 until 6.1;
    _SINGLE_LIST_ENTRY      FreeChain            @0xc/-      since 6.1;
    _SLIST_ENTRY            FreeChain            @-/0x10     since 6.1;
    ULONG                   TraceCount           @0x4/0x8    until 6.0;
    USHORT                  TraceCount : 11 << 0 @0x4/0x8    since 6.0;
    USHORT                  BlockDepth : 5 << 11 @0x4/0x8    since 6.0;
    USHORT                  IndexHigh            @0x6/0xa    since 6.0;
    USHORT                  Index                @0x8/0xc;
    USHORT                  Depth                @0xa/0xe;
    void*                   BackTrace[32]        @0xc/0x10;
};

struct _STACK_TRACE_DATABASE {
    sizeof                                               @0x70/0xd0   until 6.0;
    sizeof                                               @0x100/0x1e0 since 6.0 until 6.1;
    sizeof                                               @0x188/0x2f0 since 6.1;
    UCHAR                    Reserved[56/104]            @0x0         since 6.0;
    void*                    Reserved2[3]                @0x38/0x68   since 6.0 until 6.1;
    void*                    Reserved2                   @0x38/0x68   since 6.1;
    ULONG_PTR                PeakHashCollisionListLength @0x3c/0x70   since 6.1;
    void*                    LowerMemoryStart            @0x40/0x78   since 6.1;
    UCHAR                    Lock[56]                    @0x0/-       until 5.2;
    void*                    Lock                        @0x0/-       since 5.2 until 6.0;
    void*                    Lock                        @-/0x0       until 6.0;
    void*                    AcquireLockRoutine          @0x38/-      until 5.2;
    void*                    ReleaseLockRoutine          @0x3c/-      until 5.2;
    void*                    OkayToLockRoutine           @0x40/-      until 5.2;
    UCHAR                    PreCommitted                @0x44/0x80;
    UCHAR                    DumpInProgress              @0x45/0x81;
    void*                    CommitBase                  @0x48/0x88;
    void*                    CurrentLowerCommitLimit     @0x4c/0x90;
    void*                    CurrentUpperCommitLimit     @0x50/0x98;
    void*                    NextFreeLowerMemory         @0x54/0xa0;
    void*                    NextFreeUpperMemory         @0x58/0xa8;
    ULONG                    NumberOfEntriesLookedUp     @0x5c/0xb0;
    ULONG                    NumberOfEntriesAdded        @0x60/0xb4;
    _RTL_STACK_TRACE_ENTRY** EntryIndexArray             @0x64/0xb8;
    ULONG                    NumberOfEntriesAllocated    @0x68/0xc0   since 6.1;
    ULONG                    NumberOfEntriesDeleted      @0x68/0xc0   since 6.0 until 6.1;
    ULONG                    NumberOfEntriesAvailable    @0x6c/0xc4   since 6.0;
    ULONG                    NumberOfEntriesReused       @0x70/0xc8   since 6.0 until 6.1;
    ULONG                    NumberOfAllocationFailures  @0x74/0xcc   since 6.0 until 6.1;
    ULONG                    NumberOfAllocationFailures  @0x70/0xc8   since 6.1;
    _RTL_STACK_TRACE_ENTRY*  FreeLists[32]               @0x78/0xd0   since 6.0 until 6.1;
    _SLIST_HEADER            FreeLists[32]               @0x78/0xd0   since 6.1;
    ULONG                    NumberOfBuckets             @0x68/0xc0   until 6.0;
    ULONG                    NumberOfBuckets             @0xf8/0x1d0  since 6.0 until 6.1;
    ULONG                    NumberOfBuckets             @0x178/0x2d0 since 6.1;
    _RTL_STACK_TRACE_ENTRY*  Buckets[1]                  @0x6c/0xc8   until 6.0;
    _RTL_STACK_TRACE_ENTRY*  Buckets[1]                  @0xfc/0x1d8  since 6.0 until 6.1;
    _RTL_STD_LIST_HEAD       Buckets[1]                  @0x17c/0x2d8 since 6.1;
};
