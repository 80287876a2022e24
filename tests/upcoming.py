# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The tests of the command line on a Volatility that setup.cfg may not allow yet, and what of it breaks them.

python3 dev.py next [ARG...]      ARGs go to pytest
"""

from __future__ import annotations

import collections
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from typing import Dict, List, NamedTuple

from volatility3.framework import constants

ROOT = pathlib.Path(__file__).resolve().parents[1]

_UNMET = re.compile(
    r"Unsatisfied requirement (?P<ours>\S+): (?P<needs>Version \S+ dependency on \S+ unmet)"
    r"|(?P<gone>No module named '[^']*'|cannot import name '[^']*' from '[^']*'"
    r"|module '[^']*' has no attribute '[^']*')"
    r"|(?P<framework>Framework interface version [^\n]*)"
)
"""What Volatility and Python say where something of Volatility has changed its major version, or is gone."""


class Failure(NamedTuple):
    """A test that has failed.

    Attributes:
        test: its name, with that of its file
        message: the last line of what it says
        broke: what of Volatility it names; empty if it names nothing
    """

    test: str
    message: str
    broke: List[str]


def failures(report: str) -> List[Failure]:
    """Returns the failed tests of a report in JUnit's XML, as pytest writes it."""
    found = []
    for case in xml.etree.ElementTree.fromstring(report).iter("testcase"):
        printed = "".join(
            part.text or "" for name in ("system-out", "system-err") for part in case.findall(name)
        )
        for kind in ("failure", "error"):
            for element in case.findall(kind):
                text = "\n".join(filter(None, (element.get("message"), element.text)))
                name = f"{case.get('classname')}.{case.get('name')}"
                lines = [line for line in text.splitlines() if line.strip()]
                found.append(Failure(name, lines[-1].strip() if lines else "nothing", broken(text + printed)))
    return found


def broken(text: str) -> List[str]:
    """Returns what of Volatility a text says is unmet or gone, each once."""
    names = (
        match.group("needs") or match.group("gone") or match.group("framework")
        for match in _UNMET.finditer(text)
    )
    return sorted(set(names))


def summary(found: List[Failure]) -> List[str]:
    """Returns lines that name what broke, by how many tests it broke, and then each test."""
    counts: Dict[str, int] = collections.Counter(name for failure in found for name in failure.broke)
    lines = [
        f"{count:>4} tests: {name}"
        for name, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair))
    ]
    return lines + [f"{failure.test}: {failure.message}" for failure in found]


def main(arguments: List[str]) -> int:
    """Runs the tests; returns the exit code of pytest."""
    print(f"Volatility {constants.PACKAGE_VERSION}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.xml")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "cli",
            "--tb",
            "short",
            "-o",
            "junit_logging=all",
            f"--junitxml={report}",
            *arguments,
        ]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        if not report.is_file():
            print("pytest has ended before the first test, so nothing is known of this Volatility.")
            return code or 1
        lines = summary(failures(report.read_text(encoding="utf-8")))
    if lines:
        print(f"What breaks on Volatility {constants.PACKAGE_VERSION}:")
    print("\n".join(lines) or f"Nothing breaks on Volatility {constants.PACKAGE_VERSION}.")
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
