"""The events after the tables: they carry the tables' counts of messages on to what a broker has now."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from fairlane.errors import InvalidArgument
from fairlane.verbs.methods.complete import AllVerbs

_MOVES = frozenset(("published", "leased", "returned", "acked", "removed", "dead", "redriven"))
TAIL_MAX = 200_000
"""The number of events that the tables may be behind."""
_SLICE = 10_000

Place = tuple[str, str]
"""A queue and a key."""


class MessageCounts:
    """The messages of each queue and key at one position of the journal, and how many of them are leased."""

    def __init__(self) -> None:
        self.messages: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.leased: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, place: Place, *, messages: int, leased: int) -> None:
        """Count messages of a queue and key."""
        queue, key = place
        self.messages[queue][key] += messages
        self.leased[queue][key] += leased


@dataclass(slots=True)
class _Held:
    """Where a message is."""

    queue: str
    key: str
    is_leased: bool = False
    is_staged: bool = False


class JournalTail:
    """The events after the tables, applied to their counts one by one.

    Attributes:
        counts: the counts at the position.
        position: the last event that was applied.
    """

    def __init__(
        self, broker: AllVerbs[Any], opened: DataFrame, counts: MessageCounts, *, position: int, queue: str | None
    ) -> None:
        """Start at the position of the tables.

        Args:
            broker: where the journal is read.
            opened: the messages of the tables that are in a queue or staged for it.
            counts: the counts of these messages.
            position: the last event that is in the tables.
            queue: in a cluster, a queue of the group whose journal is meant.
        """
        self._broker, self._opened, self._queue, self.counts = broker, opened, queue, counts
        self._held: dict[str, _Held] = {}
        self._first = self.position = position

    def follow(self) -> Iterator[dict[str, Any]]:
        """Apply the events up to the present end of the journal, and yield each once it is applied."""
        is_more = True
        while is_more:
            found = self._broker.read_journal(self.position, count=_SLICE, queue=self._queue)
            if found.position - self._first > TAIL_MAX:
                raise InvalidArgument(
                    f"The tables end at sequence {self._first}, and the journal has over {TAIL_MAX:,} events after it. "
                    "Run 'fairlane pipeline run' first."
                )
            is_more = found.position - self.position >= _SLICE
            self._look_up(found.events)
            self.position = found.position
            for event in found.events:
                self._apply(event)
                yield event

    def _look_up(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Find the messages of events in the tables, unless they are new."""
        named = {event["message_id"] for event in events if event.get("message_id") is not None}
        wanted = [(message,) for message in sorted(named - self._held.keys())]
        if wanted:
            asked = self._opened.sparkSession.createDataFrame(wanted, "message_id string")
            for row in self._opened.join(asked, "message_id").collect():
                self._held[row["message_id"]] = _Held(row["queue"], row["key"], row["is_leased"], row["is_staged"])

    def _apply(self, event: Mapping[str, Any]) -> None:
        kind, message = event["kind"], event.get("message_id") or ""
        if kind == "queue_removed":
            self.counts.messages.pop(event["queue"], None)
            self.counts.leased.pop(event["queue"], None)
            self._held = {name: held for name, held in self._held.items() if held.queue != event["queue"]}
        elif kind in ("enqueued", "staged"):
            new = self._held[message] = _Held(event["queue"], "/".join(event["fairness_key"]))
            new.is_staged = kind == "staged"
            self._count(new, 1)
        elif kind in _MOVES and message in self._held:
            self._move(self._held.pop(message), event)

    def _move(self, held: _Held, event: Mapping[str, Any]) -> None:
        """Count a message where it goes, if it stays, and no longer where it was."""
        self._count(held, -1)
        if event["kind"] in ("acked", "removed"):
            return
        held.is_staged, held.is_leased = False, event["kind"] == "leased"
        held.queue = event.get("target") or held.queue
        if event.get("fairness_key"):
            held.key = "/".join(event["fairness_key"])
        self._held[event["message_id"]] = held
        self._count(held, 1)

    def _count(self, held: _Held, sign: int) -> None:
        if not held.is_staged:
            self.counts.add((held.queue, held.key), messages=sign, leased=sign * held.is_leased)
