# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from .opening.opened import Opened as Opened
from .opening.opened import open as open
from .opening.volatility import InputError as InputError

VERSION: str
