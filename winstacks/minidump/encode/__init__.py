# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Encoders of minidumps: they take tuples and return bytes, as the decoders beside them take bytes."""
