# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Where the performance figures come from. Importing this puts the checkout's plugins in front."""

import tests.conftest  # noqa: F401
