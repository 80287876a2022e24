# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What setup.cfg cannot say: the packages are found, and a wheel holds what the tree holds.

The wheel lays plugins and symbol tables into the folders of Volatility, so that `vol windows.stacktracedb`
works without -p; it holds no `__init__.py` of a folder that Volatility owns. The packages `winstacks` and
`stackfleet` lie beside Volatility. Of an editable install they are all: Volatility looks for plugins in its
folders, where such an install puts none.
"""

from __future__ import annotations

import atexit
import json
import pathlib
import re
import shutil
import site
import sys
import tempfile
from typing import Dict, Iterable, List, Optional

from setuptools import find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.editable_wheel import editable_wheel

ROOT = pathlib.Path(__file__).resolve().parent
LIBRARY = ("winstacks", "stackfleet")
OVERLAY: Dict[str, str] = {
    **{
        f"volatility3.plugins.{folder.name}": f"volatility3_plugins/{folder.name}"
        for folder in sorted((ROOT / "volatility3_plugins").iterdir())
        if any(folder.glob("*.py"))
    },
    "volatility3.symbols.windows.stacktraces": "symbols/windows/stacktraces",
}
"""What goes into Volatility's folders, by the name that it has there."""
PAGES = {"stackfleet.docs": "docs"}
"""The pages of the documentation, which `stackfleet mcp` offers."""

NOTE = """\
volatility3-stacktraces has put files into this folder, which is Volatility's.

If `vol` says "cannot import name 'classproperty' from 'volatility3'", Volatility itself is not here but
installed as editable: `pip uninstall volatility3-stacktraces` mends it.
"""
NOTES = [f"volatility3/{folder}volatility3-stacktraces.txt" for folder in ("", "symbols/windows/")]
"""pip takes a folder away with the last file right in it. Without these, folders would stay."""

INSTEAD = (
    "run the plugins from their source tree with `vol -p volatility3_plugins`, or name that folder in the "
)
INSTEAD += "plugin_dirs of Volatility's own vol.json"


def says_editable(folder: pathlib.Path) -> Optional[pathlib.Path]:
    """Returns the file in a folder of packages by which Volatility is imported from its source tree.

    Names of this project begin with volatility3 too: after Volatility's comes a version.
    """
    for path in sorted(folder.iterdir()):
        if re.match(
            r"__editable__\.volatility3-\d.*\.pth$|__editable___volatility3_\d\w*_finder\.py$", path.name
        ):
            return path
        if re.match(r"volatility3-\d[^-]*\.dist-info$", path.name) and is_editable(path / "direct_url.json"):
            return path / "direct_url.json"
        if path.suffix == ".pth" and any(holds_volatility(folder / line) for line in paths(path)):
            return path
    return None


def is_editable(direct_url: pathlib.Path) -> bool:
    """Returns whether a direct_url.json (PEP 610) is that of an editable package."""
    try:
        return json.loads(direct_url.read_text(encoding="utf-8"))["dir_info"]["editable"] is True
    except (OSError, ValueError, LookupError, TypeError):
        return False


def paths(pth: pathlib.Path) -> List[str]:
    """Returns the lines of a .pth file that are paths."""
    try:
        lines = pth.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    stripped = (line.strip() for line in lines if not line.startswith(("#", "import ", "import\t")))
    return [line for line in stripped if line and "\0" not in line]


def holds_volatility(folder: pathlib.Path) -> bool:
    """Returns whether a folder has Volatility in it, rather than files in Volatility's folders."""
    return (folder / "volatility3" / "__init__.py").is_file()


def editable_volatility(folders: Iterable[pathlib.Path]) -> Optional[pathlib.Path]:
    """Returns the file that makes Volatility editable in these folders of packages.

    None: there is a regular Volatility, which Python finds first, or none at all.
    """
    present = [folder for folder in folders if folder.is_dir()]
    if any(holds_volatility(folder) for folder in present):
        return None
    return next((found for found in map(says_editable, present) if found), None)


def package_folders() -> List[pathlib.Path]:
    """Returns the folders of packages of sys.prefix: the isolated builds of pip keep that of their target."""
    folders = site.getsitepackages()
    if sys.prefix == sys.base_prefix:
        folders.append(site.getusersitepackages())
    return [pathlib.Path(folder) for folder in folders]


class OutsideBuild(build):
    """Builds outside the tree: `vol -p` would find the plugins that a `build` left there a second time."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.build_base = temporary()

    def run(self) -> None:
        super().run()
        if not set(OVERLAY) & set(self.distribution.packages):
            return
        for note in NOTES:
            path = pathlib.Path(self.build_lib, note)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(NOTE, encoding="utf-8")


class OverlayWheel(bdist_wheel):
    """Refuses to go on where Volatility is editable: Python would take our folder `volatility3` for it."""

    def run(self) -> None:
        found = editable_volatility(package_folders())
        if found:
            raise SystemExit(
                f"Volatility is editable here ({found}), and an installed copy of the plugins would hide it: "
                f"{INSTEAD}."
            )
        super().run()


class LibraryWheel(editable_wheel):
    """Leaves out what goes into Volatility's folders: another package of its name would hide Volatility."""

    def finalize_options(self) -> None:
        self.distribution.packages = library()
        super().finalize_options()


def temporary() -> str:
    """Returns a new folder that goes when this program ends."""
    folder = tempfile.mkdtemp(prefix="volatility3-stacktraces-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def library() -> List[str]:
    """Returns the packages that lie beside Volatility."""
    return find_packages(str(ROOT), include=[*LIBRARY, *(f"{name}.*" for name in LIBRARY)])


if __name__ == "__main__":
    commands = {"build": OutsideBuild, "bdist_wheel": OverlayWheel, "editable_wheel": LibraryWheel}
    # A source archive takes its metadata from the tree.
    options = {} if "sdist" in sys.argv else {"egg_info": {"egg_base": temporary()}}
    folders = {**OVERLAY, **PAGES, **{name: name for name in LIBRARY}}
    setup(packages=[*OVERLAY, *PAGES, *library()], package_dir=folders, cmdclass=commands, options=options)
