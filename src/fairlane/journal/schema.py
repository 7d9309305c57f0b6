"""The columns of the journal's events: each is defined here once.

Everything that names event columns derives from ``COLUMNS``: the rows of ``journal/events.py``, the Arrow schema, the
Parquet files, the Spark source and tables, what-if, and the table in ``docs/reference/journal.md``
(``tools/sync_tables.py`` writes that one).

To add a column, append it with ``since`` one above ``EVENTS_VERSION``, and fill it in ``journal/events.py``. A column
never changes its meaning, and is never removed: a reader ignores the columns that it does not know, and reads a column
that an older file lacks as null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ColumnType = Literal["int64", "string", "list of strings", "bool"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the events.

    Attributes:
        name: the column's name in every format.
        type: the type of its values.
        meaning: one sentence for people, in Markdown.
        is_required: whether every event fills the column. Otherwise it is null where a kind does not use it.
        since: the version of the events table that introduced the column.
    """

    name: str
    type: ColumnType
    meaning: str
    is_required: bool = False
    since: int = 1


COLUMNS: tuple[Column, ...] = (
    Column("sequence", "int64", "the sequence number of the event", is_required=True),
    Column("at_ms", "int64", "when the broker decided it", is_required=True),
    Column("kind", "string", "what happened, see [Kinds](#kinds)", is_required=True),
    Column(
        "record", "int64", "the sequence of the first event that was decided together with this one", is_required=True
    ),
    Column("queue", "string", "the queue; for a dead letter, its dead-letter queue"),
    Column("message_id", "string", "the number of the message, as sixteen hexadecimal digits"),
    Column("fairness_key", "list of strings", "the fairness key as a path; a plain key is a path of one name"),
    Column("weight", "int64", "the weight the message brought for its key; null leaves the key's weight unchanged"),
    Column(
        "cost",
        "int64",
        "the estimate at `enqueued` and `redriven`, the true cost at `acked` if reported, the sum at `refused`",
    ),
    Column("priority", "string", "`high`, `normal` or `low`"),
    Column(
        "throttles",
        "list of strings",
        "the throttles that the message needs a token of; `QUEUE/NAME` if the policy's `throttle_scope` is `queue`",
    ),
    Column(
        "due_ms", "int64", "the earliest instant of delivery, null for immediately; or the instant of a schedule's tick"
    ),
    Column("deadline_ms", "int64", "the instant after which the message is no longer delivered"),
    Column("cap", "int64", "the cap the message brought for its key"),
    Column("size_bytes", "int64", "the size of the payload, the workflow state, the result or the segment"),
    Column("dedup_id", "string", "the dedup id"),
    Column("correlation_id", "string", "the correlation id, if the producer set one"),
    Column(
        "cause_id",
        "string",
        "the message whose acknowledgement enqueued this one; the first, if several were acknowledged together",
    ),
    Column("token", "int64", "the fencing token, equal to `sequence`"),
    Column(
        "expires_ms",
        "int64",
        "when the lease ends unless it is extended, null for a lease under a claim; when a config value expires; or "
        "until when the end of a message is remembered",
    ),
    Column(
        "owner",
        "string",
        "the owner of the lease, if there is one; under a claim, the registered consumer; or a config value's owner",
    ),
    Column("reason", "string", "why it happened, see [Reasons](#reasons)"),
    Column("ended", "string", "for `dead`: how the last attempt failed, as in the reasons of `returned`"),
    Column("error", "string", "the error text of the failed attempt"),
    Column("target", "string", "the queue that the message moved to"),
    Column("name", "string", "the config key, journal reader, registered consumer, sink or schedule"),
    Column(
        "value",
        "string",
        "the config value, the part of a batch, the spec of a schedule, the reason of a cancel, or details as JSON",
    ),
    Column(
        "position",
        "int64",
        "a position in the journal, for a redrive that of its `redrive_started`; a sink's batch, or an upload's number",
    ),
    Column("is_paused", "bool", "true for a pause, false for a resume"),
    Column("policy_json", "string", "the queue's whole policy as JSON, defaults included"),
    Column("by", "string", "the caller who requested the change, if known"),
    Column("throttled_ms", "int64", "how long the message waited for a throttle's token; null for not at all"),
    Column(
        "capped_ms",
        "int64",
        "how long the message waited because its key, or a key above it, was at its cap; null for not at all",
    ),
    Column("asked", "int64", "how many messages the consumer requested"),
    Column("claim", "int64", "the number of a registered consumer's claim"),
    Column(
        "paused_ms",
        "int64",
        "how long the message waited because its queue, its key or a key above it was paused; null for not at all",
        since=2,
    ),
    Column(
        "journal_id", "string", "the journal that the event is in; not in JSON, whose answer names it once", since=3
    ),
    Column("messages", "int64", "for `refused`: how many messages of the key were refused", since=4),
    Column("order_key", "string", "what the message is kept in order with, within its fairness key", since=5),
    Column(
        "is_single",
        "bool",
        "true if a lease could have had several messages of a key by `order_batch_max`, and was given one of each",
        since=5,
    ),
    Column(
        "unique_key",
        "string",
        "what only one message of a tenant in the queue has at a time, while it waits or is leased",
        since=6,
    ),
)

NAMES: tuple[str, ...] = tuple(column.name for column in COLUMNS)
EVENTS_VERSION = max(column.since for column in COLUMNS)
"""The version of the events table: that of its newest column."""
