# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Our own symbol tables (ISF): types that no public kernel PDB carries."""

from __future__ import annotations

import pathlib
from typing import Optional

from volatility3.framework import constants, interfaces
from volatility3.framework.symbols import intermed

SUB_PATH = "windows/stacktraces"
_BESIDE = pathlib.Path(__file__).resolve().parents[3] / "symbols" / SUB_PATH


class MissingTableError(FileNotFoundError):
    """One of our symbol tables is neither beside the code nor on the symbol path."""


def load(
    context: interfaces.context.ContextInterface,
    config_path: str,
    name: str,
    kernel_symbol_table: Optional[str] = None,
) -> str:
    """Loads `symbols/windows/stacktraces/<name>.json` once per context.

    A table beside the code wins over one on Volatility's symbol path (an older installed copy).

    Args:
        context: the context whose symbol space takes the table
        config_path: where the table's configuration goes
        name: the file's name without extension
        kernel_symbol_table: the kernel's table; its native types are used then

    Returns:
        The name of the table in the context's symbol space.

    Raises:
        MissingTableError: when the file is nowhere
    """
    table_name = f"stacktraces_{name}"
    if table_name in context.symbol_space:
        return table_name
    natives = context.symbol_space[kernel_symbol_table].natives if kernel_symbol_table else None
    table = intermed.IntermediateSymbolTable(
        context,
        interfaces.configuration.path_join(config_path, table_name),
        table_name,
        isf_url=find(name),
        native_types=natives,
    )
    context.symbol_space.append(table)
    return table_name


def find(name: str) -> str:
    """Returns the URL of one of our tables.

    Raises:
        MissingTableError: when the file is nowhere
    """
    for extension in constants.ISF_EXTENSIONS:
        beside = _BESIDE / (name + extension)
        if beside.is_file():
            return beside.as_uri()
    for url in intermed.IntermediateSymbolTable.file_symbol_url(SUB_PATH, name):
        return url
    raise MissingTableError(
        f"The symbol table {SUB_PATH}/{name} is missing: copy the 'symbols' folder beside the plugin folder"
    )
