// What structures of every kind may hold: a table takes those of these that it names.
source ntdef = "described (ntdef.h, the same in every version)";

struct _LIST_ENTRY from ntdef {
    sizeof             @0x8/0x10;
    _LIST_ENTRY* Flink @0x0;
    _LIST_ENTRY* Blink @0x4/0x8;
};

struct _UNICODE_STRING from ntdef {
    sizeof                @0x8/0x10;
    USHORT  Length        @0x0;
    USHORT  MaximumLength @0x2;
    USHORT* Buffer        @0x4/0x8;
};
