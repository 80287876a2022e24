# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Pictures and pages: prefix trees of stacks, and the files that are made of them.

All of it takes plain data and needs the standard library only. Each module is a package of its own, which
Volatility does not import at its start. `page.css`, `flame.js` and `report.js` go into each page as they are.
"""
