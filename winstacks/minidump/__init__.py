# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Dumps of one process (minidumps): their streams, and the services that they provide instead of a kernel."""
