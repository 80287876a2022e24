# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The picture of a terminal in README: what commands print on the sample, as SVG."""

from __future__ import annotations

import io
from typing import List

from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tests.conftest import ROOT

from .pages import Block
from .runs import Runner

PATH = ROOT / "docs" / "terminal.svg"
WIDTH = 120
COMMANDS = """\
$ vol -r pretty -f sample.dmp windows.tracefindings --brief
$ vol -r pretty -f sample.dmp windows.callstacks --unbacked --brief
"""

_THEME = TerminalTheme(
    (30, 33, 39),
    (215, 218, 224),
    [
        *((30, 33, 39), (240, 113, 120), (152, 195, 121), (229, 192, 123)),
        *((97, 175, 239), (198, 120, 221), (86, 182, 194), (171, 178, 191)),
    ],
)
_FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: Consolas, Menlo, "DejaVu Sans Mono", "Liberation Mono", monospace;
font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""As rich's own, without the fonts that it loads from the network."""


def make(runner: Runner) -> str:
    """Returns the picture of what the commands print now."""
    console = Console(
        record=True,
        width=WIDTH,
        file=io.StringIO(),
        color_system="truecolor",
        force_terminal=True,
        legacy_windows=False,
    )
    block = Block("console", COMMANDS.split("\n"), 0, None)
    for line in _styled(runner.console(block)):
        console.print(line, no_wrap=True, soft_wrap=True)
    return console.export_svg(title="vol", theme=_THEME, code_format=_FORMAT, unique_id="terminal")


def _styled(lines: List[str]) -> List[Text]:
    """Returns lines as a terminal shows them: what is typed is green, what Volatility prints is plain."""
    shown: List[Text] = []
    typed = False
    for line in lines:
        assert len(line) <= WIDTH, f"wider than the picture: {line}"
        typed = line.startswith("$ ") or (typed and shown[-1].plain.endswith("\\"))
        shown.append(Text(line, Style(color="green", bold=True) if typed else Style()))
    return shown
