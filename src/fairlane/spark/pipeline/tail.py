"""The events after the tables: they carry the tables' counts of messages on to what a broker has now."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from fairlane.errors import InvalidArgument, JournalMismatch
from fairlane.verbs.journal import Events, OnTrimmed
from fairlane.verbs.methods.complete import AllVerbs

_MOVES = frozenset(("published", "leased", "returned", "acked", "removed", "dead", "redriven"))
TAIL_MAX = 200_000
"""The number of events that the tables may be behind."""
_SLICE = 10_000

Place = tuple[str, str]
"""A queue and a key."""


@dataclass(frozen=True, slots=True)
class JournalSlices:
    """Reads a journal of a broker slice by slice, and makes sure that it is the one that is meant.

    Attributes:
        broker: the broker, or a client of its server.
        journal_id: the journal.
        queue: in a cluster, a queue of the group whose journal it is.
    """

    broker: AllVerbs[Any]
    journal_id: str
    queue: str | None

    def read(self, after: int, *, count: int = _SLICE, on_trimmed: OnTrimmed = "fail") -> Events:
        """Return about ``count`` events after a position.

        Raises:
            JournalMismatch: the broker has another journal.
            JournalTrimmed: the broker no longer has the events after the position.
        """
        found = self.broker.read_journal(after, count=count, queue=self.queue, on_trimmed=on_trimmed)
        if found.journal_id != self.journal_id:
            raise JournalMismatch(
                f"The tables are made from journal {self.journal_id}, but the journal of the broker is "
                f"{found.journal_id}."
            )
        return found

    def after(self, position: int, *, until: int) -> Iterator[dict[str, Any]]:
        """Yield the events after a position, up to another one or a little further."""
        while position < until:
            found = self.read(position)
            yield from found.events
            if found.position <= position:
                return
            position = found.position


class MessageCounts:
    """What a broker counts at one position of the journal.

    Attributes:
        messages: the messages of each queue and key.
        leased: how many of them are leased.
        refused: the messages that limits kept out of each queue.
    """

    def __init__(self, refused: Mapping[str, int]) -> None:
        self.messages: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.leased: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.refused: Counter[str] = Counter(refused)

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

    def __init__(self, slices: JournalSlices, opened: DataFrame, counts: MessageCounts, *, position: int) -> None:
        """Start at the position of the tables.

        Args:
            slices: reads the journal.
            opened: the messages of the tables that are in a queue or staged for it.
            counts: the counts of these messages.
            position: the last event that is in the tables.
        """
        self._slices, self._opened, self.counts = slices, opened, counts
        self._held: dict[str, _Held] = {}
        self._first = self.position = position

    def follow(self) -> Iterator[dict[str, Any]]:
        """Apply the events up to the present end of the journal, and yield each once it is applied."""
        is_more = True
        while is_more:
            found = self._slices.read(self.position)
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
            self.counts.refused.pop(event["queue"], None)
            self._held = {name: held for name, held in self._held.items() if held.queue != event["queue"]}
        elif kind == "refused":
            self.counts.refused[event["queue"]] += event["messages"]
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
