# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from volatility3.plugins.windows import tracefindings, winstacks_library

TraceFindings = winstacks_library.options(__file__).plugin_of_dumps(
    __name__, tracefindings.TraceFindings, "Lists the suspicious stacks of a process dump, with the reasons."
)
