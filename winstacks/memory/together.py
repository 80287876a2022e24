# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Members of the kernel's structures that came with the same Windows: a table with only one is damaged.

Older kernels lack some members, and readers recognise an older kernel by them. A table that has one of two
such members and lacks the other has lost it, and a reader would take the kernel for another Windows.
"""

from __future__ import annotations

from typing import Dict

TOGETHER: Dict[str, Dict[str, str]] = {
    "_CLIENT_ID": {"UniqueProcess": "UniqueThread", "UniqueThread": "UniqueProcess"},
    "_CONTROL_AREA": {"FilePointer": "Segment", "Segment": "FilePointer"},
    "_EPROCESS": {"DebugPort": "Pcb", "WoW64Process": "EnclaveTable"},
    "_ERESOURCE": {"ActiveEntries": "OwnerEntry", "OwnerEntry": "ActiveEntries"},
    "_ETHREAD": {
        "ApcNeeded": "NestedFaultCount",
        "LpcReceivedMessageId": "LpcReplyChain",
        "ThreadsProcess": "LpcReplyChain",
    },
    "_FILE_OBJECT": {"DeletePending": "FileName"},
    "_HANDLE_TABLE_ENTRY": {
        "CreatorBackTraceIndex": "GrantedAccessIndex",
        "GrantedAccessBits": "ObjectPointerBits",
        "ObjectPointerBits": "GrantedAccessBits",
    },
    "_HANDLE_TRACE_DEBUG_INFO": {"TableSize": "RefCount"},
    "_HEAP": {"EncodeFlagMask": "Encoding", "Encoding": "EncodeFlagMask", "Interceptor": "Encoding"},
    "_KUSER_SHARED_DATA": {"NtProductType": "SuiteMask"},
    "_MMVAD": {"FirstPrototypePte": "LastContiguousPte", "Subsection": "ViewLinks"},
    "_MMVAD_FLAGS": {"ImageMap": "WriteWatch", "Protection": "PrivateMemory", "VadType": "DeleteInProgress"},
    "_OBJECT_HEADER": {
        "HandleInfoOffset": "NameInfoOffset",
        "InfoMask": "TypeIndex",
        "NameInfoOffset": "HandleInfoOffset",
        "TypeIndex": "InfoMask",
    },
    "_POOL_TRACKER_BIG_PAGES": {"NumberOfBytes": "PoolType"},
    "_SEGMENT": {
        "ControlArea": "TotalNumberOfPtes",
        "PrototypePte": "TotalNumberOfPtes",
        "TotalNumberOfPtes": "PrototypePte",
    },
    "_TEB": {"TlsSlots": "glTable"},
}
"""By structure and member another member: each kernel that has the other member has both (public symbols of
all kernels whose tables are at hand, from XP to 11)."""
