# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What plugins print: columns, cells and options. The only room that knows the renderers of Volatility."""
