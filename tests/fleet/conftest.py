# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Without the extra of stackfleet its tests are skipped; else they have fixtures of `tests/support`."""

from __future__ import annotations

import importlib.util
import pathlib
from typing import Any, List, Optional

import pytest

MISSING: List[str] = [
    name
    for name in ("deltalake", "distributed", "duckdb", "psutil", "pyarrow", "rich")
    if importlib.util.find_spec(name) is None
]

if not MISSING:
    from tests.support.attackedlakes import attack, lakes  # noqa: F401
    from tests.support.fleetnight import few, fresh, new_lake, night, run, shared_lake  # noqa: F401
    from tests.support.objectstores import bucket, server  # noqa: F401


class SkippedModule(pytest.Module):
    """A module that cannot be imported here."""

    def collect(self) -> Any:
        pytest.skip(f"pip install '.[fleet]': {', '.join(MISSING)} missing", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: pathlib.Path, parent: Any) -> Optional[pytest.Module]:
    """Puts a module that is skipped into the place of each, if something is missing."""
    return SkippedModule.from_parent(parent, path=module_path) if MISSING else None
