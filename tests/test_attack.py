# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The techniques that checks name are techniques of ATT&CK."""

from __future__ import annotations

import pathlib
import re
from typing import Dict, Optional

import pytest

from tests import attack
from winstacks.findings.registry import check_named
from winstacks.options import CHECKS

WINDOWS: Dict[str, object] = {
    "name": "Rootkit",
    "revoked": False,
    "deprecated": False,
    "platforms": ["Linux", "Windows"],
}


def test_every_check_names_techniques() -> None:
    assert set(CHECKS) <= set(attack.named())
    for name in CHECKS:
        listed = check_named(name).technique.split(", ")
        assert set(listed) <= set(attack.named()[name])
        assert all(re.fullmatch(r"T\d{4}(\.\d{3})?", technique) for technique in listed)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (WINDOWS, ""),
        (None, "hidden: ATT&CK has no T1014"),
        ({**WINDOWS, "revoked": True}, "hidden: T1014 Rootkit is revoked"),
        ({**WINDOWS, "deprecated": True}, "hidden: T1014 Rootkit is deprecated"),
        ({**WINDOWS, "platforms": ["Linux"]}, "hidden: T1014 Rootkit is not of Windows"),
    ],
)
def test_what_is_wrong_with_a_technique(known: Optional[Dict[str, object]], expected: str) -> None:
    assert attack.fault("hidden", "T1014", known) == expected


def test_techniques_are_found_in_the_source(tmp_path: pathlib.Path) -> None:
    for name, text in (("first", 'A = "T1055.013"\nB = "T1055, T1055"'), ("none", "T10555 AT1055")):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    assert attack.named(tmp_path) == {"first": ["T1055", "T1055.013"]}


@pytest.mark.skipif(not attack.installed(), reason=f"the package {attack.PACKAGE} is not installed")
def test_attack_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    attack.main()
    assert "hidden: T1014 Rootkit" in capsys.readouterr().out
