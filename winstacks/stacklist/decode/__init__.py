# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The schema of the flat tables and the definition of their keys: standard library only."""
