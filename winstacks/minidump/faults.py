# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The faults of a dump as a whole, which every command reports."""

from __future__ import annotations

import logging

from ..memory.decode.status import Status, status, text

vollog = logging.getLogger(__name__)


def tell_faults(*found: Status) -> None:
    """Warns of the faults of a dump and of its memory: only minidump.info has rows for them."""
    faults = status(*found)
    if faults:
        vollog.warning(f"Rows may be missing or wrong: {text(faults)} (see minidump.info)")
