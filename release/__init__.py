# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""`dev.py release`: makes and checks a release of the last commit. Users do not need it."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAME = "volatility3-stacktraces"


class ReleaseError(Exception):
    """The reason why a release cannot be made, as a sentence."""
