"""Records take as many sequence numbers as they have events, and never change what is on the disk already."""

from __future__ import annotations

import pytest

from fairlane.journal.records import (
    Acked,
    AnyRecord,
    Baseline,
    Carried,
    ClaimsEnded,
    ConfigSet,
    ConsumerRemoved,
    ConsumerSet,
    Dead,
    Enqueued,
    Extended,
    FannedOut,
    Leased,
    Opened,
    PiecesDeleted,
    PieceStored,
    Published,
    QueuePaused,
    QueueRemoved,
    QueueSet,
    ReaderSet,
    RedriveEnd,
    RedriveEnded,
    Redriven,
    RedriveStarted,
    RefusedMessages,
    Removed,
    ResultsSwept,
    Returned,
    ScheduleFired,
    ScheduleMissed,
    SchedulePaused,
    ScheduleRemoved,
    ScheduleSet,
    Sealed,
    SinkRemoved,
    SinkSet,
    Skipped,
    Staged,
    StateRemoved,
    StateSet,
    Terms,
    Trimmed,
    UploadBegun,
    UploadDropped,
)
from fairlane.model.policy import QueuePolicy
from fairlane.model.schedules import ScheduleSpec
from fairlane.model.views import DeadLetterFilter
from tests.unit.journal.record_strategies import RECORD_KINDS

COUNTS: list[tuple[AnyRecord, int]] = [
    (Enqueued(5, "q", [10, 20, 30], [0], Terms(["a", "b", "a"])), 3),
    (Leased(5, "q", [1, 2], 900), 2),
    (Extended(5, "q", [1, 2], 900), 2),
    (Acked(5, "q", [1]), 1),
    (Returned(5, "q", [1, 2, 3, 4], "expiry"), 4),
    (Dead(5, "q", [1, 2], "hook"), 2),
    (Removed(5, "q", [1, 2], "purged"), 2),
    (Redriven(5, "q.dlq", [1, 2], "q", Terms(["a", "b"])), 2),
    (RedriveStarted(5, "q.dlq", DeadLetterFilter(), 3), 1),
    (RedriveEnded(5, "q.dlq", 3, RedriveEnd("done", 9, 2, 2)), 1),
    (StateSet(5, "q", 1, 4), 1),
    (StateRemoved(5, "q", 1), 1),
    (ResultsSwept(5, 900), 1),
    (QueueSet(5, "q", QueuePolicy()), 1),
    (QueueRemoved(5, "q"), 1),
    (QueuePaused(5, "q", is_paused=True), 1),
    (ConfigSet(5, "a", "b"), 1),
    (ReaderSet(5, "r", 3, 0), 1),
    (ConsumerSet(5, "q", "c"), 1),
    (ConsumerRemoved(5, "q", "c"), 1),
    (ClaimsEnded(5, "q", "c", 3), 1),
    (Staged(5, "q", [10, 20], [0], Terms(["a", "b"]), "s", 1, "p"), 2),
    (Published(5, "q", [1, 2, 3], "s", 1, [10, 20, 30], Terms(["a", "b", "a"])), 3),
    (SinkSet(5, "q", "s", 1, 3, 1), 1),
    (SinkRemoved(5, "q", "s"), 1),
    (RefusedMessages(5, "q", "key_full", ["a", None], [3, 1], [3, 1]), 2),
    (ScheduleSet(5, "q", "s", ScheduleSpec(every_ms=1_000)), 1),
    (ScheduleRemoved(5, "q", "s"), 1),
    (SchedulePaused(5, "q", "s", True), 1),
    (ScheduleFired(5, "q", "s", 7, 4), 1),
    (ScheduleMissed(5, "q", "s", 7, 3, "late"), 1),
    (FannedOut(5, "q", "f", 4, {"q": [(1, 3)]}, 100), 1),
    (UploadBegun(5, "q", 100), 1),
    (PieceStored(5, "q", 4, 0, 100), 1),
    (UploadDropped(5, "q", 4, "silence"), 1),
    (PiecesDeleted(5, [1, 2, 3]), 1),
    (Opened(5), 1),
    (Skipped(5, 1000), 1000),
    (Sealed(5, 1, 0, 9, 100), 1),
    (Trimmed(5, 3, []), 1),
    (Carried(5, [], [], 0), 1),
    (Baseline(5, [], {}, [], [], 1, 0, 0), 1),
]


@pytest.mark.parametrize(("record", "count"), COUNTS, ids=lambda value: type(value).__name__)
def test_a_record_takes_one_number_for_each_event(record: AnyRecord, count: int) -> None:
    """A record about n messages takes n numbers, any other takes one."""
    assert record.count == count


def test_every_kind_of_record_is_counted_here() -> None:
    """The table above leaves out no kind."""
    assert {type(record) for record, _ in COUNTS} == set(RECORD_KINDS)


FIELDS = {
    "enqueued": "queue sizes chunks terms dedup_ids dedup_until_ms correlation_ids cause",
    "leased": "queue numbers expires_ms owner picking claim",
    "extended": "queue numbers expires_ms",
    "acked": "queue numbers costs is_late finished",
    "returned": "queue numbers reason due_ms errors detail",
    "dead": "queue numbers reason ended errors target detail",
    "removed": "queue numbers reason finished note by",
    "redriven": "queue numbers target terms by",
    "redrive_started": "queue wanted total most rate target by",
    "redrive_ended": "queue number end",
    "state_set": "queue number size",
    "state_removed": "queue number",
    "results_swept": "through_ms",
    "queue_set": "queue policy by",
    "queue_removed": "queue by",
    "queue_paused": "queue is_paused key by",
    "config_set": "key value by owner reason expires_ms",
    "reader_set": "name position at_ms",
    "consumer_set": "queue name idle_ms",
    "consumer_removed": "queue name by",
    "claims_ended": "queue name through",
    "staged": "queue sizes chunks terms sink batch part correlation_ids",
    "published": "queue numbers sink batch sizes terms",
    "sink_set": "queue name batch messages through",
    "sink_removed": "queue name by",
    "refused": "queue code keys messages costs",
    "schedule_set": "queue name spec by",
    "schedule_removed": "queue name by",
    "schedule_paused": "queue name is_paused by",
    "schedule_fired": "queue name tick_ms number is_manual by",
    "schedule_missed": "queue name tick_ms missed reason error",
    "fanned_out": "queue name number members window_ms",
    "upload_begun": "queue piece_bytes by expected",
    "piece_stored": "queue upload index size",
    "upload_dropped": "queue upload reason by",
    "pieces_deleted": "numbers",
    "opened": "",
    "skipped": "numbers",
    "sealed": "first first_ms last_ms size",
    "trimmed": "to passed",
    "carried": "messages dedups dedups_before",
    "baseline": "queues config readers segments segment_first segment_first_ms trimmed",
}


@pytest.mark.parametrize("kind", RECORD_KINDS)
def test_the_fields_on_the_disk_stay_where_they_are(kind: type[AnyRecord]) -> None:
    """Fields are written by position: version 1 has these first, and whatever is new comes after them."""
    written = ["sequence", *FIELDS[str(kind.__struct_config__.tag)].split()]
    assert list(kind.__struct_fields__[: len(written)]) == written


def test_the_terms_on_the_disk_stay_where_they_are() -> None:
    """Terms are written by position too."""
    names = ["keys", "weights", "costs", "priorities", "throttles", "due_ms", "deadlines_ms", "caps"]
    assert list(Terms.__struct_fields__[: len(names)]) == names
