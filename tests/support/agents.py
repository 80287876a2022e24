# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The arguments that a tool of `stackfleet mcp` gets from its server."""

from __future__ import annotations

from typing import Any, Dict

_ROWS: Dict[str, Any] = {"limit": 20, "cursor": ""}
_STACKS: Dict[str, Any] = {"by": "StackKey", "kind": "", "partial": False}

DEFAULTS: Dict[str, Dict[str, Any]] = {
    "images": {},
    "findings": {"severity": "low", "check": "", "host": "", "each": True, "unchecked": False},
    "stack": {"image": ""},
    "stacks": {"find": "", "process": "", "kind": "", "unbacked": False, "order": "unbacked", "image": ""},
    "rare": {**_STACKS, "max_hosts": 2},
    "diff": _STACKS,
    "waits": {"deadlocks": False, "idle": False},
    "crash": {"image": ""},
    "columns": {"name": ""},
    "sql": {},
}
"""The server's values for arguments that a program leaves out."""


def arguments(tool: str, **given: Any) -> Dict[str, Any]:
    """All arguments of a call that gives some of them."""
    return {**({} if tool == "columns" else _ROWS), **DEFAULTS[tool], **given}
