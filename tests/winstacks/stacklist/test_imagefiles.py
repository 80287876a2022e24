# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The files of an image, and the ImageId that follows from them."""

from __future__ import annotations

import hashlib
import lzma
import os
import pathlib
import shutil

import pytest
from volatility3.framework import contexts
from volatility3.framework.layers import physical

from tests.forge import context, kernels, vmware
from tests.forge.kernel import Kernel
from tests.support.only import only
from winstacks.memory.decode.machine import Machine
from winstacks.memory.decode.status import text
from winstacks.memory.image import Image
from winstacks.stacklist.imagefacts import identity
from winstacks.stacklist.imagefiles import ImageFile, content, image_files, sha256


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    known = kernels.load("win10-x64")
    image = Kernel(known.table, **known.options()).image()
    image.install(context.symbol_directory())
    return image.save(tmp_path_factory.mktemp("files") / "image.raw")


def image_id(path: pathlib.Path) -> str:
    return str(identity(context.open_file(path).image).image_id)


def test_a_raw_image_is_one_file(raw: pathlib.Path) -> None:
    image = context.open_file(raw).image
    file = only(image_files(image))
    assert (file.path, file.size, file.local) == (str(raw), raw.stat().st_size, True)
    assert content(image.context, file).read(0x1000, 64) == raw.read_bytes()[0x1000:0x1040]
    assert sha256(file) == hashlib.sha256(raw.read_bytes()).hexdigest()
    assert text(identity(image).status) == ""


def test_a_device_is_as_large_as_its_layer(raw: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = context.open_file(raw).image
    # The folder of a block device says 0.
    monkeypatch.setattr(os.path, "getsize", lambda path: 0)
    file = only(image_files(image))
    assert (file.size, file.local) == (raw.stat().st_size, True)


def test_a_crash_dump_rests_on_its_file(raw: pathlib.Path, tmp_path: pathlib.Path) -> None:
    known = kernels.load("win10-x64")
    path = Kernel(known.table, **known.options()).image().save(tmp_path / "image.dmp")
    assert [file.path for file in image_files(context.open_file(path).image)] == [str(path)]


def test_the_id_is_that_of_the_content(raw: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A packed file is another file (its size and its hash are), and the same image."""
    other = tmp_path / "a name; with (odd) signs %41 and ü.mem"
    shutil.copy(raw, other)
    packed = tmp_path / "packed.raw.xz"
    packed.write_bytes(lzma.compress(raw.read_bytes(), preset=0))
    assert image_id(raw) == image_id(other) == image_id(packed)
    file = only(image_files(context.open_file(packed).image))
    assert file.size == packed.stat().st_size < raw.stat().st_size
    assert sha256(file) == hashlib.sha256(packed.read_bytes()).hexdigest()
    file = only(image_files(context.open_file(other).image))
    assert (file.path, file.shown) == (str(other), str(other))


def test_an_image_that_differs_in_a_sampled_page_has_another_id(
    raw: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    data = bytearray(raw.read_bytes())
    data[-1] ^= 1
    other = tmp_path / "image.raw"
    other.write_bytes(data)
    assert image_id(other) != image_id(raw)


def test_a_truncated_image_has_another_id(raw: pathlib.Path, tmp_path: pathlib.Path) -> None:
    other = tmp_path / "image.raw"
    other.write_bytes(raw.read_bytes()[:-0x1000] + bytes(0x100000))
    assert image_id(other) != image_id(raw)


def test_the_metadata_of_vmware_is_a_file_of_the_image(raw: pathlib.Path, tmp_path: pathlib.Path) -> None:
    memory = tmp_path / "machine.vmem"
    shutil.copy(raw, memory)
    metadata = vmware.write_metadata(memory)
    image = context.open_file(memory).image
    assert [file.path for file in image_files(image)] == [str(memory), str(metadata)]
    before = identity(image).image_id
    metadata.write_bytes(metadata.read_bytes() + b"\0")
    assert image_id(memory) != before != image_id(raw)


def test_a_layer_that_is_no_file_has_its_own_name_and_size() -> None:
    opened = contexts.Context()
    opened.config["buffer.buffer"] = b""
    opened.add_layer(physical.BufferDataLayer(opened, "buffer", "memory", bytes(0x3000)))
    file = only(image_files(Image.of_layer(opened, "memory", Machine.AMD64)))
    assert file == ImageFile("memory", "", "memory", 0x3000, False)
    assert sha256(file) is None


def test_what_cannot_be_read_is_counted(raw: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The file loses its end after Volatility has taken its size."""
    path = tmp_path / "image.raw"
    shutil.copy(raw, path)
    image = context.open_file(path).image
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 0x8000)
    assert text(identity(image).status) == "9 parts of files unreadable"


def test_a_file_that_is_gone_has_no_hash(raw: pathlib.Path) -> None:
    file = only(image_files(context.open_file(raw).image))
    assert sha256(file._replace(path=file.path + ".gone")) is None
