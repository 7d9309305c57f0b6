"""Two journals never melt into one, and what is missing is said aloud."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fairlane.errors import JournalMismatch, JournalTrimmed
from fairlane.spark.pipeline import JournalFolder, read_manifest, read_table, run_pipeline
from fairlane.spark.tables import TABLES
from tests.spark.table_rows import DAY, DAY_0, Event, enqueued, event, of, told
from tests.spark.test_pipeline import JOURNAL, a_story, contents, write_segment

NEXT = "00000000000000bb"


def a_broker(messages: int, *, at: int, tenant: str) -> list[Event]:
    """Return the journal of a broker that took messages of a tenant and served all but the last."""
    rows = [event("queue_set", 1, at, queue="mail", policy_json="{}")]
    for number in range(messages):
        sequence = len(rows) + 1
        rows.append(enqueued(sequence, at + number, tenant))
        if number < messages - 1:
            rows.append(of("leased", sequence + 1, at + number, sequence))
            rows.append(of("acked", sequence + 2, at + number, sequence))
    return rows


@pytest.mark.long
def test_a_broker_that_began_again_is_not_melted_into_the_old_one(spark: SparkSession, tmp_path: Path) -> None:
    """20 messages, a lost data folder, then 55: refused by default, and in a new epoch 75 messages, not 20."""
    tables = tmp_path / "tables"
    write_segment(tmp_path / "old", a_broker(20, at=0, tenant="acme"))
    run_pipeline(spark, JournalFolder(tmp_path / "old"), tables)
    before = contents(spark, tables)
    write_segment(tmp_path / "new", a_broker(55, at=DAY, tenant="acme"), journal_id=NEXT)
    with pytest.raises(JournalMismatch, match=f"{JOURNAL}.*{NEXT}"):
        run_pipeline(spark, JournalFolder(tmp_path / "new"), tables)
    assert contents(spark, tables) == before

    run_pipeline(spark, JournalFolder(tmp_path / "new"), tables, new_epoch=True)
    usage = read_table(spark, tables, "tenant_usage").groupBy("top_key").sum("enqueued", "leased", "acked")
    assert told(usage, "sum(enqueued)", "sum(leased)", "sum(acked)") == [(75, 73, 73)]
    messages = read_table(spark, tables, "messages")
    ids = messages.select("message_id").distinct().count()
    assert (messages.count(), ids) == (75, 55)
    still_open = told(messages.where("outcome != 'acked'"), "journal_id", "outcome", "reason", "is_open")
    assert still_open == [(JOURNAL, "removed", "journal_replaced", False), (NEXT, "waiting", None, True)]

    run_pipeline(spark, JournalFolder(tmp_path / "new"), tables)
    with pytest.raises(JournalMismatch, match="took its place"):
        run_pipeline(spark, JournalFolder(tmp_path / "old"), tables)


@pytest.mark.long
def test_missing_events_are_refused_then_marked_then_healed(spark: SparkSession, tmp_path: Path) -> None:
    """A gap stops the run; accepted, it is a row of ``gaps`` and marks its days; a late segment takes all that back."""
    story, journal, tables = a_story(), tmp_path / "journal", tmp_path / "tables"
    write_segment(journal, story[:4])
    write_segment(journal, story[13:])
    with pytest.raises(JournalTrimmed, match="Events 5 to 13 of journal"):
        run_pipeline(spark, JournalFolder(journal), tables)
    assert read_manifest(tables) is None

    run_pipeline(spark, JournalFolder(journal), tables, on_trimmed="skip")
    columns = ("journal_id", "from_sequence", "until_sequence", "from_ms", "until_ms")
    assert told(read_table(spark, tables, "gaps"), *columns) == [(JOURNAL, 5, 13, DAY_0 + 500, DAY_0 + 2 * DAY)]
    for name in sorted(TABLES.keys() - {"events", "gaps"}):
        table = read_table(spark, tables, name)
        settled = table.where("NOT is_open") if "is_open" in table.columns else table
        assert settled.where("is_complete").count() == 0, name
    assert run_pipeline(spark, JournalFolder(journal), tables).segments == 0

    write_segment(journal, story[4:13])
    healed = run_pipeline(spark, JournalFolder(journal), tables)
    assert (healed.gaps, str(healed.first_day)) == ((), "2026-01-01")
    write_segment(tmp_path / "whole", story)
    run_pipeline(spark, JournalFolder(tmp_path / "whole"), tmp_path / "at once")
    assert contents(spark, tables) == contents(spark, tmp_path / "at once")
    assert read_table(spark, tables, "tenant_usage").where("NOT is_complete").count() == 0


@pytest.mark.long
def test_a_journal_that_begins_late_is_incomplete_from_the_first_run(spark: SparkSession, tmp_path: Path) -> None:
    """The first run on a trimmed journal is refused too; accepted, only its first day is marked."""
    write_segment(tmp_path / "journal", a_story()[5:])
    with pytest.raises(JournalTrimmed, match="Events 1 to 5"):
        run_pipeline(spark, JournalFolder(tmp_path / "journal"), tmp_path / "tables")
    run_pipeline(spark, JournalFolder(tmp_path / "journal"), tmp_path / "tables", on_trimmed="skip")
    gap = told(read_table(spark, tmp_path / "tables", "gaps"), "from_sequence", "until_sequence", "from_ms", "day")
    assert [(*row[:3], str(row[3])) for row in gap] == [(1, 5, None, "2026-01-01")]
    usage = read_table(spark, tmp_path / "tables", "tenant_usage").select("day", "is_complete").distinct().collect()
    assert {(str(row.day), row.is_complete) for row in usage} == {
        ("2026-01-01", False),
        ("2026-01-02", True),
        ("2026-01-03", True),
    }


@pytest.mark.long
def test_a_message_that_was_open_before_a_gap_is_marked(spark: SparkSession, tmp_path: Path) -> None:
    """What may have been served in the gap waits in the tables, and its row says that more may have happened."""
    story = a_story()
    write_segment(tmp_path / "journal", story[:3])
    write_segment(tmp_path / "journal", story[14:15])
    run_pipeline(spark, JournalFolder(tmp_path / "journal"), tmp_path / "tables", on_trimmed="skip")
    messages = told(read_table(spark, tmp_path / "tables", "messages"), "message_id", "outcome", "is_complete")
    assert [(int(row[0], 16), *row[1:]) for row in messages] == [
        (2, "waiting", False),
        (3, "waiting", False),
        (15, "waiting", True),
    ]


@pytest.mark.long
def test_a_tenants_bill_over_all_groups_and_partitions_is_one_row(spark: SparkSession, tmp_path: Path) -> None:
    """Three journals with the same ids become one bill, and each message knows its journal and group."""
    first = 1 << 47
    partition = [
        {**row, "sequence": row["sequence"] + first, "record": row["record"] + first, "queue": "mail~1"}
        | ({"message_id": f"{int(row['message_id'], 16) + first:016x}"} if "message_id" in row else {})
        for row in a_broker(30, at=5, tenant="acme")
    ]
    calls = [{**row, "queue": "calls"} for row in a_broker(40, at=7, tenant="acme")]
    write_segment(tmp_path / "journals" / "mail", a_broker(20, at=0, tenant="acme"))
    write_segment(tmp_path / "journals" / "mail~1", partition, journal_id=NEXT)
    write_segment(tmp_path / "journals" / "calls", calls, journal_id="00000000000000cc")
    report = run_pipeline(spark, JournalFolder(tmp_path / "journals"), tmp_path / "tables")
    assert [(each.group, len(each.covered)) for each in report.journals] == [("mail", 1), ("mail~1", 1), ("calls", 1)]
    assert report.gaps == ()

    usage = read_table(spark, tmp_path / "tables", "tenant_usage")
    assert told(usage, "queue", "top_key", "enqueued", "acked") == [("calls", "acme", 40, 39), ("mail", "acme", 50, 48)]
    messages = read_table(spark, tmp_path / "tables", "messages")
    groups = messages.groupBy("journal_id", "group", "queue").count()
    assert told(groups, "journal_id", "group", "queue", "count") == [
        (JOURNAL, "mail", "mail", 20),
        (NEXT, "mail~1", "mail", 30),
        ("00000000000000cc", "calls", "calls", 40),
    ]
    for table in ("events", "attempts"):
        known = read_table(spark, tmp_path / "tables", table).select("journal_id", "group").distinct()
        assert told(known, "journal_id", "group") == [
            (JOURNAL, "mail"),
            (NEXT, "mail~1"),
            ("00000000000000cc", "calls"),
        ]
    again = run_pipeline(spark, JournalFolder(tmp_path / "journals"), tmp_path / "tables")
    assert (again.segments, again.run) == (0, 1)
