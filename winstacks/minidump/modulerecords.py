# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The modules of a process of an image as records of a dump: loaded ones, unloaded ones, mapped files."""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from ..memory.decode import text
from ..memory.decode.machine import Machine
from ..memory.decode.ranges import span_at
from ..memory.decode.records import NamedTuple
from ..memory.image import AddressSpace, Image
from ..names.decode import pe, version
from ..names.decode.pe import DIRECTORY_DEBUG as DEBUG
from ..names.decode.pe import DIRECTORY_RESOURCE as RESOURCE
from ..names.decode.pe import MAX_IMAGE, HeaderError
from ..names.decode.unwindinfo import Bytes
from ..names.imagereader import ImageReader
from ..names.loaderlists import LoaderEntry, module_lists
from ..names.symbolizer import Symbolizer
from ..names.unloaded import RememberedModules
from ..names.usermodules import image_at
from ..process.regions import image_path, mapped_path
from ..process.sections import ImageSections
from ..process.vads import regions
from .decode.modules import MAX_MODULES, MinidumpUnloadedModule
from .encode.streams import WrittenModule

MAX_PATH = 0x7FFF


class ModuleRecord(NamedTuple):
    """A module of a dump. `lost` are members whose value is not in the image; they are 0 or empty."""

    module: WrittenModule
    lost: Tuple[str, ...]


class ModuleRecords:
    """Makes records of modules."""

    def __init__(
        self, image: Image, symbolizer: Symbolizer, halves: Sequence[AddressSpace], end: int
    ) -> None:
        self._image, self._symbolizer, self._halves, self._end = image, symbolizer, halves, end
        self._lists = image.service(module_lists)
        self._regions = image.service(regions)
        self._sections = image.service(ImageSections)
        found, self.regions_whole = self._regions.list_regions(halves[0])
        self.regions = [region for region in found if region.start < region.end <= end]
        self.lists_whole = True

    def modules(self) -> List[ModuleRecord]:
        """Returns the modules of the loader's lists, in load order, the native half first.

        Sets `lists_whole`: whether all lists could be followed and all entries are plausible.
        """
        found: Dict[int, ModuleRecord] = {}
        for half in self._halves:
            entries, complete = self._lists.process_modules(half)
            self.lists_whole = self.lists_whole and complete
            for entry in entries:
                if entry.base + entry.size > self._end or entry.size > MAX_IMAGE or len(found) >= MAX_MODULES:
                    self.lists_whole = False
                elif entry.base not in found:
                    found[entry.base] = self._record(half, entry)
        return list(found.values())

    def _record(self, half: AddressSpace, entry: LoaderEntry) -> ModuleRecord:
        details = self._lists.details(half, entry)
        reader = self._reader(half, entry.base, entry.size)
        path = details.path or entry.name or image_path(self._regions, image_at(self.regions, entry.base))
        stamp = details.stamp
        checksum: Optional[int] = None
        record: Optional[Bytes] = None
        fixed: Optional[Bytes] = None
        try:
            headers = pe.read_headers(reader.read)
            stamp, checksum = headers.timestamp, pe.read_checksum(reader.read)
            # A module without a debug directory lacks everything that the directory leads to.
            record = pe.read_codeview_record(reader.read, headers) if headers.directory(DEBUG)[1] else b""
            fixed = (
                version.read_fixed_file_info(reader.read, headers) if headers.directory(RESOURCE)[1] else b""
            )
        except HeaderError:
            pass
        known: Dict[str, object] = {"ModuleName": path or None, "CheckSum": checksum, "TimeDateStamp": stamp}
        known.update(CvRecord=record, VersionInfo=fixed)
        written = WrittenModule(
            *(entry.base, entry.size, checksum or 0, stamp or 0),
            *(path[:MAX_PATH], bytes(fixed or b""), bytes(record or b"")),
        )
        return ModuleRecord(written, tuple(name for name, value in known.items() if value is None))

    def _reader(self, half: AddressSpace, base: int, size: int) -> ImageReader:
        view = self._sections.section_of(span_at(self.regions, base))
        return ImageReader(self._image, half.layer_name, base, size, view)

    def unloaded(self) -> List[MinidumpUnloadedModule]:
        """Returns the unloaded modules that ntdll remembers, the latest first, each event once.

        ntdll keeps no CheckSum and no path: CheckSum is 0, and the name is a file name.
        """
        remembered = RememberedModules(self._image)
        found: Dict[Tuple[int, int, int, int, str], MinidumpUnloadedModule] = {}
        ntdlls = self._symbolizer.for_space(self._halves[0]).process.ntdlls
        for half in self._halves:
            ntdll = ntdlls.get(half.machine)
            known = None if ntdll is None else self._symbolizer.for_space(half).module_at(ntdll.base)
            if known is None or known.open_reader is None:
                continue
            for event in remembered.events(known.open_reader(), half.machine, known.image, self._end):
                row = event.base, event.size, 0, event.timestamp, text.printable(event.name)
                found[row] = MinidumpUnloadedModule._make(row)
        return list(found.values())[:MAX_MODULES]

    def files(self) -> Iterator[Tuple[int, str]]:
        """Yields (base, path) of mapped files; the path is empty if the page file backs the mapping."""
        for region in self.regions:
            path = mapped_path(self._regions, region)
            if path is not None:
                yield region.start, path[:MAX_PATH]


def halves_of(native: AddressSpace, wow64: Optional[AddressSpace], machine: Machine) -> List[AddressSpace]:
    """Returns the halves of a process that belong in a dump of one machine."""
    if machine is native.machine:
        return [native] if wow64 is None else [native, wow64]
    return [] if wow64 is None else [wow64]
