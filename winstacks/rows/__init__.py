# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The output of plugins: columns, cells and options. The only room that knows the renderers of Volatility."""
