// What a waiting thread of user mode puts on its stack: blocks of slim locks, condition variables and addresses.

build 6.1 x64 = "measured: 7 SP1 and 7 RTM put them there";
build 6.1 x86 = "inferred from the x64 layout of the same build";
build 6.3 x64 = "measured: 8.1 and nine builds of 10 and 11, up to 22000, put them there";
build 6.3 x86 = "measured: 10 1709, native, and 10 1607 and 2004 under WoW64 put them there";
build 10.0.16299 arm64 = "inferred: as x64";

// A thread that waits for an SRW lock or on a condition variable. Back leads to the thread that came before.
struct _RTLP_SRWLOCK_WAIT_BLOCK {
    sizeof                               @0x20/0x30 since 6.1;
    _RTLP_SRWLOCK_WAIT_BLOCK* Back       @0x0;
    _RTLP_SRWLOCK_WAIT_BLOCK* Notify     @0x4/0x8;
    _RTLP_SRWLOCK_WAIT_BLOCK* Next       @0x8/0x10;
    void*                     ThreadId   @0xc/0x18  since 6.3;
    LONG                      ShareCount @0xc/0x18  until 6.3;
    LONG                      ShareCount @0x10/0x20 since 6.3;
    ULONG                     Flags      @0x10/0x1c until 6.3;
    ULONG                     Flags      @0x14/0x24 since 6.3;
    void*                     SRWLock    @0x14/0x20 until 6.3;
    void*                     SRWLock    @0x18/0x28 since 6.3;
};

// A thread that waits until the content of an address changes; since 10 also for a critical section.
struct _RTLP_ADDRESS_WAIT_BLOCK {
    sizeof                           @0x14/0x28;
    void*                     Address  @0x0;
    void*                     ThreadId @0x4/0x8;
    _RTLP_ADDRESS_WAIT_BLOCK* Older    @0x8/0x10;
    _RTLP_ADDRESS_WAIT_BLOCK* Newer    @0xc/0x18;
    _RTLP_ADDRESS_WAIT_BLOCK* Oldest   @0x10/0x20;
};

struct _RTL_RUN_ONCE_WAIT_BLOCK {
    sizeof                           @0x4/0x8;
    _RTL_RUN_ONCE_WAIT_BLOCK* Older    @0x0;
};
