# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Versions of the packages that decide the content of tables, and that workers and client must share."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import pathlib
import platform
from collections.abc import Sequence

from . import VERSION

PACKAGES = ("volatility3", "distributed", "dask", "pyarrow", "deltalake", "duckdb", "psutil", "pefile")
"""Packages that manifests name in addition to Python, this package and the plugins."""

DECIDE = ("stackfleet", "volatility3", "plugins")
"""Packages whose new version means that images are read again."""

MUST_AGREE = (*DECIDE, "python", "distributed", "dask", "pyarrow")
"""Packages with which the client and all workers must agree."""

HERE = tuple(name for name in MUST_AGREE if name != "plugins")
"""Packages whose versions are known before the plugins are found."""


def of_packages() -> dict[str, str]:
    """Returns the versions of packages by name; a missing package is left out."""
    package_versions = {"stackfleet": VERSION, "python": ".".join(platform.python_version_tuple()[:2])}
    package_versions.update(_of_others())
    return package_versions


@functools.lru_cache(maxsize=None)
def _of_others() -> dict[str, str]:
    """Returns the versions of PACKAGES: each image's manifest has them, and each is a file to be parsed."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def of_plugins() -> dict[str, str]:
    """Returns the versions of the plugins that this process finds, and of Volatility.

    Raises:
        ImportError: there are no plugins
    """
    library = importlib.import_module("winstacks")
    facts = importlib.import_module("winstacks.stacklist.imagefacts")
    constants = importlib.import_module("volatility3.framework.constants")
    folder = pathlib.Path(str(library.__file__)).parent
    return {"plugins": f"{facts.VERSION}+{_digest(folder)}", "volatility3": constants.PACKAGE_VERSION}


def differences(mine: dict[str, str], theirs: dict[str, str], names: Sequence[str] = MUST_AGREE) -> list[str]:
    """Returns in words how two sets of versions differ."""
    return [
        f"{name} {theirs.get(name, 'is missing')} instead of {mine.get(name, 'none')}"
        for name in names
        if mine.get(name) != theirs.get(name)
    ]


def _digest(folder: pathlib.Path) -> str:
    """Returns a digest of the code in a folder: the version number stays the same during development."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        whole.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:8]
