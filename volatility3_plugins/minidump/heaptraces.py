# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from volatility3.plugins.windows import heaptraces, winstacks_library

HeapTraces = winstacks_library.options(__file__).plugin_of_dumps(
    __name__,
    heaptraces.HeapTraces,
    "Lists the heap blocks of a process dump by the stacks that allocated them.",
)
