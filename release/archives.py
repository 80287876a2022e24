# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The archives of a release: wheel, source archive and plugin folder; they are reproducible byte for byte.

They contain committed files only. Names are sorted, times are the time of the commit, files have no owner and
the mode 644.
"""

from __future__ import annotations

import gzip
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from typing import Dict, Iterator, List, Tuple

from . import NAME, ROOT, ReleaseError

PLUGIN_MARKS = ("def run(self)", ".plugin_of_dumps(")
"""Texts that only files of plugins hold."""
PLUGIN_FOLDERS = ("volatility3_plugins", "winstacks", "symbols/windows/stacktraces")
"""Folders that `vol -p` needs, as paths in the tree."""
PLUGIN_SUFFIXES = (".py", ".pyi", ".json", ".typed", ".js", ".css")
"""Suffixes of files that run, and their types; texts of symbol tables and their README stay in the tree."""

README = """\
# Stack traces in Windows memory images, for Volatility 3

Stack trace databases, trap frames, call stacks, and the locks, handles and heap blocks that traces belong to.
Version {version}. Volatility {volatility} and Python 3.9 or newer are needed, nothing else.

Unpack this folder and name the plugins in it:

    vol -p {folder}/volatility3_plugins -f IMAGE windows.tracefindings

The folders `winstacks` (the library of the plugins) and `symbols` must stay beside `volatility3_plugins`.
The archive itself is no plugin folder: Volatility would look for each plugin at its root.

{plugins}

Licence: Volatility Software License 1.0 (LICENSE).
"""

_BUILD = """\
import sys
from setuptools import build_meta
print(getattr(build_meta, sys.argv[1])(sys.argv[2]))
"""


def commit_time() -> int:
    """Returns the time of the last commit, in seconds since 1970."""
    return int(_git("log", "-1", "--format=%ct"))


def changed() -> List[str]:
    """Returns the differences from the last commit; a release contains none of them."""
    return _git("status", "--porcelain").decode(errors="replace").splitlines()


def export(folder: pathlib.Path) -> pathlib.Path:
    """Writes the files of the last commit into a new folder; returns the folder."""
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", "HEAD"))) as archive:
        archive.extractall(folder)
    return folder


def build(tree: pathlib.Path, target: pathlib.Path, epoch: int) -> List[pathlib.Path]:
    """Builds wheel and source archive of a tree with the running Python; returns both.

    Raises:
        ReleaseError: the build failed
    """
    target.mkdir(parents=True)
    environment = dict(os.environ, SOURCE_DATE_EPOCH=str(epoch), PYTHONHASHSEED="0")
    files = []
    for hook in ("build_wheel", "build_sdist"):
        command = [sys.executable, "-c", _BUILD, hook, str(target)]
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, check=False, errors="replace"
        )
        if done.returncode:
            raise ReleaseError(f"{hook} has failed:\n{done.stdout}\n{done.stderr}")
        files.append(target / done.stdout.splitlines()[-1])
    # setuptools gives a source archive the times and owners of the files that it read.
    settle(files[1], epoch)
    return files


def settle(path: pathlib.Path, epoch: int) -> None:
    """Rewrites a .tar.gz so that its bytes depend only on the names and contents of its files."""
    with tarfile.open(path) as archive:
        files = {member.name: _content(archive, member) for member in archive.getmembers() if member.isfile()}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(files[name]), epoch, 0o644
            archive.addfile(entry, io.BytesIO(files[name]))
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=epoch) as stream:
        stream.write(packed.getvalue())


def _content(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(entry)
    if stream is None:
        raise ReleaseError(f"{entry.name} cannot be read from {archive.name!r}")
    return stream.read()


def plugin_files(tree: pathlib.Path, version: str, volatility: str) -> Dict[str, bytes]:
    """Returns the files of the folder for `vol -p`, by their names in the folder.

    Args:
        volatility: the range of Volatility that setup.cfg states
    """
    files = {"LICENSE": (tree / "LICENSE").read_bytes()}
    for place in PLUGIN_FOLDERS:
        for path in (tree / place).rglob("*"):
            if path.suffix in PLUGIN_SUFFIXES:
                files[path.relative_to(tree).as_posix()] = path.read_bytes()
    names = sorted(
        f"{path.parent.name}.{path.stem}"
        for path in (tree / "volatility3_plugins").glob("*/*.py")
        if any(mark in path.read_text(encoding="utf-8") for mark in PLUGIN_MARKS)
    )
    text = README.format(
        version=version,
        volatility=volatility,
        folder=NAME,
        plugins="\n".join(f"* `{name}`" for name in names),
    )
    files["README.md"] = text.encode()
    return files


def write_zip(path: pathlib.Path, files: Dict[str, bytes], epoch: int) -> pathlib.Path:
    """Packs files below one folder, in the form that Volatility's community repository takes."""
    stamp = time.gmtime(max(epoch, 315532800))[:6]  # ZIP knows no time before 1980
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{NAME}/{name}", stamp)
            entry.compress_type = zipfile.ZIP_DEFLATED
            # As on Unix, on every system.
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            archive.writestr(entry, files[name])
    return path


def unpack(path: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Unpacks a plugin archive; returns the folder inside it."""
    shutil.unpack_archive(path, folder)
    return folder / NAME


def listed(path: pathlib.Path) -> Iterator[Tuple[str, bytes]]:
    """Yields names and contents of the files in a wheel, a source archive or a plugin archive."""
    if path.suffix == ".gz":
        with tarfile.open(path) as packed:
            for entry in packed.getmembers():
                if entry.isfile():
                    yield entry.name.split("/", 1)[1], _content(packed, entry)
    else:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                yield name, archive.read(name)


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise ReleaseError(f"git {arguments[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
