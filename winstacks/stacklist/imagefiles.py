# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Lists the files that the layers of an image rest on: the image, its metadata file, page files."""

from __future__ import annotations

import functools
import hashlib
import os
import urllib.parse
import urllib.request
from typing import Dict, Iterator, List, Optional

from volatility3.framework import interfaces

from ..memory import bulk
from ..memory.decode.records import NamedTuple
from ..memory.decode.text import printable
from ..memory.image import Image
from .decode.imageid import ImageContent

MAX_PATH = 32767
"""The most characters of a path on Windows; other systems allow fewer."""

MAX_PAGE_FILES = 16
"""The most page files: Windows numbers them in 4 bits of a page table entry."""

_CHUNK = 1 << 20


class ImageFile(NamedTuple):
    """A file, or another lowest layer.

    Attributes:
        location: URL that Volatility opened; empty if the layer is no file
        path: path of a local file; else the location, else the layer's name
        size: bytes of the local file as stored; for other files and devices the bytes of the layer
        local: whether this machine can open the file
    """

    layer_name: str
    location: str
    path: str
    size: int
    local: bool

    @property
    def shown(self) -> str:
        """The path, safe to print."""
        return printable(self.path, MAX_PATH)


def image_files(image: Image) -> List[ImageFile]:
    """Returns the files below the kernel's layer, each once, from left to right as the layers name them.

    The memory of a VMware image comes before its metadata; page files come after the image.
    """
    files: Dict[str, ImageFile] = {}
    for layer in _lowest(image.context, str(image.layer.name)):
        file = _file(layer)
        files.setdefault(file.location or file.layer_name, file)
    return list(files.values())


def content(context: interfaces.context.ContextInterface, file: ImageFile) -> ImageContent:
    """Returns a reader of the file's content through its layer, which decompresses packed data."""
    layer = context.layers[file.layer_name]
    return ImageContent(int(layer.maximum_address) + 1, bulk.file_reader(layer))


def sha256(file: ImageFile) -> Optional[str]:
    """Returns the SHA-256 of a file as stored, as `sha256sum` prints it; None if it cannot be read."""
    if not file.local:
        return None
    digest = hashlib.sha256()
    try:
        with open(file.path, "rb") as stream:
            for data in iter(functools.partial(stream.read, _CHUNK), b""):
                digest.update(data)
    except OSError:
        return None
    return digest.hexdigest()


def _lowest(
    context: interfaces.context.ContextInterface, layer_name: str
) -> Iterator[interfaces.layers.DataLayerInterface]:
    """Yields the layers that rest on no other layer, depth first."""
    waiting, seen = [layer_name], set()
    while waiting:
        layer = context.layers[waiting.pop()]
        if layer.name in seen:
            continue
        seen.add(layer.name)
        below = [*layer.dependencies, *_page_files(context, layer)]
        if not below:
            yield layer
        waiting += reversed(below)


def _page_files(
    context: interfaces.context.ContextInterface, layer: interfaces.layers.DataLayerInterface
) -> Iterator[str]:
    """Yields the layers of page files, which a layer's configuration names and its dependencies do not."""
    for number in range(MAX_PAGE_FILES):
        path = interfaces.configuration.path_join("swap_layers", f"swap_layers{number}")
        name = layer.config.get(path, None)
        if name in context.layers:
            yield name


def _file(layer: interfaces.layers.DataLayerInterface) -> ImageFile:
    location = str(getattr(layer, "location", ""))
    parsed = urllib.parse.urlparse(location)
    path, size = location or str(layer.name), int(layer.maximum_address) + 1
    if parsed.scheme == "file":
        # The server of a UNC path is in the host part of the URL.
        host = f"//{parsed.netloc}" if parsed.netloc else ""
        path = urllib.request.url2pathname(host + parsed.path)
        try:
            # The file system reports a size of 0 for a device.
            return ImageFile(str(layer.name), location, path, os.path.getsize(path) or size, True)
        except OSError:
            pass
    return ImageFile(str(layer.name), location, path, size, False)
