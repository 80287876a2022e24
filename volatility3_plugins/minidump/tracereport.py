# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0

from volatility3.plugins.windows import tracereport, winstacks_library

TraceReport = winstacks_library.options(__file__).plugin_of_dumps(
    __name__,
    tracereport.TraceReport,
    "Writes a one-page report on a process dump: findings, flame graph, threads, locks and heaps.",
)
