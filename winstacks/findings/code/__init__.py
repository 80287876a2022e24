# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The code at an address: copies, jumps, stubs, relays and runtimes, and what explains private code."""
