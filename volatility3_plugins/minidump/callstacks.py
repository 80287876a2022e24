# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from volatility3.plugins.windows import callstacks, winstacks_library

CallStacks = winstacks_library.options(__file__).plugin_of_dumps(
    __name__, callstacks.CallStacks, "Lists the call stacks of every thread of a process dump."
)
