"""What observers see of a broker: taps on its commits, looks at its queues, and what it has measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from time import thread_time
from typing import TypeVar

from fairlane.broker.engine.engine import Engine, Tap
from fairlane.broker.measurements import BrokerMetrics, ScheduleCounts, ThrottleCounts
from fairlane.broker.settings import Settings
from fairlane.broker.views.queues import queue_details, stream_views
from fairlane.core.ledger import Message
from fairlane.model.message import Key
from fairlane.model.views import BreakerCause, QueueView, StreamView

T = TypeVar("T")


class ObservedBroker(ABC):
    """The part of a broker that metrics, the live view, tracing and the cluster use."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @abstractmethod
    async def _read(self, look: Callable[[], T]) -> T:
        """Return what a function sees at the end of a cycle."""

    def add_tap(self, tap: Tap) -> None:
        """Call a function with the records of every durable commit. It must not raise, and should be quick."""
        self._engine.taps.append(tap)

    def watch_hand_outs(self, queue: str, tell: Callable[[list[Key], list[int]], None]) -> Callable[[], None]:
        """Call a function with the fairness keys and costs of durable hand-outs of a queue, claims excepted.

        It must not raise, and should be quick. Call what is returned to end it.
        """

        def tap(name: str, messages: list[Message]) -> None:
            if name == queue:
                tell([message.key for message in messages], [message.cost for message in messages])

        taps = self._engine.hand_out_taps
        taps.append(tap)
        return lambda: taps.remove(tap)

    async def look_at(
        self, queue: str, *, keys_max: int, wanted: Callable[[Key], bool] | None = None
    ) -> tuple[QueueView, float]:
        """Return a queue with up to ``keys_max`` of its fairness keys, and the CPU seconds that took.

        Raises:
            QueueNotFound: there is no such queue.
        """
        engine = self._engine

        def look() -> tuple[QueueView, float]:
            begun = thread_time()
            view = queue_details(engine, queue, engine.now_ms(), keys_max=keys_max, wanted=wanted)
            return view, thread_time() - begun

        return await self._read(look)

    async def streams(self, queue: str) -> list[StreamView]:
        """Return the consumers that messages of a queue are streamed to, those with the oldest lease first.

        Raises:
            QueueNotFound: there is no such queue.
        """
        engine = self._engine
        return await self._read(lambda: stream_views(engine.ledger, engine.consumers, queue))

    def journal_end(self) -> int:
        """Return the position of the latest event of the journal."""
        return self._engine.ledger.next_sequence - 1

    def terms_of(self, queue: str, numbers: Iterable[int]) -> tuple[list[Key], list[int]]:
        """Return fairness keys and costs of those messages that are in a queue now, for taps."""
        known = self._engine.ledger.queues.get(queue)
        if known is None:
            return [], []
        found = [message for message in map(known.messages.get, numbers) if message is not None]
        return [message.key for message in found], [message.cost for message in found]

    def weight_of(self, queue: str, key: Key) -> int:
        """Return the weight of a fairness key now; 1 if the queue is gone."""
        policy = self._engine.schedule.key_policy(queue, key) if queue in self._engine.ledger.queues else None
        return policy.weight if policy is not None else 1

    def bypass_of(self, queue: str) -> BreakerCause | None:
        """Return why the scripts of a queue are bypassed now; None if they are not."""
        return self._engine.hooks.statistics(queue, self._engine.now_ms()).open_by

    def throttle_demand(self) -> dict[str, int]:
        """Return the weights of the queues that throttles hold up now, added up by throttle or by pattern of them."""
        return self._engine.schedule.held_up()

    @property
    def sequence(self) -> int:
        """The sequence that the next record of the journal will have; it only grows."""
        return self._engine.ledger.next_sequence

    def measured(self) -> BrokerMetrics:
        """Return what the broker has measured of itself."""
        engine = self._engine
        engine.metrics.fold()
        now_ms, ledger = engine.now_ms(), engine.ledger
        throttles = [
            ThrottleCounts(name=each.name, tokens=each.tokens, passed=each.passed, held_back=each.held_back)
            for each in engine.schedule.throttles.counts(now_ms)
        ]
        scripted = [
            queue.name for queue in ledger.queues.values() if queue.policy.on_enqueue or queue.policy.on_failure
        ]
        return BrokerMetrics(
            engine=engine.metrics,
            next_sequence=ledger.next_sequence - ledger.counts_from,
            recovery_from=ledger.base - ledger.counts_from,
            throttles=throttles,
            hooks={name: (engine.hooks.statistics(name, now_ms), engine.hooks.timings(name)) for name in scripted},
            schedules={
                queue.name: ScheduleCounts.of(queue.schedules.values())
                for queue in ledger.queues.values()
                if queue.schedules
            },
            held_bytes=ledger.size,
            disk=engine.reserve.space(),
            used=_used(ledger.messages, ledger.size, engine.settings),
        )

    def now_ms(self) -> int:
        """Return the broker's time."""
        return self._engine.now_ms()


def _used(messages: int, size: int, settings: Settings) -> dict[str, float]:
    """Return which part of each limit on all queues together is used."""
    limits = {"waiting_max": (messages, settings.waiting_max), "waiting_bytes_max": (size, settings.waiting_bytes_max)}
    return {name: used / most for name, (used, most) in limits.items() if most}
