# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""The structures that a word of Status names, and those whose names only resemble them."""

from __future__ import annotations

import pytest

from tests.hostile import tellings
from tests.hostile.cases import Case
from tests.hostile.members import Member
from tests.hostile.tellings import Telling
from tests.hostile.untold import Entry
from winstacks.memory.decode.statuscodes import StatusCode

NAMED = (
    (StatusCode.OUTSIDE_THE_STACK, "_ETHREAD.Tcb.StackLimit"),
    (StatusCode.OUTSIDE_THE_STACK, "_NT_TIB.StackBase"),
    (StatusCode.NO_SUCH_INDEX, "_ERESOURCE.CreatorBackTraceIndex"),
    (StatusCode.FLAGS_UNREADABLE, "_PEB.NtGlobalFlag"),
    (StatusCode.NO_NTDLL, "_PEB.Ldr"),
    (StatusCode.NOT_A_CONTEXT, "_TEB.TlsSlots.Blink"),
    (StatusCode.OBJECT_UNREADABLE, "_OBJECT_HEADER.InfoMask"),
)
NOT_NAMED = (
    (StatusCode.OUTSIDE_THE_STACK, "nt.RtlpStackTraceDataBase"),
    (StatusCode.CYCLE, "nt.ObpStackTable"),
    (StatusCode.NOT_BEHIND_A_CALL, "_HANDLE_TRACE_DEBUG_INFO.CurrentStackIndex"),
    (StatusCode.CANDIDATES, "_OBJECT_REF_INFO.MaxStacks"),
    (StatusCode.ADDRESS, "_RTLP_ADDRESS_WAIT_BLOCK.Address"),
    (StatusCode.FLAGS_UNREADABLE, "_PEB_LDR_DATA.InLoadOrderModuleList.Flink"),
    (StatusCode.NO_NTDLL, "_PEB.ProcessHeaps"),
    (StatusCode.NOT_A_CONTEXT, "_TEB.ClientId.UniqueProcess"),
    (StatusCode.OBJECT_UNREADABLE, "_OBJECT_REF_INFO.NextPos"),
    (StatusCode.OBJECT_TYPE_UNKNOWN, "nt.ObpObjectTable"),
    (StatusCode.RUNNING, "_ETHREAD.Tcb.State"),
)


def _member(name: str) -> Member:
    structure, _, path = name.partition(".")
    return Member(structure, path, "layer", 0x1000, 8, 0x1000)


@pytest.mark.parametrize(("word", "name"), NAMED)
def test_a_word_names_its_structures(word: StatusCode, name: str) -> None:
    assert tellings.named_by(Telling(word, ()), _member(name), ())


@pytest.mark.parametrize(("word", "name"), NOT_NAMED)
def test_a_word_excuses_no_write_elsewhere(word: StatusCode, name: str) -> None:
    """A Status about something else is no report, though a part of a name is the same."""
    assert not tellings.named_by(Telling(word, ()), _member(name), ())


def test_an_entry_of_one_plugin_excuses_no_other() -> None:
    found = Entry("_HEAP.Signature", "", "in `windows.tracefindings`: only the heap's own plugin reads it")
    case = Case("tracefindings", (_member("_HEAP.Signature"),), "zero", ())
    assert found.covers(case)
    assert not found.covers(case._replace(plugin="heaptraces"))
    assert found._replace(reason="nothing has it").covers(case._replace(plugin="heaptraces"))
