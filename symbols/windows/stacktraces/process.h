// User mode, XP to 11: PEB and TEB, loader lists, locks, dynamic function tables; and the kernel's unloaded drivers.
//
// In processes of the kernel's bitness its own symbols go first.

build 5.1 x86 = "public symbols of ntdll and ntoskrnl; measured: critical sections and resources of XP SP3 and 10 1709";
build 5.2 x64 = "public symbols of ntdll and ntoskrnl; measured: critical sections of 7 SP1 and 10 21H2";
build 10.0.16299 arm64 = "inferred: as x64";
source phnt = "described (System Informer's phnt)";
source clrnt = "described (clrnt.h of the .NET runtime)";
source wine = "measured: Wine 10; described (Wine, dlls/ntdll/unwind.c)";
source waiting = "public symbols of kernels of 10 and 11; older builds have other data there; measured: 10586 to 22000";
source kernels = "public symbols of kernels of XP to 11";

struct _PEB {
    sizeof                                      @0x480/0x7c8;
    UCHAR                  BeingDebugged        @0x2;
    _PEB_LDR_DATA*         Ldr                  @0xc/0x18;
    void*                  ProcessHeap          @0x18/0x30;
    _RTL_CRITICAL_SECTION* FastPebLock          @0x1c/0x38;
    ULONG                  NtGlobalFlag         @0x68/0xbc;
    ULONG                  NumberOfHeaps        @0x88/0xe8;
    ULONG                  MaximumNumberOfHeaps @0x8c/0xec;
    void**                 ProcessHeaps         @0x90/0xf0;
    _RTL_CRITICAL_SECTION* LoaderLock           @0xa0/0x110;
    void*                  WaitOnAddressHashTable[128] @0x25c/0x3a0 from waiting;
};

struct _PEB_LDR_DATA {
    sizeof                                      @0x30/0x58;
    ULONG       Length                          @0x0;
    _LIST_ENTRY InLoadOrderModuleList           @0xc/0x10;
    _LIST_ENTRY InMemoryOrderModuleList         @0x14/0x20;
    _LIST_ENTRY InInitializationOrderModuleList @0x1c/0x30;
};

struct _LDR_DATA_TABLE_ENTRY {
    sizeof                                     @0x48/0x88;
    _LIST_ENTRY     InLoadOrderLinks           @0x0;
    _LIST_ENTRY     InMemoryOrderLinks         @0x8/0x10;
    _LIST_ENTRY     InInitializationOrderLinks @0x10/0x20;
    void*           DllBase                    @0x18/0x30;
    void*           EntryPoint                 @0x1c/0x38;
    ULONG           SizeOfImage                @0x20/0x40;
    _UNICODE_STRING FullDllName                @0x24/0x48;
    _UNICODE_STRING BaseDllName                @0x2c/0x58;
    ULONG           TimeDateStamp              @0x44/0x80 from kernels;
};

struct _RTL_CRITICAL_SECTION {
    sizeof                                      @0x18/0x28;
    _RTL_CRITICAL_SECTION_DEBUG* DebugInfo      @0x0;
    LONG                         LockCount      @0x4/0x8;
    LONG                         RecursionCount @0x8/0xc;
    void*                        OwningThread   @0xc/0x10;
    void*                        LockSemaphore  @0x10/0x18;
    ULONG_PTR                    SpinCount      @0x14/0x20;
};

struct _RTL_CRITICAL_SECTION_DEBUG {
    sizeof                                           @0x20/0x30;
    USHORT                 Type                      @0x0;
    USHORT                 CreatorBackTraceIndex     @0x2;
    _RTL_CRITICAL_SECTION* CriticalSection           @0x4/0x8;
    _LIST_ENTRY            ProcessLocksList          @0x8/0x10;
    ULONG                  EntryCount                @0x10/0x20;
    ULONG                  ContentionCount           @0x14/0x24;
    ULONG                  Flags                     @0x18/0x28;
    USHORT                 CreatorBackTraceIndexHigh @0x1c/0x2c;
    USHORT                 SpareWORD                 @0x1e/0x2e;
};

struct _RTL_RESOURCE from phnt {
    sizeof                                         @0x38/0x60;
    _RTL_CRITICAL_SECTION CriticalSection          @0x0;
    void*                 SharedSemaphore          @0x18/0x28;
    ULONG                 NumberOfWaitingShared    @0x1c/0x30;
    void*                 ExclusiveSemaphore       @0x20/0x38;
    ULONG                 NumberOfWaitingExclusive @0x24/0x40;
    LONG                  NumberOfActive           @0x28/0x44;
    void*                 ExclusiveOwnerThread     @0x2c/0x48;
};

struct _NT_TIB {
    sizeof                      @0x1c/0x38;
    void*  ExceptionList        @0x0;
    void*  StackBase            @0x4/0x8;
    void*  StackLimit           @0x8/0x10;
    void*  SubSystemTib         @0xc/0x18;
    void*  FiberData            @0x10/0x20;
    void*  ArbitraryUserPointer @0x14/0x28;
    void*  Self                 @0x18/0x30;
};

struct _UNLOADED_DRIVERS {
    sizeof                       @0x18/0x28;
    _UNICODE_STRING Name         @0x0;
    void*           StartAddress @0x8/0x10;
    void*           EndAddress   @0xc/0x18;
    ULONGLONG       CurrentTime  @0x10/0x20;
};

struct _DYNAMIC_FUNCTION_TABLE from clrnt {
    sizeof                     @-/0x58;
    _LIST_ENTRY Links          @-/0x0;
    void*       FunctionTable  @-/0x10;
    ULONGLONG   MinimumAddress @-/0x20;
    ULONGLONG   MaximumAddress @-/0x28;
    ULONGLONG   BaseAddress    @-/0x30;
    void*       Callback       @-/0x38;
    ULONG       EntryCount     @-/0x54;
};

struct dynamic_unwind_entry from wine {
    sizeof                @-/0x40;
    _LIST_ENTRY entry     @-/0x0;
    ULONGLONG   base      @-/0x10;
    ULONGLONG   end       @-/0x18;
    void*       table     @-/0x20;
    ULONG       count     @-/0x28;
    void*       callback  @-/0x30;
};

struct _CLIENT_ID {
    sizeof               @0x8/0x10;
    void*  UniqueProcess @0x0;
    void*  UniqueThread  @0x4/0x8;
};

struct _TEB {
    sizeof                             @0xfb8/0x1838;
    _NT_TIB    NtTib                   @0x0;
    _CLIENT_ID ClientId                @0x20/0x40;
    void*      ProcessEnvironmentBlock @0x30/0x60;
    void*      TlsSlots[64]            @-/0x1480;
    LONG       WowTebOffset            @-/0x180c from kernels;
};
