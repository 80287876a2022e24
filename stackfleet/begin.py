# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The program file with which Python starts a process of `stackfleet.child` or `stackfleet.agent_child`.

    python .../stackfleet/begin.py FOLDER MODULE

With `-c` and `-m` Python puts the current folder, where evidence may lie, first on its path. For a file it
puts the file's folder there. FOLDER contains the packages of the parent process.
"""

import importlib
import os
import sys


def main() -> None:
    """Imports the packages from FOLDER, and runs MODULE."""
    mine, packages, module = os.path.dirname(os.path.abspath(__file__)), *sys.argv[1:3]
    path = [folder for folder in sys.path if folder != mine]
    sys.path[:] = path if packages in path else [packages, *path]
    importlib.import_module(module).main()


if __name__ == "__main__":
    main()
