// Page heap of 7 to 11.

build 6.1 x86 = "public symbols of wntdll 10.0.17763.404, those of 7 SP1 and 10.0.1904x agree; measured: 10 1607 x86: full page heap, blocks in use";
build 6.1 x64 = "public symbols of ntdll 6.1.7601.17514, those of 10.0.1904x agree";
build 10.0.16299 arm64 = "inferred: as x64";

struct _RTL_BALANCED_LINKS {
    sizeof                          @0x10/0x20;
    _RTL_BALANCED_LINKS* Parent     @0x0;
    _RTL_BALANCED_LINKS* LeftChild  @0x4/0x8;
    _RTL_BALANCED_LINKS* RightChild @0x8/0x10;
};

struct _RTL_AVL_TABLE {
    sizeof                                         @0x38/0x68;
    _RTL_BALANCED_LINKS BalancedRoot               @0x0;
    ULONG               NumberGenericTableElements @0x18/0x2c;
    ULONG               DepthOfTree                @0x1c/0x30;
};

struct _DPH_HEAP_BLOCK {
    sizeof                                 @0x40/0x80;
    _RTL_BALANCED_LINKS TableLinks         @0x0;
    _DPH_HEAP_BLOCK*    pNextAlloc         @0x0;
    void*               pUserAllocation    @0x10/0x20;
    void*               pVirtualBlock      @0x14/0x28;
    ULONG_PTR           nVirtualBlockSize  @0x18/0x30;
    ULONG_PTR           nVirtualAccessSize @0x1c/0x38;
    ULONG_PTR           nUserRequestedSize @0x20/0x40;
    ULONG_PTR           nUserActualSize    @0x24/0x48;
    void*               StackTrace         @0x30/0x60;
};

struct _DPH_HEAP_ROOT {
    sizeof                                   @0xc0/0x168;
    ULONG            Signature               @0x0;
    ULONG            HeapFlags               @0x4;
    _RTL_AVL_TABLE   BusyNodesTable          @0x20/0x38;
    ULONG            nBusyAllocations        @0x5c/0xa8;
    _DPH_HEAP_BLOCK* pFreeAllocationListHead @0x64/0xb8;
    ULONG            nFreeAllocations        @0x6c/0xc8;
    _LIST_ENTRY      NextHeap                @0xa4/0x138;
    void*            NormalHeap              @0xb4/0x150;
    void*            CreateStackTrace        @0xb8/0x158;
};

struct _DPH_BLOCK_INFORMATION {
    sizeof                  @0x20/0x40;
    ULONG     StartStamp    @0x0;
    void*     Heap          @0x4/0x8;
    ULONG_PTR RequestedSize @0x8/0x10;
    ULONG_PTR ActualSize    @0xc/0x18;
    USHORT    TraceIndex    @0x10/0x20;
    void*     StackTrace    @0x18/0x30;
    ULONG     EndStamp      @0x1c/0x3c;
};
