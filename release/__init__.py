# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What `dev.py release` makes of the last commit, and how that is checked. Users need nothing of it."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAME = "volatility3-stacktraces"


class ReleaseError(Exception):
    """What keeps the release from being made, in a sentence."""
