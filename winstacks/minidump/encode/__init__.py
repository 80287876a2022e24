# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Encoders of minidumps: tuples in, bytes out, the inverse of the decoders beside them."""
