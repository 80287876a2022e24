# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The process that reads one image. Its input and output are lines of JSON.

    in   {"path": ..., "lake": ..., "folder": ..., "reading": {...}}
    out  {"identified": {"image_id": ..., "files": [...]}}
    in   {"image_id": ...}                                      of the rows that are written to the folder
    out  {"rows": 4096}                                         now and then
    out  {"done": {...}} or {"failed": {"reason": ..., "final": true}}

The end of the input means that the parent process is gone. This process then ends at once, with all processes
that it started.
"""

from __future__ import annotations

import importlib.abc
import json
import logging
import os
import pathlib
import queue
import signal
import sys
import threading
import traceback
from typing import Any, Optional

from winstacks.memory.workers import end_with_parent

from . import validated
from .job import Reading, reading


class Line:
    """The message channel to the parent process.

    Standard output is redirected from here on: the output of libraries must not mix with the messages.
    """

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._heard: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def hear(self) -> dict[str, Any]:
        """Waits for the next message and returns it."""
        return self._heard.get()

    def send(self, **message: Any) -> None:
        """Sends a message."""
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def _listen(self) -> None:
        pending = b""
        while True:
            data = os.read(0, 1 << 16)
            if not data:
                end_all()
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                self._heard.put(json.loads(line))


def end_all() -> None:
    """Ends this process and all processes that it started."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


class WithoutPandas(importlib.abc.MetaPathFinder):
    """Refuses pandas, which pyarrow imports for its first array wherever it is installed.

    Nothing here needs it, and for a small dump that import takes a fifth of all.
    """

    def find_spec(self, name: str, *_: object) -> None:
        """Raises an ImportError for pandas."""
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=name)


def refuse_pandas() -> None:
    """Refuses pandas from here on."""
    sys.meta_path.insert(0, WithoutPandas())


class CacheError(Exception):
    """Volatility's cache cannot be written; the text says where it is, and why."""

    def __init__(self, folder: str, reason: object) -> None:
        super().__init__(
            f"Volatility's cache {folder} cannot be written: {reason} (--cache-path names another folder)"
        )


def unusable(reason: object) -> str:
    """Returns the sentence for plugins that cannot be used."""
    return f"the plugins cannot be used: {reason} (--plugin-dirs names their folders)"


def use_cache(folder: Optional[str], lake: str) -> None:
    """Sets Volatility's cache folder, before any module of Volatility is imported that uses it.

    Args:
        folder: path of the cache; None for the cache of the lake, or Volatility's own beside an object store
        lake: folder or URI of the lake

    Raises:
        CacheError: the folder cannot be made
    """
    from volatility3.framework import constants

    from .layout import cache_names
    from .store import is_remote

    if folder is None and not is_remote(lake):
        folder = os.path.join(lake, *cache_names())
    if folder is not None:
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise CacheError(folder, error.strerror) from error
        constants.CACHE_PATH = folder
    validated.load()


def read(line: Line, job: dict[str, Any], options: Reading) -> None:
    """Reads an image and writes its tables."""
    from volatility3.framework import exceptions

    from winstacks.memory.tables import MissingTableError
    from winstacks.stacklist.imagefacts import Warnings

    from .opening import NotOpenedError, opened
    from .reading import ImageTables
    from .writer import TableFiles

    try:
        with Warnings() as warnings:
            tables = ImageTables(opened(job["path"]), options)
            identity = tables.identity()
            line.send(identified=identity)
            image_id = line.hear()["image_id"]
            if image_id != identity["image_id"]:
                tables.rename(image_id)
            facts = tables.write(
                TableFiles(pathlib.Path(job["folder"])), warnings, lambda rows: line.send(rows=rows)
            )
        line.send(done=facts)
    except (NotOpenedError, MissingTableError, exceptions.RenderException) as error:
        line.send(failed={"reason": str(error), "final": True})
    except (exceptions.VolatilityException, OSError, MemoryError) as error:
        traceback.print_exc()
        line.send(failed={"reason": f"{type(error).__name__}: {error}", "final": False})


def check(line: Line) -> None:
    """Reports the versions of the plugins and Volatility, and fills the cache of symbol tables."""
    from .opening import warm_cache
    from .versions import of_plugins

    try:
        versions = of_plugins()
        warm_cache()
    except (ImportError, OSError) as error:
        line.send(failed={"reason": unusable(error), "final": True})
    else:
        line.send(versions=versions)


def main() -> None:
    """Performs the job in the first message, in a process of its own."""
    end_with_parent()
    refuse_pandas()
    perform()


def perform() -> None:
    """Performs the job in the first message, and ends this process."""
    line = Line()
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    job = line.hear()
    options = reading(job["reading"])
    try:
        use_cache(options.cache_path, job["lake"])
        # Plugins are imported behind this: it sets their folders.
        from .opening import prepare

        prepare(options)
        if job.get("check"):
            check(line)
        else:
            read(line, job, options)
    except CacheError as error:
        line.send(failed={"reason": str(error), "final": False})
    sys.stderr.flush()
    # The listening thread is in a system call: an orderly exit would wait for it.
    os._exit(0)
