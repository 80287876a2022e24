# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from volatility3.plugins.windows import locks, winstacks_library

Locks = winstacks_library.options(__file__).plugin_of_dumps(
    __name__, locks.Locks, "Lists the critical sections of a process dump."
)
