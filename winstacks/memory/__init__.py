# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The base of all other rooms: the image, its address spaces, memory, structures and symbol tables."""
