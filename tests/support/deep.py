# This file is licensed under the Volatility Software License 1.0,
# available at https://www.volatilityfoundation.org/license/vsl-v1.0
"""Tests that repeat a claim on more cases: more images and kernels, more damage, more orders of events.

Of each of these `python3 dev.py test` runs some cases, `.ci/run` more, and `python3 dev.py release` all. What
`dev.py test` leaves out has the marker `deep`. What `.ci/run` leaves out has the marker `release`, too; at
least one case of each test is there. Tests that make their cases ask `rounds` how many.
"""

from __future__ import annotations

import collections
from typing import Counter, Dict, List, Sequence, TypeVar

import pytest

T = TypeVar("T")

FIRST: Dict[str, int] = {
    "tests/docs/test_jsonschemas.py::test_real_dumps_give_what_the_schemas_say": 4,
    "tests/docs/test_pages.py::test_commands_print_what_stands_there": 1,
    "tests/fleet/test_absent_values.py::test_a_column_that_may_be_null_ends_no_command": 3,
    "tests/fleet/test_agent_forms.py::test_orders_in_an_image_stay_text_of_the_image": 4,
    "tests/fleet/test_agents.py::test_a_tool_gives_the_rows_of_its_command": 3,
    "tests/fleet/test_agents.py::test_stacks_are_chosen": 3,
    "tests/fleet/test_cluster.py::test_a_killed_worker_costs_nothing": 0,
    "tests/fleet/test_cluster.py::test_a_worker_of_another_version_is_refused_before_work": 0,
    "tests/fleet/test_cluster.py::test_a_worker_of_another_version_that_joins_later_gets_no_work": 0,
    "tests/fleet/test_cluster.py::test_the_second_run_does_only_what_was_unfinished": 0,
    "tests/fleet/test_dumps.py::test_cut_files_are_not_like_whole_ones": 0,
    "tests/fleet/test_hostile_lake.py::test_a_file_harms_its_own_image_only": 5,
    "tests/fleet/test_hostile_lake.py::test_a_log_leads_nowhere": 4,
    "tests/fleet/test_hostile_lake.py::test_a_manifest_harms_its_own_image_only": 5,
    "tests/fleet/test_hostile_lake.py::test_a_query_reaches_no_file": 3,
    "tests/fleet/test_hostile_lake.py::test_pages_with_rows_of_another_image": 2,
    "tests/fleet/test_hostile_lake.py::test_values_of_one_image_end_no_command": 2,
    "tests/fleet/test_hostile_lake.py::test_what_changes_a_lake_stays_in_it": 3,
    "tests/fleet/test_lake.py::test_a_damaged_file_takes_its_own_images_only": 5,
    "tests/fleet/test_night.py": 0,
    "tests/fleet/test_obstacles.py::test_one_wrong_path_does_not_keep_others_from_being_read": 1,
    "tests/fleet/test_obstacles.py::test_what_one_of_two_equal_files_still_has_is_not_replaced": 0,
    "tests/fleet/test_planted.py::test_a_run_beside_evidence_runs_none_of_it": 1,
    "tests/fleet/test_processes.py::test_a_timeout": 1,
    "tests/fleet/test_processes.py::test_the_program_is_ended": 1,
    "tests/fleet/test_questions.py::test_the_sql_that_is_shown_gives_the_same_rows": 2,
    "tests/fleet/test_recipes.py::test_the_loop_over_vol_keeps_what_failed": 0,
    "tests/fleet/test_run.py::test_runs_with_other_symbol_folders_leave_each_other_their_tables": 0,
    "tests/fleet/test_run.py::test_wrong_use": 5,
    "tests/fleet/test_unfolding.py::test_a_file_that_unfolds_to_gigabytes_is_left_out": 4,
    "tests/fleet/test_unfolding.py::test_every_command_refuses_it": 3,
    "tests/forge/test_config.py::test_a_configured_image_opens": 1,
    "tests/forge/test_images.py::test_every_format_opens": 2,
    "tests/forge/test_images.py::test_kernel_is_found_without_one_hint": 1,
    "tests/forge/test_images.py::test_real_tables": 1,
    "tests/forge/test_kernels.py::test_schema": 2,
    "tests/fuzz/test_fuzz.py": 0,
    "tests/golden/test_golden.py::test_outputs": 0,
    "tests/hostile/test_amplifiers.py::test_amplifier": 1,
    "tests/hostile/test_names.py::test_every_plugin": 0,
    "tests/hostile/test_no_findings.py::test_of_a_forged_image": 6,
    "tests/hostile/test_no_findings.py::test_of_a_real_set": 2,
    "tests/hostile/test_no_findings.py::test_where_pages_are_missing": 3,
    "tests/hostile/test_sample.py::test_nobody_else_is_harmed": 1,
    "tests/hostile/test_sample.py::test_the_sample_tries_what_matters": 1,
    "tests/hostile/test_sample.py::test_what_is_silent_cannot_be_told": 1,
    "tests/hostile/test_tamper.py::test_it_is_said": 24,
    "tests/hostile/test_tiers.py::test_command_line": 0,
    "tests/hostile/test_tiers.py::test_plugins": 0,
    "tests/hostile/test_undamaged.py::test_of_a_forged_image": 4,
    "tests/hostile/test_undamaged.py::test_of_a_real_set": 1,
    "tests/hostile/test_undamaged.py::test_of_real_trap_frames": 1,
    "tests/minidump/test_arm64.py::test_process_dump_has_the_stack_of_its_thread": 4,
    "tests/minidump/test_bitmaps.py::test_rows_of_the_kernel_are_those_of_a_full_dump": 0,
    "tests/minidump/test_cli.py::test_each_plugin": 2,
    "tests/minidump/test_crash_first.py::test_findings_graph_and_report_take_it": 4,
    "tests/minidump/test_crash_first.py::test_flat_tables_and_keys": 4,
    "tests/minidump/test_halves.py::test_call_stacks": 2,
    "tests/minidump/test_hostile.py::test_a_write_costs_no_run": 2,
    "tests/minidump/test_of_images.py::test_rows_are_those_of_the_image": 2,
    "tests/minidump/test_small_hostile.py::test_a_write_costs_no_run": 2,
    "tests/minidump/test_symbols_from.py::test_names_of_all_functions": 2,
    "tests/minidump/test_waits.py::test_every_wait": 8,
    "tests/minidump/test_waits.py::test_the_same_structures_with_registers_of_arm64": 4,
    "tests/test_contrib.py::test_a_change_passes_its_tests_and_serves_our_plugins": 0,
    "tests/test_contrib.py::test_our_plugins_run_on_all_changes_together": 0,
    "tests/test_contrib.py::test_without_a_change_its_tests_fail": 1,
    "tests/test_cost.py::test_cost_grows_as_the_image_does": 2,
    "tests/test_cost.py::test_no_more_is_done_than_is_needed": 5,
    "tests/test_cost.py::test_nothing_is_done_once_more_for_more": 5,
    "tests/test_cost.py::test_progress_is_told": 5,
    "tests/test_packaging.py::test_an_upgrade_leaves_nothing_of_the_old_version": 0,
    "tests/test_startup.py::test_a_library_that_cannot_be_used_is_said_in_a_sentence": 3,
    "tests/windows/test_brief.py::test_no_line_is_wider_than_the_terminal": 60,
    "tests/windows/test_brief.py::test_only_the_pretty_renderer_gets_cells_of_several_lines": 40,
    "tests/windows/test_brief.py::test_json_is_not_cut": 4,
    "tests/windows/test_brief.py::test_status_is_whole": 8,
    "tests/windows/test_database_figures.py::test_figures_listing_and_dump_agree": 0,
    "tests/windows/test_files_and_tables.py::test_a_full_disk_makes_the_command_fail": 1,
    "tests/windows/test_heaptraces_real.py::test_growth_since_an_earlier_log": 0,
    "tests/windows/test_heaptraces_truth.py::test_every_block_is_as_the_calls_made_it": 2,
    "tests/windows/test_locks.py::test_dump_is_what_windows_would_return": 1,
    "tests/windows/test_locks_real.py::test_through_the_command_line": 1,
    "tests/windows/test_missing_symbols.py::test_a_member_costs_what_it_holds": 1,
    "tests/windows/test_missing_symbols.py::test_types_that_nobody_asks_for_are_not_needed": 0,
    "tests/windows/test_missing_symbols.py::test_what_is_lacking_costs_what_needs_it_and_is_named": 0,
    "tests/windows/test_owners_hostile.py::test_nothing_of_it_breaks_or_stalls_a_plugin": 4,
    "tests/windows/test_owners_real.py::test_every_real_table_has_what_is_read": 1,
    "tests/windows/test_pipelines.py::test_what_windows_wrote": 1,
    "tests/windows/test_smeared.py::test_some_row_of_it_says_so": 4,
    "tests/windows/test_smeared.py::test_what_ends_meanwhile_is_said_to_disagree": 16,
    "tests/windows/test_stacktracedb_layouts.py::test_every_layout_in_every_place": 3,
    "tests/windows/test_stacktracedb_real.py::test_every_set_comes_back_exactly": 2,
    "tests/windows/test_stacktracedb_real.py::test_one_changed_frame_is_noticed": 1,
    "tests/windows/test_stacktracedb_real.py::test_the_committed_sets_come_back_exactly": 1,
    "tests/windows/test_tampered_copies.py::test_unwind_data_that_one_process_changed_takes_no_frame_elsewhere": 1,  # noqa: E501
    "tests/windows/test_tracefindings.py::test_vol_shows_the_implant_and_the_driver_at_the_top": 1,
    "tests/windows/test_tracefindings_clean.py::test_every_situation_is_there": 2,
    "tests/windows/test_tracefindings_clean.py::test_nothing_is_found_above_low": 2,
    "tests/windows/test_tracefindings_clean.py::test_where_three_pages_of_ten_are_missing": 1,
    "tests/windows/test_traceimage.py::test_counts_are_those_of_the_traces": 4,
    "tests/windows/test_tracereport.py::test_a_damaged_image_has_a_page": 1,
    "tests/windows/test_tracereport.py::test_lists_take_the_globs_of_find": 3,
    "tests/windows/test_traces.py::test_stacks_and_frames_are_those_of_the_plugins": 12,
    "tests/windows/test_traces_cli.py::test_the_files_hold_what_the_grids_show": 1,
    "tests/windows/test_traces_everywhere.py": 1,
    "tests/windows/test_traces_real.py::test_carving_adds_and_changes_nothing": 1,
    "tests/windows/test_traces_real.py::test_every_set": 1,
    "tests/windows/test_traces_real.py::test_every_set_with_all_options": 1,
    "tests/windows/test_traces_real.py::test_the_committed_sets": 1,
    "tests/windows/test_traces_recorded.py::test_who_created_an_object_does_not_depend_on_the_processes_wanted": 1,  # noqa: E501
    "tests/windows/test_callstacks_strangers.py::test_no_frame_is_sure_and_wrong_without_some_pages": 4,
    "tests/windows/test_traces_strangers.py::test_each_timer_leads_into_code_of_a_loaded_module": 2,
    "tests/windows/test_trapframes.py::test_every_kind_on_the_command_line": 1,
    "tests/windows/test_trapframes.py::test_every_kind_with_real_tables": 2,
    "tests/windows/test_trapframes_real.py::test_every_frame": 1,
    "tests/windows/test_waits_snapshots.py::test_every_wait": 8,
    "tests/windows/test_waits_snapshots.py::test_the_lower_half_of_a_wow64_process": 1,
    "tests/windows/test_waits_strangers.py::test_no_row_is_false": 2,
    "tests/winstacks/findings/checks/test_kernel.py": 6,
    "tests/winstacks/findings/checks/test_kernel.py::test_a_process_that_only_a_scan_and_a_handle_show": 6,
    "tests/winstacks/findings/checks/test_kernel.py::test_what_only_a_scan_finds": 2,
    "tests/winstacks/findings/checks/test_modified_code.py": 8,
    "tests/winstacks/findings/checks/test_module_mismatch.py::test_images_of_dot_net": 8,
    "tests/winstacks/findings/test_situations.py": 4,
    "tests/winstacks/findings/checks/test_unbacked.py": 6,
    "tests/winstacks/findings/checks/test_unbacked.py::test_function_tables_that_were_changed": 10,
    "tests/winstacks/findings/checks/test_wait_in_dispatcher.py": 6,
    "tests/winstacks/findings/checks/test_wait_in_dispatcher.py::test_with_32_bits_a_callback_that_waits_is_silent": 6,  # noqa: E501
    "tests/winstacks/findings/checks/test_wait_in_dispatcher.py::test_with_32_bits_a_wait_that_the_chain_leads_from_is_low": 3,  # noqa: E501
    "tests/winstacks/names/decode/test_peimage.py::test_headers_pdb_and_checksum_are_as_pefile_reads_them": 1,
    "tests/winstacks/names/decode/test_peimage.py::test_pages_are_as_pefile_maps_them": 2,
    "tests/winstacks/names/decode/test_peimage.py::test_pages_of_a_moved_program_are_as_pefile_maps_them": 1,
    "tests/winstacks/names/test_modulefiles.py::test_what_memory_has_otherwise_is_said": 4,
    "tests/winstacks/names/test_sections.py::test_a_page_of_its_own_that_is_out_is_missing": 6,
    "tests/winstacks/rows/test_divided.py::test_rows_and_warnings_are_those_of_one_process": 11,
    "tests/winstacks/stacklist/test_machine.py::test_the_symbols_of_real_kernels_lead_to_all_of_it": 3,
    "tests/winstacks/stacks/decode/test_truth_arm64.py::test_walker_is_right_and_sure_at_each_point": 4,
    "tests/winstacks/stacks/test_files.py::test_files_bring_back_the_frames_that_are_lost": 0,
    "tests/winstacks/tracedb/decode/test_database_damage.py::test_greatest_loss": 4,
    "tests/winstacks/tracedb/decode/test_database_forged.py::TestSeven::test_numbers_above_16_bits": 1,
    "tests/winstacks/tracedb/decode/test_database_forged.py::test_stored_numbers_wrap_in_nt5": 1,
    "tests/winstacks/tracedb/decode/test_database_fuzz.py::test_a_wrong_watermark_in_much_memory": 3,
    "tests/winstacks/tracedb/test_generations.py::test_nor_does_it_for_a_damaged_header": 5,
    "tests/winstacks/waits/decode/test_snapshots.py::test_a_chain_names_the_lock_of_a_sleeper": 3,
    "tests/winstacks/waits/decode/test_snapshots.py::test_every_wait": 4,
}
"""How many cases of a test, or of each test of a file, run by default: the first ones."""

WHOLE = {
    "tests/docs/test_pages.py",
    "tests/fleet/test_hostile_lake.py",
    "tests/fleet/test_obstacles.py",
    "tests/fleet/test_planted.py",
    "tests/fleet/test_processes.py",
    "tests/fleet/test_run.py",
    "tests/fuzz/test_fuzz.py",
    "tests/golden/test_golden.py",
    "tests/hostile/test_amplifiers.py",
    "tests/hostile/test_tamper.py",
    "tests/minidump/test_of_images.py",
    "tests/test_cost.py",
    "tests/test_startup.py",
    "tests/windows/test_files_and_tables.py",
    "tests/winstacks/findings/checks/test_kernel.py",
    "tests/winstacks/findings/checks/test_modified_code.py",
    "tests/winstacks/findings/checks/test_module_mismatch.py",
    "tests/winstacks/findings/checks/test_unbacked.py",
    "tests/winstacks/findings/checks/test_wait_in_dispatcher.py",
    "tests/winstacks/findings/test_situations.py",
}
"""Files whose cases are claims of their own, such as attacks and findings: `.ci/run` has all of them."""

_EACH = 5
"""Of so many cases of the other tests `.ci/run` has one.

Cases stand in the order of images, plugins or kernels: some of each kind are among those that run. Tests with
the same cases run the same ones, so that what they share is made for these alone.
"""

_FEWER = 4
"""Of so many examples one is tried by default, and by `.ci/run`."""
_FEWEST = 20

_everything = True


def configure(expression: str) -> None:
    """Notes whether a run leaves out what has the marker `deep` or `release`.

    Args:
        expression: the markers that pytest was asked for
    """
    global _everything
    _everything = "not deep" not in expression and "not release" not in expression


def rounds(most: int, fewest: int = _FEWEST) -> int:
    """Returns how many examples a test tries: all for a release, else a fourth of them.

    Args:
        most: how many there are
        fewest: how many are needed to show that something is tried at all
    """
    return most if _everything else min(most, max(fewest, most // _FEWER))


def some(cases: Sequence[T]) -> Sequence[T]:
    """Returns the cases that a test tries which finds them itself: all for a release, else each fifth."""
    return cases[:: 1 if everything() else _EACH]


def everything() -> bool:
    """Returns whether a run tries all examples."""
    return _everything


def mark(items: List[pytest.Item]) -> None:
    """Gives the marker `deep` to cases that do not run by default, and `release` to some of these."""
    seen: Counter[str] = collections.Counter()
    for item in items:
        name = item.nodeid.partition("[")[0]
        file = name.partition("::")[0]
        seen[name] += 1
        first = FIRST.get(name, FIRST.get(file))
        if first is None or seen[name] <= first:
            continue
        item.add_marker("deep")
        if seen[name] > 1 and seen[name] % _EACH != 2 and file not in WHOLE:
            item.add_marker("release")
