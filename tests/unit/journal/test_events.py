"""Records become events: one row a sequence number, with everything that the record says of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from fairlane.journal.codec import Page
from fairlane.journal.events import KINDS, Columns, rows
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
    FinishedImage,
    Leased,
    Opened,
    Picking,
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
    Staged,
    StateRemoved,
    StateSet,
    Terms,
    Trimmed,
    UploadBegun,
    UploadDropped,
)
from fairlane.journal.schema import NAMES
from fairlane.model.ids import number_text
from fairlane.model.message import NEVER_MS, FailureDetail, NewMessage
from fairlane.model.policy import QueuePolicy
from fairlane.model.schedules import ScheduleSpec
from fairlane.model.views import DeadLetterFilter
from tests.unit.journal.drawn_pages import Row, pages

FULL_TERMS = Terms(
    ["acme", ("acme", "mobile")],
    [0, 7],
    [2, 3],
    [0, 2],
    [[], ["sms", "smtp"]],
    [None, 600],
    [900, None],
    [None, 4],
)
FULL_TERMS_TOLD: tuple[Row, Row] = (
    {"fairness_key": ["acme"], "cost": 2, "priority": "high", "throttles": [], "deadline_ms": 900},
    {
        "fairness_key": ["acme", "mobile"],
        "weight": 7,
        "cost": 3,
        "priority": "low",
        "throttles": ["sms", "smtp"],
        "due_ms": 600,
        "cap": 4,
    },
)
PLAIN_TOLD: Row = {"fairness_key": ["acme"], "cost": 1, "priority": "normal", "throttles": []}
DAILY = ScheduleSpec(cron="0 7 * * *", message=NewMessage(payload=b"secret"))
STAGED_TOLD: Row = {"name": "out", "position": 7, "value": "t1"}
CANCELLED = FinishedImage(3, "orders", "acme", "cancelled", 100, 200, 800)
M3, M4, M5 = "0000000000000003", "0000000000000004", "0000000000000005"

TOLD: list[tuple[AnyRecord, list[Row]]] = [
    (
        Enqueued(255, "orders", [10, 0], [0], FULL_TERMS, ["d1", None], 999, [None, "c2"], 5),
        [
            {
                "message_id": "00000000000000ff",
                "size_bytes": 10,
                "dedup_id": "d1",
                "cause_id": M5,
                **FULL_TERMS_TOLD[0],
            },
            {
                "message_id": "0000000000000100",
                "size_bytes": 0,
                "correlation_id": "c2",
                "cause_id": M5,
                **FULL_TERMS_TOLD[1],
            },
        ],
    ),
    (Enqueued(3, "orders", [10], [0], Terms(["acme"])), [{"message_id": M3, "size_bytes": 10, **PLAIN_TOLD}]),
    (
        Enqueued(3, "orders", [10], [0], Terms(["acme"], order_keys=["o"], unique_keys=["u"])),
        [{"message_id": M3, "size_bytes": 10, "order_key": "o", "unique_key": "u", **PLAIN_TOLD}],
    ),
    (
        Leased(90, "orders", [5, 3], 30_500, "worker-1"),
        [
            {"message_id": M5, "token": 90, "expires_ms": 30_500, "owner": "worker-1", "asked": 2},
            {"message_id": M3, "token": 91, "expires_ms": 30_500, "owner": "worker-1", "asked": 2},
        ],
    ),
    (
        Leased(
            90, "orders", [5, 3], 30_500, None, Picking(8, [40, 0], [0, 7], [(70, 300, 0, ""), (81, 450, 8, "mail")])
        ),
        [
            {
                "message_id": M5,
                "token": 90,
                "expires_ms": 30_500,
                "throttled_ms": 40,
                "asked": 8,
                "value": '[[70,300,0,""],[81,450,8,"mail"]]',
            },
            {"message_id": M3, "token": 91, "expires_ms": 30_500, "capped_ms": 7, "asked": 8},
        ],
    ),
    (Leased(90, "orders", [5], 30_500), [{"message_id": M5, "token": 90, "expires_ms": 30_500, "asked": 1}]),
    (
        Leased(90, "orders", [5], NEVER_MS, "etl", claim=7),
        [{"message_id": M5, "token": 90, "owner": "etl", "asked": 1, "claim": 7}],
    ),
    (Extended(90, "orders", [5], 60_500), [{"message_id": M5, "expires_ms": 60_500}]),
    (Acked(90, "orders", [3, 4], [None, 0]), [{"message_id": M3}, {"message_id": M4, "cost": 0}]),
    (Acked(90, "orders", [3]), [{"message_id": M3}]),
    (
        Returned(90, "orders", [3, 4], "failure", [0, 700], ["boom", ""]),
        [
            {"message_id": M3, "reason": "failure", "error": "boom"},
            {"message_id": M4, "reason": "failure", "due_ms": 700},
        ],
    ),
    (Returned(90, "orders", [3], "release"), [{"message_id": M3, "reason": "release"}]),
    (
        Returned(90, "orders", [3], "failure", None, ["boom"], FailureDetail(worker="w1")),
        [{"message_id": M3, "reason": "failure", "error": "boom", "value": '{"worker":"w1"}'}],
    ),
    (
        Dead(90, "orders", [3], "max_attempts", "expiry", ["late"]),
        [{"message_id": M3, "reason": "max_attempts", "ended": "expiry", "error": "late", "target": "orders.dlq"}],
    ),
    (Dead(90, "orders", [3], "deadline"), [{"message_id": M3, "reason": "deadline", "target": "orders.dlq"}]),
    (Removed(90, "orders", [3], "purged"), [{"message_id": M3, "reason": "purged"}]),
    (
        Removed(90, "orders", [3], "cancelled", [CANCELLED], "why", "ann"),
        [{"message_id": M3, "reason": "cancelled", "expires_ms": 800, "value": "why", "by": "ann"}],
    ),
    (
        Acked(90, "orders", [3, 4, 5], finished=[FinishedImage(4, "orders", "a", "done", 1, 2, 800, 1, 91, 6)]),
        [{"message_id": M3}, {"message_id": M4, "expires_ms": 800, "size_bytes": 6}, {"message_id": M5}],
    ),
    (ResultsSwept(90, 800), [{"expires_ms": 800}]),
    (
        Redriven(90, "orders.dlq", [3, 4], "orders", FULL_TERMS, "ann", 70),
        [
            {"message_id": M3, "target": "orders", "by": "ann", "position": 70, **FULL_TERMS_TOLD[0]},
            {"message_id": M4, "target": "orders", "by": "ann", "position": 70, **FULL_TERMS_TOLD[1]},
        ],
    ),
    (
        RedriveStarted(90, "orders.dlq", DeadLetterFilter(error="x"), 7, 5, 2.5, "orders", "ann"),
        [
            {
                "position": 90,
                "target": "orders",
                "value": '{"wanted":{"error":"x"},"total":7,"count":5,"rate":2.5}',
                "by": "ann",
            }
        ],
    ),
    (
        RedriveEnded(90, "orders.dlq", 70, RedriveEnd("failed", 9, 7, 5, "gone", "ann")),
        [
            {
                "position": 70,
                "reason": "failed",
                "error": "gone",
                "value": '{"scanned":7,"matched":5}',
                "by": "ann",
            }
        ],
    ),
    (StateSet(90, "orders", 3, 12), [{"message_id": M3, "size_bytes": 12}]),
    (StateRemoved(90, "orders", 3), [{"message_id": M3}]),
    (QueueRemoved(90, "orders", "ann"), [{"by": "ann"}]),
    (QueuePaused(90, "orders", True, None, "ann"), [{"is_paused": True, "by": "ann"}]),
    (QueuePaused(90, "orders", False, ("acme", "web")), [{"is_paused": False, "fairness_key": ["acme", "web"]}]),
    (QueuePaused(90, "orders", True, "acme"), [{"is_paused": True, "fairness_key": ["acme"]}]),
    (ConfigSet(90, "throttle:sms:rate", "5", "ann"), [{"name": "throttle:sms:rate", "value": "5", "by": "ann"}]),
    (ConfigSet(90, "region", None), [{"name": "region"}]),
    (ReaderSet(90, "spark", 80, 500), [{"name": "spark", "position": 80}]),
    (ReaderSet(90, "spark", None, 500), [{"name": "spark"}]),
    (ConsumerSet(90, "orders", "etl", 5_000), [{"name": "etl", "value": '{"idle_ms":5000}'}]),
    (ConsumerSet(90, "orders", "etl"), [{"name": "etl"}]),
    (ConsumerRemoved(90, "orders", "etl", "ann"), [{"name": "etl", "by": "ann"}]),
    (ClaimsEnded(90, "orders", "etl", 7), [{"name": "etl", "claim": 7}]),
    (
        Staged(255, "orders", [10, 0], [0], FULL_TERMS, "out", 7, "t1", [None, "c2"]),
        [
            {"message_id": "00000000000000ff", "size_bytes": 10, **STAGED_TOLD, **FULL_TERMS_TOLD[0]},
            {
                "message_id": "0000000000000100",
                "size_bytes": 0,
                "correlation_id": "c2",
                **STAGED_TOLD,
                **FULL_TERMS_TOLD[1],
            },
        ],
    ),
    (
        Published(90, "orders", [5, 3], "out", 7, [10, 0], FULL_TERMS),
        [
            {"message_id": M5, "size_bytes": 10, "name": "out", "position": 7, **FULL_TERMS_TOLD[0]},
            {"message_id": M3, "size_bytes": 0, "name": "out", "position": 7, **FULL_TERMS_TOLD[1]},
        ],
    ),
    (SinkSet(90, "orders", "out", 7, 2, 7), [{"name": "out", "position": 7}]),
    (SinkSet(90, "orders", "out", None, 0, 7), [{"name": "out"}]),
    (SinkRemoved(90, "orders", "out", "ann"), [{"name": "out", "by": "ann"}]),
    (
        RefusedMessages(90, "orders", "key_full", ["acme", ("beta", "web"), None], [3, 2, 1], [9, 2, 1]),
        [
            {"fairness_key": ["acme"], "reason": "key_full", "messages": 3, "cost": 9},
            {"fairness_key": ["beta", "web"], "reason": "key_full", "messages": 2, "cost": 2},
            {"reason": "key_full", "messages": 1, "cost": 1},
        ],
    ),
    (
        ScheduleSet(90, "orders", "daily", DAILY, "ann"),
        [{"name": "daily", "value": '{"cron":"0 7 * * *","message":{}}', "size_bytes": 6, "by": "ann"}],
    ),
    (ScheduleRemoved(90, "orders", "daily", "ann"), [{"name": "daily", "by": "ann"}]),
    (SchedulePaused(90, "orders", "daily", True, "ann"), [{"name": "daily", "is_paused": True, "by": "ann"}]),
    (
        ScheduleFired(90, "orders", "daily", 60_000, 89),
        [{"name": "daily", "message_id": number_text(89), "due_ms": 60_000}],
    ),
    (
        ScheduleMissed(90, "orders", "daily", 60_000, 3, "late"),
        [{"name": "daily", "due_ms": 60_000, "reason": "late", "value": '{"missed":3}'}],
    ),
    (
        FannedOut(90, "orders", "album", 89, {"orders": [(80, 3)], "mail": [(83, 6)]}, 100),
        [{"name": "album", "message_id": "0000000000000059", "value": '{"members":9}'}],
    ),
    (UploadBegun(90, "orders", 100, "ann"), [{"position": 90, "by": "ann"}]),
    (PieceStored(90, "orders", 80, 3, 100), [{"position": 80, "size_bytes": 100}]),
    (UploadDropped(90, "orders", 80, "silence"), [{"position": 80, "reason": "silence"}]),
    (Opened(90), [{}]),
    (Opened(90, 480), [{"value": '{"built_ms":480}'}]),
    (Opened(90, 0, "00000000000000aa"), [{"value": '{"journal_id":"00000000000000aa"}'}]),
    (Sealed(90, 10, 400, 500, 2048), [{"position": 10, "size_bytes": 2048, "value": '{"first_ms":400,"last_ms":500}'}]),
    (Trimmed(90, 40, ["spark"]), [{"position": 40, "value": '["spark"]'}]),
]


@pytest.mark.parametrize(("record", "told"), TOLD, ids=lambda value: type(value).__name__)
def test_a_record_tells_all_it_knows(record: AnyRecord, told: list[Row]) -> None:
    """Each kind fills the columns it speaks of, on each of its rows, and no others."""
    common: Row = {"at_ms": 500, "kind": record.__struct_config__.tag, "record": record.sequence}
    if isinstance(queue := getattr(record, "queue", None), str):
        common["queue"] = queue
    expected = [row | common | {"sequence": record.sequence + at} for at, row in enumerate(told)]
    assert rows(Page(1, 500, [record])) == expected


def test_a_policy_is_told_whole() -> None:
    """A policy is JSON with every field, defaults too, so that a reader need not know the defaults of its day."""
    (row,) = rows(Page(1, 500, [QueueSet(90, "orders", QueuePolicy(max_attempts=3, weights={"acme": 5}), "ann")]))
    policy = json.loads(row.pop("policy_json"))
    assert row == {"sequence": 90, "at_ms": 500, "kind": "queue_set", "record": 90, "queue": "orders", "by": "ann"}
    assert set(policy) == set(QueuePolicy.__struct_fields__)
    assert (policy["max_attempts"], policy["weights"], policy["quantum"]) == (3, {"acme": 5}, 1)


def test_every_kind_of_event_is_told_here() -> None:
    """The tests above leave out no kind, and no kind has a name but its record's."""
    assert {record.__struct_config__.tag for record, _ in TOLD} | {"queue_set"} == set(KINDS)


def test_what_recovery_needs_leaves_gaps() -> None:
    """Carried and baseline records give no event, and the numbers around them stay as they are."""
    records: list[AnyRecord] = [
        Acked(90, "orders", [3]),
        Carried(91, [], [], 0),
        Baseline(92, [], {}, [], [], 1, 0, 0),
        PiecesDeleted(93, [7]),
        Acked(94, "orders", [4]),
    ]
    assert [(row["sequence"], row["message_id"]) for row in rows(Page(1, 500, records))] == [(90, M3), (94, M4)]


def test_a_page_without_events_has_no_rows() -> None:
    """Neither an empty page nor one of recovery's own gives a row."""
    assert rows(Page(1, 500, [])) == []
    assert rows(Page(1, 500, [Carried(91, [], [], 0)])) == []


@given(pages())
def test_columns_over_many_pages_say_what_each_message_says(drawn: tuple[list[Page], list[Row]]) -> None:
    """Columns are as long as there are events, and each event has its own values, whatever it is together with."""
    columns = Columns()
    for page in drawn[0]:
        columns.append(page)
    events = drawn[1]
    assert columns.count == len(events)
    for name in set(NAMES) - {"message_id", "cause_id", "fairness_key", "throttles"}:
        expected: list[Any] = [event.get(name) for event in events]
        assert (columns.column(name) or [None] * len(events)) == expected


@given(pages())
def test_rows_say_what_each_message_says(drawn: tuple[list[Page], list[Row]]) -> None:
    """The rows of the pages are the events, with nothing in them that an event does not speak of."""
    assert [row for page in drawn[0] for row in rows(page)] == drawn[1]
