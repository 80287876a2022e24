# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from volatility3.plugins.windows import trapframes, winstacks_library

TrapFrames = winstacks_library.options(__file__).plugin_of_dumps(
    __name__,
    trapframes.TrapFrames,
    "Lists the threads' registers in a dump, and the trap frames of a small kernel dump.",
)
