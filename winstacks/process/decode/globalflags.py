# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""NtGlobalFlag: the switches of the gflags tool.

Source: Microsoft's documentation of GFlags ("GFlags Flag Table"); the values belong to the FLG_ names.
"""

from __future__ import annotations

FLG_APPLICATION_VERIFIER = 0x00000100
FLG_USER_STACK_TRACE_DB = 0x00001000
FLG_KERNEL_STACK_TRACE_DB = 0x00002000
FLG_MAINTAIN_OBJECT_TYPELIST = 0x00004000
FLG_HEAP_PAGE_ALLOCS = 0x02000000

# Since 7 each of these flags makes ntdll create a database; +ust need not be set.
MAKES_USER_DATABASE = FLG_USER_STACK_TRACE_DB | FLG_APPLICATION_VERIFIER | FLG_HEAP_PAGE_ALLOCS

ABBREVIATIONS = {
    0x00000001: "soe",
    0x00000002: "sls",
    0x00000004: "dic",
    0x00000008: "shg",
    0x00000010: "htc",
    0x00000020: "hfc",
    0x00000040: "hpc",
    0x00000080: "hvc",
    FLG_APPLICATION_VERIFIER: "vrf",
    0x00000400: "ptg",
    0x00000800: "htg",
    FLG_USER_STACK_TRACE_DB: "ust",
    FLG_KERNEL_STACK_TRACE_DB: "kst",
    FLG_MAINTAIN_OBJECT_TYPELIST: "otl",
    0x00008000: "htd",
    0x00010000: "dse",
    0x00020000: "d32",
    0x00040000: "ksl",
    0x00080000: "dps",
    0x00100000: "scb",
    0x00200000: "dhc",
    0x00400000: "ece",
    0x00800000: "eel",
    0x01000000: "eot",
    FLG_HEAP_PAGE_ALLOCS: "hpa",
    0x04000000: "dwl",
    0x08000000: "ddp",
    0x10000000: "cse",
    0x20000000: "ltd",
    0x40000000: "bhd",
    0x80000000: "dpd",
}


def abbreviate(flags: int) -> str:
    """Returns the abbreviations of the set flags, lowest bit first, after the other bits as one number.

    >>> abbreviate(0x3200)
    '0x200 ust kst'
    """
    unknown = flags & ~sum(ABBREVIATIONS)
    names = [name for flag, name in ABBREVIATIONS.items() if flags & flag]
    return " ".join(([f"{unknown:#x}"] if unknown else []) + names)
