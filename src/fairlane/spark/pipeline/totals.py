"""Totals of each tenant, counted from the journal that the broker still has, to compare ``tenant_usage`` with.

A broker keeps no totals of a tenant, but it keeps its journal for a while. What happened in that time is counted here
event by event, in plain Python: no table, no Spark and none of the arithmetic of the tables takes part. Usage is by
the hour, so the count begins with the first whole hour of which the broker has every event, or with the journal.

Only messages that are older than the count are looked up in ``attempts``, for their key and their cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fairlane.errors import JournalTrimmed
from fairlane.model.names import is_dlq
from fairlane.model.partitions import queue_of
from fairlane.spark.pipeline.journals import JournalCoverage
from fairlane.spark.pipeline.tail import JournalSlices, Place
from fairlane.spark.tables.hourly import UNNAMED
from fairlane.spark.tables.table import HOUR_MS
from fairlane.verbs.methods.complete import AllVerbs

TOTALS_MAX: Final = 500_000
"""How many sequences of a journal are counted at most: the last ones that are in the tables."""
COUNTED: Final = ("enqueued", "leased", "acked", "cost_true", "failed", "dead", "redriven", "refused")
"""The columns of ``tenant_usage`` that are compared. ``removed`` follows from them and the messages that are left."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The part of a journal that is counted.

    Attributes:
        slices: reads it.
        after: the position before it.
        until: its last sequence, which is the last one in the tables.
        since_ms: the first hour of which it has every event; 0 if it begins with the journal.
    """

    slices: JournalSlices
    after: int
    until: int
    since_ms: int

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield its events."""
        for event in self.slices.after(self.after, until=self.until):
            if event["sequence"] > self.until:
                return
            yield event


def stretch_of(
    broker: AllVerbs[Any], journal: JournalCoverage, queue: str | None, *, count_max: int = TOTALS_MAX
) -> Stretch:
    """Return the part of a journal that can be counted: at most ``count_max`` sequences."""
    slices = JournalSlices(broker, journal.journal_id, queue)
    after = max(journal.after, journal.reached - count_max)
    try:
        found = slices.read(after, count=1)
        is_whole = after == journal.after
    except JournalTrimmed:
        found, is_whole = slices.read(after, count=1, on_trimmed="skip"), False
    if is_whole or not found.events:
        return Stretch(slices, after, journal.reached, 0)
    first = found.events[0]
    return Stretch(slices, first["sequence"] - 1, journal.reached, _next_hour(first["at_ms"]))


def since_ms(stretches: Iterable[Stretch], ended: Iterable[JournalCoverage]) -> int:
    """Return the first hour that every journal can be counted from. Journals that have ended cannot be read."""
    over = [_next_hour(journal.last_ms) for journal in ended if journal.last_ms is not None]
    return max([*over, *(stretch.since_ms for stretch in stretches)], default=0)


def _next_hour(at_ms: int) -> int:
    return (at_ms // HOUR_MS + 1) * HOUR_MS


class _Terms(NamedTuple):
    key: str
    cost: int


class _Unknown(NamedTuple):
    """A fact about a message whose terms are not in the stretch."""

    message_id: str
    sequence: int
    queue: str
    what: str
    cost: int | None


class Totals:
    """Totals by queue and key, of the events since an hour.

    Attributes:
        since_ms: the hour.
        counts: the totals, by queue, key and column of ``tenant_usage``.
        events: how many events were counted.
    """

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self._terms: dict[str, _Terms] = {}
        self._unknown: list[_Unknown] = []
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.events = 0

    def add(self, stretch: Stretch, attempts: DataFrame) -> None:
        """Count a part of a journal; ``attempts`` are those of the same journal."""
        self._terms, self._unknown = {}, []
        for event in stretch.events():
            self._learn(event)
            if event["at_ms"] >= self.since_ms:
                self.events += 1
                self._apply(event)
            if event["kind"] in ("acked", "removed"):
                self._terms.pop(event.get("message_id", ""), None)
        if self._unknown:
            self._look_up(attempts)

    def _learn(self, event: Mapping[str, Any]) -> None:
        """Remember what an event tells of a message's terms."""
        message, key = event.get("message_id"), event.get("fairness_key")
        if message is not None and key is not None:
            before = self._terms.get(message)
            cost = event.get("cost")
            self._terms[message] = _Terms("/".join(key), cost if cost is not None else before.cost if before else 1)

    def _apply(self, event: Mapping[str, Any]) -> None:
        if event["kind"] == "refused":
            key = "/".join(event.get("fairness_key") or (UNNAMED,))
            self.counts[queue_of(event["queue"]), key, "refused"] += event["messages"]
            return
        for queue, what in _facts(event):
            if not is_dlq(queue):
                cost = event.get("cost") if what == "acked" else None
                self._count(_Unknown(event["message_id"], event["sequence"], queue_of(queue), what, cost))

    def _count(self, fact: _Unknown) -> None:
        terms = self._terms.get(fact.message_id)
        if terms is None:
            self._unknown.append(fact)
        else:
            self._note(fact, terms)

    def _note(self, fact: _Unknown, terms: _Terms) -> None:
        self.counts[fact.queue, terms.key, fact.what] += 1
        if fact.what == "acked":
            self.counts[fact.queue, terms.key, "cost_true"] += terms.cost if fact.cost is None else fact.cost

    def _look_up(self, attempts: DataFrame) -> None:
        """Count what happened to older messages, with the terms of the attempt that it happened in."""
        schema = "message_id string, sequence long, fact_queue string, what string, cost_told long"
        asked = attempts.sparkSession.createDataFrame(self._unknown, schema)
        known = attempts.where("fairness_key IS NOT NULL").select("message_id", "number", "key", "cost")
        found = asked.join(known, "message_id").where("number <= sequence")
        last = F.max_by(F.struct("key", "cost"), "number").alias("terms")
        for row in found.groupBy(*asked.columns).agg(last).collect():
            fact = _Unknown(*[row[name] for name in asked.columns])
            self._note(fact, _Terms(row["terms"]["key"], row["terms"]["cost"]))


def _facts(event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what an event counts as, and in which queue."""
    kind, queue = event["kind"], event.get("queue")
    if kind in ("enqueued", "published"):
        yield queue or "", "enqueued"
    elif kind in ("leased", "acked"):
        yield queue or "", kind
    elif kind == "dead":
        yield queue or "", "dead"
    if (event.get("reason") if kind == "returned" else event.get("ended") if kind == "dead" else None) == "failure":
        yield queue or "", "failed"
    if kind in ("dead", "redriven"):
        yield event["target"], "redriven"


def usage_since(usage: DataFrame, since_ms: int) -> Counter[tuple[str, str, str]]:
    """Return what the table ``tenant_usage`` says since an hour."""
    sums = [F.sum(name).alias(name) for name in COUNTED]
    found: Counter[tuple[str, str, str]] = Counter()
    for row in usage.where(F.col("hour_ms") >= since_ms).groupBy("queue", "key").agg(*sums).collect():
        place: Place = (row["queue"], row["key"])
        found.update({(*place, name): int(row[name] or 0) for name in COUNTED})
    return found
