"""The columns of every table, and what they mean. ``docs/reference/tables.md`` tells the same to people.

Instants are UTC in whole milliseconds and end in ``_ms``, as spans do. A *key* is the whole fairness key, written with
slashes if it is a path; a *top key* is its first name: the tenant.
"""

from __future__ import annotations

from pyspark.sql.types import DataType

from fairlane.journal.schema import COLUMNS, ColumnType
from fairlane.spark.tables.table import DAY, FLAG, HISTOGRAM, INT, LONG, REAL, TEXT, TEXTS, Table, columns

_EVENT_TYPES: dict[ColumnType, DataType] = {
    "int64": LONG,
    "string": TEXT,
    "list of strings": TEXTS,
    "bool": FLAG,
}

EVENTS = Table(
    name="events",
    meaning="One event of the journal, each sequence once.",
    schema=columns(
        *((column.name, _EVENT_TYPES[column.type], column.meaning) for column in COLUMNS),
        DAY,
    ),
)

MESSAGES = Table(
    name="messages",
    meaning="One message.",
    partitions=("is_open", "day"),
    schema=columns(
        ("message_id", TEXT, "the message"),
        ("queue", TEXT, "the queue it was enqueued in, or was redriven to last; never a dead-letter queue"),
        ("fairness_key", TEXTS, "its fairness key as a path"),
        ("key", TEXT, "its fairness key, a path with slashes"),
        ("top_key", TEXT, "the first name of its fairness key"),
        ("weight", LONG, "the weight it brought for its key, if any"),
        ("priority", TEXT, "high, normal or low"),
        ("throttles", TEXTS, "the throttles it needs a token of"),
        ("size_bytes", LONG, "the size of its payload"),
        ("cost_estimated", LONG, "its cost as told at enqueue or redrive"),
        ("cost_true", LONG, "its cost as told at ack, if it was"),
        ("deadline_ms", LONG, "not after this instant, if it has a deadline"),
        ("dedup_id", TEXT, "its dedup id, if it has one"),
        ("correlation_id", TEXT, "its correlation id; its own id if the producer gave none"),
        ("cause_id", TEXT, "the message whose ack carried it, if one did"),
        ("enqueued_ms", LONG, "when it was enqueued, or a sink published it; null if the journal at hand begins later"),
        ("first_leased_ms", LONG, "when it was first handed out"),
        ("last_leased_ms", LONG, "when it was last handed out"),
        ("done_ms", LONG, "when it was acked or removed, or died last; null while it waits or is leased"),
        ("attempts", LONG, "how often it was handed out, dead-letter queue not counted"),
        ("failures", LONG, "how many of these attempts failed"),
        ("wait_ms", LONG, "how long it waited in all: the sum of the six waits that follow"),
        ("delayed_ms", LONG, "of it: until it was due, as its producer, a redrive or a deferring consumer wished"),
        ("backoff_ms", LONG, "of it: until it was due again after a failed attempt"),
        ("throttled_ms", LONG, "of it: because a throttle had no token"),
        ("capped_ms", LONG, "of it: because its key had as many leases as it may"),
        ("paused_ms", LONG, "of it: because its key or queue was paused"),
        ("turn_ms", LONG, "of it: the rest, waiting for its turn and for a consumer"),
        ("service_ms", LONG, "how long it was leased in all"),
        ("outcome", TEXT, "acked, removed, dead (in the dead-letter queue), waiting, leased, or staged"),
        ("reason", TEXT, "why it died last or was removed; queue_removed if its queue was"),
        ("error", TEXT, "the error of its last failed attempt that told one"),
        ("owner", TEXT, "who had it last, if the consumer said so"),
        ("deaths", LONG, "how often it became a dead letter"),
        ("redrives", LONG, "how often it was redriven"),
        ("redriven_ms", LONG, "when it was last redriven"),
        ("last_sequence", LONG, "the number of the last event that is in this row"),
        ("is_open", FLAG, "whether more may happen to it: waiting, leased, staged and dead ones are open"),
        ("day", DAY[1], "the UTC day on which it was done; of open ones the newest day there is"),
    ),
)

_PLACE = (
    ("queue", TEXT, "the queue"),
    ("key", TEXT, "the fairness key, a path with slashes"),
    ("top_key", TEXT, "its first name"),
)
_HOUR = ("hour_ms", LONG, "the instant at which the hour began")

TENANT_USAGE = Table(
    name="tenant_usage",
    meaning="What one key did in one queue in one hour. Each thing counts in the hour in which it happened.",
    schema=columns(
        *_PLACE,
        _HOUR,
        ("enqueued", LONG, "new messages"),
        ("enqueued_bytes", LONG, "their payloads"),
        ("enqueued_cost", LONG, "their cost, as estimated"),
        ("leased", LONG, "hand-outs"),
        ("acked", LONG, "messages done"),
        ("acked_bytes", LONG, "their payloads"),
        ("cost_estimated", LONG, "the cost of messages done, as estimated"),
        ("cost_true", LONG, "the cost of messages done: as told at ack, otherwise as estimated"),
        ("service_ms", LONG, "how long messages were leased, by leases that ended in this hour"),
        ("failed", LONG, "attempts that failed"),
        ("dead", LONG, "messages that became dead letters"),
        ("removed", LONG, "messages removed undone"),
        ("redriven", LONG, "dead letters that came back"),
        DAY,
    ),
)

LATENCY = Table(
    name="latency",
    meaning="How long messages of one key waited and were worked on in one queue in one hour.",
    schema=columns(
        *_PLACE,
        _HOUR,
        ("handed_out", LONG, "hand-outs in this hour"),
        ("wait_sum_ms", LONG, "how long their messages had waited since they were due"),
        ("wait_p50_ms", LONG, "half of them waited at most so long"),
        ("wait_p90_ms", LONG, "nine of ten"),
        ("wait_p99_ms", LONG, "ninety-nine of a hundred"),
        ("wait_max_ms", LONG, "the longest"),
        ("wait_histogram", HISTOGRAM, "all of them, mergeable"),
        ("served", LONG, "leases that ended in this hour"),
        ("service_sum_ms", LONG, "how long they had lasted"),
        ("service_p50_ms", LONG, "half of them lasted at most so long"),
        ("service_p90_ms", LONG, "nine of ten"),
        ("service_p99_ms", LONG, "ninety-nine of a hundred"),
        ("service_max_ms", LONG, "the longest"),
        ("service_histogram", HISTOGRAM, "all of them, mergeable"),
        DAY,
    ),
)

_WINDOW = ("window_ms", LONG, "the instant at which the window began")

FAIRNESS = Table(
    name="fairness",
    meaning="One queue in one window in which something waited for its turn or was handed out.",
    schema=columns(
        ("queue", TEXT, "the queue"),
        _WINDOW,
        ("window_length_ms", LONG, "how long the window is"),
        ("keys", LONG, "top keys that had work to hand out"),
        ("waiting_cost", LONG, "the cost of all that could have been handed out"),
        ("served_cost", LONG, "the cost of what was handed out"),
        ("handed_out", LONG, "hand-outs"),
        (
            "jain",
            REAL,
            "Jain's index of served over entitled cost: 1 is all alike, 1/keys is one had all; null if none was served",
        ),
        ("lag_max_cost", REAL, "how far the key that lagged most was behind its entitlement"),
        ("lag_max_key", TEXT, "that key; null if none lagged"),
        ("starving_keys", LONG, "keys that were starving at some time in the window"),
        DAY,
    ),
)

FAIRNESS_KEYS = Table(
    name="fairness_keys",
    meaning="One top key of one queue in one window in which it had work.",
    schema=columns(
        ("queue", TEXT, "the queue"),
        ("top_key", TEXT, "the top key"),
        _WINDOW,
        ("weight", LONG, "its weight at the end of the window"),
        ("waiting_cost", LONG, "the cost of its messages that could have been handed out"),
        ("served_cost", LONG, "the cost of those that were"),
        ("handed_out", LONG, "how many were"),
        ("waited_ms", LONG, "how long its messages waited for their turn inside the window, summed over messages"),
        ("share", REAL, "its part of what was served; null if nothing was"),
        (
            "entitled_share",
            REAL,
            "the part its weight entitled it to, among the keys with work and up to the work it had",
        ),
        ("lag_cost", REAL, "how much less than entitled it was served; negative if more"),
        ("starved_ms", LONG, "how long in the window it was starving"),
        DAY,
    ),
)

STARVATION = Table(
    name="starvation",
    meaning="One episode in which a top key had work waiting and got nothing for longer than the threshold.",
    schema=columns(
        ("queue", TEXT, "the queue"),
        ("top_key", TEXT, "the top key"),
        ("from_ms", LONG, "when it had last been served, or began to have work; may be before the day"),
        ("until_ms", LONG, "when it was served again; null if not on this day"),
        ("lasted_ms", LONG, "how long it had lasted then, or by the end of the day or of the journal"),
        ("served_meanwhile", LONG, "hand-outs to other keys of the queue on this day in that time, by whole windows"),
        DAY,
    ),
)

NOISY_NEIGHBOURS = Table(
    name="noisy_neighbours",
    meaning="How much of one top key's waiting in a queue in one hour is due to another; the worst pairs of each hour.",
    schema=columns(
        ("queue", TEXT, "the queue"),
        _HOUR,
        ("victim", TEXT, "the top key that waited"),
        ("neighbour", TEXT, "the top key that was served meanwhile; the victim itself for what it did to itself"),
        ("delay_ms", LONG, "the victim's waiting that falls to this neighbour, summed over messages"),
        ("victim_waited_ms", LONG, "all of the victim's waiting for its turn in that hour, summed over messages"),
        ("part", REAL, "delay_ms as a part of it"),
        ("neighbour_cost", LONG, "the cost the neighbour was served while the victim waited, by whole windows"),
        (
            "rank",
            INT,
            "1 for the pair with the most delay in this queue and hour, the victim's own left out; null for own",
        ),
        DAY,
    ),
)

THROTTLE_WAITS = Table(
    name="throttle_waits",
    meaning="What one throttle cost one key in one queue in one hour. A message with several counts under each.",
    schema=columns(
        ("queue", TEXT, "the queue"),
        ("throttle", TEXT, "the throttle"),
        ("key", TEXT, "the fairness key, a path with slashes"),
        ("top_key", TEXT, "its first name"),
        _HOUR,
        ("handed_out", LONG, "hand-outs in this hour that took a token of it"),
        ("waited", LONG, "how many of them had to wait for one"),
        ("throttled_ms", LONG, "how long they waited for one in all"),
        ("throttled_p50_ms", LONG, "half of all hand-outs waited at most so long for one"),
        ("throttled_p99_ms", LONG, "ninety-nine of a hundred"),
        ("throttled_histogram", HISTOGRAM, "all of them, mergeable"),
        DAY,
    ),
)

DEAD_LETTERS = Table(
    name="dead_letters",
    meaning="One kind of death in one queue on one day: deaths whose errors differ only in numbers, names and places.",
    schema=columns(
        ("queue", TEXT, "the queue they came from"),
        ("reason", TEXT, "max_attempts, hook, deadline or requested"),
        ("signature", TEXT, "the last error with what varies replaced; empty if none was told"),
        ("signature_id", TEXT, "a short name for queue, reason and signature"),
        ("count", LONG, "deaths"),
        ("first_seen_ms", LONG, "the first of them"),
        ("last_seen_ms", LONG, "the last of them"),
        ("keys_hit", LONG, "how many keys they were of"),
        ("keys", TEXTS, "these keys in order, the first hundred"),
        ("sample_error", TEXT, "the error of the first of them"),
        ("sample_message_ids", TEXTS, "the first five of them"),
        ("redriven", LONG, "how many of them were redriven on the same day"),
        DAY,
    ),
)

SLA = Table(
    name="sla",
    meaning="What became of one key's messages with a deadline in one queue, by the hour in which it was decided.",
    schema=columns(
        *_PLACE,
        _HOUR,
        ("with_deadline", LONG, "messages with a deadline that were acked or removed, or died"),
        ("met", LONG, "acked by their deadline"),
        ("late", LONG, "acked after it: they were handed out in time and took too long"),
        ("missed", LONG, "removed or dead because it had passed"),
        ("otherwise", LONG, "removed or dead for another reason"),
        DAY,
    ),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        *(EVENTS, MESSAGES, TENANT_USAGE, LATENCY, FAIRNESS, FAIRNESS_KEYS, STARVATION),
        *(NOISY_NEIGHBOURS, THROTTLE_WAITS, DEAD_LETTERS, SLA),
    )
}
"""All tables by name."""
