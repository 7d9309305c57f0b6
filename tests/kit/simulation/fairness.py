"""A simulation of nothing but shares: keys that always have work, served in batches of any size, through crashes.

Under the full workload keys come and go, and no bound could be told. Here every key stays backlogged, so that at any
moment the costs served obey ``|S_i/w_i - S_j/w_j| <= quantum + C/w_i + C/w_j`` between siblings at each level. A crash
begins the count anew, since deficits are not durable.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

from fairlane.model.message import Delivery, NewMessage
from fairlane.model.policy import QueuePolicy
from fairlane.testing.clock import SeededEntropy
from fairlane.testing.stepped import SteppedBroker
from tests.kit.auditor.books import Path, path_of, prefixes, violated
from tests.kit.simulation.store import SimulatedDisk

_STEPS = 60
_BATCH_MAX = 20
_BACKLOG = 2 * _BATCH_MAX


class FairnessSimulation:
    """One run of one seed. ``served`` is the service of each key since the broker was opened."""

    def __init__(self, seed: int) -> None:
        chance = self._chance = random.Random(seed)
        self._seed = seed
        self._cost_max = chance.choice((1, 3, 9))
        self._quantum = chance.choice((1, 1, 4, 50))
        self._leaves = self._draw_leaves()
        keys = {above for path in self._leaves for above in prefixes(path)}
        self._weights = {path: chance.randint(1, 5) for path in sorted(keys)}
        self._waiting: Counter[Path] = Counter()
        self.served: Counter[Path] = Counter()
        self._broker = SteppedBroker(SimulatedDisk(chance), entropy=SeededEntropy(seed))
        weights = {"/".join(path): weight for path, weight in self._weights.items()}
        self._broker.create_queue("q", QueuePolicy(quantum=self._quantum, weights=weights))

    def _draw_leaves(self) -> list[Path]:
        leaves: list[Path] = []
        for tenant in range(self._chance.randint(2, 5)):
            below = self._chance.choice((0, 0, 2, 3))
            leaves += [(f"t{tenant}", f"s{sub}") for sub in range(below)] or [(f"t{tenant}",)]
        return leaves

    def run(self) -> int:
        """Run all steps and return the number of messages served.

        Raises:
            Violation: a share was not fair.
        """
        count = 0
        for _ in range(_STEPS):
            self._refill()
            if self._chance.random() < 0.1:
                self._broker.reopen()
                self.served.clear()
            deliveries = self._broker.lease("q", self._chance.randint(1, _BATCH_MAX))
            for delivery in deliveries:
                self._note(delivery)
            count += len(deliveries)
            self._broker.ack_many("q", deliveries)
        return count

    def _refill(self) -> None:
        chance = self._chance
        news = [
            NewMessage(fairness_key=path, cost=chance.randint(1, self._cost_max))
            for path in self._leaves
            for _ in range(_BACKLOG - self._waiting[path])
        ]
        chance.shuffle(news)
        self._broker.enqueue_many("q", news)
        self._waiting.update({path: _BACKLOG - self._waiting[path] for path in self._leaves})

    def _note(self, delivery: Delivery) -> None:
        path = path_of(delivery.fairness_key)
        self._waiting[path] -= 1
        for above in prefixes(path):
            self.served[above] += delivery.cost
        for one, other in combinations(self._weights, 2):
            if one[:-1] == other[:-1]:
                self._check(one, other)

    def _check(self, one: Path, other: Path) -> None:
        weights = self._weights
        apart = abs(self.served[one] / weights[one] - self.served[other] / weights[other])
        bound = self._quantum + self._cost_max / weights[one] + self._cost_max / weights[other]
        if apart > bound + 1e-9:
            violated(f"seed {self._seed}: {one} and {other} are {apart} apart, more than {bound}: {self.served}")
