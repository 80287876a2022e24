# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What setup.cfg cannot say: the packages are found, and a wheel holds what the tree holds.

The wheel lays its files into the plugin and symbol folders of Volatility, so that `vol windows.stacktracedb`
works without -p. It holds no `__init__.py` of a folder that Volatility owns.
"""

from __future__ import annotations

import shutil
from typing import Dict, List

from setuptools import find_packages, setup
from setuptools.command.build import build

PLUGINS = "volatility3.plugins.windows"
SYMBOLS = "volatility3.symbols.windows.stacktraces"
FOLDERS: Dict[str, str] = {PLUGINS: "volatility3_plugins/windows", SYMBOLS: "symbols/windows/stacktraces"}


class CleanBuild(build):
    """Builds into an empty folder: what an earlier build left there would go into the wheel again."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


def packages() -> List[str]:
    """Returns the packages of the wheel."""
    return [*FOLDERS, *(f"{PLUGINS}.{name}" for name in find_packages(FOLDERS[PLUGINS]))]


setup(packages=packages(), package_dir=FOLDERS, cmdclass={"build": CleanBuild})
