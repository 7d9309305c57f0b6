"""The gate: so many requests at once, and whose is next."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypedDict

from fairlane.asgi.alarm import Alarm
from fairlane.asgi.completion_rate import CompletionRate
from fairlane.asgi.live_throttles import GateThrottles
from fairlane.asgi.queued_request import QueuedRequest
from fairlane.asgi.refusal import departure_error, refusal_error
from fairlane.asgi.stats import GateStats
from fairlane.errors import FairlaneError
from fairlane.scheduler import (
    Backpressure,
    Explanation,
    Kernel,
    Key,
    KeyPolicy,
    Priority,
)
from fairlane.scheduler.item import canonical_key
from fairlane.scheduler.keys import PolicyProvider
from fairlane.scheduler.policy import require_whole

Policies: TypeAlias = Mapping[Key, KeyPolicy] | Mapping[str, KeyPolicy]
"""What keys are entitled to. A mapping is invariant in its keys, so the plain case needs a word of its own."""


def monotonic_ms() -> int:
    """Return the system's monotonic clock in whole milliseconds."""
    return time.monotonic_ns() // 1_000_000


class GateOptions(TypedDict, total=False):
    """The arguments of ``FairGate``, for whoever passes them on."""

    in_flight: int
    waiting_max: int | None
    key_waiting_max: int | None
    backpressure: Backpressure
    strict_priority: bool
    policies: Policies | None
    policy_provider: PolicyProvider | None
    wait_timeout_ms: int | None
    clock: Callable[[], int]


class FairGate:
    """Lets a number of requests through at once, in fair order.

    It belongs to one event loop, the first that a request comes from. Its methods must be called there, but for
    ``stats``, which may be called from anywhere.

    Attributes:
        throttles: the throttles that requests may name.
    """

    def __init__(
        self,
        *,
        in_flight: int = 64,
        waiting_max: int | None = 1_000,
        key_waiting_max: int | None = 100,
        backpressure: Backpressure = Backpressure.REJECT,
        strict_priority: bool = False,
        policies: Policies | None = None,
        policy_provider: PolicyProvider | None = None,
        wait_timeout_ms: int | None = 30_000,
        clock: Callable[[], int] = monotonic_ms,
    ) -> None:
        """Make a gate with all its slots free.

        Args:
            in_flight: how many requests run at once.
            waiting_max: how many may wait in all, None for any number.
            key_waiting_max: how many of one fairness key may wait, unless its policy says otherwise.
            backpressure: what happens beyond these limits.
            strict_priority: let higher priority go first across all keys, not only within one.
            policies: the weights, caps and limits of keys.
            policy_provider: asked for the policy of each key that is not in ``policies``.
            wait_timeout_ms: how long a request may wait, None for as long as it takes.
            clock: returns the present instant in whole milliseconds, and never runs backwards.

        Raises:
            ValueError: a number is out of range.
        """
        require_whole("in_flight", in_flight, least=1)
        if wait_timeout_ms is not None:
            require_whole("wait_timeout_ms", wait_timeout_ms, least=0)
        self._in_flight_max = in_flight
        self._wait_timeout_ms = wait_timeout_ms
        self._clock = clock
        self.throttles = GateThrottles(begin_change=self._begin_change, end_change=self._serve)
        self._kernel: Kernel[QueuedRequest] = Kernel(
            waiting_max=waiting_max,
            key_waiting_max=key_waiting_max,
            backpressure=backpressure,
            strict_priority=strict_priority,
            counts_use=True,
            throttles=self.throttles,
        )
        self._kernel.set_policy_provider(policy_provider)
        for key, policy in (policies or {}).items():
            self._kernel.set_policy(key, policy)
        self._pace = CompletionRate()
        self._waiting: dict[QueuedRequest, None] = {}
        self._in_flight = self._granted = self._finished = self._disconnected = 0
        self._refused: Counter[str] = Counter()
        self._alarm = Alarm(self._serve)

    # -------------------------------------------------------------------------------------------- for the operator

    def stats(self) -> GateStats:
        """Return how the gate stands now."""
        return GateStats(
            in_flight=self._in_flight,
            in_flight_max=self._in_flight_max,
            waiting=len(self._kernel),
            granted=self._granted,
            finished=self._finished,
            refused=dict(self._refused),
            disconnected=self._disconnected,
        )

    def waiting(self, key: Key) -> int:
        """Return how many requests of a key, or of the keys below it, wait."""
        return self._kernel.waiting(key)

    def in_flight(self, key: Key) -> int:
        """Return how many requests of a key, or of the keys below it, have a slot."""
        return self._kernel.in_use(key)

    def explain(self, key: Key) -> Explanation | None:
        """Tell why the longest waiting request of a key waits, or None if the key has none."""
        key = canonical_key(key)
        place = next((place for place in self._waiting if place.key == key), None)
        return None if place is None else self._kernel.explain(place, self._clock())

    def set_policy(self, key: Key, policy: KeyPolicy) -> None:
        """Set the weight, cap and limits of a key; they act at once and last until cleared."""
        self._begin_change()
        self._kernel.set_policy(key, policy)
        self._serve()

    def clear_policy(self, key: Key) -> None:
        """Go back to the provider's policy for a key, or the default."""
        self._begin_change()
        self._kernel.clear_policy(key)
        self._serve()

    def refresh_policy(self, key: Key) -> None:
        """Ask the policy provider again about a key."""
        self._begin_change()
        self._kernel.refresh_policy(key)
        self._serve()

    def set_in_flight(self, in_flight: int) -> None:
        """Change how many requests run at once. If more run now, they finish; none is let through until then."""
        require_whole("in_flight", in_flight, least=1)
        self._begin_change()
        self._in_flight_max = in_flight
        self._serve()

    def pause(self, key: Key) -> None:
        """Let no request of a key, or of the keys below it, through until it is resumed. They may still wait."""
        self._begin_change()
        self._kernel.pause(key)

    def resume(self, key: Key) -> None:
        """Undo ``pause``."""
        self._begin_change()
        self._kernel.resume(key)
        self._serve()

    # ------------------------------------------------------------------------------------------ for the middleware

    def place(
        self, key: Key, *, cost: int, priority: Priority, throttles: Sequence[str], wait_max_ms: int | None
    ) -> QueuedRequest:
        """Describe a request that arrives now. ``wait_max_ms`` is the client's own limit; the gate's applies too."""
        limit_ms = self._wait_timeout_ms
        is_client_limit = wait_max_ms is not None and (limit_ms is None or wait_max_ms <= limit_ms)
        return QueuedRequest(
            key,
            cost=cost,
            priority=priority,
            throttles=throttles,
            wait_max_ms=wait_max_ms if is_client_limit else limit_ms,
            is_client_limit=is_client_limit,
            now_ms=self._clock(),
        )

    def enter(self, place: QueuedRequest) -> None:
        """Let a request wait, and go at once if it may. Raises ``KeyFull`` or ``GlobalFull`` if it may not even wait.

        Raises:
            WrongEventLoop: the gate is in use by another event loop.
        """
        self._alarm.settle_in(is_busy=bool(self._in_flight or self._waiting))
        was_backlogged = len(self._kernel) > 0
        now_ms = self._clock()
        refusal = self._kernel.offer(place, now_ms)
        if refusal is not None:
            raise refusal_error(refusal, self._retry_after_ms())
        self._waiting[place] = None
        self._serve()
        if not was_backlogged and self._waiting:
            self._pace.begin(now_ms)

    def begin(self) -> None:
        """Note that a request which has been granted a slot calls the application."""
        self._granted += 1

    def finish(self, place: QueuedRequest) -> None:
        """Take back the slot of a request that the application is done with."""
        self._finished += 1
        self._pace.note_completion(self._clock())
        self._free(place)

    def abandon(self, place: QueuedRequest) -> None:
        """Free what a request holds that does not want its turn any more: its place, or the slot it was just given."""
        self._disconnected += 1
        self._free(place)

    def note_refusal(self, error: FairlaneError) -> None:
        """Count a request that was answered with an error."""
        self._refused[error.code] += 1

    # ------------------------------------------------------------------------------------------------------ inside

    def _begin_change(self) -> int:
        self._alarm.require_own_loop()
        return self._clock()

    def _serve(self) -> None:
        """Fill the free slots, answer those that lost their places, and set the timer for what comes next."""
        if self._alarm.loop is None or self._alarm.loop.is_closed():
            return
        now_ms = self._clock()
        for place in self._kernel.take(max(0, self._in_flight_max - self._in_flight), now_ms):
            self._in_flight += 1
            del self._waiting[place]
            place.grant()
        for departure in self._kernel.reap(now_ms):
            if isinstance(departure.item, QueuedRequest):
                del self._waiting[departure.item]
                departure.item.refuse(departure_error(departure.item, departure.reason, self._retry_after_ms()))
        self._alarm.set(self._kernel.next_event_at(), now_ms)

    def _free(self, place: QueuedRequest) -> None:
        if place.is_granted:
            self._in_flight -= 1
            self._kernel.release(place.key)
        elif self._kernel.cancel(place):
            del self._waiting[place]
        self._serve()

    def _retry_after_ms(self) -> int:
        return self._pace.estimate_ms(len(self._kernel), self._clock())
