# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The pictures of pages in README and docs: what a browser shows of the sample.

They are made anew by `python3 -m tests.docs screenshots`. No test compares them, for browsers draw texts
differently.
"""

from __future__ import annotations

import pathlib
import tempfile

from tests.support.browser import Browser

from .pages import ROOT
from .runs import Runner

GRAPH = ROOT / "docs" / "tracegraph.png"
REPORT = ROOT / "docs" / "tracereport.png"
_WIDTH = 1000


def make() -> None:
    """Writes the pictures."""
    with tempfile.TemporaryDirectory(prefix="stacktraces-docs-") as name:
        folder = pathlib.Path(name)
        runner = Runner(folder)
        runner.output("vol -f sample.dmp windows.tracegraph")
        runner.output("vol -f sample.dmp windows.tracereport")
        (folder / "profile").mkdir()
        with Browser(folder / "profile") as browser:
            page = browser.open(folder / "tracegraph.html", _WIDTH, 860)
            page.png(GRAPH)
            page = browser.open(folder / "tracereport.html", _WIDTH, 560)
            page.media("dark")
            page.run("document.querySelector('#locks').scrollIntoView()")
            page.png(REPORT)
