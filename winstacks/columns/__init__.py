# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What all tables say: the dictionary of columns, the words that columns hold, the columns of each table."""
