# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Sets up a virtual environment beside this file and works in it. Needs Python 3.9 or newer, nothing else.

python3 dev.py demo              install the plugins and run them on a sample image built on the spot
python3 dev.py test [ARG...]     install what the tests need and run them (ARGs go to pytest)
python3 dev.py lint              ruff and mypy
python3 dev.py lowest [ARG...]   the tests on the lowest Volatility that setup.cfg allows
python3 dev.py coverage [ARG...] the tests, and what of the plugins they leave out; fails above 5 %
"""

from __future__ import annotations

import configparser
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import venv
from typing import List, Optional

ROOT = pathlib.Path(__file__).resolve().parent
ENVIRONMENTS = ROOT / ".venv"
LEAST_BRANCHES = 95
"""Percent of the branches of the plugins that the tests take."""


def requirements(extra: Optional[str] = None) -> List[str]:
    """Returns the requirements that setup.cfg states, with those of an extra."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = config["options"]["install_requires"].splitlines()
    if extra:
        lines += config["options.extras_require"][extra].splitlines()
    return [line.strip() for line in lines if line.strip()]


def environment(name: str, wanted: List[str]) -> pathlib.Path:
    """Makes a virtual environment with the wanted packages, once for each set of them; returns its Python."""
    folder = ENVIRONMENTS / name
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = folder / "installed"
    key = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()
    if not (stamp.is_file() and stamp.read_text(encoding="utf-8") == key):
        venv.create(folder, with_pip=True, clear=True)
        run(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted])
        stamp.write_text(key, encoding="utf-8")
    return python


def run(python: pathlib.Path, arguments: List[str]) -> None:
    """Runs Python with arguments in the project's folder; ends this program when it fails."""
    code = subprocess.call([str(python), *arguments], cwd=ROOT)
    if code:
        raise SystemExit(code)


def demo() -> None:
    """Installs the plugins as a user would and shows what they print on a sample image."""
    python = environment("demo", requirements())
    # What an earlier build left would go into the wheel again, with files that are no longer here.
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall"]
    run(python, ["-m", "pip", "install", *options, str(ROOT)])
    run(python, ["-m", "tests.forge.demo", str(ROOT / ".demo")])


def test(arguments: List[str]) -> None:
    """Runs the tests on the newest Volatility."""
    python = environment("test", requirements("test"))
    run(python, ["-m", "pytest", *(arguments or ["-n", "auto"])])


def lowest(arguments: List[str]) -> None:
    """Runs the tests on the lowest Volatility that setup.cfg allows."""
    pinned = [re.sub(r"^(volatility3)>=([^,]+),.*", r"\1==\2", line) for line in requirements("test")]
    python = environment("lowest", pinned)
    run(python, ["-m", "pytest", *(arguments or ["-n", "auto"])])


def coverage(arguments: List[str]) -> None:
    """Runs the tests as `test` does and shows which branches they leave out; fails if these are too many."""
    python = environment("test", requirements("test"))
    # What is measured takes longer than the images that claim to be huge are given.
    left_out = ["--ignore", "tests/hostile/test_amplifiers.py"]
    run(python, ["-m", "coverage", "erase"])
    run(python, ["-m", "coverage", "run", "-m", "pytest", *left_out, *(arguments or ["-n", "auto"])])
    run(python, ["-m", "coverage", "combine", "--quiet"])
    run(python, ["-m", "coverage", "report"])
    # The report's own figure is that of lines and branches together, which is higher.
    result = ROOT / ".coverage.json"
    run(python, ["-m", "coverage", "json", "--quiet", "-o", str(result)])
    totals = json.loads(result.read_text(encoding="utf-8"))["totals"]
    result.unlink()
    share = 100 * totals["covered_branches"] / totals["num_branches"]
    print(f"{totals['covered_branches']} of {totals['num_branches']} branches: {share:.1f} %")
    if share < LEAST_BRANCHES:
        raise SystemExit(f"fewer than {LEAST_BRANCHES} % of the branches")


def lint() -> None:
    """Checks style and types."""
    python = environment("lint", [*requirements("test"), *requirements("lint")])
    run(python, ["-m", "ruff", "check", "."])
    run(python, ["-m", "ruff", "format", "--check", "."])
    run(python, ["-m", "mypy"])


def main(arguments: List[str]) -> None:
    """Runs the command that the first argument names."""
    command, rest = (arguments[0] if arguments else ""), arguments[1:]
    if command == "demo":
        demo()
    elif command == "test":
        test(rest)
    elif command == "lint":
        lint()
    elif command == "coverage":
        coverage(rest)
    elif command == "lowest":
        lowest(rest)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
