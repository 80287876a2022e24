# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The process that reads one image. It takes lines of JSON on its input and writes such on its output.

    in   {"path": ..., "lake": ..., "attempt": ..., "reading": {...}, "least": 512}
    out  {"identified": {"image_id": ..., "files": [...]}}
    in   {"image_id": ...}                                      under which the tables are to be written
    out  {"rows": 4096}                                         now and then
    out  {"done": {...}} or {"failed": {"reason": ..., "final": true}}

An image of at least so many threads may be shared with helpers, processes of the same kind. Its own process
says which shares there are, and asks of each in its order:

    out  {"shares": [...], "scanned": [...]}
    in   {"alone": false}
    out  {"next": 7}
    in   {"read": 7} or {"taken": 7}                            a helper has read it

A helper asks what to read next:

    in   {"path": ..., ..., "help": {"image_id": ..., "shares": [...], "scanned": [...]}}
    out  {"next": null}
    in   {"read": 31} or {"end": true}
    out  {"done": {}} or {"failed": ...}

When its input ends, whoever started it is gone, and it ends at once, with all that it has started.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import logging
import os
import pathlib
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any, Optional

_END_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""

_TRIES, _PAUSE = 50, 0.1


class Line:
    """The line to whoever started this process.

    Output goes elsewhere from here on: what libraries print must not get between the messages.
    """

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._heard: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def hear(self) -> dict[str, Any]:
        """Returns the next message; waits for it."""
        return self._heard.get()

    def tell(self, **message: Any) -> None:
        """Sends a message."""
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def _listen(self) -> None:
        held = b""
        while True:
            data = os.read(0, 1 << 16)
            if not data:
                end_all()
            *lines, held = (held + data).split(b"\n")
            for line in lines:
                self._heard.put(json.loads(line))


def end_all() -> None:
    """Ends this process and all that it has started."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


def end_with_parent() -> None:
    """Asks Linux to end this process with the thread that started it.

    What holds Python's lock, such as one long search by a regular expression, keeps the thread that listens
    from running.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)


def use_cache(folder: Optional[str], lake: str) -> None:
    """Tells Volatility where its cache is, before anything of it is imported that looks there.

    Args:
        folder: the cache; None for that of the lake
        lake: folder of the lake
    """
    from volatility3.framework import constants

    from .folders import make_folder
    from .layout import cache_names

    if folder is None:
        folder = str(make_folder(pathlib.Path(lake), *cache_names()))
    os.makedirs(folder, exist_ok=True)
    constants.CACHE_PATH = folder
    for left in reversed(range(_TRIES)):
        try:
            importlib.import_module("volatility3.schemas")
            return
        except ValueError:
            # Another process is just writing the list of tables that were found to be valid.
            if not left:
                raise
            time.sleep(_PAUSE)


def read(line: Line, job: dict[str, Any]) -> None:
    """Reads an image and writes its tables."""
    from .job import reading

    options = reading(job["reading"])
    use_cache(options.cache_path, job["lake"])
    from .opening import NotOpenedError, opened, prepare

    prepare(options)
    from volatility3.framework import exceptions

    from winstacks.flat.imagefacts import Warnings
    from winstacks.memory.tables import MissingTableError

    from .layout import piece_file, pieces_folder
    from .reading import ImageTables
    from .shares import WHOLE, share
    from .writer import TableFiles

    def told(rows: int) -> None:
        line.tell(rows=rows)

    pieces = pieces_folder(job["lake"], job["attempt"])
    try:
        if "help" in job:
            lead = job["help"]
            tables = ImageTables(opened(job["path"]), options, lead["scanned"])
            tables.rename(lead["image_id"])
            reader = tables.reader(told)
            for number in _asked(line):
                reader.piece(share(lead["shares"][number]), piece_file(pieces, number))
            line.tell(done={})
            return
        with Warnings() as warnings:
            tables = ImageTables(opened(job["path"]), options)
            known = tables.identity()
            line.tell(identified=known)
            image_id = line.hear()["image_id"]
            if image_id != known["image_id"]:
                tables.rename(image_id)
            files = TableFiles(job["lake"], image_id, job["attempt"])
            writer = tables.writer(files, warnings, told)
            shares = WHOLE if job["least"] is None else tables.shares(job["least"])
            alone = shares is WHOLE
            if not alone:
                line.tell(shares=[each.to_json() for each in shares], scanned=tables.scanned())
                alone = line.hear()["alone"]
            for number, each in enumerate(shares):
                if alone or _is_mine(line, number):
                    writer.read(each)
                else:
                    writer.take(piece_file(pieces, number))
            facts = writer.finish()
        line.tell(done={**facts, "rows": files.rows})
    except (NotOpenedError, MissingTableError, exceptions.RenderException) as error:
        line.tell(failed={"reason": str(error), "final": True})
    except (exceptions.VolatilityException, OSError, MemoryError) as error:
        traceback.print_exc()
        line.tell(failed={"reason": f"{type(error).__name__}: {error}", "final": False})


def _asked(line: Line) -> Iterator[int]:
    """Yields the shares that a helper is to read."""
    while True:
        line.tell(next=None)
        answer = line.hear()
        if "read" not in answer:
            return
        yield answer["read"]


def _is_mine(line: Line, number: int) -> bool:
    """Returns whether the image's own process is to read a share; else a helper has."""
    line.tell(next=number)
    return "read" in line.hear()


def check(line: Line, job: dict[str, Any]) -> None:
    """Says which versions the plugins and Volatility have, and fills Volatility's cache of symbol tables."""
    from .job import reading

    options = reading(job["reading"])
    use_cache(options.cache_path, job["lake"])
    from .opening import prepare, warm_cache

    prepare(options)
    from .versions import of_plugins

    try:
        versions = of_plugins()
        warm_cache()
    except (ImportError, OSError) as error:
        line.tell(failed={"reason": f"{error}", "final": True})
    else:
        line.tell(versions=versions)


def main() -> None:
    """Does the work that the first message names."""
    end_with_parent()
    line = Line()
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    job = line.hear()
    (check if job.get("check") else read)(line, job)
    sys.stderr.flush()
    # The thread that listens is in a call of the system: an orderly end would wait for it.
    os._exit(0)


if __name__ == "__main__":
    main()
