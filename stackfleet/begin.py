# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The file that Python is given as the program of a process of `stackfleet.child`.

    python .../stackfleet/begin.py FOLDER

Python puts the current folder first on its path for `-c` and `-m`, and evidence may lie there. For a file, it
puts the folder of the file there. FOLDER has the packages of the process that started this one.
"""

import os
import sys


def main() -> None:
    """Imports the packages from FOLDER, and does the work."""
    mine, packages = os.path.dirname(os.path.abspath(__file__)), sys.argv[1]
    path = [each for each in sys.path if each != mine]
    sys.path[:] = path if packages in path else [packages, *path]
    from stackfleet.child import main as work

    work()


if __name__ == "__main__":
    main()
