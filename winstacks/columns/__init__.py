# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The dictionary of columns, the words that columns hold, and the columns of each table."""
