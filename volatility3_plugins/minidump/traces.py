# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from volatility3.plugins.windows import traces, winstacks_library

StackTraces = winstacks_library.options(__file__).plugin_of_dumps(
    __name__, traces.StackTraces, "Lists every stack of a process dump in one flat table."
)
