# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Sets up a virtual environment beside this file and works in it. Needs Python 3.9 or newer, nothing else;
what runs the tests, or checks style and types, needs 3.10.

python3 dev.py demo              install the plugins and run them on a sample image built on the spot
python3 dev.py test [ARG...]     install what the tests need and run them, in 6 to 10 minutes
python3 dev.py lint              ruff, mypy, prose; ESLint and TypeScript where npm is installed
python3 dev.py symbols           the symbol tables (ISF) from the declarations beside them
python3 dev.py lowest [ARG...]   the tests on the lowest Volatility, pyarrow and others that setup.cfg allows
python3 dev.py coverage [ARG...] the tests, and what of our code they leave out; fails above 5 %
python3 dev.py attack            the ATT&CK techniques of the checks, compared with ATT&CK
python3 dev.py docs              README and docs/ as a site, in site/
python3 dev.py install-check     each way to install that README names, in about 5 minutes; needs a network
python3 dev.py release [FOLDER]  the archives of the last commit, checked, in about 3 minutes; without FOLDER
                                 all tests run first, with all their cases; needs a network
python3 dev.py next [ARG...]     the command line's tests on the newest Volatility, and what it breaks

ARGs go to pytest: python3 dev.py test tests/forge
"""

import sys

# Older ones must get as far as this sentence: nothing in this file may have syntax that Python 3.5 lacks.
if sys.version_info < (3, 9):
    sys.exit(
        "dev.py needs Python 3.9 or newer; this is Python {}.{} ({}).".format(
            *sys.version_info[:2], sys.executable
        )
    )

import ast
import configparser
import contextlib
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import time
from typing import Iterator, List

ROOT = pathlib.Path(__file__).resolve().parent
ENVIRONMENTS = ROOT / ".venv"
LEAST_BRANCHES = 95
"""Percent of the branches of the plugins, their library and stackfleet that the tests take."""

PIP = ["-m", "pip", "--disable-pip-version-check"]
PACKAGED = [
    "setup.py",
    "setup.cfg",
    "pyproject.toml",
    "LICENSE",
    "volatility3_plugins",
    "winstacks",
    "symbols",
    "stackfleet",
    "docs",
]
"""The files and folders of which the wheel is made (README is its description only)."""

NO_VENV = """\
{} lacks the modules venv or ensurepip, which make virtual environments.
On Debian and Ubuntu this brings them:

    apt install python3-venv"""


def requirements(*extras: str) -> List[str]:
    """Returns the requirements that setup.cfg states, with those of extras."""
    config = configparser.ConfigParser()
    config.read(str(ROOT / "setup.cfg"), encoding="utf-8")
    lines = config["options"]["install_requires"].splitlines()
    for extra in extras:
        lines += config["options.extras_require"][extra].splitlines()
    return [line.strip() for line in lines if line.strip()]


def group(name: str) -> List[str]:
    """Returns the requirements of a dependency group (PEP 735) of pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[dependency-groups]\n")[2]
    listed = re.search(r"^{} = (\[.*?^\])$".format(name), text, re.MULTILINE | re.DOTALL)
    assert listed, "pyproject.toml has the group, and each requirement is on a line"
    # An array of TOML with such texts is a list of Python, too.
    return list(ast.literal_eval(listed.group(1)))


def name_of(requirement: str) -> str:
    """Returns the name of the package that a requirement is about."""
    return re.split(r"[\[<>=;\s]", requirement)[0]


def at_lowest(packages: List[str]) -> List[str]:
    """Returns requirements with the lowest version that each allows; the first of a package decides."""
    lowest_of = [re.sub(r">=([^,;\s]+)[^;]*", r"==\1", line, count=1) for line in packages]
    names = [name_of(line) for line in packages]
    return [line for place, line in enumerate(lowest_of) if names[place] not in names[:place]]


def build_requirements() -> List[str]:
    """Returns the requirements of a build that pyproject.toml states."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^requires = (\[.*\])$", text, re.MULTILINE)
    assert listed, "pyproject.toml states its requirements on one line"
    return list(json.loads(listed.group(1)))


@contextlib.contextmanager
def step(text: str) -> Iterator[None]:
    """Says what is being done, and then how long it took."""
    print("{} ...".format(text), end="", flush=True)
    start = time.monotonic()
    try:
        yield
    except BaseException:
        print(flush=True)
        raise
    print(" {:.1f} s".format(time.monotonic() - start), flush=True)


def fingerprint(packages: List[str]) -> str:
    """Returns what tells an environment with these packages for this Python from all others."""
    return hashlib.sha256("\n".join([sys.version, *packages]).encode()).hexdigest()


def environment(name: str, packages: List[str]) -> pathlib.Path:
    """Makes a virtual environment with the wanted packages, once for each set of them; returns its Python."""
    folder = ENVIRONMENTS / name
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = folder / "installed"
    key = fingerprint(packages)
    if not (python.exists() and stamp.is_file() and stamp.read_text(encoding="utf-8") == key):
        with step("Making the virtual environment .venv/{} (about 5 s)".format(name)):
            make(folder)
        names = [name_of(line) for line in packages]
        with step("Downloading and installing {}".format(", ".join(names))):
            run(python, [*PIP, "install", "--quiet", *packages])
        stamp.write_text(key, encoding="utf-8")
    return python


def make(folder: pathlib.Path) -> None:
    """Makes an empty virtual environment that has pip."""
    if not all(importlib.util.find_spec(module) for module in ("venv", "ensurepip")):
        raise SystemExit("\n" + NO_VENV.format(sys.executable))
    import venv

    try:
        venv.create(str(folder), with_pip=True, clear=True)
    except subprocess.CalledProcessError as error:
        printed = (error.output or b"").decode(errors="replace")
        raise SystemExit("\n" + printed + "\n" + NO_VENV.format(sys.executable)) from None


def run(python: pathlib.Path, arguments: List[str]) -> None:
    """Runs Python with arguments in the project's folder; ends this program when it fails."""
    interrupted = False
    process = subprocess.Popen([str(python), *arguments], cwd=str(ROOT))
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:
            # The terminal has told the child too, which may have something to clear up or to say.
            interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    if code:
        raise SystemExit(code)


def digest(places: List[str]) -> str:
    """Returns a digest of the names and contents of files and of all files in folders."""
    total = hashlib.sha256()
    for place in places:
        whole = ROOT / place
        for path in sorted(whole.rglob("*")) if whole.is_dir() else [whole]:
            if path.is_file() and path.suffix != ".pyc":
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                total.update("{} {}\n".format(path.relative_to(ROOT).as_posix(), content).encode())
    return total.hexdigest()


def demo(arguments: List[str]) -> None:
    """Installs the plugins as a user would and shows what they print on a sample image."""
    python = environment("demo", requirements() + build_requirements())
    stamp = ENVIRONMENTS / "demo" / "plugins"
    key = digest(PACKAGED)
    if not (stamp.is_file() and stamp.read_text(encoding="utf-8") == key):
        options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--force-reinstall"]
        with step("Installing the plugins of this tree (about 5 s)"):
            run(python, [*PIP, "install", *options, str(ROOT)])
        stamp.write_text(key, encoding="utf-8")
    run(python, ["-m", "tests.forge.demo", str(ROOT / ".demo"), os.getcwd()])


def testing() -> pathlib.Path:
    """Makes the environment of the tests and of what checks style and types; returns its Python.

    It is one for both: the types of all that the tests import are checked.
    """
    return environment("test", of_testing())


def of_testing() -> List[str]:
    """Returns the requirements of that environment."""
    return of_tests() + group("lint")


def of_tests() -> List[str]:
    """Returns the requirements of the tests; ends this program where stackfleet cannot be installed."""
    if sys.version_info < (3, 10):
        raise SystemExit(
            "The tests need Python 3.10 or newer, as stackfleet does; this is Python {}.{} ({}).".format(
                *sys.version_info[:2], sys.executable
            )
        )
    return requirements("fleet", "mcp") + group("test")


def test(arguments: List[str]) -> None:
    """Runs the tests on the newest Volatility."""
    python = testing()
    if not arguments:
        print("The tests take 6 to 10 minutes on two idle cores.", flush=True)
    run(python, ["-m", "pytest", "-rs"] + (arguments or ["-n", "auto"]))


def lowest(arguments: List[str]) -> None:
    """Runs the tests on the lowest version of each package that setup.cfg and pyproject.toml allow.

    Pythons from 3.13 on are newer than some of these.
    """
    python = environment("lowest", at_lowest(of_tests()))
    run(python, ["-m", "pytest", "-rs"] + (arguments or ["-n", "auto"]))


def coverage(arguments: List[str]) -> None:
    """Runs the tests as `test` does and shows which branches they leave out; fails if these are too many."""
    python = testing()
    # What is measured takes longer than the images that claim to be huge are given.
    left_out = ["--ignore", "tests/hostile/test_amplifiers.py"]
    run(python, ["-m", "coverage", "erase"])
    run(
        python,
        ["-m", "coverage", "run", "-m", "pytest", "-m", "not install"]
        + left_out
        + (arguments or ["-n", "auto"]),
    )
    run(python, ["-m", "coverage", "combine", "--quiet"])
    run(python, ["-m", "coverage", "report"])
    # The report's own figure is that of lines and branches together, which is higher.
    result = ROOT / ".coverage.json"
    run(python, ["-m", "coverage", "json", "--quiet", "-o", str(result)])
    totals = json.loads(result.read_text(encoding="utf-8"))["totals"]
    result.unlink()
    share = 100 * totals["covered_branches"] / totals["num_branches"]
    print("{covered_branches} of {num_branches} branches: {share:.1f} %".format(share=share, **totals))
    if share < LEAST_BRANCHES:
        raise SystemExit("fewer than {} % of the branches".format(LEAST_BRANCHES))


def lint(arguments: List[str]) -> None:
    """Checks style and types."""
    python = testing()
    run(python, ["-m", "ruff", "check", "."])
    run(python, ["-m", "ruff", "format", "--check", "."])
    run(python, ["-m", "mypy"])
    run(python, ["-m", "tests.prose"])
    run(python, ["-m", "tests.sentences"])
    lint_scripts()


def lint_scripts() -> None:
    """Checks the scripts of the pages with ESLint and the compiler of TypeScript, which npm installs."""
    npm = shutil.which("npm")
    if npm is None:
        print("The scripts of the pages are not checked: npm is not installed.", flush=True)
        return
    folder = str(ROOT / "tests" / "pages")
    if not (ROOT / "tests" / "pages" / "node_modules" / ".package-lock.json").exists():
        with step("Installing what checks the scripts of the pages"):
            subprocess.run([npm, "ci", "--silent", "--no-audit", "--no-fund"], cwd=folder, check=True)
    subprocess.run([npm, "run", "--silent", "lint"], cwd=folder, check=True)


def symbols(arguments: List[str]) -> None:
    """Makes our symbol tables of the declarations beside them; says which files are new, changed or gone."""
    # Only the standard library is needed. The folder of this file is where Python looks first.
    from symbols import isf

    try:
        changed = isf.update()
    except isf.DeclarationError as error:
        raise SystemExit(str(error)) from None
    print("\n".join(changed) or "Nothing has changed.")


def install_check(arguments: List[str]) -> None:
    """Installs the plugins in each way that README names, in environments that are thrown away."""
    python = testing()
    print("Each way to install, in about 5 minutes on two cores.", flush=True)
    options = ["-m", "install", "-rs", "--durations", "0", "--durations-min", "1"]
    # By file: the tests of one file share the environments that are made for them.
    run(
        python,
        ["-m", "pytest"] + options + (arguments or ["-n", "2", "--dist", "loadfile"]) + ["tests/install"],
    )


def docs(arguments: List[str]) -> None:
    """Builds the site of README and docs/; checks its links, and that it loads nothing from the network."""
    # Only the pages are read: Volatility is not needed.
    python = environment("docs", group("docs"))
    run(python, ["-m", "tests.docs", "site"])


def release(arguments: List[str]) -> None:
    """Makes the archives of the last commit and checks them; they appear in dist/ or in the folder named.

    A release in dist/ follows all tests: neither `test` nor a change runs all cases of each.
    """
    if not arguments:
        print("All cases of the tests take 30 to 60 minutes on two cores.", flush=True)
        test(["-n", "auto", "-m", "not install"])
    print("The archives take about 3 minutes on two cores.", flush=True)
    python = environment("release", requirements() + group("release") + build_requirements())
    run(python, ["-m", "release"] + [os.path.abspath(place) for place in arguments])


def upcoming(arguments: List[str]) -> None:
    """Runs the tests of the command line on the newest Volatility there is, also one that is not finished."""
    # A range that begins with a development version takes such versions, of this one package.
    others = [line for line in of_tests() if name_of(line) != "volatility3"]
    python = environment("next", others)
    least = next(re.split("[=,]+", line)[1] for line in requirements() if line.startswith("volatility3>="))
    with step("Installing the newest Volatility"):
        run(python, [*PIP, "install", "--quiet", "--upgrade", "volatility3>={}.dev0".format(least)])
    run(python, ["-m", "tests.upcoming"] + (arguments or ["-n", "auto"]))


def attack(arguments: List[str]) -> None:
    """Compares the techniques that checks name with ATT&CK."""
    run(testing(), ["-m", "tests.attack"])


def main(arguments: List[str]) -> None:
    """Runs the command that the first argument names."""
    commands = {
        "demo": demo,
        "test": test,
        "lint": lint,
        "lowest": lowest,
        "coverage": coverage,
        "attack": attack,
        "symbols": symbols,
        "docs": docs,
        "install-check": install_check,
        "release": release,
        "next": upcoming,
    }
    name = arguments[0] if arguments else ""
    if name == "help" or not {"-h", "--help"}.isdisjoint(arguments):
        print(__doc__)
    elif name in commands:
        commands[name](arguments[1:])
    else:
        print(__doc__, file=sys.stderr)
        raise SystemExit(2)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        print(file=sys.stderr)
        raise SystemExit(130) from None
