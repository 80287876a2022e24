# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Builds the site of README, docs/ and what they link to, and checks that a browser loads nothing else."""

from __future__ import annotations

import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Dict, List, Set, Tuple

from . import pages
from .pages import ROOT

_STAGE = ROOT / ".site"
"""mkdocs.yml names it: README and all that it links to, at the same places as in the tree."""

_LOADING = {
    "link": "href",
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "object": "data",
    "embed": "src",
    "video": "src",
    "audio": "src",
    "image": "href",
    "use": "href",
}
"""Elements that load what an attribute names, at once."""
_CSS = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])((?:https?:)?//[^'\")\s]+)")
_NOT_LOADED = {"canonical", "alternate", "next", "prev", "edit"}
"""Relations of a `link` element that a browser does not load."""


def build(target: pathlib.Path) -> None:
    """Builds the site. A warning of MkDocs ends the program, and so does what a browser would fetch."""
    shutil.rmtree(_STAGE, ignore_errors=True)
    for path in staged():
        place = _STAGE / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "-d", str(target)]
    # Material announces its successor at every build.
    environment = dict(os.environ, NO_MKDOCS_2_WARNING="1")
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    outside = fetched(target)
    if outside:
        raise SystemExit("The site loads from the network:\n" + "\n".join(sorted(outside)))
    print(f"{len(list(target.rglob('*.html')))} pages in {target}; none loads anything from the network")


def staged() -> List[pathlib.Path]:
    """Returns README, all of docs/, and all files in the tree to which they lead."""
    found: Dict[pathlib.Path, None] = {}
    left = [*pages.documents(), *(ROOT / "docs").iterdir()]
    while left:
        path = left.pop()
        if path in found:
            continue
        found[path] = None
        if path.suffix == ".md":
            left += [file for _, file, _ in targets(path) if file.is_file()]
    return list(found)


def targets(path: pathlib.Path) -> List[Tuple[str, pathlib.Path, str]]:
    """Returns the links of a page into the tree: as written, the file, and the anchor in it or ''."""
    found = []
    for link in pages.links(pages.read(path)):
        if not re.match(r"[a-z]+:", link):
            place, _, anchor = link.partition("#")
            found.append((link, (path.parent / place).resolve() if place else path, anchor))
    return found


class _Loads(html.parser.HTMLParser):
    """Collects what a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Set[str] = set()
        self._style = False

    def handle_starttag(self, tag: str, attrs: List[Tuple[str, "str | None"]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self._style = tag == "style"
        self.found.update(_CSS.findall(values.get("style", "")))
        relations = set(values.get("rel", "").split())
        if tag in _LOADING and not (tag == "link" and relations and relations <= _NOT_LOADED):
            self.found.add(values.get(_LOADING[tag], ""))
        self.found.update(part.split()[0] for part in values.get("srcset", "").split(",") if part.strip())

    def handle_data(self, data: str) -> None:
        if self._style:
            self.found.update(_CSS.findall(data))


def fetched(folder: pathlib.Path) -> Set[str]:
    """Returns what the pages, styles and pictures in a folder load from the network: file and address."""
    found: Set[str] = set()
    for path in folder.rglob("*"):
        if path.suffix in (".html", ".svg"):
            parser = _Loads()
            parser.feed(path.read_text(encoding="utf-8"))
            loads = parser.found
        elif path.suffix == ".css":
            loads = set(_CSS.findall(path.read_text(encoding="utf-8")))
        else:
            continue
        found.update(
            f"{path.relative_to(folder)}: {load}" for load in loads if re.match(r"(https?:)?//", load)
        )
    return found
