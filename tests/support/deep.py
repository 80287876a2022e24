# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Tests that repeat a claim on more cases.

Each of these runs some cases by `python3 dev.py test`, and all by `.ci/run`: on more images and kernels, with
more damage, for more orders of events. They have the marker `deep`, which `-m "not install"` takes in.
"""

from __future__ import annotations

import collections
from typing import Counter, Dict, List

import pytest

FIRST: Dict[str, int] = {
    "tests/docs/test_pages.py::test_commands_print_what_stands_there": 8,
    "tests/fleet/test_cluster.py::test_a_worker_of_another_version_that_joins_later_gets_no_work": 0,
    "tests/fleet/test_cluster.py::test_the_second_run_does_only_what_was_unfinished": 1,
    "tests/fleet/test_hostile_lake.py::test_a_run_stays_in_its_lake": 3,
    "tests/fleet/test_night.py": 0,
    "tests/fleet/test_obstacles.py::test_a_wrong_word_is_answered_by_the_right_ones": 2,
    "tests/fleet/test_power.py::test_damaged_tables_are_read_again": 2,
    "tests/fuzz/test_fuzz.py": 0,
    "tests/golden/test_golden.py::test_outputs": 10,
    "tests/hostile/test_amplifiers.py::test_amplifier": 6,
    "tests/hostile/test_names.py::test_every_plugin": 0,
    "tests/hostile/test_sample.py::test_what_is_silent_cannot_be_told": 1,
    "tests/hostile/test_tiers.py::test_command_line": 0,
    "tests/hostile/test_tiers.py::test_plugins": 1,
    "tests/hostile/test_undamaged.py::test_of_a_forged_image": 12,
    "tests/hostile/test_undamaged.py::test_of_a_real_set": 4,
    "tests/minidump/test_hostile.py::test_a_write_costs_no_run": 12,
    "tests/minidump/test_of_images.py::test_rows_are_those_of_the_image": 5,
    "tests/test_contrib.py::test_a_change_passes_its_tests_and_serves_our_plugins": 1,
    "tests/test_contrib.py::test_our_plugins_run_on_all_changes_together": 0,
    "tests/test_cost.py::test_cost_grows_as_the_image_does": 5,
    "tests/windows/test_missing_symbols.py::test_what_is_lacking_costs_what_needs_it_and_is_named": 1,
    "tests/windows/test_pipelines.py::test_what_windows_wrote": 4,
    "tests/windows/test_stacktracedb_real.py::test_every_set_comes_back_exactly": 12,
    "tests/windows/test_traces_everywhere.py": 6,
    "tests/windows/test_traces_real.py::test_every_set": 5,
    "tests/windows/test_traces_real.py::test_every_set_with_all_options": 3,
    "tests/winstacks/names/decode/test_peimage.py::test_headers_pdb_and_checksum_are_as_pefile_reads_them": 2,
    "tests/winstacks/names/decode/test_peimage.py::test_pages_of_a_moved_program_are_as_pefile_maps_them": 2,
    "tests/winstacks/stacks/test_files.py::test_files_bring_back_the_frames_that_are_lost": 0,
    "tests/winstacks/tracedb/decode/test_database_damage.py::test_greatest_loss": 24,
}
"""How many cases of a test, or of each test of a file, run by default: the first ones."""


def mark(items: List[pytest.Item]) -> None:
    """Gives the marker `deep` to the cases of tests that do not run by default."""
    seen: Counter[str] = collections.Counter()
    for item in items:
        name = item.nodeid.partition("[")[0]
        seen[name] += 1
        most = FIRST.get(name, FIRST.get(name.partition("::")[0]))
        if most is not None and seen[name] > most:
            item.add_marker("deep")
