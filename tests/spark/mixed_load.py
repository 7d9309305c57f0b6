"""A load with everything in it, on virtual time: what several tenants, failing workers and an operator do to a broker.

The load counts what it did by itself, as a client would: by the answers that it got.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from fairlane.errors import FairlaneError
from fairlane.model.message import Delivery, Key, MessageTerms
from fairlane.testing.clock import FakeClock
from fairlane.testing.stepped import SteppedBroker

MIDNIGHT = 1_767_312_000_000
"""2026-01-02, midnight UTC."""
QUEUES = ("orders", "mails", "calls")
TENANTS: dict[Key, int] = {
    "acme": 12,
    ("beta", "mobile"): 6,
    ("beta", "web"): 4,
    ("gamma", "eu", "batch"): 3,
    "delta": 2,
    "tiny": 1,
}
"""The tenants and how much each sends."""

Counts = dict[str, Counter[str]]


@dataclass(slots=True)
class Pause:
    """A pause by the operator: of a queue, or of a key and all below it."""

    queue: str
    key: tuple[str, ...]
    from_ms: int
    until_ms: int | None = None


@dataclass(slots=True)
class MixedLoad:
    """A broker under a mixed load, and what the load knows of it.

    Attributes:
        counts: by verb, how often a client did it for each tenant.
        pauses: when the operator paused what.
    """

    seed: int
    broker: SteppedBroker = field(init=False)
    random: Random = field(init=False)
    counts: Counts = field(default_factory=dict)
    pauses: list[Pause] = field(default_factory=list)
    _held: list[Delivery] = field(default_factory=list)
    _sent: list[tuple[str, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.broker = SteppedBroker(clock=FakeClock(MIDNIGHT - 25 * 60_000))

    def begin(self) -> None:
        """Create the queues, and limit some of their tenants."""
        broker = self.broker
        policy = {"max_attempts": 3, "visibility_timeout_ms": 20_000, "backoff_ms": 2_000, "backoff_max_ms": 8_000}
        for queue in QUEUES:
            broker.create_queue(queue, policy)
        broker.set_throttle("smtp", rate=1.5, burst=3)
        broker.set_config("weight:orders:acme", "3")
        broker.set_config("cap:mails:beta", "2")

    def run(self, steps: int) -> None:
        """Let time pass in steps of some seconds, over midnight, while everybody does something."""
        for step in range(steps):
            self._produce()
            self._consume()
            self._settle()
            if step % 9 == 4:
                self._operate()
            self.broker.advance(self.random.randint(1_000, 9_000))
        self.broker.purge("calls")

    def count(self, verb: str, key: Key) -> None:
        """Count what was done for a tenant."""
        tenant = key if isinstance(key, str) else key[0]
        self.counts.setdefault(verb, Counter())[tenant] += 1

    def _produce(self) -> None:
        random = self.random
        for key in random.choices(list(TENANTS), weights=list(TENANTS.values()), k=random.randint(0, 9)):
            queue, terms = random.choice(QUEUES), MessageTerms()
            if random.random() < 0.2:
                terms["deadline_ms"] = random.randint(2_000, 60_000)
            if random.random() < 0.15:
                terms["delay_ms"] = random.randint(500, 20_000)
            if queue == "mails" and random.random() < 0.6:
                terms["throttles"] = ("smtp",)
            if isinstance(key, str) and random.random() < 0.1:
                terms["weight"] = random.randint(1, 5)
            terms |= {"fairness_key": key, "cost": random.randint(1, 9)}
            number = self.broker.enqueue(queue, b"x" * random.randint(0, 200), **terms)
            self._sent.append((queue, number, key if isinstance(key, str) else key[0]))
            self.count("enqueued", key)

    def _consume(self) -> None:
        for queue in QUEUES:
            if self.random.random() < 0.75:
                for delivery in self.broker.lease(queue, self.random.randint(1, 4), owner=f"worker-{queue}"):
                    self._held.append(delivery)
                    self.count("leased", delivery.fairness_key)

    def _settle(self) -> None:
        """End some of the leases. Those that workers forget expire."""
        kept: list[Delivery] = []
        for delivery in self._held:
            if self.random.random() < 0.3:
                kept.append(delivery)
                continue
            try:
                if self._end(delivery):
                    kept.append(delivery)
            except FairlaneError:  # its lease has expired, or it is gone
                self.count("too_late", delivery.fairness_key)
        self._held = kept

    def _end(self, delivery: Delivery) -> bool:
        """End a lease in one of many ways; returns whether the worker still has it."""
        random, broker, chance = self.random, self.broker, self.random.random()
        if chance < 0.62:
            broker.ack(delivery, cost=random.choice((None, None, 2, 30)))
            self.count("acked", delivery.fairness_key)
        elif chance < 0.82:
            broker.nack(delivery, error=f"no {random.randint(1, 99)} from 10.0.0.{random.randint(1, 9)}")
        elif chance < 0.88:
            broker.nack(delivery, intent="defer", delay_ms=random.randint(100, 9_000))
        elif chance < 0.91:
            broker.nack(delivery, error="not a letter", intent="dead")
        elif chance < 0.95:
            broker.extend(delivery, visibility_ms=30_000)
        return 0.91 <= chance < 0.95

    def _operate(self) -> None:
        random, broker = self.random, self.broker
        open_pauses = [pause for pause in self.pauses if pause.until_ms is None]
        if open_pauses:
            pause = open_pauses[0]
            broker.resume(pause.queue, key=_told(pause.key))
            pause.until_ms = broker.clock.now_ms()
        elif random.random() < 0.6:
            pause = Pause(random.choice(QUEUES), random.choice(((), ("acme",), ("beta",), ("gamma", "eu"))), 0)
            pause.from_ms = broker.clock.now_ms()
            broker.pause(pause.queue, key=_told(pause.key))
            self.pauses.append(pause)
        for queue, number, tenant in random.sample(self._sent[-40:], k=min(2, len(self._sent))):
            if broker.cancel_many(queue, [number]) == [None]:
                self.count("cancelled", tenant)
        if random.random() < 0.5:
            broker.redrive(f"{random.choice(QUEUES)}.dlq", count=random.randint(1, 5))


def _told(key: tuple[str, ...]) -> Key | None:
    return None if not key else key[0] if len(key) == 1 else key
