"""Compares the tables with the broker itself: what it counts for each tenant must be what the tables add up to.

A broker keeps no totals of a tenant: they would grow for ever, or be lost at a restart. It does keep, in its store and
so across restarts, the messages of each queue and fairness key, how many of them are leased, how many messages limits
kept out of each queue, and for a while its journal. The tables must arrive at the same numbers in ways that share no
arithmetic:

- ``attempts``: the attempts that have not ended are the messages, and those with a lease the leased ones.
- ``tenant_usage``: enqueued + redriven - acked - removed - dead is what is left, and ``refused`` what was kept out.
- ``tenant_usage`` column by column, since the first hour that the journal still has: see ``totals``.

The broker goes on while the tables stand at a position of the journal. So the events after that position are followed
one by one, and a queue agrees if the broker's view of it is what the tables and these events give at some position
between the two readings of the journal around the view. Nothing has to stop for it. In a cluster this is done for the
journal of each group; usage and totals are compared over all of them, as the table has them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fairlane.errors import InvalidArgument
from fairlane.lakehouse import TablesAddress
from fairlane.model.message import key_text
from fairlane.model.names import is_dlq
from fairlane.model.partitions import MARK, queue_of
from fairlane.model.views import QueueView
from fairlane.spark.pipeline.groups import GroupJournal, groups_of
from fairlane.spark.pipeline.journals import Gap, JournalCoverage
from fairlane.spark.pipeline.manifest import read_manifest
from fairlane.spark.pipeline.table_files import read_table
from fairlane.spark.pipeline.tail import JournalSlices, JournalTail, MessageCounts
from fairlane.spark.pipeline.totals import Totals, since_ms, stretch_of, usage_since
from fairlane.verbs.methods.complete import AllVerbs

Counts = Mapping[str, MessageCounts]
"""What the tables say, by journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One number that differs.

    Attributes:
        queue: the queue.
        key: the fairness key, a path with slashes; empty for the whole queue.
        what: what is counted: ``messages``, ``leased``, ``usage`` (messages that are left by ``tenant_usage``), or a
            column of ``tenant_usage``.
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
        positions: the sequence up to which the tables reach, by journal.
        followed: how many events after it were followed.
        queues: how many queues were compared.
        keys: how many fairness keys with messages were compared.
        totals_since_ms: the hour since which the columns of ``tenant_usage`` were compared; 0 if that is the beginning,
            None if only one of several journals was compared.
        counted: how many events of the journals were counted for that.
        gaps: what is missing of the journal in the tables.
        mismatches: what differs.
    """

    positions: dict[str, int]
    followed: int
    queues: int
    keys: int
    totals_since_ms: int | None
    counted: int
    gaps: tuple[Gap, ...]
    mismatches: list[Mismatch]

    @property
    def agrees(self) -> bool:
        """Whether nothing differs and nothing is missing."""
        return not self.mismatches and not self.gaps


def verify(
    spark: SparkSession, broker: AllVerbs[Any], tables: str | Path | TablesAddress, *, queue: str | None = None
) -> Verification:
    """Compare tables with a broker, or with all groups of a cluster.

    Args:
        spark: the session.
        broker: the broker, or a client of its server or cluster.
        tables: the address of the tables.
        queue: in a cluster, compare only the journal of the group of this queue.

    Raises:
        InvalidArgument: there are no tables, they are too far behind, or they are of a cluster and the broker is none.
        JournalMismatch: the tables are made from another journal than that of the broker.
        JournalTrimmed: the broker no longer has the events that the tables lack.
    """
    manifest = read_manifest(tables)
    journals = [] if manifest is None else [journal for journal in manifest.journals if not journal.is_ended]
    if manifest is None or not journals:
        raise InvalidArgument(f"There are no tables at {tables}. Create them with 'fairlane pipeline run'.")
    attempts, usage = read_table(spark, tables, "attempts"), read_table(spark, tables, "tenant_usage")
    opened = _open_attempts(attempts)
    counts = _counts(opened, usage)
    groups = groups_of(broker, journals, queue)
    ended = [journal for journal in manifest.journals if journal.is_ended]
    found = _usage_mismatches(usage, counts)
    totals = _totals(groups, ended, attempts) if len(groups) == len(journals) else None
    if totals is not None:
        found += _total_mismatches(usage_since(usage, totals.since_ms), totals.counts)
    compared = [_GroupComparison(group, opened, counts[group.journal.journal_id]) for group in groups]
    found += [mismatch for each in compared for mismatch in each.mismatches()]
    return Verification(
        positions={group.journal.journal_id: group.journal.reached for group in groups},
        followed=sum(each.followed for each in compared),
        queues=sum(each.queues for each in compared),
        keys=sum(each.keys for each in compared),
        totals_since_ms=None if totals is None else totals.since_ms,
        counted=0 if totals is None else totals.events,
        gaps=manifest.gaps,
        mismatches=_without_recreated(found, read_table(spark, tables, "events"), is_refused_known=not ended),
    )


def _open_attempts(attempts: DataFrame) -> DataFrame:
    """Return the messages that are in a queue, or staged for it."""
    return attempts.where("is_open").select(
        "journal_id",
        "message_id",
        "queue",
        F.coalesce("key", F.lit("")).alias("key"),
        F.col("leased_ms").isNotNull().alias("is_leased"),
        (F.col("begun_by") == "staged").alias("is_staged"),
    )


def _counts(opened: DataFrame, usage: DataFrame) -> Counts:
    """Return what the tables say of each journal. Refusals are those of the queue over all journals."""
    numbers = (F.count("*").alias("messages"), F.count_if("is_leased").alias("leased"))
    rows = usage.groupBy("queue").agg(F.sum("refused").alias("refused")).collect()
    refused = Counter({row["queue"]: int(row["refused"] or 0) for row in rows})
    found: defaultdict[str, MessageCounts] = defaultdict(lambda: MessageCounts(refused))
    for row in opened.where("NOT is_staged").groupBy("journal_id", "queue", "key").agg(*numbers).collect():
        found[row["journal_id"]].add((row["queue"], row["key"]), messages=row["messages"], leased=row["leased"])
    return found


def _usage_mismatches(usage: DataFrame, counts: Counts) -> list[Mismatch]:
    """Compare what usage leaves of each key with its messages. Dead letters are no usage."""
    left = F.col("enqueued") + F.col("redriven") - F.col("acked") - F.col("removed") - F.col("dead")
    found: Counter[tuple[str, str, str]] = Counter()
    for row in usage.groupBy("queue", "key").agg(F.sum(left).alias("left")).collect():
        found[row["queue"], row["key"], "usage"] = int(row["left"])
    held: Counter[tuple[str, str, str]] = Counter()
    for of_journal in counts.values():
        for queue, keys in of_journal.messages.items():
            for key, count in keys.items():
                if not is_dlq(queue):
                    held[queue_of(queue), key, "usage"] += count  # usage is that of the whole queue
    return _total_mismatches(found, held)


def _totals(groups: Sequence[GroupJournal], ended: Sequence[JournalCoverage], attempts: DataFrame) -> Totals:
    """Return the totals of all journals, since the first hour that can be counted in each of them."""
    stretches = [stretch_of(group.broker, group.journal, group.queue) for group in groups if not group.is_gone]
    gone = [group.journal for group in groups if group.is_gone]
    totals = Totals(since_ms(stretches, [*ended, *gone]))
    for stretch in stretches:
        totals.add(stretch, attempts.where(F.col("journal_id") == stretch.slices.journal_id))
    return totals


def _total_mismatches(tables: Counter[tuple[str, str, str]], broker: Counter[tuple[str, str, str]]) -> list[Mismatch]:
    """Return the totals that differ."""
    return [
        Mismatch(queue=place[0], key=place[1], what=place[2], tables=tables[place], broker=broker[place])
        for place in sorted(tables.keys() | broker.keys())
        if tables[place] != broker[place]
    ]


def _without_recreated(found: list[Mismatch], events: DataFrame, *, is_refused_known: bool) -> list[Mismatch]:
    """Leave out what the broker no longer knows: it counts refusals since a queue was created last."""
    told = {each.queue for each in found if (each.key, each.what) == ("", "refused")}
    if not told:
        return found
    removed = events.where((F.col("kind") == "queue_removed") & F.col("queue").isin(*told)).select("queue").distinct()
    again = {row["queue"] for row in removed.collect()} if is_refused_known else told
    return [each for each in found if (each.key, each.what) != ("", "refused") or each.queue not in again]


class _GroupComparison:
    """The comparison of one journal with what the broker has of its queues.

    Attributes:
        followed: how many events after the tables were followed.
        queues: how many queues were compared.
        keys: how many fairness keys with messages were compared.
    """

    def __init__(self, group: GroupJournal, opened: DataFrame, counts: MessageCounts) -> None:
        journal = group.journal
        own = opened.where(F.col("journal_id") == journal.journal_id)
        slices = JournalSlices(group.broker, journal.journal_id, group.queue)
        self._group, self._counts = group, counts
        self._tail = JournalTail(slices, own, counts, position=journal.reached)
        self.followed = self.queues = self.keys = 0

    def mismatches(self) -> list[Mismatch]:
        """Return what differs."""
        found: list[Mismatch] = []
        names = set()
        for name in self._group.names(list(self._counts.messages)):
            compared = self._compared(name)
            if compared is not None:
                names.add(name)
                found += compared
        self.queues, self.followed = len(names), self._tail.position - self._group.journal.reached
        return found + [
            Mismatch(queue=name, key="", what="messages", tables=keys.total(), broker=0)
            for name, keys in self._counts.messages.items()
            if keys.total() and name not in names
        ]

    def _compared(self, name: str) -> list[Mismatch] | None:
        """Return how the broker's view of a queue differs at the position at which it differs least; None if gone."""
        for _ in self._tail.follow():
            pass
        view = self._group.view(name)
        if view is None:
            return None
        is_whole = MARK not in name and name not in self._group.splits
        least = _mismatches(name, view, self._counts, is_whole=is_whole)
        for event in self._tail.follow():
            if least and name in (event.get("queue"), event.get("target")):
                least = min(least, _mismatches(name, view, self._counts, is_whole=is_whole), key=len)
        self.keys += len(view.keys)
        return least


def _mismatches(name: str, view: QueueView, counts: MessageCounts, *, is_whole: bool) -> list[Mismatch]:
    """Return how the broker's view of a queue differs. Of many keys it shows those with most messages."""
    shown: dict[str, Counter[str]] = {"messages": Counter(), "leased": Counter()}
    for each in view.keys:
        shown["messages"][key_text(each.key)] += each.messages
        shown["leased"][key_text(each.key)] += each.leased
    numbers: dict[tuple[str, str], tuple[int, int]] = {}
    for what, whole in (("messages", view.waiting + view.leased), ("leased", view.leased)):
        told = (counts.messages if what == "messages" else counts.leased)[name]
        numbers["", what] = (told.total(), whole)
        is_all = len(view.keys) == view.active_keys
        for key in sorted(shown[what].keys() | (told.keys() if is_all else ())):
            numbers[key, what] = (told[key], shown[what][key])
    if is_whole:
        numbers["", "refused"] = (counts.refused[name], view.refused)
    return [
        Mismatch(queue=name, key=key, what=what, tables=tables, broker=broker)
        for (key, what), (tables, broker) in numbers.items()
        if tables != broker
    ]
