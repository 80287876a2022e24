# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What everything else stands on: the image, its address spaces, memory, structures, symbol tables, VADs."""
