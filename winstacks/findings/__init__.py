# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Which stacks matter, and why: the list of the checks, their findings, and the facts that checks share."""
