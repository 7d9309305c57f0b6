"""Sends traffic through a real broker on a fake clock, with simulated consumers that lease, work, fail and ack."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from fairlane.assembly import export_journal
from fairlane.broker.frontends.threads import Broker
from fairlane.broker.requests import Call, NoReply, Waiter
from fairlane.broker.settings import Settings
from fairlane.model.limits import TIMESPAN_MS_MAX
from fairlane.model.message import Delivery, Receipt
from fairlane.testing.clock import FakeClock
from fairlane.testing.stepped import SteppedBroker
from fairlane.testing.traffic import Arrival, Traffic
from fairlane.verbs.leases import Ack, Extend, LeasedMessages, Nack
from fairlane.verbs.messages import Enqueue, Results
from fairlane.verbs.verb import Request

_PATIENCE_MS = 3_600_000


@dataclass(slots=True)
class Driven:
    """The result of a run: counts of outcomes, and how long each message waited after it was due.

    Attributes:
        waits_ms: waits by fairness key, in lease order.
    """

    counts: Counter[str] = field(default_factory=Counter)
    waits_ms: dict[str, list[int]] = field(default_factory=dict)
    end_ms: int = 0


class _Outcomes:
    """The reply to an enqueue, which maps the broker's ids to the arrivals."""

    def __init__(self, drive: _Drive, arrivals: list[Arrival]) -> None:
        self._drive = drive
        self._arrivals = arrivals

    def done(self) -> bool:
        return False

    def set_result(self, result: Any, /) -> None:  # noqa: ANN401 - as Reply has it
        for each, arrival in zip(result.results, self._arrivals, strict=True):
            if each.error is not None:
                self._drive.driven.counts[each.error.code] += 1
            else:
                self._drive.known[each.id] = arrival
                self._drive.driven.counts["enqueued"] += 1

    def set_exception(self, exception: BaseException, /) -> None:
        raise exception


class _Consumer:
    """A simulated consumer, which is also the reply to its own leases."""

    def __init__(self, drive: _Drive, name: str, queue: str) -> None:
        self._drive = drive
        self.name = name
        self.queue = queue

    def done(self) -> bool:
        return False

    def set_result(self, result: LeasedMessages, /) -> None:
        if result.deliveries:
            self._drive.begin_work(self, result.deliveries)
        else:
            self._drive.idle.append(self)

    def set_exception(self, exception: BaseException, /) -> None:
        raise exception


class _Drive:
    """The event loop of a run: it jumps from one event to the next."""

    def __init__(self, broker: SteppedBroker, *, batch: int, tick_ms: int) -> None:
        self._broker = broker
        self._batch = batch
        self._tick_ms = tick_ms
        self._start_ms = broker.engine.now_ms()
        self._later: list[tuple[int, int, str, _Consumer, Delivery | None]] = []
        self._numbered = 0
        self.known: dict[str, Arrival] = {}
        self.idle: deque[_Consumer] = deque()
        self.driven = Driven()

    def run(self, arrivals: Iterable[tuple[str, Arrival]], *, until_ms: int | None = None) -> Driven:
        """Send arrivals from now on, and stop at an instant, or when everything is settled."""
        coming = deque(arrivals)
        engine = self._broker.engine
        self._start_ms = engine.now_ms()
        while True:
            now_ms = engine.now_ms()
            self._ask(now_ms, coming)
            self._broker.step()
            at_ms = self._next_at(coming)
            if at_ms is None or (until_ms is not None and at_ms > until_ms):
                break
            self._broker.clock.advance(max(0, at_ms - now_ms))
        if until_ms is not None:
            self._broker.advance(max(0, until_ms - engine.now_ms()))
        self.driven.end_ms = engine.now_ms()
        return self.driven

    def _next_at(self, coming: deque[tuple[str, Arrival]]) -> int | None:
        """Return the time of the next event; None when all messages have arrived and are settled."""
        engine = self._broker.engine
        if not coming and not any(queue.messages for name, queue in self._alive()):
            return None
        instants = [engine.next_event_at()]
        if coming:
            instants.append(self._start_ms + coming[0][1].at_ms)
        if self._later:
            instants.append(self._later[0][0])
        at_ms = min((at_ms for at_ms in instants if at_ms is not None), default=None)
        if at_ms is None:
            return None
        past = (at_ms - self._start_ms) % self._tick_ms
        return at_ms + (self._tick_ms - past if past else 0)

    def _alive(self) -> Iterable[tuple[str, Any]]:
        return ((name, queue) for name, queue in self._broker.engine.ledger.queues.items() if not name.endswith(".dlq"))

    def _ask(self, now_ms: int, coming: deque[tuple[str, Arrival]]) -> None:
        """Submit everything that clients do at one instant: enqueue, finish work, lease more."""
        submit = self._broker.engine.submit
        news: dict[str, list[Arrival]] = {}
        while coming and self._start_ms + coming[0][1].at_ms <= now_ms:
            queue, arrival = coming.popleft()
            news.setdefault(queue, []).append(arrival)
        for queue, arrivals in news.items():
            request = Enqueue(queue=queue, messages=[arrival.message() for arrival in arrivals])
            submit(Call(request, _Outcomes(self, arrivals)))
        while self._later and self._later[0][0] <= now_ms:
            _, _, what, worker, delivery = heapq.heappop(self._later)
            if delivery is None:
                self.idle.append(worker)
            else:
                submit(Call(self._finish(what, delivery), NoReply()))
        while self.idle:
            worker = self.idle.popleft()
            wait = Waiter(queue=worker.queue, count=self._batch, reply=worker, owner=worker.name, wait_ms=_PATIENCE_MS)
            submit(wait)

    def begin_work(self, worker: _Consumer, deliveries: list[Delivery]) -> None:
        """Schedule a consumer's work on its deliveries, one after the other."""
        now_ms = at_ms = self._broker.engine.now_ms()
        for delivery in deliveries:
            arrival = self.known[delivery.id]
            if delivery.attempt == 1:
                waits = self.driven.waits_ms.setdefault(arrival.fairness_key, [])
                waits.append(now_ms - delivery.enqueued_ms - arrival.delay_ms)
            at_ms += arrival.service_ms
            extend_ms = delivery.expires_ms - (delivery.expires_ms - now_ms) // 4
            vanishes = arrival.vanishes and delivery.attempt == 1
            while extend_ms < at_ms and not vanishes:
                self._push(extend_ms, "extend", worker, delivery)
                extend_ms += delivery.expires_ms - now_ms - (delivery.expires_ms - now_ms) // 4
            if not vanishes:
                self._push(at_ms, "finish", worker, delivery)
        self._push(at_ms, "rest", worker, None)

    def _push(self, at_ms: int, what: str, worker: _Consumer, delivery: Delivery | None) -> None:
        self._numbered += 1
        heapq.heappush(self._later, (at_ms, self._numbered, what, worker, delivery))

    def _finish(self, what: str, delivery: Delivery) -> Request[Results]:
        """Return the command that extends or ends an attempt."""
        arrival = self.known[delivery.id]
        receipts = [Receipt(delivery.id, delivery.token)]
        if what == "extend":
            return Extend(queue=delivery.queue, receipts=receipts)
        if delivery.failures < arrival.failures:
            self.driven.counts["failed"] += 1
            return Nack(queue=delivery.queue, receipts=receipts, error=arrival.error)
        self.driven.counts["acked"] += 1
        cost = None if arrival.true_cost == arrival.cost else arrival.true_cost
        return Ack(queue=delivery.queue, receipts=[Receipt(delivery.id, delivery.token, cost)])


def drive(
    broker: SteppedBroker,
    arrivals: Iterable[Arrival],
    *,
    queue: str,
    consumers: int,
    batch: int = 1,
    tick_ms: int = 1,
) -> Driven:
    """Send arrivals through a queue, starting now, until only dead letters are left.

    Args:
        broker: the broker that has the queue.
        arrivals: the messages, in order of arrival.
        queue: the queue to send them to.
        consumers: the number of consumers. A busy one extends its leases in time.
        batch: the number of messages a consumer leases at once and handles one after the other.
        tick_ms: round event times up to multiples of this; larger values are less exact and faster.
    """
    return LiveTraffic(broker, queue=queue, consumers=consumers, batch=batch, tick_ms=tick_ms).send(arrivals)


class LiveTraffic:
    """Traffic that goes on: each call sends more through the same consumers, so that settings can change in between."""

    def __init__(self, broker: SteppedBroker, *, queue: str, consumers: int, batch: int = 1, tick_ms: int = 1) -> None:
        """Begin with idle consumers; see ``drive``."""
        self._broker = broker
        self._queue = queue
        self._drive = _Drive(broker, batch=batch, tick_ms=tick_ms)
        self._drive.idle.extend(_Consumer(self._drive, f"worker-{at}", queue) for at in range(consumers))

    def send(self, arrivals: Iterable[Arrival], *, for_ms: int | None = None) -> Driven:
        """Send arrivals from now on, for a time, or until only dead letters are left. Returns the result so far."""
        until_ms = None if for_ms is None else self._broker.engine.now_ms() + for_ms
        return self._drive.run(((self._queue, arrival) for arrival in arrivals), until_ms=until_ms)


def make_journal(
    folder: Path | str,
    traffic: Traffic,
    *,
    queue: str = "work",
    policy: Mapping[str, object] | None = None,
    config: Mapping[str, str] | None = None,
    batch: int = 1,
    tick_ms: int = 1,
    segment_events: int = 250_000,
    keep: Callable[[SteppedBroker], None] = SteppedBroker.close,
) -> Driven:
    """Send traffic through a new broker in memory, and export its journal to a folder as Parquet.

    Needs ``fairlane[arrow]``. Fifty thousand messages take seconds. ``keep`` is handed the broker at the end; by
    default it is closed.
    """
    settings = Settings(segment_events=segment_events, journal_retention_ms=TIMESPAN_MS_MAX, journal_bytes_max=1 << 40)
    broker = SteppedBroker(clock=FakeClock(), settings=settings)
    broker.create_queue(queue, policy)
    if config:
        broker.set_config_many(config)
    driven = drive(broker, traffic.arrivals(), queue=queue, consumers=traffic.consumers, batch=batch, tick_ms=tick_ms)
    broker.clock.advance(settings.segment_ms)  # so that the last segment is sealed
    broker.step()
    export_journal(cast("Broker", broker), folder)
    keep(broker)
    return driven
