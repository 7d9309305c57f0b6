"""A broker on virtual time with a noisy neighbour, and traffic that goes on while a tuner waits."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from fairlane.spark.tune.rounds import TuneOptions
from fairlane.spark.tune.tuner import Tuner
from fairlane.spark.whatif.targets import target_of
from fairlane.testing.clock import FakeClock
from fairlane.testing.stepped import SteppedBroker
from fairlane.testing.traffic import Arrival
from fairlane.testing.traffic_drive import LiveTraffic

QUEUE = "work"
WINDOW_MS = 60_000
SERVICE_MS = 350
BURSTS = {"noisy": 60, "bakery": 20, "clinic": 20, "acme": 13}
"""How many messages each tenant sends at once. Four consumers need ten seconds for all of them."""
GOAL = "wait_p99:acme<=2s"


class World:
    """The broker and its traffic. Waits are counted by the traffic's own consumers, not by the journal.

    Attributes:
        bursts: what tenants send from now on.
        meanwhile: called once, in the middle of the next wait.
    """

    def __init__(self) -> None:
        self.broker = SteppedBroker(clock=FakeClock())
        self.broker.create_queue(QUEUE)
        self.bursts = dict(BURSTS)
        self.meanwhile: Callable[[], None] = lambda: None
        self._chance = random.Random(1)
        self._traffic = LiveTraffic(self.broker, queue=QUEUE, consumers=4)
        self._counted: dict[str, int] = {}
        self._waits: dict[str, list[int]] = {}

    def wait(self, span_ms: int) -> None:
        """Let time and traffic go on."""
        for part_ms in (span_ms // 2, span_ms - span_ms // 2):
            self._waits = self._traffic.send(self._arrivals(part_ms), for_ms=part_ms).waits_ms
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
            meanwhile()

    def _arrivals(self, span_ms: int) -> list[Arrival]:
        found = [
            (at_ms + self._chance.randrange(1_000), key)
            for at_ms in range(0, max(1, span_ms - 9_000), 20_000)
            for key, count in self.bursts.items()
            for _ in range(count)
        ]
        return [
            Arrival(
                at_ms=at_ms,
                fairness_key=key,
                cost=1,
                true_cost=1,
                service_ms=round(SERVICE_MS * self._chance.lognormvariate(0, 0.2)),
            )
            for at_ms, key in sorted(found)
        ]

    def p99_since_last(self) -> dict[str, int]:
        """Return the p99 wait of each tenant since the last call."""
        found = {key: sorted(waits[self._counted.get(key, 0) :]) for key, waits in self._waits.items()}
        self._counted = {key: len(waits) for key, waits in self._waits.items()}
        return {key: waits[-(-len(waits) * 99 // 100) - 1] for key, waits in found.items() if waits}

    def tuner(self, **options: Any) -> Tuner:
        """Return a tuner for the goal; ``propose`` replaces the search."""
        given = {name: options.pop(name) for name in ("propose",) if name in options}
        goal = target_of(options.pop("goal", GOAL))
        wanted = TuneOptions(queue=QUEUE, targets=(goal,), window_ms=WINDOW_MS, **options)
        return Tuner(self.broker, wanted, wait=self.wait, **given)

    def changes(self) -> list[tuple[str, str | None, str | None, str | None]]:
        """Return name, value, owner and reason of each change of config in the journal."""
        events = self.broker.read_journal(0, count=100_000).events
        names = ("name", "value", "owner", "reason")
        return [tuple(event.get(name) for name in names) for event in events if event["kind"] == "config_set"]  # type: ignore[misc] # four
