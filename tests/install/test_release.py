# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A whole release, as `dev.py release` makes it."""

from __future__ import annotations

import hashlib
import json
import pathlib
import sys

import pytest

from tests.conftest import ROOT
from tests.install.environments import NAME, call, succeeds

pytestmark = pytest.mark.install


def test_a_release_is_whole(index: None, tmp_path: pathlib.Path) -> None:
    target = tmp_path / "dist"
    succeeds(call(sys.executable, "dev.py", "release", str(target), cwd=ROOT))
    listed = [line.split("  ") for line in (target / "SHA256SUMS").read_text().splitlines()]
    sums = {name: digest for digest, name in listed}
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in target.iterdir()}
    del files["SHA256SUMS"]
    assert sums == files
    assert sorted(pathlib.Path(name).suffix for name in files) == [".gz", ".json", ".whl", ".zip"]
    bill = json.loads(next(target.glob("*.cdx.json")).read_text(encoding="utf-8"))
    needs = {
        dependency["ref"].split("@")[0]: dependency.get("dependsOn", [])
        for dependency in bill["dependencies"]
    }
    assert [ref.split("@")[0] for ref in needs[NAME]] == ["volatility3"]
    assert [ref.split("@")[0] for ref in needs["volatility3"]] == ["pefile"]
    parts = {part["name"] for part in bill["metadata"]["component"]["components"]}
    assert parts == {name for name in files if not name.endswith(".json")}
    # What is there is another release's.
    again = call(sys.executable, "dev.py", "release", str(target), cwd=ROOT)
    assert again.returncode and "never overwritten" in again.stderr
