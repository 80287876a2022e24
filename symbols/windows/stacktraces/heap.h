// NT heaps: a heap, its segments and blocks, and what of the low-fragmentation heap is read.

build 5.1 x86 = "XP and 2003, x86 and WoW64: public symbols of ntkrnlpa 5.1, those of 2003 agree; measured: 2600 and 2003 x86, 5.2 WoW64";
build 5.2 x64 = "XP x64 and 2003 x64: public kernel symbols; measured: 2003 x64";
build 6.0 x86 = "Vista and 7, x86 and WoW64: public kernel symbols of x86, and the structures of 7 x64 in 32 bits";
build 6.0 x64 = "Vista and 7: public symbols of ntoskrnl 6.1.7601.24540 and ntdll 6.1.7601.17514, Vista's agree; measured: 7 SP1";
build 6.2 x86 = "8 to 11, x86 and WoW64: public symbols of wntdll 10.0.17763.404, kernel symbols of 6.2 to 10.0.19041 agree for _HEAP; measured: 10 1709 x86, 10 1607 WoW64";
build 6.2 x64 = "8 to 11: public symbols of ntoskrnl 10.0.19041.804 and ntdll 10.0.17763.475, 6.2 to 10.0.22000 agree (on 6.2 the halves of EncodedOffsets are stored plain); measured: 8.1, 10 1809 and 21H2, 11 21H2";
build 10.0.16299 arm64 = "inferred: as x64";
source counted 5.2 x64 = "the members of 5.1 x86 in 64 bits: counted so, AllocatorBackTraceIndex comes out where public symbols have it; measured with 240 blocks of 2003 x64";
source counted 6.0 x86 = "inferred from the member order of the x64 symbols of 7 and from 6.2 x86, which lies 4 bytes lower without PointerKey";
source symbols 5.2 x64 = "public kernel symbols";
source symbols 6.0 x86 = "public kernel symbols";
source lfh 6.0 x86 = "inferred: the x64 structures of 7 in 32 bits, which agree with the symbols of XP";

struct _HEAP_ENTRY {
    sizeof                        @0x8/0x10;
    USHORT FunctionIndex          @0x0/0x8  since 6.0;
    ULONG  InterceptorValue       @0x0/0x8  since 6.0;
    USHORT Size                   @0x0/0x8;
    USHORT ContextValue           @0x2/0xa  since 6.0;
    USHORT PreviousSize           @0x2/0xa  until 6.0;
    USHORT PreviousSize           @0x4/0xc  since 6.0;
    USHORT UnusedBytesLength      @0x4/0xc  since 6.0;
    UCHAR  EntryOffset            @0x6/0xe  since 6.0;
    UCHAR  SegmentOffset          @0x6/0xe  since 6.0;
    UCHAR  ExtendedBlockSignature @0x7/0xf  since 6.0;
    UCHAR  SmallTagIndex          @0x4/0xc  until 6.0;
    UCHAR  SmallTagIndex          @0x3/0xb  since 6.0;
    UCHAR  Flags                  @0x5/0xd  until 6.0;
    UCHAR  Flags                  @0x2/0xa  since 6.0;
    UCHAR  UnusedBytes            @0x6/0xe  until 6.0;
    UCHAR  UnusedBytes            @0x7/0xf  since 6.0;
    UCHAR  SegmentIndex           @0x7/0xf  until 6.0;
};

struct _HEAP_ENTRY_EXTRA {
    sizeof                            @0x8/0x10;
    USHORT    AllocatorBackTraceIndex @0x0;
    USHORT    TagIndex                @0x2;
    ULONG_PTR Settable                @0x4/0x8;
};

struct _HEAP_FREE_ENTRY_EXTRA {
    sizeof                    @0x4 until 6.0;
    USHORT TagIndex           @0x0 until 6.0;
    USHORT FreeBackTraceIndex @0x2 until 6.0;
};

struct _HEAP_VIRTUAL_ALLOC_ENTRY {
    sizeof                        @0x20/0x40;
    _LIST_ENTRY       Entry       @0x0;
    _HEAP_ENTRY_EXTRA ExtraStuff  @0x8/0x10;
    ULONG_PTR         CommitSize  @0x10/0x20;
    ULONG_PTR         ReserveSize @0x14/0x28;
    _HEAP_ENTRY       BusyBlock   @0x18/0x30;
};

struct _HEAP_UCR_DESCRIPTOR {
    sizeof                   @0x18/0x30 since 6.0;
    _LIST_ENTRY ListEntry    @0x0       since 6.0;
    _LIST_ENTRY SegmentEntry @0x8/0x10  since 6.0;
    void*       Address      @0x10/0x20 since 6.0;
    ULONG_PTR   Size         @0x14/0x28 since 6.0;
};

struct _HEAP_UNCOMMMTTED_RANGE from counted {
    sizeof                           @0x10/0x20 until 6.0;
    _HEAP_UNCOMMMTTED_RANGE* Next    @0x0       until 6.0;
    ULONG_PTR                Address @0x4/0x8   until 6.0;
    ULONG_PTR                Size    @0x8/0x10  until 6.0;
};

struct _HEAP_SEGMENT from counted {
    sizeof                                                  @0x3c/0x68 until 6.0;
    sizeof                                                  @0x40/0x70 since 6.0;
    _HEAP_ENTRY              Entry                          @0x0;
    ULONG                    SegmentSignature               @0x8/0x10  since 6.0 from symbols;
    ULONG                    SegmentFlags                   @0xc/0x14  since 6.0;
    _LIST_ENTRY              SegmentListEntry               @0x10/0x18 since 6.0;
    ULONG                    Signature                      @0x8/0x10  until 6.0;
    ULONG                    Flags                          @0xc/0x14  until 6.0;
    void*                    Heap                           @0x10/0x18 until 6.0;
    void*                    Heap                           @0x18/0x28 since 6.0;
    void*                    BaseAddress                    @0x18/0x28 until 6.0;
    void*                    BaseAddress                    @0x1c/0x30 since 6.0;
    ULONG                    NumberOfPages                  @0x1c/0x30 until 6.0;
    ULONG                    NumberOfPages                  @0x20/0x38 since 6.0;
    _HEAP_ENTRY*             FirstEntry                     @0x20/0x38 until 6.0;
    _HEAP_ENTRY*             FirstEntry                     @0x24/0x40 since 6.0;
    _HEAP_ENTRY*             LastValidEntry                 @0x24/0x40 until 6.0;
    _HEAP_ENTRY*             LastValidEntry                 @0x28/0x48 since 6.0;
    ULONG                    NumberOfUnCommittedPages       @0x28/0x48 until 6.0;
    ULONG                    NumberOfUnCommittedPages       @0x2c/0x50 since 6.0;
    ULONG                    NumberOfUnCommittedRanges      @0x2c/0x4c until 6.0;
    ULONG                    NumberOfUnCommittedRanges      @0x30/0x54 since 6.0;
    USHORT                   SegmentAllocatorBackTraceIndex @0x34/0x58 since 6.0 from symbols;
    _LIST_ENTRY              UCRSegmentList                 @0x38/0x60 since 6.0;
    _HEAP_UNCOMMMTTED_RANGE* UnCommittedRanges              @0x30/0x50 until 6.0;
    USHORT                   AllocatorBackTraceIndex        @0x34/0x58 until 6.0;
};

struct _HEAP from counted {
    sizeof                                        @0x588/0xae8 until 6.0 from symbols;
    sizeof                                        @0x138/0x208 since 6.0 until 6.2;
    sizeof                                        @0x258/0x2c0 since 6.2;
    _HEAP_ENTRY    Entry                          @0x0;
    ULONG          SegmentSignature               @0x8/0x10    since 6.0 from symbols;
    ULONG          SegmentFlags                   @0xc/0x14    since 6.0;
    _LIST_ENTRY    SegmentListEntry               @0x10/0x18   since 6.0;
    void*          Heap                           @0x18/0x28   since 6.0;
    void*          BaseAddress                    @0x1c/0x30   since 6.0;
    ULONG          NumberOfPages                  @0x20/0x38   since 6.0;
    _HEAP_ENTRY*   FirstEntry                     @0x24/0x40   since 6.0;
    _HEAP_ENTRY*   LastValidEntry                 @0x28/0x48   since 6.0;
    ULONG          NumberOfUnCommittedPages       @0x2c/0x50   since 6.0;
    ULONG          NumberOfUnCommittedRanges      @0x30/0x54   since 6.0;
    USHORT         SegmentAllocatorBackTraceIndex @0x34/0x58   since 6.0 from symbols;
    _LIST_ENTRY    UCRSegmentList                 @0x38/0x60   since 6.0;
    ULONG          Signature                      @0x8/0x10    until 6.0 from symbols;
    ULONG          Signature                      @0x64/0xa0   since 6.0 until 6.2 from symbols;
    ULONG          Signature                      @0x60/0x98   since 6.2 from symbols;
    ULONG          Flags                          @0xc/0x14    until 6.0;
    ULONG          Flags                          @0x40/0x70   since 6.0;
    ULONG          EncodeFlagMask                 @0x4c/0x7c   since 6.0;
    _HEAP_ENTRY    Encoding                       @0x50/0x80   since 6.0 from symbols;
    ULONG_PTR      PointerKey                     @0x58/0x90   since 6.0 until 6.2;
    ULONG          Interceptor                    @0x5c/0x98   since 6.0 until 6.2 from symbols;
    ULONG          Interceptor                    @0x58/0x90   since 6.2 from symbols;
    ULONG          ForceFlags                     @0x10/0x18   until 6.0;
    _LIST_ENTRY    VirtualAllocdBlocks            @0x50/0x90   until 6.0;
    _LIST_ENTRY    VirtualAllocdBlocks            @0xa0/0x118  since 6.0 until 6.2;
    _LIST_ENTRY    VirtualAllocdBlocks            @0x9c/0x110  since 6.2;
    _LIST_ENTRY    SegmentList                    @0xa8/0x128  since 6.0 until 6.2;
    _LIST_ENTRY    SegmentList                    @0xa4/0x120  since 6.2;
    _HEAP_SEGMENT* Segments[64]                   @0x58/0xa0   until 6.0;
    USHORT         AllocatorBackTraceIndex        @0x16a/0x2b2 until 6.0 from symbols;
    USHORT         AllocatorBackTraceIndex        @0xb0/0x138  since 6.0 until 6.2 from symbols;
    USHORT         AllocatorBackTraceIndex        @0xac/0x130  since 6.2 from symbols;
};

struct _HEAP_SUBSEGMENT from lfh {
    sizeof                            @0x20/0x30 since 6.0 until 6.2;
    sizeof                            @0x28/0x40 since 6.2;
    _HEAP_USERDATA_HEADER* UserBlocks @0x4/0x8   since 6.0;
    USHORT                 BlockSize  @0x10/0x18 since 6.0 until 6.2;
    USHORT                 BlockSize  @0x14/0x24 since 6.2;
    USHORT                 BlockCount @0x14/0x1c since 6.0 until 6.2;
    USHORT                 BlockCount @0x18/0x28 since 6.2;
};

struct _HEAP_USERDATA_HEADER from lfh {
    sizeof                           @0x10/0x20 since 6.0 until 6.2;
    sizeof                           @0x20/0x38 since 6.2;
    _HEAP_SUBSEGMENT* SubSegment     @0x0       since 6.0;
    ULONG             Signature      @0xc/-     since 6.0;
    ULONGLONG         Signature      @-/0x18    since 6.0 until 6.2;
    ULONG             Signature      @-/0x14    since 6.2;
    ULONG             EncodedOffsets @0x10/0x18 since 6.2;
    ULONG_PTR         BitmapData[1]  @0x1c/0x30 since 6.2;
};
