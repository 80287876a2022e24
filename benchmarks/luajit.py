# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Dumps of LuaJIT for Windows: built with mingw from Debian's source package, and run under Wine.

    python3 -m benchmarks.luajit FOLDER [SCENE...]

The folder is that of the reference data's setup.sh: it has Wine (w10.sh) and fastdump.exe. The variable
DEBIAN_MIRROR of the environment names a mirror of Debian. LuaJIT's code has no unwind data and is registered
nowhere, so that a scan has to find its caller; StackWalk64 ends there. `benchmarks.realprocesses` reads the
dumps, FOLDER/dumps/luajit_SCENE.dmp.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import subprocess
import time
from typing import Optional, Sequence

_FFI = (
    "local ffi = require 'ffi'; ffi.cdef 'void Sleep(int);'; local C = ffi.C; jit.opt.start('hotloop=2'); "
    "local function naps() for i = 1, 1000 do C.Sleep(30) end end; "
)

SCENES = {
    "numbers": "local x = 0; while true do for i = 1, 1e8 do x = (x * 31 + i) % 1000003 end end",
    "strings": "local function twice(c) return c .. c end; "
    "while true do for i = 1, 1e5 do ('x' .. i):rep(3):gsub('x', twice) end end",
    "interpreted": "jit.off(); local function f(n) return n < 2 and n or f(n - 1) + f(n - 2) end; "
    "while true do pcall(f, 32) end",
    "naps": f"{_FFI}while true do naps() end",
    "coroutine": f"{_FFI}local function body() while true do pcall(naps); coroutine.yield() end end; "
    "local co = coroutine.wrap(body); while true do co() end",
}
"""Programs: compiled code that computes, that calls the runtime, and that waits in Windows; and bytecode."""

PROGRAM = "luajit.exe"
_BUILT = (PROGRAM, "lua51.dll")
_SECONDS = 5
_MOST_SECONDS = 600
_CROSS = "x86_64-w64-mingw32-"


def build(folder: pathlib.Path, mirror: str) -> None:
    """Builds LuaJIT in a folder.

    Args:
        folder: receives the program and its DLL
        mirror: a mirror of Debian
    """
    work = folder / "source"
    for name in ("lists/partial", "archives/partial"):
        (work / name).mkdir(parents=True, exist_ok=True)
    (work / "sources.list").write_text(f"deb-src {mirror} trixie main\n", encoding="utf-8")
    apt = ["apt-get", "-q", "-o", f"Dir::State::lists={work}/lists", "-o", f"Dir::Cache={work}"]
    apt += ["-o", f"Dir::Etc::SourceList={work}/sources.list", "-o", "Dir::Etc::SourceParts=-"]
    subprocess.run([*apt, "update"], check=True)
    # A mirror may have the program's own archive and lack Debian's changes, which are not needed.
    subprocess.run([*apt, "source", "--download-only", "luajit"], cwd=work, check=False)
    archive = next(work.glob("luajit_*.orig.tar.*"))
    subprocess.run(["tar", "xf", archive.name, "--strip-components=1"], cwd=work, check=True)
    make = ["make", "HOST_CC=gcc", f"CROSS={_CROSS}", "TARGET_SYS=Windows"]
    subprocess.run(make, cwd=work, check=True)
    for name in _BUILT:
        subprocess.run([f"{_CROSS}strip", "-o", folder / name, work / "src" / name], check=True)


def dump(home: pathlib.Path, scene: str, seconds: float = _SECONDS) -> str:
    """Runs a scene, dumps it while it works, and ends it; returns what fastdump.exe printed.

    Args:
        home: the folder of setup.sh
        scene: a name of SCENES
        seconds: how long the scene runs before it is dumped
    """
    wine = str(home / "w10.sh")
    command = [wine, f"prog/luajit/{PROGRAM}", "-e", SCENES[scene]]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True) as run:
        try:
            time.sleep(seconds)
            files = [f"dumps/luajit_{scene}{suffix}" for suffix in (".dmp", ".json")]
            made = _run([wine, "fastdump.exe", PROGRAM, *files])
            _run([wine, "taskkill", "/f", "/im", PROGRAM])
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
    return made


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=_MOST_SECONDS)
    return done.stdout.decode(errors="replace").strip()


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Builds LuaJIT if it is not there, and dumps the scenes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="the folder of setup.sh")
    parser.add_argument("scenes", nargs="*", help=f"of {', '.join(SCENES)}; all by default")
    given = parser.parse_args(arguments)
    program = given.folder / "prog" / "luajit"
    if not (program / PROGRAM).exists():
        build(program, os.environ["DEBIAN_MIRROR"])
    for scene in given.scenes or SCENES:
        print(scene, dump(given.folder, scene), flush=True)


if __name__ == "__main__":
    main()
