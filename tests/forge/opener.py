# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""How Volatility opens files, and looks for modules and messages, in the processes of the tests."""

from __future__ import annotations

import functools
import gettext
import urllib.request
from typing import Any, Callable, List, Set, Tuple

from volatility3 import framework


def share() -> None:
    """Has Volatility open files by one opener, and look for modules and for translated messages once.

    A new opener for each file is most of the time of a small file. A tenth of a short command goes by to find
    that all modules are imported, and more to find no translations of the messages of options.
    """
    if not hasattr(urllib.request.build_opener, "cache_info"):
        urllib.request.build_opener = functools.lru_cache(maxsize=4)(urllib.request.build_opener)
        gettext.find = functools.lru_cache(maxsize=None)(gettext.find)  # type: ignore[assignment]
        framework.import_files = functools.partial(_imported, framework.import_files, set())


def _imported(
    import_files: Callable[..., List[str]],
    done: Set[Tuple[str, ...]],
    package: Any,
    ignore_errors: bool = False,
) -> List[str]:
    """Imports the modules in the folders of a package, unless that was done; returns those that failed."""
    folders = (package.__name__, *package.__path__)
    if folders in done:
        return []
    failed = import_files(package, ignore_errors)
    if not failed:
        done.add(folders)
    return failed
