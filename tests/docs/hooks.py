# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""A hook of MkDocs: the pages of the plugins get into the navigation by themselves."""

from __future__ import annotations

import pathlib
from typing import Any, Dict, List

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECTION = "Plugins"


def plugin_pages() -> List[Dict[str, str]]:
    """Returns an entry of the navigation for each plugin that has a page."""
    names = sorted(path.stem for path in (ROOT / "volatility3_plugins" / "windows").glob("*.py"))
    # The page of windows.minidump is not that of process dumps.
    places = ((name, ROOT / "docs" / page) for name in names for page in (f"windows-{name}.md", f"{name}.md"))
    found: Dict[str, str] = {}
    for name, page in places:
        if page.exists():
            found.setdefault(name, f"docs/{page.name}")
    return [{f"windows.{name}": page} for name, page in found.items()]


def on_config(config: Any) -> Any:
    """Puts the pages before what mkdocs.yml has in their section."""
    section = next(part for part in config.nav if SECTION in part)
    section[SECTION] = [*plugin_pages(), *section[SECTION]]
    return config
