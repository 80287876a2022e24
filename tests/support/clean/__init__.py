# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Clean images: what a Windows without any implant holds and what resembles one. `images.build` makes one.

Each situation is a function that adds processes to a `host64.Host64` or a `host86.Host86`. Its docstring says
what a real Windows leaves there, and why. It returns what the image must show of it.
"""
