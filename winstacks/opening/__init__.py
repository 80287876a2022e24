# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Opens an image or a dump for programs: with Volatility, and without the steps that Volatility asks for."""
