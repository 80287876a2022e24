# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Pure decoders: bytes in, NamedTuples out. Standard library only; importable without Volatility."""
