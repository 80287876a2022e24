# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The data of a page that was written."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any, Dict, List, Tuple

Box = Tuple[str, str, int]
"""Text, module and look of a name in a flame graph."""


def data(path: pathlib.Path) -> Dict[str, Any]:
    """Returns the JSON block of a page."""
    text = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return dict(json.loads(found.group(1)))


def flame(page: Dict[str, Any]) -> Dict[Tuple[Box, ...], int]:
    """Returns the stacks of a page's flame graph, outermost first, with their weights."""
    known = page["flame"]
    boxes = [
        (text, known["modules"][module], look)
        for text, module, look in zip(known["texts"], known["of"], known["looks"])
    ]
    found: Dict[Tuple[Box, ...], int] = {}
    last: List[int] = []
    code = iter(known["stacks"])
    for shared in code:
        length = next(code)
        last = [*last[:shared], *(next(code) for _ in range(length))]
        found[tuple(boxes[name] for name in last)] = next(code)
    return found


def frames(page: Dict[str, Any], numbers: List[int]) -> List[str]:
    """Returns the texts of a stack's frames."""
    return [page["texts"][number] for number in numbers]
