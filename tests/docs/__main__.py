# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Makes what README and docs have from programs, and the site of them.

python3 -m tests.docs update [PAGE...]   tables, quoted outputs, the picture, the JSON schemas
python3 -m tests.docs screenshots        the pictures of pages, with Chromium
python3 -m tests.docs site               the site, in site/
"""

from __future__ import annotations

import pathlib
import sys
import tempfile
from typing import List

from . import pages, site
from .pages import ROOT


def update(names: List[str]) -> None:
    """Rewrites the pages, schemas and the picture of these names (none: all) that are not current."""
    # Only this command needs the plugins and what draws the picture.
    import tests.conftest  # noqa: F401 - it puts the plugins of this checkout on Volatility's path

    from . import answers, jsonschemas, picture, tables
    from .runs import Runner

    for table in jsonschemas.PLUGINS:
        path = jsonschemas.path(table)
        if not names or path.name in names:
            path.write_text(jsonschemas.text(table), encoding="utf-8")

    with tempfile.TemporaryDirectory(prefix="stacktraces-docs-") as folder:
        runner = Runner(pathlib.Path(folder))
        for path in pages.documents():
            if not names or path.name in names:
                before = pages.read(path)
                after = runner.current(pages.with_parts(before, tables.make))
                after = answers.current(after, runner)
                if after != before:
                    path.write_text(after, encoding="utf-8")
                    print(f"{path.relative_to(ROOT)}: updated")
        if not names or picture.PATH.name in names:
            picture.PATH.write_text(picture.make(runner), encoding="utf-8")


def main(arguments: List[str]) -> None:
    if arguments[:1] == ["update"]:
        update(arguments[1:])
    elif arguments == ["screenshots"]:
        import tests.conftest  # noqa: F401 - as above

        from . import screenshots

        screenshots.make()
    elif arguments == ["site"]:
        site.build(ROOT / "site")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
