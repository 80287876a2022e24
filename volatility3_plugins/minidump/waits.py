# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from volatility3.plugins.windows import waits, winstacks_library

WaitChains = winstacks_library.options(__file__).plugin_of_dumps(
    __name__,
    waits.WaitChains,
    "Lists the waiting threads of a process dump, what each waits for, and who owns it.",
)
