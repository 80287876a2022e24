# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Every pair of image format, kernel table, real database and way to find it, through the command line.

    python3 -m tests.pairwise [NUMBER OF RUNS AT ONCE]

Needs the reference data beside the checkout. Prints a table of what ran and what failed.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import pathlib
import sys
import tempfile
from typing import Dict, Iterable, List, NamedTuple, Set, Tuple

from tests.conftest import SHARED
from tests.forge import isf, kernels, real_sets, vol
from tests.forge.dump import BITMAP, Image
from tests.forge.kernel import Kernel
from tests.support import realtruth

FORMATS = {"raw": "a.raw", "raw.xz": "a.raw.xz", "dmp": "a.dmp", "dmp.xz": "a.dmp.xz", "bitmap": "a.dmp"}


class Case(NamedTuple):
    """One run."""

    form: str
    kernel: str
    database: str
    located: str

    @property
    def pairs(self) -> Set[Tuple[Tuple[int, str], Tuple[int, str]]]:
        """The pairs of properties that this run covers."""
        return set(itertools.combinations(enumerate(self), 2))


def all_cases() -> List[Case]:
    """Returns what can be combined: a 64-bit database needs a 64-bit kernel, a kernel's one its own."""
    tables: Dict[str, str] = {name: identity.arch for name, identity in kernels.KERNELS.items()}
    for path in sorted((SHARED / "isf/symbols/windows").glob("ntkrnl*.pdb/*.json.xz")):
        tables[str(path)] = "x64" if isf.load(path).pointer_size == 8 else "x86"
    sets = [real_sets.load(path) for path in sorted((SHARED / "real_std").glob("*.tar.xz"))]
    found = []
    for form, (kernel, arch), real in itertools.product(FORMATS, tables.items(), sets):
        is_kernel = real.truth["kind"] == "kernel"
        if (form == "bitmap" and arch == "x86") or (real.truth["arch"] == "x64" and arch == "x86"):
            continue
        if is_kernel and not ("xp" in kernel or "ntkrnlpa" in kernel):
            continue
        for located in ("symbol",) if is_kernel else ("symbol", "search"):
            found.append(Case(form, kernel, real.name, located))
    return found


def choose(cases: Iterable[Case]) -> List[Case]:
    """Returns few cases that together cover every pair that occurs."""
    left = list(cases)
    expected = set().union(*(case.pairs for case in left))
    chosen = []
    while expected:
        best = max(left, key=lambda case: len(case.pairs & expected))
        expected -= best.pairs
        chosen.append(best)
    return chosen


def forge(case: Case) -> Image:
    """Returns the image of a case."""
    real = real_sets.load(SHARED / "real_std" / f"{case.database}.tar.xz")
    symbols = case.located == "symbol"
    if case.kernel in kernels.KERNELS:
        return realtruth.image_of(real, case.kernel, symbols)
    identity = kernels.real(pathlib.Path(case.kernel))
    options = {**identity.options(), **real.kernel_options()}
    if real.truth["kind"] == "kernel":
        options.pop("base", None)
        return real_sets.kernel_of(real, identity.table, **options).image()
    kernel = Kernel(identity.table, **options)
    real_sets.process(kernel, real, pid=1000, symbols=symbols)
    return kernel.image()


def execute(case: Case) -> str:
    """Runs a case; returns what is wrong, or nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        image = forge(case)
        file = image.save(folder / FORMATS[case.form], bitmap=BITMAP if case.form == "bitmap" else 0)
        result = vol.run(file, "windows.stacktracedb", symbols=image.install(folder / "symbols"))
        if result.returncode:
            return result.stderr.strip().splitlines()[-1]
        real = real_sets.load(SHARED / "real_std" / f"{case.database}.tar.xz")
        try:
            realtruth.check(result.rows, real.truth)
        except (AssertionError, ValueError) as error:
            return f"rows differ: {error}".splitlines()[0]
    return ""


def main(workers: int) -> int:
    """Runs the chosen cases and prints the table."""
    chosen = choose(all_cases())
    failed = 0
    with concurrent.futures.ProcessPoolExecutor(workers) as pool:
        for case, wrong in zip(chosen, pool.map(execute, chosen)):
            failed += bool(wrong)
            kernel = pathlib.Path(case.kernel).name.split(".")[0]
            print(f"{case.form:8}{kernel:36}{case.database:24}{case.located:8}{wrong or 'exact'}", flush=True)
    pairs = set().union(*(case.pairs for case in chosen))
    print(f"{len(chosen)} runs cover {len(pairs)} pairs: {len(chosen) - failed} exact, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2))
