"""Attempts: one row for each time a message waited, with the lease that ended the wait and how the lease ended.

All tables but ``events`` are built from them. A wait begins when a message is enqueued, published, returned,
dead-lettered (it then waits in the dead-letter queue) or redriven. It ends with a lease, or because the message leaves.
What is unknown, because the journal begins later, is null.

One pass over the events of each message in order finds everything, so the frame needs one shuffle by message and keeps
that partitioning. A message is a number *in a journal*: every journal counts from the same one.

Columns besides those of the terms (``fairness_key`` to ``deadline_ms``) and of the enqueue (``size_bytes`` to
``cause_id``):
    journal_id, message, queue: whose wait it is, as a number in a journal, and where; ``is_dlq`` if that is a
        dead-letter queue.
    key, top_key: the fairness key, and its first name.
    number: the sequence of the event with which the wait began; attempts of a message are in its order.
    begun_by, begun_reason, begun_ms: the kind, reason and instant of that event.
    due_ms, ready_ms: when it was due, if told; and that, but at the earliest when the wait began.
    leased_sequence, leased_ms, owner: the hand-out.
    delayed_ms, backoff_ms, throttled_ms, capped_ms, paused_ms, turn_ms: the wait up to the hand-out, by reason.
    service_ms: how long it was leased.
    end_ms, ended_by, end_reason, error: what ended the attempt: instant, kind and reason of the event, and the text of
        the error if it failed or was lost.
    failure: how it failed or was lost, whether that made it a dead letter or not: failure, expiry or release.
    is_failed: whether it failed; a lease that expired or was released is an attempt, but not a failed one.
    cost_true: the cost told at ack.
    last_sequence: the last event of the attempt.
    is_begun_new, is_leased_new, is_end_new: whether the events of its beginning, its hand-out and its end are new; see
        ``news``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from fairlane.model.names import DLQ_SUFFIX
from fairlane.model.waits import HOLDS
from fairlane.spark.tables.news import ALL_NEW, Reached
from fairlane.spark.tables.schemas import ATTEMPTS
from fairlane.spark.tables.table import day_of, group_of, id_of, key_text, number_of, shaped

BEGINS = ("enqueued", "published", "returned", "dead", "redriven")
TELLS_TERMS = ("enqueued", "staged", "published", "redriven")
DONE = ("acked", "removed")
STORY = (*BEGINS, "staged", "leased", *DONE)
"""The kinds of events that matter for attempts; others, such as ``extended``, change nothing."""

_TERMS = ("fairness_key", "weight", "cap", "cost", "priority", "throttles", "deadline_ms")
_ORIGIN = ("size_bytes", "dedup_id", "correlation_id", "cause_id")
_STEP = (*("sequence", "at_ms", "kind", "reason", "ended", "error", "cost", "owner"), *HOLDS)
MESSAGE = ("journal_id", "message")
"""The columns that identify a message."""
TOLD_IN = tuple(dict.fromkeys(("journal_id", "message_id", "queue", "target", "due_ms", *_STEP, *_TERMS, *_ORIGIN)))
"""The columns of events that attempts are computed from."""


def attempts(
    events: DataFrame,
    *,
    settings: DataFrame | None = None,
    ended: Mapping[str, int] | None = None,
    reached: Reached = ALL_NEW,
) -> DataFrame:
    """Return the attempts in events.

    Args:
        events: those of one or more journals.
        settings: the events of queues, if they are kept apart: Spark then knows how few they are.
        ended: the journals that others took the place of, each with the instant of its last event. What was open in
            them ended then, removed for the reason ``journal_replaced``.
        reached: how far the journals were in the tables before.
    """
    in_order = Window.partitionBy(*MESSAGE).orderBy("sequence")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, 0)
    story = _steps(events).select(
        *MESSAGE,
        "queue",
        "due_ms",
        "here",
        F.lead("here", 1).over(in_order).alias("next"),
        F.lead("here", 2).over(in_order).alias("second"),
        F.lag("sequence").over(in_order).isNull().alias("is_first"),
        F.last("told", ignorenulls=True).over(so_far).alias("terms"),
        F.last("first", ignorenulls=True).over(so_far).alias("origin"),
    )
    removals = _removals(events if settings is None else settings)
    return _measured(_ended_with_queue(_spans(story), removals, ended or {}), reached)


def _steps(events: DataFrame) -> DataFrame:
    """Return the events of messages without redundant columns: these rows are shuffled and sorted."""
    known = events.where(F.col("kind").isin(*STORY) & F.col("message_id").isNotNull())
    return known.select(
        "journal_id",
        number_of("message_id").alias("message"),
        "sequence",
        F.when(F.col("kind").isin("dead", "redriven"), F.col("target")).otherwise(F.col("queue")).alias("queue"),
        "due_ms",
        F.struct(*_STEP).alias("here"),
        F.when(F.col("kind").isin(*TELLS_TERMS) & F.col("fairness_key").isNotNull(), F.struct(*_TERMS)).alias("told"),
        F.when(F.col("kind").isin("enqueued", "staged"), F.struct(*_ORIGIN)).alias("first"),
    )


def _spans(story: DataFrame) -> DataFrame:
    """Return a row for each wait. A message whose enqueue is unknown starts with its first known event."""
    here, following = F.col("here"), F.col("next")
    is_wait = here.kind.isin(*BEGINS, "staged")
    leased = F.when(here.kind == "leased", here).when(is_wait & (following.kind == "leased"), following)
    end = (
        F.when(here.kind == "leased", following)
        .when(is_wait & (following.kind == "leased"), F.col("second"))
        .when(is_wait, following)
        .otherwise(here)
    )
    return story.where(is_wait | F.col("is_first")).select(
        *MESSAGE,
        "queue",
        F.when(is_wait, F.col("due_ms")).alias("due_ms"),
        "here",
        F.when(is_wait, here.at_ms).alias("begun_ms"),
        leased.alias("leased"),
        end.alias("end"),
        F.greatest(here.sequence, leased.sequence, end.sequence).alias("last_sequence"),
        "terms",
        "origin",
    )


def _removals(events: DataFrame) -> DataFrame:
    """Return when each queue was removed: its messages get no event for that."""
    gone = events.where(F.col("kind") == "queue_removed")
    listed = F.array_sort(F.collect_list(F.struct("sequence", "at_ms"))).alias("removals")
    return gone.groupBy("journal_id", "queue").agg(listed)


def _ended_with_queue(spans: DataFrame, removals: DataFrame, ended: Mapping[str, int]) -> DataFrame:
    later = F.filter(F.col("removals"), lambda removal: removal.sequence > F.col("last_sequence"))
    gone = F.when(F.col("end").isNull(), F.try_element_at(later, F.lit(1)))
    lost_ms = F.when(F.col("end").isNull() & gone.isNull(), _end_of_journal(ended))
    return spans.join(removals, ["journal_id", "queue"], "left").select(
        *spans.columns,
        F.coalesce(F.col("end").at_ms, gone.at_ms, lost_ms).alias("end_ms"),
        F.coalesce(F.col("end").kind, F.when(gone.isNotNull() | lost_ms.isNotNull(), "removed")).alias("ended_by"),
        F.coalesce(
            F.col("end").reason,
            F.when(gone.isNotNull(), "queue_removed").when(lost_ms.isNotNull(), "journal_replaced"),
        ).alias("end_reason"),
        F.coalesce(F.col("end").sequence, gone.sequence).alias("end_sequence"),
    )


def _end_of_journal(ended: Mapping[str, int]) -> Column:
    """Return when the journal of a message ended; null if it goes on."""
    found = F.lit(None).cast("long")
    for journal_id, ended_ms in ended.items():
        found = F.when(F.col("journal_id") == journal_id, F.lit(ended_ms).cast("long")).otherwise(found)
    return found


def _measured(spans: DataFrame, reached: Reached) -> DataFrame:
    leased, end, terms, origin = F.col("leased"), F.col("end"), F.col("terms"), F.col("origin")
    ended_by = F.col("ended_by")
    is_lease_over = leased.isNotNull() & F.col("end_ms").isNotNull()
    failure = F.when(ended_by == "dead", end.ended).when(
        (ended_by == "returned") & (F.col("end_reason") != "defer"), F.col("end_reason")
    )
    frame = spans.select(
        *MESSAGE,
        "queue",
        F.endswith("queue", F.lit(DLQ_SUFFIX)).alias("is_dlq"),
        F.col("here").sequence.alias("number"),
        F.col("here").kind.alias("begun_by"),
        F.col("here").reason.alias("begun_reason"),
        "begun_ms",
        "due_ms",
        F.greatest("begun_ms", "due_ms").alias("ready_ms"),
        leased.sequence.alias("leased_sequence"),
        leased.at_ms.alias("leased_ms"),
        leased.owner.alias("owner"),
        *[F.coalesce(leased[name], F.lit(0)).alias(f"told_{name}") for name in HOLDS],
        F.when(is_lease_over, F.col("end_ms") - leased.at_ms).alias("service_ms"),
        "end_ms",
        "ended_by",
        "end_reason",
        F.when(failure.isNotNull(), end.error).alias("error"),
        failure.eqNullSafe("failure").alias("is_failed"),
        failure.alias("failure"),
        F.when(ended_by == "acked", end.cost).alias("cost_true"),
        "last_sequence",
        key_text(terms.fairness_key).alias("key"),
        F.try_element_at(terms.fairness_key, F.lit(1)).alias("top_key"),
        *[terms[name].alias(name) for name in _TERMS],
        *[origin[name].alias(name) for name in _ORIGIN],
        reached.is_new(F.col("here").sequence).alias("is_begun_new"),
        reached.is_new(leased.sequence).alias("is_leased_new"),
        reached.is_new(F.col("end_sequence")).alias("is_end_new"),
    )
    return _with_waits(frame)


def _with_waits(frame: DataFrame) -> DataFrame:
    """Split each wait by reason, as ``fairlane.model.waits.split_wait`` does."""
    nothing = F.lit(0).cast("long")
    before_due = F.when(F.col("leased_ms").isNotNull(), F.least("ready_ms", "leased_ms") - F.col("begun_ms"))
    is_backoff = (F.col("begun_by") == "returned") & (F.col("begun_reason") != "defer")
    left = F.greatest(F.col("leased_ms") - F.col("ready_ms"), nothing)
    held = {}
    for name in HOLDS:
        held[name] = F.least(F.col(f"told_{name}"), left)
        left -= held[name]
    return frame.select(
        *[name for name in frame.columns if not name.startswith("told_")],
        F.when(is_backoff, nothing).otherwise(before_due).alias("delayed_ms"),
        F.when(is_backoff, before_due).otherwise(nothing).alias("backoff_ms"),
        *[part.alias(name) for name, part in held.items()],
        left.alias("turn_ms"),
    )


def attempt_rows(attempts: DataFrame, *, newest_day: date, groups: Mapping[str, str] | None = None) -> DataFrame:
    """Return the rows of ``attempts`` that are open or ended by a new event.

    An attempt belongs to the day on which it ended, an open one to the newest day. ``groups`` has the group of each
    journal; a journal that it does not name is of a server on its own.
    """
    is_open = F.col("ended_by").isNull()
    told = attempts.where(is_open | F.col("is_end_new")).withColumns(
        {
            "group": group_of(groups or {}),
            "message_id": id_of("message"),
            "is_open": is_open,
            "day": F.when(is_open, F.lit(newest_day)).otherwise(day_of("end_ms")),
        }
    )
    return shaped(told, ATTEMPTS)


def in_queues(frame: DataFrame) -> DataFrame:
    """Return the attempts of messages with known terms in ordinary queues: no dead letters, nothing staged."""
    is_proper = ~F.col("is_dlq") & (F.col("begun_by") != "staged") & F.col("fairness_key").isNotNull()
    return frame.where(is_proper)
