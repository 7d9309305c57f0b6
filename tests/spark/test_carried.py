"""What the end of a day carries over to the next: open messages and what is in force, and nothing that is over."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fairlane.spark.pipeline import JournalFolder, run_pipeline
from fairlane.spark.tables.attempts import attempts
from fairlane.spark.tables.settings import needed, settings_of, waiting_since
from tests.spark.table_rows import DAY, HOUR, Event, enqueued, event, frame, of
from tests.spark.test_pipeline import contents, write_segment

DAYS = 3
ENDS = [date(2026, 1, 1 + day) for day in range(4)]
CHANGES = 6
POLICY = '{{"weights": {{"acme": {}}}}}'


def changes(sequence: int, at: int, number: int) -> Iterator[Event]:
    """Yield a change of each kind: a policy, a weight, a weight that is unset, a pause, and a queue for an hour."""
    paused = {"queue": "mail", "fairness_key": ["beta"]}
    yield event("queue_set", sequence, at, queue="mail", policy_json=POLICY.format(1 + number))
    yield event("config_set", sequence + 1, at, name="weight:mail:beta", value=str(1 + number % 3))
    yield event("config_set", sequence + 2, at, name="weight:mail:delta", value="5")
    yield event("config_set", sequence + 3, at + 1_000, name="weight:mail:delta")
    yield event("queue_paused", sequence + 4, at + 2_000, is_paused=True, **paused)
    yield event("queue_paused", sequence + 5, at + 62_000, is_paused=False, **paused)
    yield event("queue_set", sequence + 6, at + 63_000, queue=f"once-{number}", policy_json="{}")
    yield event("queue_removed", sequence + 7, at + 64_000, queue=f"once-{number}")


def served(sequence: int, at: int, key: str, *, wait: int) -> Iterator[Event]:
    """Yield the life of a message that is done."""
    yield enqueued(sequence, at, key)
    yield of("leased", sequence + 1, at + wait, sequence)
    yield of("acked", sequence + 2, at + wait + 500, sequence)


def story(*, stuck_until: int) -> list[list[Event]]:
    """Return the events of three days with many changes each, and a message of beta that waits for days."""
    sequence, days, stuck = 1, [], 0
    for day in range(DAYS):
        rows: list[Event] = []
        for number in range(CHANGES):
            at = day * DAY + number * HOUR
            rows += changes(sequence, at, day * CHANGES + number)
            rows += served(sequence + 8, at + 70_000, "acme", wait=100)
            rows += served(sequence + 11, at + 80_000, "beta", wait=90_000)
            sequence += 14
            if (day, number) == (0, 3):
                stuck, sequence = sequence, sequence + 1
                rows.append(enqueued(stuck, at + 200_000, "beta"))
            if stuck and at == stuck_until:
                rows.append(of("leased", sequence, at + 300_000, stuck))
                rows.append(of("acked", sequence + 1, at + 300_001, stuck))
                sequence += 2
        days.append(rows)
    return days


def days_of(spark: SparkSession, *rows: Event) -> dict[int, list[int]]:
    """Return at the ends of which days each setting is still needed, counted from 0, by its sequence."""
    told = frame(spark, *rows)
    found = needed(settings_of(told), waiting_since(attempts(told), days=ENDS), days=ENDS)
    return {row["sequence"]: [ENDS.index(day) for day in row["open_on"]] for row in found.collect()}


def test_a_setting_is_needed_on_its_day_and_while_it_is_in_force(spark: SparkSession) -> None:
    """The last policy and value of each name stay; what is replaced, unset or removed is needed on those days only."""
    assert days_of(
        spark,
        event("queue_set", 1, 0, queue="mail", policy_json="{}"),
        event("queue_set", 2, 10, queue="mail", policy_json="{}"),
        event("queue_set", 3, DAY, queue="mail", policy_json="{}"),
        event("config_set", 4, DAY + 1, name="weight:mail:a", value="2"),
        event("config_set", 5, DAY + 2, name="weight:mail:b", value="2"),
        event("queue_set", 6, DAY + 3, queue="once", policy_json="{}"),
        event("config_set", 7, 2 * DAY, name="weight:mail:a", value="3"),
        event("config_set", 8, 2 * DAY + 1, name="weight:mail:b"),
        event("queue_removed", 9, 2 * DAY + 2, queue="once"),
    ) == {1: [0], 2: [0, 1], 3: [1, 2, 3], 4: [1, 2], 5: [1, 2], 6: [1, 2], 7: [2, 3], 8: [2], 9: [2]}


def test_a_pause_is_needed_as_long_as_a_message_waits_that_was_paused(spark: SparkSession) -> None:
    """A pause that is over stays for a message that came before its end, in that queue only; one that is on stays."""
    beta = {"fairness_key": ["beta"]}
    assert days_of(
        spark,
        event("queue_paused", 1, 0, queue="mail", is_paused=True, **beta),
        event("queue_paused", 2, 100, queue="mail", is_paused=False, **beta),
        event("queue_paused", 3, 110, queue="other", is_paused=True),
        event("queue_paused", 4, 120, queue="other", is_paused=False),
        event("queue_paused", 5, 130, queue="other", is_paused=True, **beta),
        enqueued(6, 200),
        event("queue_paused", 7, 300, queue="mail", is_paused=True, **beta),
        event("queue_paused", 8, 400, queue="mail", is_paused=False, **beta),
        of("leased", 9, 2 * DAY, 6),
    ) == {1: [0], 2: [0], 3: [0], 4: [0], 5: [0, 1, 2, 3], 7: [0, 1, 2], 8: [0, 1, 2]}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_tables_need_nothing_that_is_superseded_or_over(spark: SparkSession, tmp_path: Path) -> None:
    """Day by day, with many changes of settings on each, the tables are those that one run on all days makes."""
    days = story(stuck_until=2 * DAY + 5 * HOUR)
    for rows in days:
        write_segment(tmp_path / "journal", rows)
        run_pipeline(spark, JournalFolder(tmp_path / "journal"), tmp_path / "tables")
    for rows in days:
        write_segment(tmp_path / "again" / "journal", rows)
    run_pipeline(spark, JournalFolder(tmp_path / "again" / "journal"), tmp_path / "again" / "tables")
    expected, found = contents(spark, tmp_path / "again" / "tables"), contents(spark, tmp_path / "tables")
    for name, table in expected.items():
        assert found[name] == table, name
