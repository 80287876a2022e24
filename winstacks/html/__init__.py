# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Pictures and pages: prefix trees of stacks, and the files made from them.

The modules take plain data and need only the standard library. `page.css` and the scripts are copied into
each page unchanged.
"""
