# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from volatility3.plugins.windows import handletraces, winstacks_library

HandleTraces = winstacks_library.options(__file__).plugin_of_dumps(
    __name__,
    handletraces.HandleTraces,
    "Lists who opened and closed the handles of a process dump, as Application Verifier recorded it.",
)
