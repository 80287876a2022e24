# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Shows the progress of a run on standard error: a live view on a terminal, else a line per image."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Optional

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .manifests import COPY, DONE
from .output import visible

MOST_SHOWN = 16
"""The most running images that are shown."""


class Progress:
    """The progress of a run so far (a context).

    Args:
        sizes: sizes in bytes of the images to read, by path
    """

    def __init__(self, sizes: dict[str, int], console: Optional[Console] = None) -> None:
        self._sizes = sizes
        self._console = console or Console(stderr=True, highlight=False)
        self._running: dict[str, dict[str, Any]] = {}
        self._ended: set[str] = set()
        self._least = float("inf")
        self._lock = threading.Lock()
        self._begin = time.monotonic()
        self._bytes = self._rows = self.done = self.failed = self.copies = self.cut = self.unrecorded = 0
        self._live: Optional[Live] = None

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live = Live(console=self._console, get_renderable=self._view, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def event(self, message: dict[str, Any]) -> None:
        """Processes a message from a worker."""
        with self._lock:
            if message["state"] == "refused":
                self._print(f"refused: {message['reason']}")
            elif message["state"] == "ended":
                self._running.pop(message["path"], None)
            elif message["path"] not in self._ended:
                # A message may arrive behind the report of the image's end.
                self._running[message["path"]] = message

    def ended(self, report: dict[str, Any]) -> bool:
        """Processes the report of an image that ended; returns whether the image is done."""
        with self._lock:
            self._running.pop(report["path"], None)
            self._ended.add(report["path"])
            self._bytes += self._sizes.get(report["path"], 0)
            rows, done = report.get("rows", 0), report["status"] in (DONE, COPY)
            self._rows += rows
            self.done += report["status"] == DONE
            self.copies += report["status"] == COPY
            self.failed += not done
            self.cut += bool(done and report.get("truncated"))
            self.unrecorded += report.get("unrecorded", False)
            line = f"{report['status']:<10} {report['path']}"
            if report["status"] == DONE:
                line += f"  {rows:,} rows, {report['seconds']:.1f} s, {report['memory'] >> 20} MiB"
            if report.get("reason"):
                line += f": {report['reason']}"
            if not (self._live and done) or report.get("truncated"):
                self._print(f"[{self.done + self.copies + self.failed}/{len(self._sizes)}] {line}")
        return done

    def _print(self, text: str) -> None:
        self._console.print(Text(visible(text)), soft_wrap=True)

    def _view(self) -> Group:
        with self._lock:
            shown = sorted(self._running.values(), key=lambda running_image: -running_image.get("seconds", 0))
            table = Table.grid(padding=(0, 2))
            for running_image in shown[:MOST_SHOWN]:
                rows = f"{running_image['rows']:,} rows" if running_image.get("rows") else ""
                memory = f"{running_image['memory'] >> 20} MiB" if "memory" in running_image else ""
                table.add_row(
                    "  running",
                    Text(visible(running_image["path"])),
                    f"{running_image.get('seconds', 0):.0f} s",
                    memory,
                    rows,
                )
            return Group(Text(self._total(len(shown))), table)

    def _total(self, running: int) -> str:
        waiting = len(self._sizes) - self.done - self.copies - self.failed - running
        text = f"{self.done + self.copies} done, {self.failed} failed, {running} running, {waiting} waiting"
        return f"{text}, {self._rows:,} rows, {self._left()}"

    def _left(self) -> str:
        """Returns the remaining time, at the speed so far."""
        spent, total = time.monotonic() - self._begin, sum(self._sizes.values())
        with contextlib.suppress(ZeroDivisionError):
            # Between the ends of images the time passes; the estimate does not grow with it.
            self._least = min(self._least, spent + spent * (total - self._bytes) / self._bytes)
            seconds = max(int(self._least - spent), 0)
            return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02} left"
        return "time left unknown"
