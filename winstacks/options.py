# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Builders of the plugins' options, and the words that options take: the only import of plugins at start."""

from __future__ import annotations

import argparse
import io
import weakref
from typing import Callable, Dict, List, Optional, Sequence, Tuple, Type

from volatility3.framework import exceptions, interfaces
from volatility3.framework.configuration import requirements
from volatility3.framework.layers import resources
from volatility3.plugins.windows import psscan, thrdscan

from . import checkedoptions
from .checkedoptions import CheckedRequirement, ListOption, OutputFolderRequirement, checked, one_of

CHECKS = (
    "unbacked", "history_unbacked", "kernel_no_module", "kernel_unloaded", "hidden", "not_executable",
    "foreign_handle", "context_on_stack", "start_mismatch", "debug_registers", "syscall_outside", "truncated",
    "wait_in_dispatcher", "no_call", "gadget", "modified_code", "module_mismatch", "shadow_stack",
    "section_not_code", "returns_nowhere", "stack_pivot",
)  # fmt: skip
"""The words of --check: the names of all checks, and of their modules in `findings/checks`. Among findings of
equal severity and confidence, findings of the earlier check come first."""

SEVERITIES = ("high", "medium", "low")
"""Severities of findings, the worst first: the words of --severity."""

KINDS = ("kernel", "user", "wow64", "std", "heaplog", "heap", "lock", "handle", "object", "callback")
"""The words of --kinds. `columns/words.py` explains each kind of stacks."""

FORMATS = {"html": ".html", "speedscope": ".speedscope.json", "folded": ".folded"}
"""The words of --format, and the suffixes of the files."""

WEIGHTS = ("count", "bytes", "threads")
"""The words of --weight: the width of a box in a flame graph."""

DUMP_FORMATS = ("native", "wow64")
"""The words of --format of windows.minidump: the half of a process to write."""

DUMP_SIGNATURE = b"MDMP"
"""Signature of a minidump."""

SMALL_DUMPS = {b"PAGEDU64": (0xF98, 0x2000), b"PAGEDUMP": (0xF88, 0x1000)}
"""Signatures of a kernel crash dump, the offset of DumpType in its header, and the header's size in bytes."""
SMALL_DUMP_TYPE = (4).to_bytes(4, "little")
"""DumpType of a small kernel dump."""

DUMP = "primary"
"""Name of the requirement of a dump; its value is the name of the layer over the file."""

DUMP_OS = "Windows process"
"""Operating system that the layer of a dump states, so that no other plugin accepts it."""

DUMP_MAXIMUM = (1 << 64) - 1
"""The highest address that the layer of a dump can have."""

_LOCATION = "automagic.LayerStacker.single_location"
"""Configuration path where Volatility keeps the location of its input file."""

_OF_A_KERNEL = (
    "scan", "scan_processes", "scan_threads", "scan_stacks",
    "processors", "offset", "pid", "process", "workers",
)  # fmt: skip
"""Options without meaning for a dump of one process or one thread."""

KINDS_OF_DUMPS = {"process": "a dump of one process", "small": "a small kernel dump"}
"""Kinds of dumps, as phrases."""

_begins: weakref.WeakKeyDictionary[object, Dict[str, Tuple[str, str]]] = weakref.WeakKeyDictionary()
"""For each context what `_begin` returns of a location: Volatility asks seven times while it opens one."""


class KernelRequirement(requirements.ModuleRequirement):
    """A Windows kernel. Where the file is a dump of another kind, the reason why there is none says so."""

    def unsatisfied(
        self, context: interfaces.context.ContextInterface, config_path: str
    ) -> Dict[str, interfaces.configuration.RequirementInterface]:
        found = super().unsatisfied(context, config_path)
        kind = begins_as_a_dump(context) if found else ""
        if kind:
            reason = f"the file is {KINDS_OF_DUMPS[kind]}, which plugins such as minidump.callstacks read"
            return _instead(self, config_path, reason)
        lack = why_no_input(context) if found else ""
        return _instead(self, config_path, f"the file {lack}") if lack else dict(found)


class DumpRequirement(requirements.TranslationLayerRequirement):
    """A dump of one process, or a small kernel dump. Where the file is neither, the reason says so."""

    def unsatisfied(
        self, context: interfaces.context.ContextInterface, config_path: str
    ) -> Dict[str, interfaces.configuration.RequirementInterface]:
        found = super().unsatisfied(context, config_path)
        kind = begins_as_a_dump(context) if found else ""
        if kind:
            return _instead(self, config_path, f"the file begins as {KINDS_OF_DUMPS[kind]} and is not one")
        lack = why_no_input(context) if found else ""
        if lack:
            return _instead(self, config_path, f"the file {lack}")
        if found and context.config.get(_LOCATION, None):
            return _instead(
                self,
                config_path,
                "the file is neither a dump of one process (MDMP) nor a small kernel dump; plugins such as "
                "windows.callstacks read images",
            )
        return dict(found)


def begins_as_a_dump(context: interfaces.context.ContextInterface) -> str:
    """Returns what the file that Volatility was given begins as: `process` or `small`; empty for all else."""
    return _begin(context)[0]


def why_no_input(context: interfaces.context.ContextInterface) -> str:
    """Returns why nothing is in the file that Volatility was given, to follow "the file": `is empty`, or
    `cannot be read` and the reason; empty for all else."""
    return _begin(context)[1]


def _begin(context: interfaces.context.ContextInterface) -> Tuple[str, str]:
    """Returns what `begins_as_a_dump` and `why_no_input` do; the file is read once."""
    location = str(context.config.get(_LOCATION, None) or "")
    known = _begins.setdefault(context, {"": ("", "")})
    if location not in known:
        known[location] = _begin_of(location)
    return known[location]


def _begin_of(location: str) -> Tuple[str, str]:
    try:
        with resources.ResourceAccessor().open(location) as file:

            def read(offset: int, length: int) -> bytes:
                file.seek(offset)
                return bytes(file.read(length))

            if read(0, len(DUMP_SIGNATURE)) == DUMP_SIGNATURE:
                return "process", ""
            size = file.seek(0, io.SEEK_END)
            if not size:
                return "", "is empty"
            return "small" if is_small_dump(read, size) else "", ""
    except OSError as error:
        # An error of urllib has the error of the file inside.
        return "", f"cannot be read: {getattr(error, 'reason', error)}"
    except (ValueError, exceptions.VolatilityException):
        return "", ""


def is_small_dump(read: Callable[[int, int], bytes], size: int) -> bool:
    """Returns whether a file of `size` bytes is a small kernel dump, or only the header of a crash dump.
    `read` takes an offset and a length."""
    place, header = SMALL_DUMPS.get(read(0, len(next(iter(SMALL_DUMPS)))), (0, 0))
    return bool(header) and (size <= header or read(place, len(SMALL_DUMP_TYPE)) == SMALL_DUMP_TYPE)


def _instead(
    requirement: interfaces.configuration.RequirementInterface, config_path: str, reason: str
) -> Dict[str, interfaces.configuration.RequirementInterface]:
    """Returns what Volatility prints of a requirement that is not met: the reason alone."""
    place = interfaces.configuration.path_join(config_path, requirement.name)
    return {place: requirements.StringRequirement(name=requirement.name, description=reason)}


def dump(
    of_an_image: List[interfaces.configuration.RequirementInterface],
) -> List[interfaces.configuration.RequirementInterface]:
    """Returns the requirements of a plugin that reads a dump, from the requirements for images."""
    inherited = (
        requirement
        for requirement in of_an_image
        if not isinstance(requirement, (requirements.ModuleRequirement, requirements.VersionRequirement))
    )
    return [
        DumpRequirement(name=DUMP, description="Dump of a process, or small kernel dump", oses=[DUMP_OS]),
        *(requirement for requirement in inherited if requirement.name not in _OF_A_KERNEL),
        ListOption(
            name="symbols_from",
            element_type=checked(checkedoptions.no_folder),
            description="Folders with PDBs, plain or laid out as a symbol server's: the PDB that a module of "
            "the dump names, with the same GUID and age, names the functions of this module",
            optional=True,
        ),
        requirements.StringRequirement(
            name="kernel_symbols",
            description="Symbol table (ISF) of the kernel of a small kernel dump; without this option the "
            "symbol path is searched",
            optional=True,
        ),
    ]


def plugin_of_dumps(
    module: str, of_images: Type[interfaces.plugins.PluginInterface], summary: str
) -> Type[interfaces.plugins.PluginInterface]:
    """Makes the plugin that shows of a dump what another plugin shows of an image.

    Args:
        module: `__name__` of the module that holds the plugin: Volatility lists the plugin by it
        summary: first sentence of the help
    """
    of_an_image = of_images.__module__.rpartition("plugins.")[2]

    class OfDumps(interfaces.plugins.PluginInterface):
        __doc__ = f"{summary}\n\n    Rows and columns are the same as for {of_an_image}.\n    "
        __module__ = module
        _required_framework_version = of_images._required_framework_version
        _version = of_images._version
        run = of_images.run

        @classmethod
        def get_requirements(cls) -> List[interfaces.configuration.RequirementInterface]:
            return dump(of_images.get_requirements())

    OfDumps.__name__ = OfDumps.__qualname__ = of_images.__name__
    return OfDumps


DUMP_LISTS = {
    "modules": "modules: base, size, version, TimeDateStamp, PDB, and the keys of symbol servers",
    "unloaded": "unloaded modules",
    "handles": "handles by type and name",
    "regions": "memory regions",
    "annotations": "annotations of Crashpad, and what Breakpad recorded",
}
"""Lists of a process dump that minidump.info shows on request, by the option of each."""


def dump_lists() -> List[interfaces.configuration.RequirementInterface]:
    """Returns the options that add the entries of lists to minidump.info."""
    return [switch(name, f"Add the {things}") for name, things in DUMP_LISTS.items()]


def kernel() -> List[interfaces.configuration.RequirementInterface]:
    """Returns the requirements of a plugin that reads the image of a Windows kernel."""
    return [
        KernelRequirement(name="kernel", description="Windows kernel", architectures=["Intel32", "Intel64"]),
        requirements.VersionRequirement(name="psscan", component=psscan.PsScan, version=(2, 0, 0)),
        switch("scan_processes", "Add the processes that only a pool scan finds"),
    ]


def thread_scan() -> interfaces.configuration.RequirementInterface:
    """Returns the requirement of Volatility's pool scan for threads."""
    return requirements.VersionRequirement(name="thrdscan", component=thrdscan.ThrdScan, version=(2, 0, 0))


def processes(zero_means: str = "") -> List[interfaces.configuration.RequirementInterface]:
    """Returns the options --pid and --process, which add up. `zero_means` is the meaning of process ID 0 for
    the plugin; empty if 0 has no special meaning."""
    also = f", 0 for {zero_means}" if zero_means else ""
    return [
        numbers(
            "pid",
            f"Process IDs to include{also} (all other processes are excluded)",
            "--process takes names of processes",
        ),
        ListOption(
            name="process",
            element_type=checked(checkedoptions.no_process),
            description="Names of processes to include: globs, with or without .exe (case does not matter)",
            optional=True,
        ),
    ]


def tid() -> interfaces.configuration.RequirementInterface:
    return numbers("tid", "Thread IDs to include (all other threads are excluded)")


def numbers(name: str, description: str, instead: str = "") -> interfaces.configuration.RequirementInterface:
    """Returns an option that takes a list of numbers. `instead` is what takes other texts than numbers; empty
    for nothing."""
    kind = checked(checkedoptions.no_number(instead), int)
    return ListOption(name=name, element_type=kind, description=description, optional=True)


def word(
    name: str, choices: Sequence[str], description: str, default: Optional[str] = None
) -> interfaces.configuration.RequirementInterface:
    """Returns an option that takes one of some words."""
    return requirements.ChoiceRequirement(
        list(choices), name=name, description=description, default=default, optional=True
    )


def words(
    name: str, choices: Tuple[str, ...], description: str
) -> interfaces.configuration.RequirementInterface:
    """Returns an option that takes a list of some words."""
    return ListOption(
        name=name, element_type=checked(one_of(choices)), description=description, optional=True
    )


def file_name(name: str, description: str) -> interfaces.configuration.RequirementInterface:
    """Returns an option that takes the path of a file."""
    return CheckedRequirement(
        checked(checkedoptions.unreadable_file), name=name, description=description, optional=True
    )


def frames(name: str, description: str, default: Optional[int] = None) -> CheckedRequirement:
    """Returns an option that takes a number of frames."""
    kind = checked(checkedoptions.no_number_of_frames, int)
    return CheckedRequirement(kind, name=name, description=description, default=default, optional=True)


def offset() -> CheckedRequirement:
    return address("Virtual or physical address of an _EPROCESS that is in no list", "offset")


def address(description: str, name: str = "address") -> CheckedRequirement:
    """Returns an option that takes an address of the image."""
    kind = checked(checkedoptions.no_number("write an address as 0xffffe00010002040"), int)
    return CheckedRequirement(kind, name=name, description=description, optional=True)


def switch(name: str, description: str) -> interfaces.configuration.RequirementInterface:
    """Returns an option that is on or off."""
    return requirements.BooleanRequirement(name=name, description=description, default=False, optional=True)


def selecting(things: str) -> List[interfaces.configuration.RequirementInterface]:
    """Returns the options --find and --unbacked of a plugin that lists `things`, a plural."""
    return [
        CheckedRequirement(
            checked(checkedoptions.no_glob),
            name="find",
            description=f"Show only {things} with a frame whose Symbol matches this glob: one without * and "
            "+ at any offset, one without ! in any module",
            optional=True,
        ),
        switch("unbacked", f"Show only {things} with a frame outside all images and mapped files"),
    ]


def fetch_symbols() -> interfaces.configuration.RequirementInterface:
    return switch("fetch_symbols", "Let Volatility download missing symbols")


def workers() -> interfaces.configuration.RequirementInterface:
    return CheckedRequirement(
        checked(checkedoptions.no_number_of_workers, int),
        name="workers",
        description="Number of processes that read the address spaces, 0 for one for each processor; without "
        "this option one, with --parallelism processes one for each processor",
        optional=True,
    )


def binaries() -> interfaces.configuration.RequirementInterface:
    return ListOption(
        name="binaries",
        element_type=checked(checkedoptions.no_folder),
        description="Folders with files of modules, plain or laid out as a symbol server's: a file of the "
        "same build gives the pages that the image lacks, and is compared with those that it has",
        optional=True,
    )


def dumping(description: str) -> List[interfaces.configuration.RequirementInterface]:
    """Returns the option --dump, and the requirement of a folder for the files."""
    return [switch("dump", description), OutputFolderRequirement("dump")]


def fold() -> interfaces.configuration.RequirementInterface:
    return switch("fold", "Show each stack as text in one row (column Stack), without rows of frames")


class ColumnsRequirement(ListOption):
    """The option --columns: names of columns of one plugin.

    The command line converts each word with `element_type`, so that it refuses an unknown name before it
    opens the image. `table` is the name of the plugin in TABLES.
    """

    def __init__(self, table: str) -> None:
        super().__init__(
            element_type=str,
            name="columns",
            description="Show only these columns, in this order: names with a comma or a blank between",
            optional=True,
        )
        self._table = table
        self.element_type = self._names

    def _names(self, text: str) -> str:
        """Returns the names in a word as the table has them, with commas between. Raises ArgumentTypeError if
        the plugin has no such column."""
        from .columns.tables import column_named

        try:
            return ",".join(column_named(self._table, name) for name in text.split(","))
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error


def shown(table: str) -> List[interfaces.configuration.RequirementInterface]:
    """Returns the options --brief and --columns, which choose the columns of a table of TABLES."""
    return [
        switch(
            "brief",
            "Show only the columns that answer most questions; -r pretty cuts and wraps long texts to the "
            "width of the terminal (120 characters where there is none)",
        ),
        ColumnsRequirement(table),
    ]


def stack_list(things: str, table: str = "") -> List[interfaces.configuration.RequirementInterface]:
    """Returns the options of a plugin that lists every stack of an image. `table` is the name of the plugin
    in TABLES if it shows them; empty if it writes files."""
    return [
        *kernel(),
        thread_scan(),
        words("kinds", KINDS, f"Show only {things} of these kinds: {', '.join(KINDS)}"),
        *processes(zero_means="the kernel"),
        tid(),
        *selecting(things),
        switch("carve", "Add freed and orphan traces, and databases without a pointer to them"),
        switch("scan_stacks", "Add the stacks from trap frames that only a scan of the kernel stacks finds"),
        switch("scan_threads", "Add the threads that only a pool scan finds"),
        switch("processors", "Add the stacks of processors that were idle"),
        *(shown(table) if table else ()),
        fetch_symbols(),
        binaries(),
        workers(),
    ]


def sha256() -> interfaces.configuration.RequirementInterface:
    return switch("sha256", "Read all files of the image for their SHA-256 (in windows.traces with --dump)")
