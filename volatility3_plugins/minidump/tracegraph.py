# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from volatility3.plugins.windows import tracegraph, winstacks_library

TraceGraph = winstacks_library.options(__file__).plugin_of_dumps(
    __name__, tracegraph.TraceGraph, "Draws the stacks of a process dump as a flame graph."
)
