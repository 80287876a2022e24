# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Walking stacks: x64 by unwind data, x86 by frame pointers and code."""
