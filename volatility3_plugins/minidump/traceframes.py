# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from volatility3.plugins.windows import traceframes, winstacks_library

TraceFrames = winstacks_library.options(__file__).plugin_of_dumps(
    __name__, traceframes.TraceFrames, "Lists every frame of every stack of a process dump in one flat table."
)
