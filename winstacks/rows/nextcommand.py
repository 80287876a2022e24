# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The command that shows what a finding is about, complete: file, PID, TID, address."""

from __future__ import annotations

import shlex
import urllib.parse
import urllib.request
from typing import Dict, Optional

from ..columns.commands import OF_DUMPS, for_input
from ..columns.words import MEMORY_IMAGE, PROCESS_DUMP
from ..findings.finding import OF_THREAD
from ..findings.registry import Outcome
from ..memory.image import Image

_OF_PROCESS = "windows.traces --pid {pid}"
_LOCATION = "automagic.LayerStacker.single_location"
"""Configuration path where Volatility keeps the location of its input file."""


def next_command(image: Image, outcome: Outcome) -> Optional[str]:
    """Returns the command for a finding; None if neither its process nor its thread has an ID."""
    finding, check = outcome.finding, outcome.check
    assert finding is not None and check is not None
    known: Dict[str, str] = {}
    if finding.space.pid is not None:
        known["pid"] = str(finding.space.pid)
    if finding.tid is not None:
        known["tid"] = str(finding.tid)
    if finding.address is not None and not finding.space.kernel:
        known["address"] = f"{image.machine.masked(finding.address):#x}"
    kind = MEMORY_IMAGE if image.table_name else PROCESS_DUMP
    for template in (check.command, OF_THREAD, _OF_PROCESS):
        plugin = template.partition(" ")[0].partition(".")[2]
        if kind != MEMORY_IMAGE and plugin not in OF_DUMPS:
            continue
        try:
            return f"vol {_file(image)}{for_input(template.format(**known), kind)}"
        except KeyError:
            continue
    return None


def _file(image: Image) -> str:
    """Returns the option that names the input file; empty if the caller opened the image by other means."""
    location = image.context.config.get(_LOCATION, None)
    if not location:
        return ""
    parts = urllib.parse.urlsplit(str(location))
    if parts.scheme != "file":
        return f"--single-location {shlex.quote(str(location))} "
    return f"-f {shlex.quote(urllib.request.url2pathname(parts.path))} "
