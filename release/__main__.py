# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Makes a release of the last commit in a folder, and reports the checks.

python3 dev.py release [FOLDER]      FOLDER is new or empty, by default dist/
"""

from __future__ import annotations

import configparser
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import List

from . import NAME, ROOT, ReleaseError, archives, bill, contents, installs

CHECKSUMS = "SHA256SUMS"


def make(target: pathlib.Path) -> List[pathlib.Path]:
    """Makes and checks a release; returns its files, which reach the target folder after all checks.

    Raises:
        ReleaseError: a check failed
    """
    epoch = archives.commit_time()
    for line in archives.changed():
        print(f"not committed, and so not in the release: {line[3:]}", flush=True)
    with tempfile.TemporaryDirectory(prefix=NAME) as temporary:
        folder = pathlib.Path(temporary)
        tree = archives.export(folder / "one")
        version = _version(tree)
        archives_made = archives.build(tree, folder / "first", epoch)
        again = archives.build(archives.export(folder / "two"), folder / "second", epoch)
        _equal(archives_made, again)
        report(f"built twice, the same bytes: {', '.join(path.name for path in archives_made)}")
        _twine(archives_made)
        files = archives.plugin_files(tree, version, _range(tree))
        packed = archives.write_zip(folder / "first" / f"{NAME}-{version}-plugins.zip", files, epoch)
        archives_made.append(packed)
        wrong = contents.differences(tree, archives_made)
        if wrong:
            raise ReleaseError("\n".join(wrong))
        report("the archives hold what the tree holds, and nothing else")
        archives_made.append(_tried(folder, archives_made, epoch, version))
        return _delivered(target, archives_made)


def report(text: str) -> None:
    print(text, flush=True)


def _tried(folder: pathlib.Path, archives_made: List[pathlib.Path], epoch: int, version: str) -> pathlib.Path:
    """Installs each archive and runs the plugins; returns the bill of materials of the wheel's
    installation."""
    wheel, source, packed = archives_made
    image = installs.Sample(folder)
    wheeled, sourced = (installs.Environment(folder / name) for name in ("wheel", "source"))
    wheeled.pip("install", "--quiet", str(wheel))
    sourced.pip("install", "--quiet", str(source))
    text = bill.bill(wheeled.installed(), archives_made, epoch)
    unpacked = installs.Environment(folder / "unpacked")
    unpacked.pip("install", "--quiet", *_needed(wheeled))
    plugins = archives.unpack(packed, folder / "plugins") / "volatility3_plugins"
    ways = {"the wheel": [], "the source archive": [], "the plugin archive": ["-p", str(plugins)]}
    installs.same_rows(image, ways, dict(zip(ways, (wheeled, sourced, unpacked))))
    report(f"{len(installs.LINES)} plugins show the same rows of the sample from {', '.join(ways)}")
    path = folder / f"{NAME}-{version}.cdx.json"
    path.write_text(text, encoding="utf-8")
    return path


def _needed(environment: installs.Environment) -> List[str]:
    """Returns the packages installed with the wheel, with their versions."""
    metadata = [package["metadata"] for package in environment.installed()]
    return [
        f"{package['name']}=={package['version']}"
        for package in metadata
        if bill.plain(package["name"]) != NAME
    ]


def _delivered(target: pathlib.Path, archives_made: List[pathlib.Path]) -> List[pathlib.Path]:
    sums = "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in archives_made
    )
    target.mkdir(parents=True, exist_ok=True)
    for path in archives_made:
        (target / path.name).write_bytes(path.read_bytes())
    # sha256sum -c needs these newlines, on Windows as well.
    (target / CHECKSUMS).write_bytes(sums.encode())
    return [*(target / path.name for path in archives_made), target / CHECKSUMS]


def _equal(archives_made: List[pathlib.Path], again: List[pathlib.Path]) -> None:
    for one, other in zip(archives_made, again):
        if one.read_bytes() != other.read_bytes():
            raise ReleaseError(f"{one.name} has other bytes when it is built again")


def _twine(archives_made: List[pathlib.Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *map(str, archives_made)],
        capture_output=True,
        text=True,
        check=False,
        errors="replace",
    )
    if done.returncode:
        raise ReleaseError(f"twine check:\n{done.stdout}\n{done.stderr}")
    report("twine finds no fault in them")


def _version(tree: pathlib.Path) -> str:
    text = (tree / "winstacks" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^VERSION = "(.*)"$', text, re.MULTILINE)
    if found is None:
        raise ReleaseError("winstacks/__init__.py states no version")
    return found.group(1)


def _range(tree: pathlib.Path) -> str:
    config = configparser.ConfigParser()
    config.read(tree / "setup.cfg", encoding="utf-8")
    return config["options"]["install_requires"].strip().replace("volatility3", "")


def main(arguments: List[str]) -> None:
    """Makes the release and lists its files."""
    target = pathlib.Path(arguments[0]) if arguments else ROOT / "dist"
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise SystemExit(
            f"{target} is there and is no empty folder: an earlier release is never overwritten."
        )
    try:
        for path in make(target):
            print(f"{path.stat().st_size:>10,} {path}")
    except ReleaseError as error:
        raise SystemExit(f"There is no release: {error}") from None


if __name__ == "__main__":
    main(sys.argv[1:])
