# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The library under the plugins: a folder ("room") for each subject, with its pure decoders in `decode`."""

VERSION = "4.0.0"
"""Version of the package: of the library, and of the plugins that use it."""
