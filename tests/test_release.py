# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The archives of `dev.py release`: the same bytes each time, what they hold, and what Volatility takes."""

from __future__ import annotations

import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from typing import Dict, Iterable

import pytest

import winstacks
from release import NAME, archives, contents
from tests.conftest import ROOT
from tests.forge import sample, vol
from tests.support.only import only
from winstacks.columns.commands import OF_DUMPS

EPOCH = 1_700_000_000


def packed(path: pathlib.Path, files: Iterable[str], time: int, owner: str) -> pathlib.Path:
    with tarfile.open(path, "w:gz") as archive:
        for name in files:
            entry = tarfile.TarInfo(f"a-1/{name}")
            entry.size, entry.mtime, entry.uname, entry.mode = len(name), time, owner, 0o600 + time % 2
            archive.addfile(entry, io.BytesIO(name.encode()))
    return path


def test_a_source_archive_has_the_same_bytes_whoever_made_it(tmp_path: pathlib.Path) -> None:
    one = packed(tmp_path / "one.tar.gz", ["b", "a"], 1, "somebody")
    other = packed(tmp_path / "other.tar.gz", ["a", "b"], 2, "else")
    assert one.read_bytes() != other.read_bytes()
    for path in (one, other):
        archives.settle(path, EPOCH)
    assert one.read_bytes() == other.read_bytes()
    assert dict(archives.listed(one)) == {"a": b"a", "b": b"b"}


def test_a_plugin_archive_has_the_same_bytes_each_time(tmp_path: pathlib.Path) -> None:
    files = {"b/c.py": b"1", "a.py": b"2"}
    one = archives.write_zip(tmp_path / "one.zip", files, EPOCH)
    other = archives.write_zip(tmp_path / "other.zip", dict(reversed(list(files.items()))), EPOCH)
    assert one.read_bytes() == other.read_bytes()
    assert [name for name, _ in archives.listed(one)] == [f"{NAME}/a.py", f"{NAME}/b/c.py"]


@pytest.fixture()
def archive(tmp_path: pathlib.Path) -> pathlib.Path:
    files = archives.plugin_files(ROOT, "3.0.0", ">=2")
    return archives.write_zip(tmp_path / "plugins.zip", files, EPOCH)


def repacked(archive: pathlib.Path, changes: Dict[str, bytes], without: str = "") -> pathlib.Path:
    held = {name.split("/", 1)[1]: data for name, data in archives.listed(archive)}
    kept = {name: data for name, data in held.items() if name != without}
    return archives.write_zip(archive.with_name("again.zip"), {**kept, **changes}, EPOCH)


def test_what_an_archive_lacks_has_changed_or_added_is_named(archive: pathlib.Path) -> None:
    assert contents.differences(ROOT, [archive]) == []
    for changes, without, difference in (
        ({"winstacks/options.py": b""}, "", "winstacks/options.py is not that of the tree"),
        ({}, "winstacks/options.py", "winstacks/options.py is missing"),
        ({"winstacks/more.py": b""}, "", "winstacks/more.py is not in the tree"),
    ):
        found = only(contents.differences(ROOT, [repacked(archive, changes, without)]))
        assert found == f"again.zip: {NAME}/{difference}"


def test_the_readme_of_the_folder_names_each_plugin(archive: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The community repository of Volatility holds one folder for an author, which a README explains."""
    folder = archives.unpack(archive, tmp_path / "unpacked")
    text = (folder / "README.md").read_text(encoding="utf-8")
    plugins = {path.stem for path in (folder / "volatility3_plugins" / "windows").glob("*.py")}
    names = {*(f"windows.{name}" for name in plugins), *(f"minidump.{name}" for name in OF_DUMPS)}
    missing = {name for name in names - {"windows.winstacks_library"} if f"`{name}`" not in text}
    assert not missing and "winstacks_library" not in text
    assert {path.name for path in folder.iterdir()} == {
        *("README.md", "LICENSE", "volatility3_plugins", "winstacks", "symbols")
    }


@pytest.mark.cli
@pytest.mark.once
def test_an_unpacked_archive_is_a_plugin_folder(archive: pathlib.Path, tmp_path: pathlib.Path) -> None:
    plugins = archives.unpack(archive, tmp_path / "unpacked") / "volatility3_plugins"
    forged_image = sample.build().image()
    image, symbols = forged_image.save(tmp_path / "a.dmp"), forged_image.install(tmp_path / "symbols")
    theirs, ours = (
        vol.run(image, "windows.stacktracedb", symbols=symbols, plugins=folder).rows
        for folder in (plugins, vol.PLUGINS)
    )
    assert theirs and theirs == ours


def help_with(folder: pathlib.Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(pathlib.Path(sys.executable).with_name("vol")), "-p", str(folder), "-h"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))


@pytest.mark.cli
@pytest.mark.once
def test_an_archive_in_place_of_a_plugin_folder_adds_nothing(archive: pathlib.Path) -> None:
    """What Volatility 2.28 does with `-p FILE.zip`; README says to unpack it."""
    shown = help_with(archive)
    assert shown.returncode == 0
    assert "windows.stacktracedb" not in shown.stdout


@pytest.mark.cli
@pytest.mark.once
def test_an_archive_inside_a_plugin_folder_ends_every_command(
    archive: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Volatility 2.28 imports each file of such an archive by its name alone, as if it lay at the root."""
    (tmp_path / "folder").mkdir()
    shutil.copy(archive, tmp_path / "folder")
    shown = help_with(tmp_path / "folder")
    assert shown.returncode != 0
    assert "ModuleNotFoundError: No module named 'volatility3.plugins." in shown.stderr


@pytest.mark.cli
@pytest.mark.once
def test_an_archive_of_flat_modules_is_taken(tmp_path: pathlib.Path) -> None:
    """It is all that Volatility 2.28 takes: plugins at the root, so without a folder `windows`."""
    source = "from volatility3.framework import interfaces\n"
    source += "class Flat(interfaces.plugins.PluginInterface):\n"
    source += "    _required_framework_version = (2, 0, 0)\n\n    def run(self):\n        return None\n"
    (tmp_path / "folder").mkdir()
    with zipfile.ZipFile(tmp_path / "folder" / "flat.zip", "w") as flat:
        flat.writestr("flatplugin.py", source)
    shown = help_with(tmp_path / "folder")
    assert shown.returncode == 0, shown.stderr
    assert "flatplugin.Flat" in shown.stdout


def test_every_place_that_states_a_version_states_one() -> None:
    stated = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    assert stated and stated.group(1) == winstacks.VERSION
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", changes, re.MULTILINE)[0] == winstacks.VERSION
