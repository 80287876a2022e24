# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Stack traces of many images: Dask reads the images, Parquet stores their tables, DuckDB queries them.

    stackfleet run IMAGES... -o LAKE
    stackfleet rare LAKE

The plugins of `volatility3_plugins` know nothing of this package; it needs the extra `fleet`.
"""

VERSION = "1.0.0"
"""Version of this package. It increases when a file of a lake changes its meaning."""
