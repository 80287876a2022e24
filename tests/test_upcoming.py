# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""What `dev.py next` says of a Volatility that breaks the plugins."""

from __future__ import annotations

from volatility3.framework import contexts
from volatility3.framework.configuration import requirements
from volatility3.plugins.windows import pslist

from tests import upcoming
from tests.support.only import only

REPORT = """<testsuites><testsuite>
<testcase classname="tests.windows.test_a" name="test_one">
<failure message="AssertionError: vol ended with 1">
Unsatisfied requirement plugins.GFlags.pslist: Version 3.0.0 dependency on volatility3.x.PsList unmet
E   AssertionError: vol ended with 1</failure></testcase>
<testcase classname="tests.windows.test_a" name="test_two"/>
<testcase classname="tests.windows.test_b" name="test_three"><error message="failed on setup">
Unsatisfied requirement plugins.Locks.pslist: Version 3.0.0 dependency on volatility3.x.PsList unmet
ImportError: cannot import name 'classproperty' from 'volatility3'
E   the last line</error></testcase>
<testcase classname="tests.windows.test_b" name="test_four">
<failure message="">E assert 1 == 2</failure><system-err>
RuntimeError: Framework interface version 3.28 is incompatible with required version 2.0
</system-err></testcase>
</testsuite></testsuites>"""


def test_what_broke_is_named_once_with_its_tests() -> None:
    lines = upcoming.summary(upcoming.failures(REPORT))
    assert lines == [
        "   2 tests: Version 3.0.0 dependency on volatility3.x.PsList unmet",
        "   1 tests: Framework interface version 3.28 is incompatible with required version 2.0",
        "   1 tests: cannot import name 'classproperty' from 'volatility3'",
        "tests.windows.test_a.test_one: E   AssertionError: vol ended with 1",
        "tests.windows.test_b.test_three: E   the last line",
        "tests.windows.test_b.test_four: E assert 1 == 2",
    ]


def test_nothing_broke() -> None:
    assert upcoming.summary(upcoming.failures("<testsuites><testsuite/></testsuites>")) == []


def test_an_unmet_version_is_said_as_volatility_says_it() -> None:
    """The sentence is Volatility's own: a plugin of another major version is asked for here."""
    version_requirement = requirements.VersionRequirement(
        name="pslist", component=pslist.PsList, version=(99, 0, 0)
    )
    context = contexts.Context()
    unmet = version_requirement.unsatisfied(context, "plugins.GFlags")
    assert unmet
    path = only(unmet)
    message = f"Unsatisfied requirement {path}: {unmet[path].description}"
    broken = only(upcoming.broken(message))
    assert broken.startswith("Version 99.0.0 dependency on ") and "PsList" in broken
