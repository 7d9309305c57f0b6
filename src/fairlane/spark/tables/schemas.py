"""The columns of every table, each with its meaning. ``tools/sync_tables.py`` copies them to the reference page.

Instants are UTC in whole milliseconds and end in ``_ms``, as durations do. A *key* is the whole fairness key, a path
with slashes; a *top key* is its first name, usually the tenant.
"""

from __future__ import annotations

from pyspark.sql.types import DataType

from fairlane.journal.schema import COLUMNS, ColumnType
from fairlane.spark.tables.table import DAY, FLAG, HISTOGRAM, INT, LONG, REAL, TEXT, TEXTS, TableDefinition, columns

_EVENT_TYPES: dict[ColumnType, DataType] = {
    "int64": LONG,
    "string": TEXT,
    "list of strings": TEXTS,
    "bool": FLAG,
}

_GROUP = ("group", TEXT, "the group of queues whose journal that is; empty for a server on its own")

EVENTS = TableDefinition(
    name="events",
    meaning="One event of a journal. Each sequence of a journal occurs once.",
    schema=columns(
        *((column.name, _EVENT_TYPES[column.type], column.meaning) for column in COLUMNS),
        _GROUP,
        DAY,
        is_marked=False,
    ),
)

GAPS = TableDefinition(
    name="gaps",
    meaning="One range of a journal that is missing in the tables: trimmed before it was read, or not exported.",
    schema=columns(
        ("journal_id", TEXT, "the journal"),
        ("group", TEXT, "the group of queues whose journal it is; empty for a server on its own"),
        ("from_sequence", LONG, "the first sequence that is missing"),
        ("until_sequence", LONG, "the last sequence that is missing"),
        ("from_ms", LONG, "when the last event before it happened; null if the journal begins with the gap"),
        ("until_ms", LONG, "when the first event after it happened; null if there is none yet"),
        ("day", DAY[1], "the first UTC day that it concerns; also the folder"),
        is_marked=False,
    ),
)

MESSAGES = TableDefinition(
    name="messages",
    meaning="One message. Journal and id together identify it: every journal counts from the same number.",
    partitions=("is_open", "day"),
    schema=columns(
        ("journal_id", TEXT, "the journal it is in"),
        _GROUP,
        ("message_id", TEXT, "the number of the message, as in the journal"),
        ("queue", TEXT, "the queue it was enqueued in, or last redriven to; never a dead-letter queue or a partition"),
        ("fairness_key", TEXTS, "its fairness key as a path"),
        ("key", TEXT, "its fairness key, a path with slashes"),
        ("top_key", TEXT, "the first name of its fairness key"),
        ("weight", LONG, "the weight it brought for its key, if any"),
        ("priority", TEXT, "high, normal or low"),
        ("throttles", TEXTS, "the throttles it needs a token of"),
        ("size_bytes", LONG, "the size of its payload"),
        ("cost_estimated", LONG, "its estimated cost, set at enqueue or redrive"),
        ("cost_true", LONG, "its true cost, if reported at acknowledgement"),
        ("deadline_ms", LONG, "its deadline, if it has one"),
        ("dedup_id", TEXT, "its dedup id, if it has one"),
        ("correlation_id", TEXT, "its correlation id; its own id if the producer gave none"),
        ("cause_id", TEXT, "the message whose acknowledgement enqueued it, if any"),
        ("enqueued_ms", LONG, "when it was enqueued, or published by a sink; null if the journal begins later"),
        ("first_leased_ms", LONG, "when it was first leased"),
        ("last_leased_ms", LONG, "when it was last leased"),
        ("done_ms", LONG, "when it was acknowledged, removed, or last dead-lettered; null while it waits or is leased"),
        ("attempts", LONG, "how often it was leased, not counting the dead-letter queue"),
        ("failures", LONG, "how many of these attempts failed"),
        ("wait_ms", LONG, "how long it waited in total: the sum of the next six columns"),
        ("delayed_ms", LONG, "wait until it was due, as requested by the producer, a redrive or a deferring consumer"),
        ("backoff_ms", LONG, "wait until it was due again after a failed attempt"),
        ("throttled_ms", LONG, "wait because a throttle had no token"),
        ("capped_ms", LONG, "wait because its key was at its cap"),
        ("paused_ms", LONG, "wait because its queue or key was paused"),
        ("turn_ms", LONG, "the rest: waiting for its turn and for a consumer"),
        ("service_ms", LONG, "how long it was leased in total"),
        ("outcome", TEXT, "acked, removed, dead (in the dead-letter queue), waiting, leased, or staged"),
        ("reason", TEXT, "why it was last dead-lettered or removed; queue_removed or journal_replaced if those were"),
        ("error", TEXT, "the error of its last attempt that failed or was lost and reported one"),
        ("owner", TEXT, "the owner of its last lease, if the consumer named one"),
        ("deaths", LONG, "how often it became a dead letter"),
        ("redrives", LONG, "how often it was redriven"),
        ("redriven_ms", LONG, "when it was last redriven"),
        ("last_sequence", LONG, "the sequence of the last event included in this row"),
        ("is_open", FLAG, "whether more can happen to it: true for waiting, leased, staged and dead messages"),
        ("day", DAY[1], "the UTC day on which it was done; for open messages, the newest day"),
    ),
)

ATTEMPTS = TableDefinition(
    name="attempts",
    meaning="One time a message waited in a queue, with the lease that ended the wait and how the lease ended.",
    partitions=("is_open", "day"),
    version=2,
    schema=columns(
        ("journal_id", TEXT, "the journal it is in"),
        _GROUP,
        ("message_id", TEXT, "the number of the message, as in the journal"),
        ("message", LONG, "its id as a number"),
        ("queue", TEXT, "the queue it waited in; of a split queue, the partition"),
        ("is_dlq", FLAG, "whether that is a dead-letter queue"),
        ("fairness_key", TEXTS, "its fairness key as a path"),
        ("key", TEXT, "its fairness key, a path with slashes"),
        ("top_key", TEXT, "the first name of its fairness key"),
        ("weight", LONG, "the weight it brought for its key, if any"),
        ("cap", LONG, "the cap it brought for its key, if any"),
        ("cost", LONG, "its estimated cost"),
        ("priority", TEXT, "high, normal or low"),
        ("throttles", TEXTS, "the throttles it needs a token of"),
        ("deadline_ms", LONG, "its deadline, if it has one"),
        ("size_bytes", LONG, "the size of its payload"),
        ("number", LONG, "the sequence of the event with which the wait began"),
        ("begun_by", TEXT, "the kind of that event: enqueued, staged, published, returned, dead or redriven"),
        ("begun_reason", TEXT, "why, if it was returned or dead-lettered"),
        ("begun_ms", LONG, "when the wait began; null if the journal begins later"),
        ("due_ms", LONG, "the instant from which it was due, if it was not due at once"),
        ("ready_ms", LONG, "when it was due: at the earliest when the wait began"),
        ("leased_sequence", LONG, "the sequence of the lease; null if there was none"),
        ("leased_ms", LONG, "when it was leased"),
        ("owner", TEXT, "the owner of the lease, if the consumer named one"),
        ("delayed_ms", LONG, "wait until it was due, as requested by the producer, a redrive or a deferring consumer"),
        ("backoff_ms", LONG, "wait until it was due again after a failed attempt"),
        ("throttled_ms", LONG, "wait because a throttle had no token"),
        ("capped_ms", LONG, "wait because its key was at its cap"),
        ("paused_ms", LONG, "wait because its queue or key was paused"),
        ("turn_ms", LONG, "the rest: waiting for its turn and for a consumer"),
        ("service_ms", LONG, "how long it was leased"),
        ("end_ms", LONG, "when the attempt ended; null if it is open"),
        ("ended_by", TEXT, "the kind of the event that ended it: acked, returned, dead, redriven or removed"),
        (
            "end_reason",
            TEXT,
            "the reason of that event, if it has one; queue_removed or journal_replaced if those were",
        ),
        ("is_failed", FLAG, "whether it failed; an expired or released lease is not a failed attempt"),
        ("failure", TEXT, "how it failed or was lost: failure, expiry or release"),
        ("error", TEXT, "the error of the attempt that failed or was lost"),
        ("cost_true", LONG, "its true cost, if reported at acknowledgement"),
        ("last_sequence", LONG, "the sequence of the last event included in this row"),
        ("is_open", FLAG, "whether the attempt has not ended"),
        ("day", DAY[1], "the UTC day on which it ended; for open attempts, the newest day"),
    ),
)

_PLACE = (
    ("queue", TEXT, "the queue, over all its partitions"),
    ("key", TEXT, "the fairness key, a path with slashes"),
    ("top_key", TEXT, "the first name of the key"),
)
_HOUR = ("hour_ms", LONG, "the start of the hour")

TENANT_USAGE = TableDefinition(
    name="tenant_usage",
    meaning="Activity of one key in one queue in one hour. Each event counts in the hour in which it happened.",
    schema=columns(
        *_PLACE,
        _HOUR,
        ("enqueued", LONG, "new messages"),
        ("enqueued_bytes", LONG, "the size of their payloads"),
        ("enqueued_cost", LONG, "their estimated cost"),
        ("leased", LONG, "leases"),
        ("acked", LONG, "messages acknowledged"),
        ("acked_bytes", LONG, "the size of their payloads"),
        ("cost_estimated", LONG, "the estimated cost of the acknowledged messages"),
        ("cost_true", LONG, "their true cost where reported, otherwise the estimate"),
        ("service_ms", LONG, "total duration of the leases that ended in this hour"),
        ("failed", LONG, "failed attempts"),
        ("dead", LONG, "messages dead-lettered"),
        ("removed", LONG, "messages removed without being acknowledged; also dead letters redriven from here"),
        (
            "redriven",
            LONG,
            "dead letters that came to this queue: redriven, or from queues that name it for theirs",
        ),
        ("refused", LONG, "messages that a limit kept out; `_others` has those whose key is not known"),
        ("refused_cost", LONG, "their estimated cost"),
        DAY,
    ),
    version=2,
)

LATENCY = TableDefinition(
    name="latency",
    meaning="Wait and service times of one key in one queue in one hour.",
    schema=columns(
        *_PLACE,
        _HOUR,
        ("handed_out", LONG, "leases that began in this hour"),
        ("wait_sum_ms", LONG, "total wait of their messages since they were due"),
        ("wait_p50_ms", LONG, "median wait"),
        ("wait_p90_ms", LONG, "90th percentile"),
        ("wait_p99_ms", LONG, "99th percentile"),
        ("wait_max_ms", LONG, "longest wait"),
        ("wait_histogram", HISTOGRAM, "all waits, mergeable"),
        ("served", LONG, "leases that ended in this hour"),
        ("service_sum_ms", LONG, "total duration of these leases"),
        ("service_p50_ms", LONG, "median duration"),
        ("service_p90_ms", LONG, "90th percentile"),
        ("service_p99_ms", LONG, "99th percentile"),
        ("service_max_ms", LONG, "longest duration"),
        ("service_histogram", HISTOGRAM, "all durations, mergeable"),
        DAY,
    ),
)

_RUN = (
    ("from_ms", LONG, "when the run begins"),
    ("until_ms", LONG, "when it ends: after whole windows, or where the journal ends"),
)

FAIRNESS = TableDefinition(
    name="fairness",
    meaning="One queue in one run: a window in which messages began or ended to wait, or all windows in a row in which "
    "messages waited and nothing changed.",
    schema=columns(
        ("queue", TEXT, "the queue"),
        *_RUN,
        ("keys", LONG, "top keys that had work"),
        ("waiting_cost", LONG, "the cost of all messages that could have been leased"),
        ("served_cost", LONG, "the cost of the messages that were leased; more than 0 only if the run is one window"),
        ("handed_out", LONG, "leases"),
        (
            "jain",
            REAL,
            "Jain's index of served over entitled cost: 1 is fair, 1/keys if one had all; null if nothing was served",
        ),
        ("lag_max_cost", REAL, "how far the most lagging key was behind its entitled share"),
        ("lag_max_key", TEXT, "that key, or one of them; null if none lagged"),
        ("starving_keys", LONG, "keys that starved at some time in each window of the run while others were served"),
        DAY,
    ),
)

FAIRNESS_KEYS = TableDefinition(
    name="fairness_keys",
    meaning="One top key of one queue in one run: a window in which its messages began or ended to wait, or all "
    "windows in a row in which its backlog was constant.",
    schema=columns(
        ("queue", TEXT, "the queue"),
        ("top_key", TEXT, "the top key"),
        *_RUN,
        ("weight", LONG, "its weight at the end of the run"),
        ("backlog", LONG, "its messages that waited for their turn at the end of the run"),
        ("waiting_cost", LONG, "the cost of its messages that could have been leased"),
        ("served_cost", LONG, "the cost of its messages that were leased"),
        ("handed_out", LONG, "its leases"),
        ("waited_ms", LONG, "time its messages waited for their turn inside the run, summed over messages"),
        ("entitled_cost", REAL, "the cost it was entitled to, summed over the windows of the run"),
        ("share", REAL, "its part of the cost that was served in the queue meanwhile; null if nothing was"),
        (
            "entitled_share",
            REAL,
            "its entitled share of that: by weight among the keys with work, and at most the work it had",
        ),
        ("lag_cost", REAL, "entitled minus served cost; negative if it was served more"),
        ("starved_ms", LONG, "how long it starved within the run, while others were served"),
        DAY,
    ),
)

STARVATION = TableDefinition(
    name="starvation",
    meaning="One episode in which a top key had work, was not paused, and got no lease for longer than the threshold.",
    schema=columns(
        ("queue", TEXT, "the queue"),
        ("top_key", TEXT, "the top key"),
        ("from_ms", LONG, "when it was last served, or began to have work; may be before the day"),
        ("until_ms", LONG, "when it was served again; null if not on this day"),
        ("lasted_ms", LONG, "its duration up to then, or up to the end of the day or of the journal"),
        (
            "served_meanwhile",
            LONG,
            "leases of other keys meanwhile, on this day and in whole seconds; 0: no consumer was there, none starved",
        ),
        DAY,
    ),
)

NOISY_NEIGHBOURS = TableDefinition(
    name="noisy_neighbours",
    meaning="How much of one top key's waiting in a queue and hour is attributed to another; the worst pairs.",
    schema=columns(
        ("queue", TEXT, "the queue"),
        _HOUR,
        ("victim", TEXT, "the top key that waited"),
        ("neighbour", TEXT, "the top key that was served meanwhile; the victim itself for its own part"),
        ("delay_ms", LONG, "the victim's waiting attributed to this neighbour, summed over messages"),
        ("victim_waited_ms", LONG, "all of the victim's waiting for its turn in that hour, summed over messages"),
        ("part", REAL, "delay_ms divided by victim_waited_ms"),
        ("neighbour_cost", LONG, "the cost the neighbour was served while the victim waited, in whole windows"),
        ("neighbour_leases", LONG, "the leases it got for that"),
        (
            "rank",
            INT,
            "1 for the pair with the longest delay in this queue and hour; null for a victim's own part",
        ),
        DAY,
    ),
)

THROTTLE_WAITS = TableDefinition(
    name="throttle_waits",
    meaning="Waits of one key for one throttle in one queue and hour. A message with several counts for each.",
    schema=columns(
        ("queue", TEXT, "the queue"),
        ("throttle", TEXT, "the throttle"),
        ("key", TEXT, "the fairness key, a path with slashes"),
        ("top_key", TEXT, "the first name of the key"),
        _HOUR,
        ("handed_out", LONG, "leases in this hour that took one of its tokens"),
        ("waited", LONG, "how many of them had to wait for it"),
        ("throttled_ms", LONG, "how long they waited in total"),
        ("throttled_p50_ms", LONG, "median wait over all leases"),
        ("throttled_p99_ms", LONG, "99th percentile"),
        ("throttled_max_ms", LONG, "the longest wait"),
        ("throttled_histogram", HISTOGRAM, "all waits, mergeable"),
        DAY,
    ),
)

DEAD_LETTERS = TableDefinition(
    name="dead_letters",
    meaning="One kind of dead letter in one queue on one day: errors that differ only in numbers, names and paths.",
    schema=columns(
        ("queue", TEXT, "the queue they came from"),
        ("reason", TEXT, "max_attempts, max_expiries, hook, deadline, requested or members"),
        ("signature", TEXT, "the last error with its variable parts replaced; empty if none was reported"),
        ("signature_id", TEXT, "a short id for queue, reason and signature"),
        ("count", LONG, "dead letters"),
        ("first_seen_ms", LONG, "the first of them"),
        ("last_seen_ms", LONG, "the last of them"),
        ("keys_hit", LONG, "how many keys they belong to"),
        ("keys", TEXTS, "these keys in order, at most 100"),
        ("sample_error", TEXT, "the error of the first of them"),
        ("sample_message_ids", TEXTS, "the numbers of the first five of them"),
        ("redriven", LONG, "how many of them were redriven on the same day"),
        DAY,
    ),
)

SLA = TableDefinition(
    name="sla",
    meaning="Outcome of one key's messages with a deadline in one queue, by the hour in which it was decided.",
    schema=columns(
        *_PLACE,
        _HOUR,
        ("with_deadline", LONG, "messages with a deadline that were acknowledged, removed or dead-lettered"),
        ("met", LONG, "acknowledged by their deadline"),
        ("late", LONG, "acknowledged after it: leased in time, but processed too long"),
        ("missed", LONG, "removed or dead-lettered because the deadline passed"),
        ("otherwise", LONG, "removed or dead-lettered for another reason"),
        DAY,
    ),
)

TABLES: dict[str, TableDefinition] = {
    table.name: table
    for table in (
        *(EVENTS, ATTEMPTS, MESSAGES, TENANT_USAGE, LATENCY, FAIRNESS, FAIRNESS_KEYS, STARVATION),
        *(NOISY_NEIGHBOURS, THROTTLE_WAITS, DEAD_LETTERS, SLA, GAPS),
    )
}
"""All tables by name."""
