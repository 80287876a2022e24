# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The limits of user stacks, where what leads to them is not known."""

from __future__ import annotations

from tests.support import bare
from winstacks.process.userstacks import narrow_teb


def test_a_process_without_page_tables_has_no_teb32() -> None:
    """Its DirectoryTableBase is in doubt, and its TEB was read from the kernel's structures."""
    image = bare.image(8)
    assert narrow_teb(image, image.kernel._replace(layer_name=""), 0x7FF0_0000_0000) == 0
