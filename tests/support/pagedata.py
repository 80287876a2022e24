# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The data of a page that a plugin has written."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any, Dict


def data(path: pathlib.Path) -> Dict[str, Any]:
    """Returns the JSON block of a page."""
    text = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return dict(json.loads(found.group(1)))
