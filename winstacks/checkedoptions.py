# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Options whose values are checked before Volatility opens the image, with argparse's own error messages."""

from __future__ import annotations

import argparse
import functools
import os
import sys
import tempfile
import types
from typing import Any, Callable, Dict, Optional, Tuple, Type

from volatility3.framework import interfaces
from volatility3.framework.configuration import requirements

FINAL_NAME = "_get_final_filename"
"""The method that names a file of the command line; files of other programs lack it."""
_PROBE = 0x1000
"""Bytes that a disk must have room for: a block."""


class CheckedRequirement(interfaces.configuration.SimpleTypeRequirement):
    """An option whose value the command line checks before it opens the image. `value_type` makes the value
    of a text, see `checked`."""

    def __init__(self, value_type: Type[Any], **others: Any) -> None:
        super().__init__(**others)
        self.instance_type = value_type


@functools.lru_cache(maxsize=None)
def one_of(choices: Tuple[str, ...]) -> Callable[[str], str]:
    """Returns a check for `checked` that rejects a wrong word as argparse does."""

    def check(text: str) -> str:
        return "" if text in choices else f"invalid choice: {text!r} (choose from {', '.join(choices)})"

    return check


@functools.lru_cache(maxsize=None)
def checked(check: Callable[[str], str], kind: Type[Any] = str) -> Type[Any]:
    """Returns a type for the values of an option, which argparse calls with the text of each.

    A check has one type: each start of Volatility asks for the options of all plugins, and to make a class
    costs as much as all else of an option.

    Args:
        check: returns what is wrong with a text, empty if nothing is
        kind: the type of the values: str or int
    """

    def new(cls: Type[Any], text: str) -> Any:
        wrong = check(text)
        if wrong:
            raise argparse.ArgumentTypeError(wrong)
        # A value of the base type: configurations are pickled and written as JSON.
        return int(text, 0) if kind is int and isinstance(text, str) else kind(text)

    return type("Checked", (kind,), {"__new__": new})


def unreadable_file(path: str) -> str:
    """Returns why a file cannot be read; empty if it can."""
    try:
        with open(path, "rb"):
            return ""
    except OSError as error:
        return f"'{path}' cannot be read: {error.strerror}"


def no_folder(path: str) -> str:
    """Returns that there is no such folder; empty if there is."""
    return "" if os.path.isdir(path) else f"there is no folder '{path}'"


def no_glob(text: str) -> str:
    """Returns that a glob is empty; empty for any other."""
    return "" if text else "the glob for Symbol is empty; give one such as 'nt!Nt*'"


def no_process(text: str) -> str:
    """Returns that a glob for processes is empty; empty for any other."""
    return "" if text else "the name of a process is empty; give one such as 'svchost*'"


@functools.lru_cache(maxsize=None)
def no_number(instead: str = "") -> Callable[[str], str]:
    """Returns a check for `checked` that rejects a text that is no number. `instead` is what takes other
    texts, or how to write a number; empty for nothing."""

    def check(text: str) -> str:
        try:
            int(str(text), 0)
        except ValueError:
            return f"{text!r} is not a number" + (f"; {instead}" if instead else "")
        return ""

    return check


def no_number_of_frames(text: str) -> str:
    """Returns that a text is no number of frames; empty if it is one."""
    try:
        number = int(str(text), 0)
    except ValueError:
        number = -1
    return "" if number >= 0 else f"{text!r} is not a number of frames, 0 or more"


def no_number_of_workers(text: str) -> str:
    """Returns that a text is no number of workers; empty if it is one."""
    return "" if str(text).isdecimal() else f"{text!r} is not a number of processes, 0 or more"


class ListOption(requirements.ListRequirement):
    """An option that takes a list. On the command line the list has a member: `--pid $FOUND` with an empty
    variable would mean all processes. Elsewhere an empty list is no option, as Volatility has it."""

    def unsatisfied(
        self, context: interfaces.context.ContextInterface, config_path: str
    ) -> Dict[str, interfaces.configuration.RequirementInterface]:
        given = context.config.get(interfaces.configuration.path_join(config_path, self.name), None)
        option = f"--{self.name.replace('_', '-')}"
        # argparse takes a beginning of the name, too.
        if given == [] and any(len(word) > 2 and option.startswith(word) for word in sys.argv):
            _refuse(option, "expected at least one argument")
        return dict(super().unsatisfied(context, config_path))


class OutputFolderRequirement(interfaces.configuration.RequirementInterface):
    """The folder of -o, which must accept files. It is no option; a plugin that writes files requires it.

    Volatility asks for the first time before it opens the image. An unusable folder ends `vol` there, in the
    way in which argparse ends it. In other programs the requirement is always satisfied. `switch` is the
    option without which the plugin writes no file; empty if it always writes.
    """

    def __init__(self, switch: str = "") -> None:
        super().__init__("output_folder", "Folder of -o, for the files that the plugin writes")
        self._switch = switch

    def unsatisfied(
        self, context: interfaces.context.ContextInterface, config_path: str
    ) -> Dict[str, interfaces.configuration.RequirementInterface]:
        path = interfaces.configuration.path_join(config_path, self._switch)
        if not self._switch or context.config.get(path, False):
            line = _command_line()
            error = "" if line is None else output_folder_error(line.file_handler_class_factory())
            if error:
                _refuse("-o/--output-dir", error)
        return {}


def _command_line() -> Any:
    """Returns the command line that runs, None in other programs. Volatility hands it to nobody."""
    cli = sys.modules.get("volatility3.cli")
    frame: Optional[types.FrameType] = sys._getframe(1)
    while cli is not None and frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, cli.CommandLine):
            return owner
        frame = frame.f_back
    return None


def _refuse(option: str, error: str) -> None:
    """Ends the command line that runs as argparse ends it; does nothing in other programs."""
    line = _command_line()
    if line is not None:
        sys.stderr.write(f"{line.CLI_NAME}: error: argument {option}: {error}\n")
        raise SystemExit(2)


def output_folder(handler: Any) -> Optional[str]:
    """Returns the folder of -o, and makes it if it is missing; None for files of another program. Raises
    OSError if the folder cannot be made."""
    final = getattr(handler, FINAL_NAME, None)
    # It needs nothing of a file but the name.
    return None if final is None else os.path.dirname(final(types.SimpleNamespace(preferred_filename="file")))


def output_folder_error(handler: Any) -> str:
    """Returns why no file can be written to the folder of -o; empty if files can be written. `handler` is the
    class of the files that a plugin writes. Only the command line's has a folder."""
    folder: Optional[str] = ""
    try:
        folder = output_folder(handler)
        if folder is None:
            return ""
        with tempfile.TemporaryFile(dir=folder or os.curdir) as file:
            file.write(bytes(_PROBE))
            file.flush()
    except OSError as error:
        folder = folder or str(error.filename or "")
        reason = error.strerror if os.path.isdir(folder) else "it is not a folder"
        return f"no file can be written to '{folder}': {reason}"
    return ""
