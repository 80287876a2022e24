// Which process and thread crashed, for small kernel dumps without the kernel's symbols. In an image the kernel's own symbols
// describe these structures. A layout counts if the file's _ETHREAD and _EPROCESS agree on the ID of the process.

build 5.1.2600 x86 = "public symbols of XP SP3";
build 6.0.6000 x86 = "public symbols of ntoskrnl, as MemProcFS 5.19 lists them by build";
build 6.1.7600 x86 = "public symbols of ntoskrnl, as MemProcFS 5.19 lists them by build";
build 6.2.9200 x86 = "public symbols of ntoskrnl, as MemProcFS 5.19 lists them by build";
build 6.3.9600 x86 = "public symbols of ntoskrnl, as MemProcFS 5.19 lists them by build";
build 10.0.10240 x86 = "public symbols of ntoskrnl, as MemProcFS 5.19 lists them by build";
build 10.0.10586 x86 = "public symbols of ntoskrnl, as MemProcFS 5.19 lists them by build";
build 10.0.15063 x86 = "public symbols of ntoskrnl, as MemProcFS 5.19 lists them by build";
build 10.0.18362 x86 = "public symbols of ntoskrnl, as MemProcFS 5.19 lists them by build";
build 10.0.19041 x86 = "public symbols of ntoskrnl, as MemProcFS 5.19 lists them by build";
build 6.0.6000 x64 = "public symbols of ntoskrnl, as MemProcFS 5.19 lists them by build";
build 6.1.7600 x64 = "public symbols of ntoskrnl, as MemProcFS 5.19 lists them by build";
build 6.1.7601 x64 = "public symbols of ntoskrnl 7601.24540";
build 6.2.9200 x64 = "public symbols of ntoskrnl, as MemProcFS 5.19 lists them by build";
build 6.3.9600 x64 = "public symbols of ntoskrnl 9600.19962";
build 10.0.10240 x64 = "public symbols of ntoskrnl, as MemProcFS 5.19 lists them by build";
build 10.0.10586 x64 = "public symbols of ntoskrnl, as MemProcFS 5.19 lists them by build";
build 10.0.14393 x64 = "public symbols of ntoskrnl 14393.5006";
build 10.0.15063 x64 = "public symbols of ntoskrnl 17763.4131; 15063 as MemProcFS 5.19 lists it";
build 10.0.18362 x64 = "public symbols of ntoskrnl, as MemProcFS 5.19 lists them by build";
build 10.0.19041 x64 = "public symbols of ntoskrnl 19041.804; measured: a small dump of 19041";
build 10.0.20348 x64 = "public symbols of ntoskrnl 20348.1129 and 22000.1516";
build 10.0.26100 x64 = "public symbols of ntoskrnl, as MemProcFS 5.19 lists them by build";

struct _CLIENT_ID {
    sizeof                         @0x8/0x10;
    ULONG_PTR UniqueProcess        @0x0;
    ULONG_PTR UniqueThread         @0x4/0x8;
};

struct _EPROCESS {
    sizeof                         @0x260/-;
    sizeof                         @0x270/0x3e8 since 6.0.6000;
    sizeof                         @0x2c0/0x4d0 since 6.1.7600;
    sizeof                         @0x2e8/0x660 since 6.2.9200;
    sizeof                         @0x310/0x6b8 since 6.3.9600;
    sizeof                         @0x380/0x798 since 10.0.10240;
    sizeof                         @0x370/0x788 since 10.0.10586;
    sizeof                         @0x388/0x7b0 since 10.0.14393;
    sizeof                         @0x3f0/0x818 since 10.0.15063;
    sizeof                         @0x480/0x880 since 10.0.18362;
    sizeof                         @0x4c0/0xa40 since 10.0.19041;
    sizeof                         @-/0xb80     since 10.0.20348;
    sizeof                         @-/0x840     since 10.0.26100;
    ULONG_PTR UniqueProcessId      @0x84/-;
    ULONG_PTR UniqueProcessId      @0x9c/0xe0   since 6.0.6000;
    ULONG_PTR UniqueProcessId      @0xb4/0x180  since 6.1.7600;
    ULONG_PTR UniqueProcessId      @-/0x2e0     since 6.2.9200;
    ULONG_PTR UniqueProcessId      @-/0x2e8     since 10.0.10240;
    ULONG_PTR UniqueProcessId      @-/0x2e0     since 10.0.15063;
    ULONG_PTR UniqueProcessId      @-/0x2e8     since 10.0.18362;
    ULONG_PTR UniqueProcessId      @0xe4/0x440  since 10.0.19041;
    ULONG_PTR UniqueProcessId      @-/0x1d0     since 10.0.26100;
    UCHAR ImageFileName[15]        @0x174/-;
    UCHAR ImageFileName[15]        @0x14c/0x238 since 6.0.6000;
    UCHAR ImageFileName[15]        @0x16c/0x2e0 since 6.1.7600;
    UCHAR ImageFileName[15]        @0x170/0x438 since 6.2.9200;
    UCHAR ImageFileName[15]        @-/0x448     since 10.0.10240;
    UCHAR ImageFileName[15]        @0x174/0x450 since 10.0.10586;
    UCHAR ImageFileName[15]        @0x17c/-     since 10.0.15063;
    UCHAR ImageFileName[15]        @0x1ac/0x5a8 since 10.0.19041;
    UCHAR ImageFileName[15]        @-/0x338     since 10.0.26100;
};

struct _ETHREAD {
    sizeof                         @0x258/-;
    sizeof                         @0x288/0x450 since 6.0.6000;
    sizeof                         @0x2b8/0x498 since 6.1.7600;
    sizeof                         @-/0x4a8     since 6.1.7601;
    sizeof                         @0x2c0/0x4c8 since 6.2.9200;
    sizeof                         @0x418/0x778 since 6.3.9600;
    sizeof                         @0x458/0x7c0 since 10.0.10240;
    sizeof                         @0x460/0x7e0 since 10.0.14393;
    sizeof                         @0x480/0x810 since 10.0.15063;
    sizeof                         @0x488/0x820 since 10.0.18362;
    sizeof                         @0x4e0/0x898 since 10.0.19041;
    sizeof                         @-/0x8f0     since 10.0.20348;
    sizeof                         @-/0x788     since 10.0.26100;
    _CLIENT_ID Cid                 @0x1ec/-;
    _CLIENT_ID Cid                 @0x20c/0x380 since 6.0.6000;
    _CLIENT_ID Cid                 @0x22c/0x3b0 since 6.1.7600;
    _CLIENT_ID Cid                 @-/0x3b8     since 6.1.7601;
    _CLIENT_ID Cid                 @0x214/0x398 since 6.2.9200;
    _CLIENT_ID Cid                 @0x364/0x620 since 6.3.9600;
    _CLIENT_ID Cid                 @0x374/0x628 since 10.0.10240;
    _CLIENT_ID Cid                 @-/0x630     since 10.0.14393;
    _CLIENT_ID Cid                 @0x37c/0x638 since 10.0.15063;
    _CLIENT_ID Cid                 @0x384/0x648 since 10.0.18362;
    _CLIENT_ID Cid                 @0x2ac/0x478 since 10.0.19041;
    _CLIENT_ID Cid                 @-/0x4c8     since 10.0.20348;
    _CLIENT_ID Cid                 @-/0x508     since 10.0.26100;
};
