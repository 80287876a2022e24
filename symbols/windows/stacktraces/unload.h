// The events of ntdll's rings of unloaded DLLs.

build 5.1 x86 = "described (Microsoft's documentation of RtlGetUnloadEventTrace), before Version was added";
build 5.2 x64 = "described (Microsoft's documentation of RtlGetUnloadEventTrace), before Version was added";
build 6.0 x86 = "described (Microsoft's documentation of RtlGetUnloadEventTrace); Version was added in Vista";
build 6.0 x64 = "described (Microsoft's documentation of RtlGetUnloadEventTrace); Version was added in Vista";
build 10.0.16299 arm64 = "inferred: as x64";

struct _RTL_UNLOAD_EVENT_TRACE {
    sizeof                  @0x54/0x60 until 6.0;
    sizeof                  @0x5c/0x68 since 6.0;
    void*     BaseAddress   @0x0;
    ULONG_PTR SizeOfImage   @0x4/0x8;
    ULONG     Sequence      @0x8/0x10;
    ULONG     TimeDateStamp @0xc/0x14;
    ULONG     CheckSum      @0x10/0x18;
    USHORT    ImageName[32] @0x14/0x1c;
    ULONG     Version[2]    @0x54/0x5c since 6.0;
};
