"""The findings of a review of the first pipeline, F1 to F16, and the tests that show that each is gone.

``python -m tests.spark.test_findings`` prints the table; ``pytest $(python -m tests.spark.test_findings F7)`` runs the
tests of a finding.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

FINDINGS: dict[str, tuple[str, tuple[str, ...]]] = {
    "F1": (
        "Delta tables had events twice after more than 32 segments of a day.",
        (
            "spark/test_lakehouse.py::test_catching_up_with_many_segments_duplicates_nothing",
            "spark/test_pipeline.py::test_delta_tables_say_the_same_and_can_be_looked_back_in",
        ),
    ),
    "F2": (
        "A broker that began again was taken for the old one.",
        (
            "unit/broker/test_journal_identity.py::test_a_restored_journal_is_another_one_from_there_on",
            "spark/test_journal_epochs.py::test_a_checkpoint_of_another_journal_is_refused",
            "spark/test_pipeline_epochs.py::test_a_broker_that_began_again_is_not_melted_into_the_old_one",
            "spark/test_pipeline_journals.py::test_a_broker_that_began_again_is_refused",
        ),
    ),
    "F3": (
        "The command backfill failed always, and writing failed in threads of users.",
        (
            "spark/test_documented_commands.py::test_the_spark_commands_of_a_page_run_as_written",
            "spark/test_documented_commands.py::test_the_backfill_of_the_guide_enqueues_what_it_selects",
            "spark/test_backfill.py::test_a_backfill_runs_in_a_thread_of_the_user",
            "spark/test_threads.py::test_a_thread_writes_to_a_queue_and_reads_it",
        ),
    ),
    "F4": (
        "A day without consumers made a row for each tenant and minute, and ran out of memory.",
        (
            "spark/test_outage.py::test_messages_wait_for_a_day",
            "spark/test_tables_fairness.py::test_a_day_without_consumers_costs_what_its_events_cost",
        ),
    ),
    "F5": (
        "A pause counted as waiting for a turn, and was charged to neighbours.",
        (
            "spark/test_pauses.py::test_five_minutes_of_pause",
            "spark/test_pauses.py::test_tables_report_and_metrics_agree_on_a_pause",
            "spark/test_mixed_load.py::test_a_pause_is_billed_to_nobody",
        ),
    ),
    "F6": (
        "The report divided what a victim waited by a part of it.",
        (
            "unit/report/test_report.py::test_neighbours_leave_out_what_a_tenant_did_to_itself",
            "spark/test_tables_fairness.py::test_a_tenant_among_three_hundred_is_no_noisy_neighbour",
        ),
    ),
    "F7": (
        "A run cost the whole day, an idle broker was never idle, and what was over was carried for ever.",
        (
            "spark/test_continued.py::test_runs_that_go_on_make_the_same_tables",
            "spark/test_carried.py::test_a_setting_is_needed_on_its_day_and_while_it_is_in_force",
            "spark/test_carried.py::test_tables_need_nothing_that_is_superseded_or_over",
            "spark/test_pipeline_broker.py::test_an_idle_server_causes_no_spark_job",
            "spark/test_journal_stream.py::test_readers_that_move_on_are_no_news",
        ),
    ),
    "F8": (
        "The follower ended when the broker restarted.",
        (
            "spark/test_follower.py::test_failures_that_may_pass_are_retried_with_longer_and_longer_waits",
            "spark/test_follower.py::test_metrics_tell_freshness_and_the_last_error",
            "spark/test_follower_command.py::test_a_follower_outlives_its_server_and_itself",
        ),
    ),
    "F9": (
        "Tables were kept in a folder only, and s3a:// made a folder of that name.",
        (
            "spark/test_lakehouse.py::test_two_runs_fill_a_catalog_in_an_object_store",
            "spark/test_lakehouse.py::test_an_unknown_scheme_makes_no_folder",
            "spark/test_lake_kills.py::test_twenty_killed_drivers_lose_and_double_nothing",
            "unit/lakehouse/test_address.py::test_what_is_no_address_of_tables_is_refused",
        ),
    ),
    "F10": (
        "A session ignored its cluster, changed settings of others, and wrote hundreds of files.",
        (
            "spark/test_session.py::test_an_existing_session_is_returned_as_it_is",
            "spark/test_session.py::test_a_submitted_job_runs_where_it_was_submitted_to",
            "spark/test_lakehouse.py::test_many_shuffle_partitions_make_few_files",
            "docs/test_orchestration.py::test_the_main_file_for_spark_submit_prints_its_path_and_is_the_command",
        ),
    ),
    "F11": (
        "Each group and partition of a cluster needed a pipeline and tables of its own.",
        (
            "spark/test_cluster_journals.py::test_every_group_and_partition_has_a_journal_in_the_pipeline",
            "spark/test_cluster_pipeline.py::test_the_tables_of_a_cluster_are_made_from_all_its_journals",
            "spark/test_pipeline_epochs.py::test_a_tenants_bill_over_all_groups_and_partitions_is_one_row",
        ),
    ),
    "F12": (
        "Missing events were whispered.",
        (
            "spark/test_pipeline_epochs.py::test_missing_events_are_refused_then_marked_then_healed",
            "spark/test_pipeline_epochs.py::test_a_journal_that_begins_late_is_incomplete_from_the_first_run",
            "spark/test_pipeline_epochs.py::test_a_message_that_was_open_before_a_gap_is_marked",
            "unit/report/test_report_gaps.py::test_a_gap_is_a_banner_on_the_page_and_in_the_summary",
        ),
    ),
    "F13": (
        "What-if took leases for consumers, was quadratic in keys, and did not say how far it was off.",
        (
            "spark/test_whatif_consumers.py::test_a_worker_that_leases_eight_is_one_consumer",
            "spark/test_whatif_capacity.py::test_the_commands_say_how_far_the_model_is_off",
            "spark/test_whatif_capacity.py::test_advice_is_declined_if_the_model_does_not_fit",
            "spark/test_whatif_capacity.py::test_twice_the_traffic_needs_more_consumers",
            "spark/test_whatif_many_keys.py::test_recording_takes_as_many_array_operations_for_many_keys_as_for_few",
            "spark/test_whatif_many_keys.py::test_measuring_takes_as_many_array_operations_for_many_keys_as_for_few",
            "spark/test_whatif_recording.py::test_a_policy_that_was_set_again_is_the_latest",
            "spark/test_whatif_connect.py::test_scenarios_run_without_a_spark_context",
        ),
    ),
    "F14": (
        "The report read millions of rows as Python dicts.",
        ("unit/report/test_report_memory.py::test_memory_grows_with_tenants_and_not_with_rows",),
    ),
    "F15": (
        "Tables could not be computed again.",
        (
            "spark/test_rebuild.py::test_days_are_rebuilt_from_the_events",
            "spark/test_rebuild.py::test_a_table_of_another_version_is_rebuilt",
        ),
    ),
    "F16": (
        "Habits: all jobs cancelled, jobs without descriptions, no TIMESTAMPs, at most a hundred keys counted.",
        (
            "spark/test_interrupted.py::test_an_interrupt_cancels_its_own_jobs_and_lets_work_tidy_up",
            "spark/test_threads.py::test_a_thread_writes_to_a_queue_and_reads_it",
            "spark/test_tables_reference.py::test_spark_has_the_columns_of_the_schema",
            "spark/test_attempts.py::test_spark_and_what_if_find_the_same_attempts",
            "spark/test_tables_dead_letters.py::test_many_keys_of_a_day_are_counted_over_several_days",
        ),
    ),
}
"""What was wrong, and the tests that show that it no longer is."""


def test_all_findings_are_here() -> None:
    """The review has sixteen."""
    assert list(FINDINGS) == [f"F{number}" for number in range(1, 17)]


@pytest.mark.parametrize("finding", FINDINGS)
def test_the_tests_of_a_finding_exist(finding: str) -> None:
    """Each test that is named is there, under its name."""
    for name in FINDINGS[finding][1]:
        file, _, test = name.partition("::")
        tree = ast.parse((TESTS / file).read_text())
        assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name


def main(wanted: list[str]) -> None:
    """Print all findings, or the tests of some."""
    if wanted:
        print(" ".join(f"tests/{name}" for finding in wanted for name in FINDINGS[finding][1]))
        return
    for finding, (text, names) in FINDINGS.items():
        print(f"{finding}: {text}")
        print("".join(f"  tests/{name}\n" for name in names))


if __name__ == "__main__":
    main(sys.argv[1:])
