# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What checkers of types see of `namedtuples.py`: Python's own."""

from typing import NamedTuple as NamedTuple
