# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from volatility3.plugins.windows import gflags, winstacks_library

GFlags = winstacks_library.options(__file__).plugin_of_dumps(
    __name__,
    gflags.GFlags,
    "Shows NtGlobalFlag of a process dump, and the stack trace databases that it enabled.",
)
