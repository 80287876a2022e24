# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Volatility's searches of the pool, each made once for all plugins that run on an image as it is."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, Tuple
from unittest import mock

from volatility3.framework import interfaces
from volatility3.plugins.windows import poolscanner

Key = Tuple[Any, ...]


@contextlib.contextmanager
def made_once() -> Iterator[None]:
    """Inside, a search of a layer that came to its end is not made again."""
    search = poolscanner.PoolScanner.pool_scan
    found: Dict[Key, List[Any]] = {}

    def searched(
        context: interfaces.context.ContextInterface,
        kernel_module_name: str,
        layer_name: str,
        symbol_table: str,
        pool_constraints: List[poolscanner.PoolConstraint],
        **options: Any,
    ) -> Iterator[Any]:
        expected = tuple(repr(sorted(vars(pool_constraint).items())) for pool_constraint in pool_constraints)
        place = (id(context), kernel_module_name, layer_name, symbol_table)
        key = (*place, expected, repr(sorted(options.items())))
        if key in found:
            yield from found[key]
            return
        hits: List[Any] = []
        for hit in search(context, kernel_module_name, layer_name, symbol_table, pool_constraints, **options):
            hits.append(hit)
            yield hit
        found[key] = hits

    with mock.patch.object(poolscanner.PoolScanner, "pool_scan", searched):
        yield
