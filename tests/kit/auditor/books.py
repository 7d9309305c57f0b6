"""The auditor's books: the truth according to the durable journal, kept without the broker's own code.

Each record is entered as it becomes durable, and must be legal: a leased message cannot be leased again, and only a
leased one can be acknowledged. Rules that apply at delivery are in ``auditor.rules``.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec

from fairlane.model.message import NewMessage
from fairlane.model.policy import QueuePolicy
from fairlane.model.schedules import ScheduleSpec

if TYPE_CHECKING:
    from tests.kit.auditor.uploads import UploadBook

Path = tuple[str, ...]
ERRORS_KEPT = 10
_TEMPLATE = "queue_template:"


class Violation(AssertionError):
    """The broker broke a promise."""


def violated(*what: object) -> NoReturn:
    """Report a broken promise."""
    raise Violation(" ".join(map(str, what)))


def path_of(key: str | tuple[str, ...]) -> Path:
    """Return a fairness key as a path."""
    return (key,) if isinstance(key, str) else tuple(key)


def named(name: str) -> tuple[str, str]:
    """Return the tenant and the name that it has chosen, of a text under which the broker remembers both."""
    tenant, between, chosen = name.partition("\0")
    return (tenant, chosen) if between else ("default", name)


def prefixes(path: Path) -> Iterable[Path]:
    """Return a key and all keys above it."""
    return (path[:length] for length in range(1, len(path) + 1))


@dataclass(slots=True)
class Entry:
    """A message that is not settled for good."""

    number: int
    queue: str
    chunk: int
    size: int
    enqueued_ms: int
    path: Path
    weight: int
    cost: int
    priority: int
    throttles: tuple[str, ...]
    due_ms: int | None
    deadline_ms: int | None
    cap: int | None
    attempts_max: int | None
    visibility_ms: int | None
    ttl_ms: int | None
    order_key: str | None
    unique_key: str | None
    line: int
    correlation_id: str | None = None
    attempts: int = 0
    failures: int = 0
    token: int = 0
    expires_ms: int = 0
    owner: str | None = None
    errors: list[tuple[int, int, str, str]] = field(default_factory=list)
    origin: str | None = None
    dead_reason: str | None = None
    dead_ms: int = 0
    dead_at: int = 0
    state: int | None = None
    expiries: int = 0
    leased_ms: int = 0
    revoked_until_ms: int = 0
    returned_at: int = 0
    """The sequence at which it was last returned."""
    """When the lease would have ended that the latest commit has taken back."""
    late_token: int = 0
    """The token of its last lease, if that was lost and it waits since."""
    pieces: tuple[int, ...] = ()
    """The numbers of the pieces of its payload, if that was uploaded."""
    is_fresh: bool = True
    """Whether it has kept its first position since it was enqueued, so that delivery order applies to it."""

    @property
    def lane(self) -> tuple[str, Path, int, tuple[str, ...]]:
        """The lane of the message."""
        return self.queue, self.path, self.priority, self.throttles

    def fail(self, at_ms: int, reason: str, error: str) -> None:
        """Note an attempt that failed, or was lost: the consumer was silent, or is gone."""
        if reason == "failure":
            self.failures += 1
        else:
            self.expiries += 1
        self.errors = [*self.errors, (at_ms, self.attempts, reason, error)][-ERRORS_KEPT:]


@dataclass(slots=True)
class ClaimNote:
    """A claim: its messages in order, the first under ``token`` and the others under the next ones."""

    number: int
    token: int
    numbers: list[int]


@dataclass(slots=True)
class ConsumerBook:
    """A registered consumer."""

    name: str
    epoch: int = 0
    claimed: int = 0
    done: int = 0
    heard_ms: int = 0
    idle_ms: int | None = None
    claim: ClaimNote | None = None


@dataclass(slots=True)
class SinkBook:
    """A sink, and the numbers of the messages staged for it, by batch and part.

    Attributes:
        batch: the last batch that the journal shows as published.
        answered: the last batch that the broker has confirmed as published to a driver.
    """

    name: str
    batch: int | None = None
    answered: int = -1
    messages: int = 0
    heard_ms: int = 0
    parts: dict[tuple[int, str], list[int]] = field(default_factory=dict)


@dataclass(slots=True)
class ScheduleBook:
    """A schedule, up to where its ticks are settled."""

    name: str
    spec: ScheduleSpec
    revision: int
    created_ms: int
    settled_ms: int
    by: str | None
    is_declared: bool
    is_paused: bool = False
    fired: int = 0
    missed: int = 0
    last_ms: int | None = None
    last_number: int | None = None
    missed_ms: int | None = None


@dataclass(slots=True)
class FanOutBook:
    """A fan-out: the members that are open, and those that were acknowledged as members, not as dead letters.

    Attributes:
        name: the tenant of its continuation, and what that tenant calls it.
        ended_ms: when its continuation was published, and ``ended_at`` the sequence; None and 0 before.
    """

    queue: str
    name: tuple[str, str]
    number: int
    open: set[int]
    runs_anyway: bool
    window_ms: int
    failed: int = 0
    ended_ms: int | None = None
    ended_at: int = 0
    acked: set[int] = field(default_factory=set)

    @property
    def done(self) -> int:
        """How many members were acknowledged."""
        return len(self.acked)

    def settle(self, number: int, *, is_done: bool) -> None:
        """Note the end of a message, if it is an open member and the fan-out has not ended."""
        if number in self.open and self.ended_ms is None:
            self.open.remove(number)
            if is_done:
                self.acked.add(number)
            else:
                self.failed += 1

    def counts_at(self, now_ms: int) -> bool:
        """Return whether its name must be known."""
        return self.ended_ms is None or now_ms < self.ended_ms + self.window_ms


@dataclass(slots=True)
class QueueBook:
    """A queue and its contents."""

    name: str
    policy: QueuePolicy
    created_ms: int
    made_at: int
    set_at: int = 0
    """The sequence at which its policy was set."""
    strict_at: int = 0
    """The sequence at which its order became strict."""
    is_paused: bool = False
    paused: set[Path] = field(default_factory=set)
    entries: dict[int, Entry] = field(default_factory=dict)
    dedups: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    numbered: dict[ProducerNumber, tuple[int, int]] = field(default_factory=dict)
    """Messages that their producers have numbered, and until when that counts."""
    in_use: Counter[Path] = field(default_factory=Counter)
    told_caps: dict[Path, int] = field(default_factory=dict)
    consumers: dict[str, ConsumerBook] = field(default_factory=dict)
    staged: dict[int, Entry] = field(default_factory=dict)
    sinks: dict[str, SinkBook] = field(default_factory=dict)
    schedules: dict[str, ScheduleBook] = field(default_factory=dict)
    refused: int = 0
    """Messages that the journal shows as refused by a limit."""

    @property
    def is_strict(self) -> bool:
        """Whether its messages are kept in order."""
        return self.policy.order == "strict" and not self.is_dlq

    @property
    def is_dlq(self) -> bool:
        """Whether it holds dead letters."""
        return self.name.endswith(".dlq")

    def held_under(self, claim: ClaimNote, start: int = 0, end: int | None = None) -> list[Entry]:
        """Return the messages at some positions of a claim that are still leased."""
        found = [self.entries.get(number) for number in claim.numbers]
        places = list(enumerate(found, claim.token))[start:end]
        return [entry for token, entry in places if entry is not None and entry.token == token]

    def is_held_back(self, path: Path) -> bool:
        """Return whether the queue, a key, or a key above it is paused."""
        return self.is_paused or any(above in self.paused for above in prefixes(path))


class ProducerNumber(NamedTuple):
    """The number of a message among those of a producer, which is one of a caller."""

    caller: str
    producer: str
    number: int


@dataclass(slots=True)
class Sent:
    """A message as a producer sent it, the end of the journal at that time, and all numbers it was ever sent under."""

    queue: str
    message: NewMessage
    sequence: int
    numbers: set[ProducerNumber | None] = field(default_factory=set)


@dataclass(slots=True)
class Birth:
    """How a message was created."""

    queue: str
    message: NewMessage
    dedup_id: str | None
    at_ms: int


@dataclass(slots=True)
class LeaseNote:
    """A lease, and how it ended: empty while it lasts."""

    number: int
    queue: str
    owner: str | None
    ended: str = ""
    ended_ms: int = 0
    due_ms: int | None = None
    extended: list[int] = field(default_factory=list)
    states: list[int] = field(default_factory=list)
    claim: int | None = None


@dataclass(slots=True)
class FinishedNote:
    """How a message has ended, until when that is remembered, and its result."""

    ending: str
    until_ms: int
    body: int
    result: bytes | None
    note: str | None = None
    at: int = 0
    """The sequence of its end."""


@dataclass(slots=True)
class Books:
    """Everything that is durable."""

    queues: dict[str, QueueBook] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    config_at: dict[str, int] = field(default_factory=dict)
    """The position at which a config value was last set."""
    temporary: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    readers: dict[str, tuple[int, int]] = field(default_factory=dict)
    redrives: dict[int, Any] = field(default_factory=dict)
    """By number, in ``auditor.redrives``."""
    births: dict[int, Birth] = field(default_factory=dict)
    fates: dict[int, str] = field(default_factory=dict)
    finished: dict[int, FinishedNote] = field(default_factory=dict)
    """Messages that are remembered after their end."""
    fan_outs: dict[int, FanOutBook] = field(default_factory=dict)
    """By the number of the continuation."""
    leases: dict[int, LeaseNote] = field(default_factory=dict)
    claims: dict[tuple[str, str, int], ClaimNote] = field(default_factory=dict)
    """The latest claim of each queue, consumer and number."""
    changed_at: dict[tuple[str, str], int] = field(default_factory=dict)
    """The position at which a consumer was last registered or released."""
    states: dict[int, bytes] = field(default_factory=dict)
    chunks: dict[int, int] = field(default_factory=dict)
    """The number of unsettled messages of each chunk."""
    segments: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    lanes: dict[Any, dict[int, Entry]] = field(default_factory=dict)
    """Fresh waiting messages by lane, oldest first."""
    next_sequence: int = 1
    commit_first: int = 1
    """The first sequence of the latest commit."""
    removed_at: dict[str, int] = field(default_factory=dict)
    """The sequence at which each queue was last removed."""
    sink_removed_at: dict[tuple[str, str], int] = field(default_factory=dict)
    """The sequence at which each sink of a queue was last removed."""
    base: int = 1
    trimmed: int = 1
    at_ms: int = 0
    uploads: dict[int, UploadBook] = field(default_factory=dict)
    discarded: list[int] = field(default_factory=list)
    """The pieces that are to be deleted, in order."""
    counts: Counter[str] = field(default_factory=Counter)

    def size(self) -> int:
        """Return the payload bytes of all messages and uploads."""
        uploaded = sum(upload.size for upload in self.uploads.values())
        return uploaded + sum(entry.size for entry in self.alive())

    def drop_upload(self, number: int) -> None:
        """Remove an upload, and discard its pieces."""
        self.discarded += self.uploads.pop(number).numbers()

    def entry(self, queue: str, number: int) -> Entry | None:
        """Return a message of a queue, unless it is staged."""
        book = self.queues.get(queue)
        return None if book is None else book.entries.get(number)

    def must_have(self, queue: str, number: int, what: str) -> Entry:
        """Return the message that a record refers to."""
        entry = self.entry(queue, number)
        if entry is None:
            violated(f"{what} of message {number}, which is not in queue {queue}: {self.fates.get(number)}")
        return entry

    def alive(self) -> Iterable[Entry]:
        """Return all unsettled messages, including staged ones."""
        books = self.queues.values()
        return (entry for book in books for entry in (*book.entries.values(), *book.staged.values()))

    def is_new(self, queue: str) -> bool:
        """Return whether a queue is missing, or may have been a moment ago because the latest commit created it."""
        book = self.queues.get(queue)
        return book is None or book.made_at >= self.commit_first

    def is_auto_created(self, queue: str) -> bool:
        """Return whether a template that is older than the latest commit creates a queue, without a limit."""
        for pattern in (queue, *(queue[:length] + "*" for length in range(len(queue), -1, -1))):
            if self.config_at.get(_TEMPLATE + pattern, 0) >= self.commit_first:
                return False  # it may have been another a moment ago
            if (value := self.config.get(_TEMPLATE + pattern)) is not None:
                template = json.loads(value)
                return "auto_create" in template and "queues_max" not in template and not queue.endswith(".dlq")
        return False

    def wanted_bodies(self) -> set[int]:
        """Return the numbers of the bodies that messages, states or uploads refer to, or that are to be deleted."""
        states = {entry.state for entry in self.alive() if entry.state is not None}
        results = {note.body for note in self.finished.values() if note.body}
        pieces = {number for entry in self.alive() for number in entry.pieces}
        uploaded = {number for upload in self.uploads.values() for number in upload.numbers()}
        return states | results | self.chunks.keys() | pieces | uploaded | set(self.discarded)

    # ------------------------------------------------------------------------------------------------ moving entries

    def add(self, entry: Entry) -> None:
        """Add a message to its queue."""
        book = self.queues[entry.queue]
        book.entries[entry.number] = entry
        if entry.cap is not None and not book.is_dlq and entry.origin is None:
            book.told_caps[entry.path] = entry.cap
        if entry.is_fresh:
            self.lanes.setdefault(entry.lane, {})[entry.number] = entry

    def leave_lane(self, entry: Entry) -> None:
        """Remove a message from its lane for good."""
        if entry.is_fresh:
            entry.is_fresh = False
            lane = self.lanes[entry.lane]
            del lane[entry.number]
            if not lane:
                del self.lanes[entry.lane]

    def end_lease(self, entry: Entry, how: str, at_ms: int) -> None:
        """End a lease."""
        note = self.leases[entry.token]
        note.ended, note.ended_ms = how, at_ms
        entry.revoked_until_ms = entry.expires_ms if how == "returned:defer" and note.claim is None else 0
        entry.token, entry.expires_ms, entry.owner = 0, 0, None
        self.queues[entry.queue].in_use.subtract(prefixes(entry.path))

    def take_out(self, entry: Entry, fate: str, at_ms: int) -> None:
        """Remove a message."""
        self.leave_lane(entry)
        if entry.token:
            self.end_lease(entry, fate, at_ms)
        book = self.queues[entry.queue]
        del (book.entries if entry.line else book.staged)[entry.number]
        self.fates[entry.number] = fate
        self.settle_member(entry.number, is_done=fate == "acked")
        self.discarded += entry.pieces
        self.chunks[entry.chunk] -= 1
        if not self.chunks[entry.chunk]:
            del self.chunks[entry.chunk]
        self.counts[fate.partition(":")[0]] += 1

    def settle_member(self, number: int, *, is_done: bool) -> None:
        """Note the end of a message for the fan-out that it is a member of."""
        for fan_out in self.fan_outs.values():
            fan_out.settle(number, is_done=is_done)

    def move(self, entry: Entry, target: str) -> None:
        """Move a message to another queue."""
        self.leave_lane(entry)
        del self.queues[entry.queue].entries[entry.number]
        entry.queue = target
        self.add(entry)


def unpack(chunk: bytes) -> list[tuple[dict[str, str], str | None, bytes]]:
    """Return headers, correlation id and payload of each body of a chunk."""
    count = int.from_bytes(chunk[:4], "little")
    lengths = struct.unpack_from(f"<{2 * count}I", chunk, 4)
    at = 4 + 8 * count
    found = []
    for head_size, size in zip(lengths[:count], lengths[count:], strict=True):
        head = chunk[at : at + head_size]
        headers, correlation_id = msgspec.msgpack.decode(head) if head else ({}, None)
        found.append((headers, correlation_id, chunk[at + head_size : at + head_size + size]))
        at += head_size + size
    return found
