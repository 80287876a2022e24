# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""See the package."""

from __future__ import annotations

import hashlib
import importlib
import pathlib
import signal
import sys
import tempfile
import time
from typing import Callable, Dict, List

import atheris

from tests import fuzz
from tests.conftest import ROOT
from tests.hostile import forking

LIBRARY = ROOT / "winstacks"
DECODERS = [f"winstacks.{path.parent.name}.decode" for path in sorted(LIBRARY.glob("*/decode"))]
OF_LAKES = ["stackfleet.manifests", "stackfleet.lakefolder", "stackfleet.store", "stackfleet.digests"]

with atheris.instrument_imports(include=[*DECODERS, *OF_LAKES, "symbols.isf"]):
    from tests.fuzz import corpus
    from tests.hostile import decoders
    from tests.hostile.decoders import Target

    for module in OF_LAKES if decoders.lakes.targets() else ():
        importlib.import_module(module)

FINDS = pathlib.Path(__file__).resolve().parent / "finds"
ALL = "all"
SECONDS_OF_ONE = 10
"""Of processor time, whatever else the machine does."""

SECONDS_WITHOUT_END = 3600
"""By the clock, which goes on while other programs have the processor."""
MEGABYTES = 1024
"""Beyond the peak that this process has when it begins: Linux hands that of its parent down to it."""


def main(arguments: List[str]) -> None:
    """Fuzzes the decoder that the arguments name; does not return."""
    targets = decoders.targets()
    choices = {name: {name: target} for name, target in targets.items()}
    choices.update({**decoders.groups(), ALL: targets})
    if arguments == ["list"]:
        print("\n".join(choices))
        return
    seed = [argument for argument in arguments if argument.startswith("-seed=")]
    positional = [argument for argument in arguments if argument not in seed]
    if len(positional) not in (2, 3) or positional[0] not in choices:
        raise SystemExit(fuzz.__doc__)
    name, seconds, *kept = positional
    chosen = choices[name]
    several = len(chosen) > 1
    FINDS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        longest = _seeds(pathlib.Path(folder), chosen, several)
        options = [*seed, f"-timeout={SECONDS_WITHOUT_END}", f"-max_len={longest + 64}"]
        # libFuzzer measures by the clock, too.
        options.append(f"-report_slow_units={SECONDS_WITHOUT_END}")
        # For what ends the process: other finds are written where they are met.
        options += [
            f"-rss_limit_mb={forking.megabytes() + MEGABYTES:.0f}",
            f"-artifact_prefix={folder if several else FINDS}/{name}.",
        ]
        # New inputs go into the first folder.
        atheris.Setup([sys.argv[0], *kept, folder, *options], _decoder(name, chosen, float(seconds)))
        atheris.Fuzz()


def _seeds(folder: pathlib.Path, chosen: Dict[str, Target], several: bool) -> int:
    """Writes what fuzzing begins with; returns the length of the longest."""
    longest = 0
    for number, target in enumerate(chosen.values()):
        for place, seed in enumerate([*target.seeds(), *corpus.kept(target.name).values()]):
            data = bytes((number,)) + seed if several else seed
            (folder / f"{target.name}.{place}").write_bytes(data)
            longest = max(longest, len(data))
    return longest


def _decoder(name: str, chosen: Dict[str, Target], seconds: float) -> Callable[[bytes], None]:
    """Returns what is fuzzed, for so long: of several decoders the first byte of an input chooses one."""
    targets = list(chosen.values())
    several = len(targets) > 1
    begun = time.process_time()
    ended = False

    def end() -> None:
        nonlocal ended
        ended = True
        print(f"{name}: {time.process_time() - begun:.0f} s of processor time", file=sys.stderr, flush=True)

    def decode(data: bytes) -> None:
        if several and not data:
            return
        target = targets[data[0] % len(targets)] if several else targets[0]
        rest = data[1:] if several else data
        start = time.process_time()
        try:
            target.decode(rest, b"")
            assert time.process_time() - start < SECONDS_OF_ONE, "slow"
        except Exception:
            (FINDS / f"{target.name}.{hashlib.sha256(rest).hexdigest()[:16]}").write_bytes(rest)
            end()
            raise
        if not ended and time.process_time() - begun > seconds:
            end()
            # libFuzzer's own way to be asked to end.
            signal.raise_signal(signal.SIGUSR1)

    return decode


if __name__ == "__main__":
    main(sys.argv[1:])
