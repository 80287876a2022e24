# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Pictures and pages: prefix trees of stacks, and the files that are made of them.

All of it takes plain data and needs the standard library only. `page.css`, `flame.js` and `report.js` go into
each page as they are.
"""
