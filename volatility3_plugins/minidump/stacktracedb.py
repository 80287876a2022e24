# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from volatility3.plugins.windows import stacktracedb, winstacks_library

StackTraceDb = winstacks_library.options(__file__).plugin_of_dumps(
    __name__, stacktracedb.StackTraceDb, "Lists the stack trace databases of a process dump."
)
