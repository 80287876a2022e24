// Segment heaps of 10.0.17763 to 19041.

build 10.0.17763 x86 = "public symbols of wntdll 10.0.17763.404";
build 10.0.17763 x64 = "public symbols of ntoskrnl 10.0.19041.804; measured: 10 1809: where a large block's bytes begin";
build 10.0.17763 arm64 = "inferred: as x64";

struct _RTL_BALANCED_NODE {
    sizeof                          @0xc/0x18;
    _RTL_BALANCED_NODE* Left        @0x0;
    _RTL_BALANCED_NODE* Right       @0x4/0x8;
    ULONG_PTR           ParentValue @0x8/0x10;
};

struct _RTL_RB_TREE {
    sizeof                   @0x8/0x10;
    _RTL_BALANCED_NODE* Root @0x0;
    _RTL_BALANCED_NODE* Min  @0x4/0x8;
};

struct _HEAP_LARGE_ALLOC_DATA {
    sizeof                                          @0x14/0x28;
    _RTL_BALANCED_NODE TreeNode                     @0x0;
    ULONG_PTR          VirtualAddress               @0xc/0x18;
    ULONG_PTR          UnusedBytes : 16 << 0        @0xc/0x18;
    ULONG_PTR          ExtraPresent : 1 << 0        @0x10/0x20;
    ULONG_PTR          AllocatedPages : 20/52 << 12 @0x10/0x20;
};

struct _SEGMENT_HEAP_EXTRA {
    sizeof                  @0x8/0x10;
    USHORT AllocationTag    @0x0;
    UCHAR  ExtraSizeInUnits @0x3;
    void*  Settable         @0x4/0x8;
};

struct _SEGMENT_HEAP {
    sizeof                               @0x580/0x800;
    ULONG             Signature          @0x8/0x10;
    ULONG             GlobalFlags        @0xc/0x14;
    ULONG             Interceptor        @0x10/0x18;
    _RTL_RB_TREE      LargeAllocMetadata @0x44/0x48;
    _HEAP_SEG_CONTEXT SegContexts[2]     @0x100;
};

struct _HEAP_SEG_CONTEXT {
    sizeof                      @0x80/0xc0;
    ULONG_PTR   SegmentMask     @0x0;
    _LIST_ENTRY SegmentListHead @0x44/0x48;
};

union _HEAP_PAGE_SEGMENT {
    sizeof                @0x1000/0x2000;
    _LIST_ENTRY ListEntry @0x0;
};
