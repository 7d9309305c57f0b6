"""Generated traffic of a multi-tenant queue: few large tenants and many small ones, bursts, and a daily cycle.

A seed determines everything, so the same traffic can be generated again. Arrivals are plain values in the order in
which they arrive; ``fairlane.testing.traffic_drive`` sends them through a broker.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

from fairlane.model.message import NewMessage, PriorityName

_NAMES = ("acme", "bakery", "clinic", "depot", "estate", "forge", "garage", "harbour", "inn", "jeweller")
_ERRORS = {
    "timeout after {n} ms calling payments": 5,
    "HTTP 503 from host 10.0.0.{n}": 3,
    "KeyError: 'order-{n}'": 1,
    "deadlock detected on row {n}": 1,
}
_NEVER = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One message, its arrival time, and the outcome of its attempts.

    Attributes:
        at_ms: the arrival time, from the start of the traffic.
        cost: the cost that its producer declares.
        true_cost: the cost that the consumer reports when it acknowledges.
        service_ms: the duration of an attempt.
        failures: the number of attempts that fail before one succeeds.
        error: the error text of a failed attempt.
        vanishes: whether its first consumer dies, so that the lease expires.
    """

    at_ms: int
    fairness_key: str
    cost: int
    true_cost: int
    service_ms: int
    failures: int = 0
    error: str = ""
    vanishes: bool = False
    priority: PriorityName = "normal"
    throttles: tuple[str, ...] = ()
    delay_ms: int = 0
    deadline_ms: int | None = None
    size_bytes: int = 0

    def message(self) -> NewMessage:
        """Return the message that a producer sends, with a payload of zeros."""
        return NewMessage(
            payload=bytes(self.size_bytes),
            fairness_key=self.fairness_key,
            cost=self.cost,
            priority=self.priority,
            throttles=self.throttles,
            delay_ms=self.delay_ms,
            deadline_ms=self.deadline_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The parameters of generated traffic. Each *part* is a share of all messages, from 0 to 1.

    Attributes:
        seed: determines everything that is random.
        messages: the number of messages.
        span_ms: the time within which they arrive.
        tenants: the number of fairness keys.
        zipf: how unequal they are: the n-th largest tenant sends 1 / n to this power of what the largest sends.
        day_ms: the length of a day; None for a day as long as the span.
        swing: how far the peak of the day exceeds its mean, from 0 to 1.
        burst_part: the part that arrives in bursts, each from one tenant.
        burst_ms: the length of a burst.
        burst_messages: the size of a small burst; a few are many times larger.
        cost_tail: the exponent of the distribution of costs, above 1; smaller values have a heavier tail.
        cost_max: the largest cost.
        consumers: the number of consumers that the service times are scaled for.
        load: the part of their time that all first attempts take.
        failing_part: the part that fails at first.
        poison_part: the part that always fails.
        vanishing_part: the part whose first consumer dies.
        high_part: the part with high priority; an equal part has low priority.
        throttles: names of throttles, assigned to tenants in turn.
        throttled_part: the part of a tenant's messages that names its throttle.
        delayed_part: the part with a delay.
        deadline_part: the part with a deadline.
        deadline_ms: the time from arrival to the deadline.
        size_bytes: the mean size of payloads.
    """

    seed: int = 0
    messages: int = 10_000
    span_ms: int = 600_000
    tenants: int = 40
    zipf: float = 1.1
    day_ms: int | None = None
    swing: float = 0.6
    burst_part: float = 0.3
    burst_ms: int = 2_000
    burst_messages: int = 20
    cost_tail: float = 1.6
    cost_max: int = 200
    consumers: int = 8
    load: float = 0.7
    failing_part: float = 0.02
    poison_part: float = 0.001
    vanishing_part: float = 0.0005
    high_part: float = 0.0
    throttles: tuple[str, ...] = ()
    throttled_part: float = 0.5
    delayed_part: float = 0.01
    deadline_part: float = 0.0
    deadline_ms: int = 60_000
    size_bytes: int = 200

    def keys(self) -> list[str]:
        """Return the fairness keys, the largest tenant first."""
        return [_NAMES[at] if at < len(_NAMES) else f"tenant-{at + 1:03}" for at in range(self.tenants)]

    def arrivals(self) -> list[Arrival]:
        """Return all messages in the order of their arrival."""
        chance = random.Random(self.seed)
        keys = self.keys()
        sizes = [1 / (at + 1) ** self.zipf for at in range(self.tenants)]
        counts = dict.fromkeys(keys, 0)
        for key in chance.choices(keys, sizes, k=self.messages):
            counts[key] += 1
        found = [
            self._arrival(chance, at_ms, key, self._throttles_of(rank))
            for rank, (key, count) in enumerate(counts.items())
            for at_ms in self._instants(chance, count)
        ]
        found.sort(key=lambda arrival: (arrival.at_ms, arrival.fairness_key))
        return self._scaled(found)

    def _instants(self, chance: random.Random, count: int) -> list[int]:
        """Return the arrival times of a tenant's messages, single ones and bursts."""
        in_bursts = int(count * self.burst_part)
        instants = [self._instant(chance) for _ in range(count - in_bursts)]
        while in_bursts > 0:
            size = min(in_bursts, int(self.burst_messages * chance.paretovariate(1.5)))
            in_bursts -= size
            begins_ms = self._instant(chance)
            instants += [begins_ms + chance.randrange(max(1, self.burst_ms)) for _ in range(size)]
        return instants

    def _instant(self, chance: random.Random) -> int:
        """Return a random time, weighted by the daily cycle."""
        day_ms = self.day_ms or self.span_ms
        while True:
            at_ms = chance.randrange(self.span_ms)
            height = 1 - self.swing * math.cos(2 * math.pi * at_ms / day_ms)  # a day begins at its lowest
            if chance.random() * (1 + self.swing) < height:
                return at_ms

    def _throttles_of(self, rank: int) -> tuple[str, ...]:
        return (self.throttles[rank % len(self.throttles)],) if self.throttles else ()

    def _arrival(self, chance: random.Random, at_ms: int, key: str, throttles: tuple[str, ...]) -> Arrival:
        cost = min(self.cost_max, int(chance.paretovariate(self.cost_tail)))
        true_cost = max(1, round(cost * chance.lognormvariate(0, 0.3)))
        failures, error = self._failures(chance)
        draw = chance.random()
        return Arrival(
            at_ms=at_ms,
            fairness_key=key,
            cost=cost,
            true_cost=true_cost,
            service_ms=round(1_000 * true_cost * chance.lognormvariate(0, 0.2)),
            failures=failures,
            error=error,
            vanishes=chance.random() < self.vanishing_part,
            priority="high" if draw < self.high_part else "low" if draw > 1 - self.high_part else "normal",
            throttles=throttles if throttles and chance.random() < self.throttled_part else (),
            delay_ms=chance.randrange(1, 30_000) if chance.random() < self.delayed_part else 0,
            deadline_ms=self.deadline_ms if chance.random() < self.deadline_part else None,
            size_bytes=int(chance.expovariate(1 / self.size_bytes)) if self.size_bytes else 0,
        )

    def _failures(self, chance: random.Random) -> tuple[int, str]:
        """Return the number of failing attempts, and their error."""
        draw = chance.random()
        if draw >= self.poison_part + self.failing_part:
            return 0, ""
        error = chance.choices(list(_ERRORS), list(_ERRORS.values()))[0].format(n=chance.randrange(1, 250))
        if draw < self.poison_part:
            return _NEVER, error
        return 1 + int(chance.expovariate(1.5)), error

    def _scaled(self, arrivals: list[Arrival]) -> list[Arrival]:
        """Return the arrivals with service times scaled so that first attempts take ``load`` of the consumers' time."""
        whole_ms = sum(arrival.service_ms for arrival in arrivals)
        factor = self.load * self.consumers * self.span_ms / max(1, whole_ms)
        return [replace(arrival, service_ms=max(1, round(arrival.service_ms * factor))) for arrival in arrivals]
