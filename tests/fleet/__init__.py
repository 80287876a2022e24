# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Tests of stackfleet. Without its extra they are skipped."""

import pytest

for _name in ("distributed", "duckdb", "psutil", "pyarrow", "rich"):
    pytest.importorskip(_name, reason=f"{_name} is missing: pip install '.[fleet]'")
