# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Writes the pages of a lake, one for all images and one for each. It needs the plugins.

with Database(lake) as database:
    Report(database, place("out")).write()
"""

from __future__ import annotations

import errno
import operator
import os
import pathlib
import urllib.parse
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Optional

from winstacks.columns.dictionary import STACK_SEPARATOR
from winstacks.columns.words import SEVERITIES, UNBACKED
from winstacks.html.htmlpage import page
from winstacks.html.lists import MAX_FINDINGS, Frames, PageLists

from . import findings, questions
from .database import Database
from .imagepage import OF_FRAMES, Manifest, card, image_pages, of_check, together
from .manifests import DONE
from .output import whole_file
from .sqltext import quoted

MAX_RARE = 1 << 10
MAX_IMAGES = 1 << 14
MAX_UNCHECKED = 1 << 8
"""The most checks that could not run, and the most rare stacks, on the page of all images. A note
counts the others."""
MAX_PLACES = 64
"""The most findings on a card, which shows the number of the others."""
MAX_NAMES = 1 << 10
"""The most names of images by which a card can be found."""
MAX_HOSTS = 2
"""The most hosts with a stack that is called rare."""
MAX_FRAMES = 1100
"""The most frames of a rare stack on the page."""


class Place(NamedTuple):
    """The paths of the pages.

    Attributes:
        first: path of the page of all images
        folder: folder of the pages of single images
    """

    first: pathlib.Path
    folder: pathlib.Path


def place(output: str) -> Place:
    """Returns the paths of the pages: in a folder, or a file and a folder next to it.

    Args:
        output: value of -o; a file ends in `.html`
    """
    path = pathlib.Path(output)
    if path.suffix.lower() in (".html", ".htm"):
        return Place(path, path.with_name(f"{path.stem}-images"))
    return Place(path / "index.html", path)


class Report:
    """Writes the pages of a lake.

    Args:
        database: views of the images, which it narrows to some
        chosen: ImageIds of the images with pages of their own; None for the questions.MOST_PAGES worst

    Attributes:
        images, failed: number of images, and of failed images, which include the damaged ones
        paged: ImageIds of the images with pages of their own
    """

    def __init__(self, database: Database, where: Place, chosen: Optional[Collection[str]] = None) -> None:
        self._database, self._where = database, where
        self._manifests: list[Manifest] = []
        self._by_id: dict[str, Manifest] = {}
        self._lists = PageLists()
        self._hosts: dict[str, dict[str, Any]] = {}
        self._chosen = chosen
        self.paged: set[str] = set()
        self.images = self.failed = 0

    def write(self) -> None:
        """Writes all pages; the page of all images comes last, so that its links lead to existing pages.

        Raises:
            OSError: a page cannot be written
            SqlError: a table cannot be read
        """
        folder = self._where.folder
        if folder != self._where.first.parent and folder.is_symlink():
            raise OSError(errno.ELOOP, "a link, not a folder", str(folder))
        folder.mkdir(parents=True, exist_ok=True)
        parts: dict[str, Any] = {}
        self._manifests = list(self._database.rows(_IMAGES))
        self._by_id = {manifest["image_id"]: manifest for manifest in self._manifests}
        self.images = sum(manifest["status"] == DONE for manifest in self._manifests)
        self.failed = len(self._manifests) - self.images
        if self.images:
            self._read_hosts()
            self.paged = set(self._worst_images() if self._chosen is None else self._chosen)
            parts = self._of_all()
            self._write_images()
        data = {"lake": self._images_part(), **parts, "texts": self._lists.data()["texts"]}
        _write(self._where.first, "Stacks of many images", data)

    def _read_hosts(self) -> None:
        for row in self._database.rows(_HOSTS):
            self._hosts[row["ImageId"]] = {**row, "Severities": dict(row["Severities"] or ())}

    def _worst_images(self) -> list[str]:
        """Returns the ImageIds of the images with the worst findings."""
        done = [manifest for manifest in self._manifests if manifest["status"] == DONE]
        done.sort(key=lambda manifest: _worst(self._image(manifest)))
        return [manifest["image_id"] for manifest in done[: questions.MOST_PAGES]]

    def _of_all(self) -> dict[str, Any]:
        question = findings.found(MAX_FINDINGS, MAX_PLACES, MAX_NAMES)
        rows = list(self._database.rows(question.sql))
        stacks = self._stacks([row["Places"][0] for row in rows])
        for row in rows:
            first = row["Places"][0]
            frames = stacks.get((first["ImageId"], first["TraceId"]), ())
            self._lists.finding({**card(first, frames), **self._spread(row)}, of_check(row["Finding"]))
        for row in self._database.rows(_UNCHECKED):
            evidence = f"{row['Evidence']} ({row['Images']} of {self.images} images)"
            self._lists.unchecked(row["Finding"], evidence)
        total = self._database.value(question.left_out)
        return {"findings": self._lists.findings(total), "rare": self._rare_part()}

    def _stacks(self, places: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Frames]:
        """Returns the frames of the stacks of findings, by ImageId and TraceId."""
        keys = dict.fromkeys((item["ImageId"], item["TraceId"]) for item in places if item["TraceId"])
        if not keys:
            return {}
        pairs = ", ".join(f"({quoted(image_id)}, {quoted(trace_id)})" for image_id, trace_id in keys)
        stacks: dict[tuple[str, str], list[tuple[str, bool, bool]]] = {}
        for row in self._database.rows(_STACKS.format(pairs=pairs)):
            stack = stacks.setdefault((row["ImageId"], row["TraceId"]), [])
            stack.append((row["Shown"], bool(row["Guess"]), row["Backing"] in UNBACKED))
        return {key: self._lists.frames(stack) for key, stack in stacks.items()}

    def _spread(self, row: dict[str, Any]) -> dict[str, Any]:
        """Returns the data of a card about the hosts with the same finding."""
        places = [
            {
                "image": self._link(item["ImageId"]),
                "where": f"{item['Process']} ({item['PID']})",
                "tid": item["TID"],
                "address": item["Address"] or "",
                "evidence": item["Evidence"] or "",
            }
            for item in row["Places"]
        ]
        names = list(map(self._called, row["ImageIds"]))
        return {"hosts": row["Hosts"], "number": row["Number"], "names": names, "places": places}

    def _write_images(self) -> None:
        """Writes the pages of images."""
        back = [self._address(self._where.folder, self._where.first), "All images"]
        paged = [manifest for manifest in self._manifests if manifest["image_id"] in self.paged]
        paged.sort(key=operator.itemgetter("image_id"))
        for manifests in together(paged):
            self._database.narrow([manifest["image_id"] for manifest in manifests])
            for manifest, parts in image_pages(self._database, manifests):
                image_id = manifest["image_id"]
                _write(self._page(image_id), f"Stacks of {self._called(image_id)}", {"up": back, **parts})
        self._database.narrow(None)

    def _images_part(self) -> dict[str, Any]:
        """Returns the list of images: failed images first, then the worst findings."""
        images = sorted(map(self._image, self._manifests), key=_worst)
        notes = []
        if len(self.paged) < self.images:
            which = "that --images chose" if self._chosen is not None else "with the worst findings"
            notes.append(
                f"{len(self.paged):,} of {self.images:,} images have pages of their own: those {which}. "
                "The option --images of stackfleet report chooses others, or all."
            )
        return {
            "images": images[:MAX_IMAGES],
            "done": self.images,
            "failed": self.failed,
            "hosts": len({host["Host"] for host in self._hosts.values()}),
            "notes": notes,
        }

    def _image(self, manifest: Manifest) -> dict[str, Any]:
        image_id = manifest["image_id"]
        host = self._hosts.get(image_id, {})
        capture_time = host.get("CaptureTime")
        severities = host.get("Severities", {})
        return {
            "name": _file(manifest),
            "path": manifest["path"] or "",
            "host": host.get("Host") or "",
            "status": manifest["status"],
            "reason": manifest["reason"] or "",
            "taken": "" if capture_time is None else capture_time.strftime("%Y-%m-%d %H:%M:%S"),
            "windows": f"{host['KernelBuild'] or '?'} {host['Arch']}" if host else "",
            "found": [severities.get(severity, 0) for severity in SEVERITIES],
            "page": self._link(image_id) if host and image_id in self.paged else None,
        }

    def _rare_part(self) -> dict[str, Any]:
        """Returns the part with rare stacks, as `stackfleet rare` lists them."""
        question = questions.rare(
            questions.KEYS[0], (), MAX_HOSTS, MAX_RARE + 1, self._database.images, False
        )
        rows = list(self._database.rows(question.sql))
        notes = []
        left_out = self._database.value(question.left_out)
        if left_out:
            notes.append(f"{question.remarks.format(f'{left_out:,}').partition(' (')[0]}.")
        if len(rows) > MAX_RARE:
            notes.append(f"There are more: the {MAX_RARE:,} rarest are shown.")
        stacks = [
            {
                "hosts": row["Hosts"],
                "among": row["Among"],
                "comparable": row["Comparable"],
                "names": ", ".join(row["Hostnames"]),
                "kinds": ", ".join(row["Kinds"] or ()),
                "processes": ", ".join(filter(None, row["Processes"] or ())),
                "count": row["Count"] or 0,
                "unbacked": row["Unbacked"] or 0,
                "frames": self._lists.frames(_texts(row["Stack"])),
                "images": [self._link(image_id) for image_id in row["ImageIds"]],
            }
            for row in rows[:MAX_RARE]
        ]
        return {"stacks": stacks, "notes": notes}

    def _link(self, image_id: str) -> list[str]:
        """Returns the address of an image's page, and the text of a link to it.

        For an image without a page the link leads to the list. A table may also have rows of an image that is
        not in the lake.
        """
        if image_id not in self.paged or image_id not in self._by_id:
            return ["#lake", self._called(image_id)]
        return [self._address(self._where.first.parent, self._page(image_id)), self._called(image_id)]

    def _called(self, image_id: str) -> str:
        """Returns the name of an image on the pages: its host, if recorded, and its file."""
        if image_id not in self._by_id:
            return image_id
        host, file = self._hosts.get(image_id, {}).get("Host"), _file(self._by_id[image_id])
        return f"{host}, {file}" if host and host != image_id else file

    def _page(self, image_id: str) -> pathlib.Path:
        return self._where.folder / f"image-{image_id}.html"

    @staticmethod
    def _address(folder: pathlib.Path, target: pathlib.Path) -> str:
        """Returns the address of a page, relative to the folder of the page that links to it."""
        path = pathlib.Path(os.path.relpath(target, folder)).as_posix()
        return urllib.parse.quote(path, safe="/")


_IMAGES = """\
SELECT image_id, path, status, reason, "rows", "case", note, ended::VARCHAR AS ended
FROM manifests ORDER BY path, image_id"""

_HOSTS = """\
SELECT ImageId, Host, CaptureTime, KernelBuild, Arch, Severities FROM image JOIN hosts USING (ImageId)
LEFT JOIN (SELECT ImageId, histogram(Severity) AS Severities FROM findings GROUP BY ALL) USING (ImageId)"""
"""The hosts of images, and how many findings of each severity they have."""

_STACKS = f"""\
WITH {OF_FRAMES}
SELECT ImageId, TraceId, Shown, Guess, Backing
FROM of_frames SEMI JOIN (VALUES {{pairs}}) AS wanted(ImageId, TraceId) USING (ImageId, TraceId)
WHERE Frame < {MAX_FRAMES}
ORDER BY ImageId, TraceId, Frame"""
"""The frames of some stacks, innermost first."""

_UNCHECKED = f"""\
SELECT Finding, coalesce(Evidence, '') AS Evidence, count(DISTINCT ImageId) AS Images
FROM findings WHERE Severity IS NULL GROUP BY ALL
ORDER BY Images DESC, Finding, Evidence LIMIT {MAX_UNCHECKED}"""
"""The checks that could not run, those with the most images first."""


def _texts(stack: Optional[str]) -> Iterable[tuple[str, bool, bool]]:
    frames = stack.split(STACK_SEPARATOR, MAX_FRAMES)[:MAX_FRAMES] if stack else []
    return ((text, False, False) for text in frames)


def _file(manifest: Manifest) -> str:
    """Returns the name of an image's file; of a file of the lake whose data cannot be relied on, its path."""
    return pathlib.PurePath(manifest["path"]).name if manifest["path"] else str(manifest["image_id"])


def _worst(image: dict[str, Any]) -> tuple[Any, ...]:
    return image["status"] == DONE, [-number for number in image["found"]], image["path"]


def _write(path: pathlib.Path, title: str, data: dict[str, Any]) -> None:
    """Writes a page in one step. A link with the same name is replaced; the link's target stays as it is."""
    with whole_file(path) as stream:
        for piece in page(title, data):
            stream.write(piece.encode())
