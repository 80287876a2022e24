# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from volatility3.plugins.windows import traceimage, winstacks_library

TraceImage = winstacks_library.options(__file__).plugin_of_dumps(
    __name__, traceimage.TraceImage, "Describes a process dump in one row."
)
