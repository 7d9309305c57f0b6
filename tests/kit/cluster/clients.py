"""The clients of a simulated cluster: they call any node that claims to serve a queue, and check its answers.

An answer may arrive late, or never. It must have been true when it became durable.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from fairlane.broker.requests import Call, Waiter
from fairlane.errors import FairlaneError, LeaseMismatch, MessageNotFound
from fairlane.model.message import Delivery, NewMessage, Receipt
from fairlane.testing.stepped import Pending
from fairlane.verbs.leases import Ack
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.queues import CreateQueue
from fairlane.verbs.verb import Request
from tests.kit.auditor.auditor import Auditor
from tests.kit.auditor.books import ProducerNumber, violated
from tests.kit.cluster.node import OpenGroup, SimulatedNode
from tests.kit.ids import numbered
from tests.kit.simulation.answers import outcome_of

QUEUES = ("alpha", "beta", "gamma", "delta")
THROTTLE = "api"
_OVER = (LeaseMismatch, MessageNotFound)


class ClusterClients:
    """All clients together, and their knowledge.

    Attributes:
        auditors: one for each group, which reads what becomes durable there.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.auditors: dict[str, Auditor] = {}
        self._nodes: dict[str, SimulatedNode | None] = {}
        self._group_of: dict[str, str] = {}
        self._sent = 0
        self._latest: dict[str, deque[tuple[NewMessage, int]]] = {}
        self._held: list[tuple[str, Delivery]] = []
        self._seen: set[tuple[str, int]] = set()
        self._counts: Counter[str] = Counter()

    def _happens(self, likelihood: float) -> bool:
        return self.chance.random() < likelihood

    def _serving(self, queue: str) -> tuple[SimulatedNode, OpenGroup] | None:
        """Return a node that claims to serve a queue. Several may, of which at most one is right."""
        name = self._group_of[queue]
        places = [
            (node, node.groups[name])
            for node in self._nodes.values()
            if node is not None and name in node.groups and node.groups[name].is_serving
        ]
        return self.chance.choice(places) if places else None

    def _ask_something(self) -> None:
        queue = self.chance.choice(QUEUES)
        place = self._serving(queue)
        if place is None:
            return
        _, group = place
        if queue not in self.auditors[group.name].books.queues:
            timeout_ms = self.chance.choice((3_000, 20_000))
            policy: dict[str, Any] = {"visibility_timeout_ms": timeout_ms, "max_attempts": 0, "backoff_ms": 0}
            self._submit(group, CreateQueue(queue=queue, policy=policy), lambda _outcome: None)
            return
        self.chance.choice((self._enqueue, self._lease, self._lease, self._ack, self._ack))(queue, group)

    def _submit(self, group: OpenGroup, request: Request[Any], judge: Callable[[Any], None]) -> None:
        group.engine.submit(Call(request, Judged(self, judge)))

    def _message(self, queue: str) -> tuple[NewMessage, int]:
        """Return a message with its number: a new one, or one that was sent before, whatever became of it."""
        latest = self._latest.setdefault(queue, deque(maxlen=5))
        if not latest or self._happens(0.8):
            self._sent += 1
            throttles = (THROTTLE,) if self._happens(0.3) else ()
            key = self.chance.choice("xyz")
            latest.append((NewMessage(payload=b"%d" % self._sent, fairness_key=key, throttles=throttles), self._sent))
            return latest[-1]
        return self.chance.choice(latest)

    def _enqueue(self, queue: str, group: OpenGroup) -> None:
        auditor = self.auditors[group.name]
        message, number = self._message(queue)
        auditor.note_sent(queue, message, ProducerNumber("", "p", number))

        def judge(outcome: Any) -> None:
            auditor.told_enqueued(queue, [message], outcome)
            self._counts["enqueued"] += isinstance(outcome, list)

        self._submit(group, Enqueue(queue=queue, messages=[message], producer="p", numbers=(number,)), judge)

    def _lease(self, queue: str, group: OpenGroup) -> None:
        waiter = Waiter(
            queue=queue,
            count=self.chance.choice((1, 3)),
            reply=Judged(self, lambda outcome: self._receive(group.name, outcome)),
            wait_ms=self.chance.choice((0, 1_000)),
        )
        group.engine.submit(waiter)

    def _receive(self, group: str, outcome: Any) -> None:
        books = self.auditors[group].books
        for delivery in outcome if isinstance(outcome, list) else ():
            note = books.leases.get(delivery.token)
            number = numbered(delivery.id)
            if note is None or (note.number, note.queue) != (number, delivery.queue):
                violated(f"delivered {delivery}, whose lease is {note}")
            if books.births[number].message.payload != delivery.payload or (group, delivery.token) in self._seen:
                violated(f"delivered {delivery}, which was sent as {books.births[number]}, or twice under one lease")
            self._seen.add((group, delivery.token))
            self._held.append((group, delivery))
            self._counts["delivered"] += 1

    def _ack(self, queue: str, group: OpenGroup) -> None:
        """Acknowledge a message, in time or late, at any node."""
        mine = [pair for pair in self._held if pair[0] == group.name and pair[1].queue == queue]
        if not mine:
            return
        pair = self.chance.choice(mine)
        delivery, auditor = pair[1], self.auditors[group.name]

        def judge(outcome: Any) -> None:
            results = outcome if isinstance(outcome, list) else [outcome]
            auditor.told_ended([delivery], results, auditor.books.at_ms, "acked")
            self._counts["acked" if results[0] is None else "refused"] += 1
            is_over = results[0] is None or (isinstance(results[0], _OVER) and self._happens(0.5))
            if is_over and pair in self._held:
                self._held.remove(pair)

        receipts = [Receipt(delivery.id, delivery.token)]
        self._submit(group, Ack(queue=queue, receipts=receipts), judge)

    def answer(self, judge: Callable[[Any], None], outcome: Any) -> None:
        """Deliver an answer to its client, or lose it on the way."""
        if self._happens(0.02):
            self._counts["lost"] += 1
            return
        judge(outcome)


class Judged(Pending[Any]):
    """An answer that is checked when it reaches its client."""

    def __init__(self, simulation: ClusterClients, judge: Callable[[Any], None]) -> None:
        super().__init__()
        self._simulation = simulation
        self._judge = judge

    def set_result(self, result: Any, /) -> None:
        """Receive the answer."""
        super().set_result(result)
        self._simulation.answer(self._judge, outcome_of(result))

    def set_exception(self, exception: BaseException, /) -> None:
        """Receive an error."""
        super().set_exception(exception)
        if not isinstance(exception, FairlaneError):
            violated(f"answered with {exception!r}")
        self._simulation.answer(self._judge, exception)
