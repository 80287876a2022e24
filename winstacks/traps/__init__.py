# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Trap frames and contexts: the registers saved at an entry into the kernel, and which of them are valid."""
