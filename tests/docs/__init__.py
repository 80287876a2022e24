# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""README and docs: what of them is made by a program, what they quote, and the site that is built of them."""
