"""Compares the tables with the broker itself: what it counts for each tenant must be what the tables add up to.

A broker keeps no totals of a tenant: they would grow for ever, or be lost at a restart. What it does keep, in its
store and so across restarts, are the messages of each queue and fairness key, and how many of them are leased; this is
what ``queue(keys_max=...)`` shows. The tables must arrive at the same numbers in two ways, which share no arithmetic:

- ``attempts``: the attempts that have not ended are the messages, and those with a lease the leased ones.
- ``tenant_usage``: enqueued + redriven - acked - removed - dead is what is left. An event that is missing, or counted
  twice, in any of these sums shows here.

The broker goes on while the tables stand at a position of the journal. So the events after that position are followed
one by one, and a queue agrees if the broker's view of it is what the tables and these events give at some position
between the two readings of the journal around the view. Nothing has to stop for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fairlane.errors import InvalidArgument
from fairlane.lakehouse import TablesAddress
from fairlane.model.limits import KEYS_SHOWN_MAX
from fairlane.model.message import key_text
from fairlane.model.names import is_dlq
from fairlane.model.partitions import MARK
from fairlane.model.views import QueueView
from fairlane.spark.pipeline.journals import Gap
from fairlane.spark.pipeline.manifest import read_manifest
from fairlane.spark.pipeline.table_files import read_table
from fairlane.spark.pipeline.tail import JournalTail, MessageCounts, Place
from fairlane.verbs.methods.complete import AllVerbs


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One number that differs.

    Attributes:
        queue: the queue.
        key: the fairness key, a path with slashes; empty for the whole queue.
        what: what is counted: ``messages``, ``leased``, or ``usage``: messages that are left by ``tenant_usage``.
        tables: what the tables say.
        broker: what the broker says.
    """

    queue: str
    key: str
    what: str
    tables: int
    broker: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a comparison found.

    Attributes:
        position: the sequence up to which the tables reach.
        followed: how many events after it were followed.
        queues: how many queues were compared.
        keys: how many fairness keys with messages were compared.
        gaps: what is missing of the journal in the tables.
        mismatches: what differs.
    """

    position: int
    followed: int
    queues: int
    keys: int
    gaps: tuple[Gap, ...]
    mismatches: list[Mismatch]

    @property
    def agrees(self) -> bool:
        """Whether nothing differs and nothing is missing."""
        return not self.mismatches and not self.gaps


def verify(
    spark: SparkSession, broker: AllVerbs[Any], tables: str | Path | TablesAddress, *, queue: str | None = None
) -> Verification:
    """Compare tables with a broker.

    Args:
        spark: the session.
        broker: the broker, or a client of its server.
        tables: the address of the tables.
        queue: in a cluster, a queue of the group whose journal the tables are made from.

    Raises:
        InvalidArgument: there are no tables, they are of several journals, or too far behind.
        JournalTrimmed: the broker no longer has the events that the tables lack.
    """
    manifest = read_manifest(tables)
    journals = [] if manifest is None else [journal for journal in manifest.journals if not journal.is_ended]
    if manifest is None or not journals:
        raise InvalidArgument(f"There are no tables at {tables}. Create them with 'fairlane pipeline run'.")
    if len(journals) > 1:
        raise InvalidArgument(
            f"The tables at {tables} are of {len(journals)} journals; only tables of one can be verified. "
            "Build tables of one group with 'fairlane pipeline run --queue'."
        )
    position = journals[0].reached
    opened = _open_attempts(read_table(spark, tables, "attempts"))
    counts = _counts(opened)
    found = _usage_mismatches(read_table(spark, tables, "tenant_usage"), counts)
    tail = JournalTail(broker, opened, counts, position=position, queue=queue)
    names = [each.name for each in broker.queues() if queue is None or each.name in counts.messages]
    keys = 0
    for name in names:
        view, differing = _compared(broker, tail, name)
        keys += len(view.keys)
        found += differing
    found += _gone(counts, names)
    return Verification(
        position=position,
        followed=tail.position - position,
        queues=len(names),
        keys=keys,
        gaps=manifest.gaps,
        mismatches=found,
    )


def _open_attempts(attempts: DataFrame) -> DataFrame:
    """Return the messages that are in a queue, or staged for it."""
    return attempts.where("is_open").select(
        "message_id",
        "queue",
        F.coalesce("key", F.lit("")).alias("key"),
        F.col("leased_ms").isNotNull().alias("is_leased"),
        (F.col("begun_by") == "staged").alias("is_staged"),
    )


def _counts(opened: DataFrame) -> MessageCounts:
    numbers = (F.count("*").alias("messages"), F.count_if("is_leased").alias("leased"))
    found = MessageCounts()
    for row in opened.where("NOT is_staged").groupBy("queue", "key").agg(*numbers).collect():
        found.add((row["queue"], row["key"]), messages=row["messages"], leased=row["leased"])
    return found


def _usage_mismatches(usage: DataFrame, counts: MessageCounts) -> list[Mismatch]:
    """Compare what usage leaves of each key with its messages. Dead letters are no usage."""
    left = F.col("enqueued") + F.col("redriven") - F.col("acked") - F.col("removed") - F.col("dead")
    found: Counter[Place] = Counter()
    for row in usage.groupBy("queue", "key").agg(F.sum(left).alias("left")).collect():
        found[row["queue"], row["key"]] = int(row["left"])
    held: Counter[Place] = Counter()
    for queue, keys in counts.messages.items():
        for key, count in keys.items():
            if not is_dlq(queue):
                held[queue.partition(MARK)[0], key] += count  # usage is that of the whole queue
    return [
        Mismatch(queue=place[0], key=place[1], what="usage", tables=found[place], broker=held[place])
        for place in sorted(held.keys() | found.keys())
        if found[place] != held[place]
    ]


def _compared(broker: AllVerbs[Any], tail: JournalTail, name: str) -> tuple[QueueView, list[Mismatch]]:
    """Return the broker's view of a queue, and how it differs at the position at which it differs least."""
    for _ in tail.follow():
        pass
    view = broker.queue(name, keys_max=KEYS_SHOWN_MAX)
    least = _mismatches(view, tail.counts)
    for event in tail.follow():
        if least and name in (event.get("queue"), event.get("target")):
            least = min(least, _mismatches(view, tail.counts), key=len)
    return view, least


def _mismatches(view: QueueView, counts: MessageCounts) -> list[Mismatch]:
    """Return how the broker's view of a queue differs. Of many keys it shows those with most messages."""
    shown: dict[str, Counter[str]] = {"messages": Counter(), "leased": Counter()}
    for each in view.keys:
        shown["messages"][key_text(each.key)] += each.messages
        shown["leased"][key_text(each.key)] += each.leased
    found = []
    for what, whole in (("messages", view.waiting + view.leased), ("leased", view.leased)):
        told = (counts.messages if what == "messages" else counts.leased)[view.name]
        numbers = {"": (told.total(), whole)}
        is_all = len(view.keys) == view.active_keys
        for key in sorted(shown[what].keys() | (told.keys() if is_all else ())):
            numbers[key] = (told[key], shown[what][key])
        found += [
            Mismatch(queue=view.name, key=key, what=what, tables=tables, broker=broker)
            for key, (tables, broker) in numbers.items()
            if tables != broker
        ]
    return found


def _gone(counts: MessageCounts, queues: Iterable[str]) -> list[Mismatch]:
    """Return the queues that have messages by the tables and that the broker does not have."""
    return [
        Mismatch(queue=name, key="", what="messages", tables=keys.total(), broker=0)
        for name, keys in counts.messages.items()
        if keys.total() and name not in set(queues)
    ]
