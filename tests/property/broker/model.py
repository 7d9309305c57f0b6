"""A naive broker: a dict of messages, and a second, slow implementation of the rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairlane.model.message import Delivery, NewMessage

MAX_ATTEMPTS = 3
MAX_EXPIRIES = 2
BACKOFF_MS = 100
WINDOW_MS = 500
ROOM = 12
WEEK_MS = 7 * 24 * 3600 * 1000
POLICY: dict[str, object] = {
    "max_attempts": MAX_ATTEMPTS,
    "max_expiries": MAX_EXPIRIES,
    "backoff_ms": BACKOFF_MS,
    "backoff_factor": 1.0,
    "backoff_jitter": 0.0,
    "dedup_window_ms": WINDOW_MS,
    "waiting_max": ROOM,
}
DLQ_POLICY: dict[str, object] = {**POLICY, "max_attempts": 0, "waiting_max": None}
QUEUES = ("a", "b", "a.dlq", "b.dlq")


@dataclass
class Known:
    """A message in the broker."""

    queue: str
    payload: bytes
    key: str
    due_ms: int = 0
    deadline_ms: int | None = None
    token: int = 0
    expires_ms: int = 0
    failures: int = 0
    expiries: int = 0
    state: tuple[str, bytes] | None = None
    unique: str | None = None


@dataclass
class KnownConsumer:
    """A registered consumer: its open claim has the messages in order, each with its token."""

    epoch: int
    idle_ms: int | None
    heard_ms: int
    claimed: int = 0
    done: int = 0
    claim: list[tuple[str, int]] | None = None


@dataclass
class KnownSink:
    """A sink: what is staged, by batch and part."""

    batch: int = -1
    count: int = 0
    heard_ms: int = 0
    parts: dict[tuple[int, str], list[NewMessage]] = field(default_factory=dict)


@dataclass
class Model:
    """The expected content of the broker."""

    now_ms: int
    messages: dict[str, Known] = field(default_factory=dict)
    dedups: dict[tuple[str, str, str], tuple[str, int]] = field(default_factory=dict)
    numbered: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    paused_keys: set[tuple[str, str]] = field(default_factory=set)
    last_token: int = 0
    last_epoch: int = 0
    consumers: dict[tuple[str, str], KnownConsumer] = field(default_factory=dict)
    sinks: dict[tuple[str, str], KnownSink] = field(default_factory=dict)
    revoked: dict[str, int] = field(default_factory=dict)
    """Messages that were cancelled under a lease, and until when that is remembered at least."""

    def missing(self, message_id: str) -> str:
        """Return the code with which a message is refused that is not in a queue."""
        until_ms = self.revoked.get(message_id, 0)
        # It is forgotten with the next sweep, which comes within a second of its time.
        return "message_cancelled" if until_ms and -(-until_ms // 1_000) * 1_000 > self.now_ms else "message_not_found"

    def of(self, queue: str) -> dict[str, Known]:
        return {message_id: known for message_id, known in self.messages.items() if known.queue == queue}

    def unique_holder(self, queue: str, message: NewMessage) -> str | None:
        """Return the message that has the unique key of a new one."""
        name = (queue, str(message.fairness_key), message.unique_key)
        found = [i for i, known in self.messages.items() if (known.queue, known.key, known.unique) == name]
        return found[0] if found and message.unique_key is not None else None

    def room(self, queue: str) -> int:
        return 10**9 if queue.endswith(".dlq") else ROOM - len(self.of(queue)) - self.staged(queue)

    def staged(self, queue: str) -> int:
        found = [sink for (name, _), sink in self.sinks.items() if name == queue]
        return sum(len(part) for sink in found for part in sink.parts.values())

    def eligible(self, queue: str) -> set[str]:
        if queue in self.paused:
            return set()
        return {
            message_id
            for message_id, known in self.of(queue).items()
            if not known.token and known.due_ms <= self.now_ms and (queue, known.key) not in self.paused_keys
        }

    def is_held(self, message_id: str, token: int) -> bool:
        known = self.messages.get(message_id)
        return known is not None and known.token == token != 0 and known.expires_ms > self.now_ms

    def lease(self, delivery: Delivery) -> None:
        known = self.messages[delivery.id]
        assert delivery.payload == known.payload
        assert delivery.failures == known.failures
        assert delivery.token > self.last_token
        self.last_token = known.token = delivery.token
        known.expires_ms = delivery.expires_ms

    def give_back(self, message_id: str, *, failed: bool, at_ms: int, delay_ms: int, dead: bool = False) -> None:
        known = self.messages[message_id]
        known.token, known.due_ms = 0, at_ms + delay_ms if delay_ms else 0
        known.failures += failed
        is_last = failed and known.failures >= MAX_ATTEMPTS
        if (dead or is_last) and not known.queue.endswith(".dlq"):
            self.bury(known)

    @staticmethod
    def bury(known: Known) -> None:
        known.queue += ".dlq"
        known.due_ms, known.deadline_ms = 0, None
        known.unique = None

    # ---------------------------------------------------------------------------------------------------- consumers

    def held_under(self, consumer: KnownConsumer) -> list[str]:
        """Return the messages that are still leased under the open claim."""
        claim = consumer.claim or []
        return [i for i, token in claim if i in self.messages and self.messages[i].token == token]

    def end_claim(self, consumer: KnownConsumer) -> None:
        consumer.done, consumer.claim = consumer.claimed, None

    def give_back_claim(self, consumer: KnownConsumer, at_ms: int) -> None:
        for message_id in self.held_under(consumer):
            self.give_back(message_id, failed=False, at_ms=at_ms, delay_ms=0)
        self.end_claim(consumer)

    # --------------------------------------------------------------------------------------------------------- time

    def pass_time(self, to_ms: int, *, asleep: bool = False) -> None:
        """End leases and deadlines; if the broker was closed meanwhile, leases end only now."""
        self.now_ms = to_ms
        for consumer in self.consumers.values():
            if asleep:
                consumer.heard_ms = to_ms
            elif consumer.claim is not None and consumer.idle_ms and consumer.heard_ms + consumer.idle_ms <= to_ms:
                self.give_back_claim(consumer, consumer.heard_ms + consumer.idle_ms)
        for sink in self.sinks.values():
            if asleep:
                sink.heard_ms = to_ms
            elif sink.heard_ms + WEEK_MS <= to_ms:
                sink.parts.clear()
        for message_id, known in self.messages.items():
            if known.token and known.expires_ms <= to_ms:
                at_ms = to_ms if asleep else known.expires_ms
                known.expiries += 1
                dead = known.expiries >= MAX_EXPIRIES
                self.give_back(message_id, failed=False, at_ms=at_ms, delay_ms=0, dead=dead)
        self.meet_deadlines()

    def meet_deadlines(self) -> None:
        for message_id, known in list(self.messages.items()):
            if not known.token and known.deadline_ms is not None and known.deadline_ms < self.now_ms:
                if known.queue == "b":
                    self.bury(known)
                else:
                    del self.messages[message_id]

    def drop_queue(self, queue: str) -> None:
        names = (queue, f"{queue}.dlq")
        self.messages = {i: known for i, known in self.messages.items() if known.queue not in names}
        self.dedups = {entry: found for entry, found in self.dedups.items() if entry[0] not in names}
        self.numbered = {entry: found for entry, found in self.numbered.items() if entry[0] not in names}
        self.paused -= set(names)
        self.consumers = {entry: known for entry, known in self.consumers.items() if entry[0] not in names}
        self.sinks = {entry: sink for entry, sink in self.sinks.items() if entry[0] not in names}
        self.paused_keys = {entry for entry in self.paused_keys if entry[0] not in names}
