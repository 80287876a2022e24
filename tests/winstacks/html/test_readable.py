# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Pages show decorated names of C++ as debuggers do, if the package `demangle` is installed.

The names are exports of node.exe 22; LLVM's demangler gives the same qualified names.
"""

from __future__ import annotations

from typing import Iterator

import pytest

from winstacks.html import readable
from winstacks.html.readable import undecorate

WRITABLE = "node!?writable@PropertyDescriptor@v8@@QBE_NXZ+0x8377e"
TEMPLATE = (
    "node!??$MakeCheckOpString@HH@base@v8@@YAPEAV?$basic_string@DU?$char_traits@D@std@@V?$allocator@D@2@@std@@"
    "HHPEBD@Z"
)


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    undecorate.cache_clear()
    yield
    undecorate.cache_clear()


@pytest.mark.parametrize(
    ("symbol", "expected"),
    [
        (WRITABLE, "node!v8::PropertyDescriptor::writable+0x8377e"),
        ("node!??1SnapshotCreator@v8@@QEAA@XZ", "node!v8::SnapshotCreator::~SnapshotCreator"),
        (TEMPLATE, "node!v8::base::MakeCheckOpString<int, int>"),
        ("node!??_7NameProvider@cppgc@@6B@", "node!??_7NameProvider@cppgc@@6B@"),
        ("ntdll!NtWaitForSingleObject+0x14", "ntdll!NtWaitForSingleObject+0x14"),
        ("tool!?broken+0x5", "tool!?broken+0x5"),
        ("tool!?" + "A" * 5000, "tool!?" + "A" * 5000),
        ("<private>", "<private>"),
    ],
)
def test_names(symbol: str, expected: str) -> None:
    pytest.importorskip("demangle")
    assert undecorate(symbol) == expected


def test_without_the_package_the_name_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readable, "_reader", lambda: None)
    assert undecorate(WRITABLE) == WRITABLE
