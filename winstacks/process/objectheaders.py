# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The header of an executive object: type, name, and creator of the object.

Names have the form of Volatility's `windows.handles`.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Optional, Tuple

from volatility3.framework import exceptions

from ..memory.decode import text
from ..memory.decode.memo import Memo
from ..memory.decode.memory import string_lengths
from ..memory.decode.records import NamedTuple
from ..memory.decode.status import NOTHING, Status, contradicted, status
from ..memory.decode.statuscodes import StatusCode
from ..memory.decode.structure import MissingMemberError
from ..memory.image import Image
from .cidtable import CidTable, id_differs
from .kernelobjects import IMAGE_FILE_NAME, may_lie_at, process_at, thread_at
from .objectblocks import (
    CREATOR_FLAG,
    CREATOR_INFO,
    CREATOR_MASK,
    NAME_INFO,
    NAME_MASK,
    OBJECT_HEADER,
    ObjectBlocks,
)
from .processlist import process_list
from .programs import ProgramNames
from .threadids import ThreadIds

MAX_NAME = 0x1000

_Named = Tuple[Optional[str], Status]
"""A name, None if the object has none or it cannot be read, and the reason why it, or a part of it, is
missing."""

_UNREADABLE = status(StatusCode.OBJECT_UNREADABLE)


class ObjectNames:
    """Reads the names of objects. Objects of a type have no names if the symbols lack a needed member.
    `block_doubt` takes the address of a header; returns the members that its pool block contradicts."""

    def __init__(self, image: Image, block_doubt: Callable[[int], Status]) -> None:
        self._types = image.types
        self._block_doubt = block_doubt
        self._image = image
        self._memory = image.memory(image.kernel)
        self._body = self._types[OBJECT_HEADER].offset("Body")
        self._info_mask = self._types[OBJECT_HEADER].first_member("InfoMask")
        self._name_offset = self._types[OBJECT_HEADER].first_member("NameInfoOffset")

    def name(self, kind: str, body: int, info_mask: Optional[int] = None) -> _Named:
        """Returns the name of an object, and why it is missing. `info_mask` is the header's InfoMask, None to
        read it."""
        try:
            if kind == "Process":
                name, why = self._process(body)
            elif kind == "Thread":
                name, why = self._thread(body)
            elif kind == "File":
                name, why = self._file(body)
            elif kind == "Key":
                name, why = self._key(body)
            else:
                name, why = self._named(body, info_mask)
        except MissingMemberError as error:
            self._image.lacks(error)
            name, why = None, NOTHING
        return text.cell(name, MAX_NAME) if name else None, why

    def _process(self, body: int) -> _Named:
        process = process_at(self._image, body)
        if process.lacks(IMAGE_FILE_NAME) or process.lacks("UniqueProcessId"):
            return None, NOTHING
        name, own_id = process.data(IMAGE_FILE_NAME), process["UniqueProcessId"]
        if name is None or own_id is None:
            return None, _UNREADABLE
        known = self._image.service(CidTable).processes.get(body)
        pid = own_id if known is None else known
        doubt = status(id_differs(known, own_id), self._image.service(ProgramNames).doubt(body))
        return f"{text.narrow(name)} Pid {pid}", doubt

    def _thread(self, body: int) -> _Named:
        """Returns the IDs of a thread and its process: PspCidTable's IDs, if it has any."""
        owner = self._image.service(ThreadIds).owner(body)
        if owner is not None and owner.pid is not None:
            return f"Tid {owner.tid} Pid {owner.pid}", owner.status
        thread = thread_at(self._image, body)
        if thread.lacks("Cid.UniqueThread") or thread.lacks("Cid.UniqueProcess"):
            return None, NOTHING
        tid, pid = thread["Cid.UniqueThread"], thread["Cid.UniqueProcess"]
        return (None, _UNREADABLE) if tid is None or pid is None else (f"Tid {tid} Pid {pid}", NOTHING)

    def _file(self, body: int) -> _Named:
        file = self._image.at("_FILE_OBJECT", body)
        if file.lacks("FileName.Length") or file.lacks("DeviceObject"):
            return None, NOTHING
        path, device = file.text("FileName.Length", MAX_NAME), file["DeviceObject"]
        on, why = self._named(device, None) if device else (None, NOTHING)
        why = status(why, self._block_doubt(device - self._body) if device else None)
        unread = path is None or device is None
        return (f"\\Device\\{on}" if on else "") + (path or ""), why or (_UNREADABLE if unread else NOTHING)

    def _key(self, body: int) -> _Named:
        key = self._image.object_at("_CM_KEY_BODY", body)
        try:
            name = key.get_full_key_name()
        except exceptions.InvalidAddressException:
            return None, _UNREADABLE
        except AttributeError:
            # Volatility reads members by names that some versions of Windows lack.
            return None, NOTHING
        return str(name) if name else None, NOTHING

    def _named(self, body: int, info_mask: Optional[int]) -> _Named:
        """Returns the name that the object manager stores before the header.

        It never stores an empty name in a buffer, nor one that is longer than the buffer.
        """
        header = body - self._body
        if self._name_offset is not None:
            distance = self._memory.member(header, self._name_offset)
        else:
            mask = self._memory.member(header, self._info_mask) if info_mask is None else info_mask
            distance = None if mask is None else self._distance(mask)
        if not distance:
            return None, _UNREADABLE if distance is None else NOTHING
        start = header - distance + self._types[NAME_INFO].offset("Name.Length")
        size = self._memory.pointer_size
        data = self._memory.read(start, 2 * size)
        if data is None:
            return None, _UNREADABLE
        lengths = string_lengths(data)
        if lengths is None or bool(lengths[0]) != any(data[size:]):
            return None, contradicted("Name")
        name = self._memory.unicode_string(data, MAX_NAME)
        return name, NOTHING if name is not None else _UNREADABLE

    def _distance(self, info_mask: int) -> int:
        """Returns the distance of the name information before the header, 0 if there is none."""
        if not info_mask & NAME_MASK:
            return 0
        creator = self._types[CREATOR_INFO].size if info_mask & CREATOR_MASK else 0
        return self._types[NAME_INFO].size + creator


_TYPE_OF_TYPES = "Type"
_TRACED = 0x01
"""DbgRefTrace, a bit of _OBJECT_HEADER.TraceFlags since 7."""

_MAX_JUDGED = 8
"""The most processes whose type indices are compared."""

_MAX_KNOWN = 1 << 16
_MAX_TYPE_NAME = 128


class ObjectInfo(NamedTuple):
    """An object. `body` is the address by which Windows refers to it; its header lies before the body. `type`
    and `name` are None if the object has none, or if they cannot be read; then `status` has the reason."""

    body: int
    type: Optional[str]
    name: Optional[str]
    status: Status


class ObjectCreator(NamedTuple):
    """The creator of an object: the process ID, and the index of the stack in the kernel's database (0:
    none)."""

    pid: int
    back_trace_index: int


class Objects:
    """Describes objects by the addresses of their headers; made as `image.service(Objects)`."""

    def __init__(self, image: Image) -> None:
        header = image.types[OBJECT_HEADER]
        self._image = image
        self._memory = image.memory(image.kernel)
        self._names = ObjectNames(image, self._block_doubt)
        self._body = header.offset("Body")
        self._type = header.first_member("Type")
        self._type_index = header.first_member("TypeIndex")
        self._info_mask = header.first_member("InfoMask")
        self._flags = header.first_member("Flags")
        self._trace_flags = header.first_member("TraceFlags")
        image.require_member("_OBJECT_TYPE", "Name.Length")
        self._key = image.types.find("_OBJECT_TYPE").first_member("Key")
        self._blocks = ObjectBlocks(image)
        if self._info_mask is None and self._flags is None:
            image.lacks(MissingMemberError(f"{OBJECT_HEADER} has no member InfoMask or Flags"))
        self._types: Optional[int] = None
        if self._type is None:
            self._types = image.require_symbol("ObTypeIndexTable")
        cookie = image.symbol("ObHeaderCookie")
        self._has_cookie = cookie is not None
        self._cookie = self._memory.number(cookie, 1) or 0
        self._type_names: Dict[int, Optional[str]] = {}
        self._known: Memo[int, ObjectInfo] = Memo(self._describe, _MAX_KNOWN)
        self._wrong_cookie = NOTHING
        mixed = self._mixed_with(image) if self._has_cookie else None
        if mixed not in (None, self._cookie):
            self._cookie = mixed or 0
            self._wrong_cookie = contradicted("ObHeaderCookie")
        if self._types is not None and cookie is None and self._mixes_indices(image):
            image.lacks("ObHeaderCookie")
            self._types = None

    def describe(self, header: int) -> ObjectInfo:
        """Returns the description of the object whose header is at a canonical address."""
        return self._known[header]

    def creator(self, header: int) -> Optional[ObjectCreator]:
        """Returns the creator of an object, with index 0 if its header has none; None if unreadable."""
        data = self._read(header)
        marked = self._has_creator(data) if data is not None else None
        # The creator's information lies directly before the header, before all other optional headers.
        if not marked:
            return None if marked is None else ObjectCreator(0, 0)
        try:
            creator = self._image.types[CREATOR_INFO]
            pid, index = creator.field("CreatorUniqueProcess"), creator.field("CreatorBackTraceIndex")
        except MissingMemberError as error:
            self._image.lacks(error)
            return None
        info = self._memory.read(header - creator.size, creator.size)
        return None if info is None else ObjectCreator(pid.value_in(info), index.value_in(info))

    def _has_creator(self, data: bytes) -> Optional[bool]:
        """Returns whether a header marks that the creator is stored; None if that cannot be read."""
        if self._info_mask is not None:
            return bool(self._info_mask.value_in(data) & CREATOR_MASK)
        return None if self._flags is None else bool(self._flags.value_in(data) & CREATOR_FLAG)

    def references(self, header: int) -> Tuple[Optional[int], Optional[int]]:
        """Returns HandleCount and PointerCount of an object, None where they cannot be read."""
        view = self._image.at(OBJECT_HEADER, header)
        return view["HandleCount"], view["PointerCount"]

    def header_of(self, body: int) -> int:
        """Returns the address of an object's header, from the address of the object."""
        return body - self._body

    def is_lost(self, header: int) -> bool:
        """Returns whether a header, or the type to which it leads, is not in the image.

        Where no header is, other bytes may look as one whose type is lost.
        """
        data = self._read(header)
        if data is None:
            return True
        address = self._type_address(header, data)
        if address is None:
            return self._types is not None
        return may_lie_at(self._image, address) and self._lacks_type(address)

    def _lacks_type(self, address: int) -> bool:
        """Returns whether the structure of a type, or its name, is not in the image."""
        start = self._image.at("_OBJECT_TYPE", address).place("Name.Length")
        data = self._memory.read(start, 2 * self._memory.pointer_size) if start else None
        if data is None or not any(data):
            return data is None or self._memory.is_zero_page(start or 0)
        return string_lengths(data) is not None and self._memory.unicode_string(data, _MAX_TYPE_NAME) is None

    def traced(self, header: int) -> Optional[bool]:
        """Returns whether the header marks the object as traced; None before 7, which has no such mark."""
        data = self._read(header)
        if data is None or self._trace_flags is None:
            return None
        return bool(self._trace_flags.value_in(data) & _TRACED)

    def _describe(self, header: int) -> ObjectInfo:
        body = header + self._body
        data = self._read(header)
        if data is None:
            return ObjectInfo(body, None, None, status(StatusCode.OBJECT_UNREADABLE))
        kind, wrong = self._type_of(header, data), NOTHING
        known = self._known_type(body)
        if kind is None:
            kind = known
        elif known not in (None, kind):
            member = "Type" if self._type is not None else "TypeIndex"
            kind, wrong = known, contradicted(member)
        if kind is None:
            return ObjectInfo(body, None, None, status(StatusCode.OBJECT_TYPE_UNKNOWN))
        mask = self._info_mask.value_in(data) if self._info_mask else None
        name, why = self._names.name(kind, body, mask)
        wrong = status(self._wrong_cookie, wrong, self._contradicted_members(header, data))
        return ObjectInfo(body, kind, name, status(wrong, why))

    def _block_doubt(self, header: int) -> Status:
        """Returns the members of a header that the pool block of its object contradicts."""
        data = self._read(header)
        return NOTHING if data is None else self._contradicted_members(header, data)

    def _contradicted_members(self, header: int, data: bytes) -> Status:
        """Returns what `_block_doubt` returns, from the bytes of the header."""
        address = self._type_address(header, data)
        key = self._memory.member(address, self._key) or 0
        return contradicted(*self._blocks.wrong(header, data, key))

    def _known_type(self, body: int) -> Optional[str]:
        """Returns the type of an object that the list of processes or PspCidTable has; None for others."""
        if self._image.service(process_list).has(body):
            return "Process"
        return "Thread" if body in self._image.service(CidTable).threads else None

    def _read(self, header: int) -> Optional[bytes]:
        return self._memory.read(header, self._body)

    def _type_of(self, header: int, data: bytes) -> Optional[str]:
        """Returns the name of an object's type."""
        address = self._type_address(header, data)
        return self._type_at(address) if address else None

    def _type_address(self, header: int, data: bytes) -> Optional[int]:
        """Returns the address of an object's type: a header has its pointer up to Vista, its index since 7.

        Windows 10 mixes the index with a cookie and a byte of the header's address.
        """
        if self._type is not None:
            return self._type.value_in(data)
        if self._type_index is None or self._types is None:
            return None
        number = self._type_index.value_in(data)
        if self._has_cookie:
            number = (number ^ self._cookie ^ header >> 8) & 0xFF
        return self._memory.pointer(self._types + number * self._memory.pointer_size)

    def _mixes_indices(self, image: Image) -> bool:
        """Returns whether type indices are mixed with a cookie, judged by the indices of the processes.

        They are not mixed if processes at different places have the same index.
        """
        read = self._of_processes(image)
        if not read or self._type_index is None or self._type_of(*read[0]) == "Process":
            return False
        indices = {self._type_index.value_in(data) for _, data in read}
        return len(indices) > 1 or len({header >> 8 & 0xFF for header, _ in read}) == 1

    def _of_processes(self, image: Image) -> List[Tuple[int, bytes]]:
        """Returns the headers of some processes: their addresses and bytes."""
        processes = image.service(process_list).processes()[:_MAX_JUDGED]
        headers = [self.header_of(process.eprocess) for process in processes]
        return [(header, data) for header, data in ((each, self._read(each)) for each in headers) if data]

    def _mixed_with(self, image: Image) -> Optional[int]:
        """Returns the cookie that is mixed into the indices of all processes; None if they do not show it.

        The indices do not show the cookie if one fits the stored cookie, or if there is one process only.
        """
        read = self._of_processes(image)
        if self._type_index is None or self._types is None or len(read) < 2:
            return None
        if any(self._type_of(*each) == "Process" for each in read):
            return None
        mixed = {self._type_index.value_in(data) ^ header >> 8 & 0xFF for header, data in read}
        size = self._memory.pointer_size
        entries = (self._memory.pointer(self._types + number * size) for number in range(1 << 8))
        indices = [
            number for number, entry in enumerate(entries) if entry and self._type_at(entry) == "Process"
        ]
        return mixed.pop() ^ indices[0] if len(mixed) == len(indices) == 1 else None

    def _type_at(self, address: int) -> Optional[str]:
        if address not in self._type_names:
            start = self._image.at("_OBJECT_TYPE", address).place("Name.Length")
            data = self._memory.read(start, 2 * self._memory.pointer_size) if start else None
            whole = bool(data) and self._memory.ends_text(data or b"")
            name = self._memory.unicode_string(data, _MAX_TYPE_NAME) if data and whole else None
            sound = name and name.isprintable() and self._has_key(address, name)
            self._type_names[address] = text.cell(name) if name and sound else None
        return self._type_names[address]

    def _has_key(self, address: int, name: str) -> bool:
        """Returns whether the Key of a type, the tag of its objects, fits a name.

        It has the first four characters of the name, filled with blanks; the type of types has another one
        (ReactOS, ObCreateObjectType). A kernel that is not in the image leaves it at 0.
        """
        key = self._memory.member(address, self._key)
        first = int.from_bytes(name[:4].ljust(4).encode("latin-1", "replace"), "little")
        return not key or name == _TYPE_OF_TYPES or not (key ^ first) & 0x7FFFFFFF
