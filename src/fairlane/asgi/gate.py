"""The gate: limits how many requests run at once, and decides which one is next."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

from fairlane.asgi.loop_timer import LoopTimer
from fairlane.asgi.queued_request import QueuedRequest
from fairlane.asgi.refusal import CompletionRate, departure_error, refusal_error
from fairlane.errors import FairlaneError
from fairlane.scheduler import (
    Backpressure,
    Explanation,
    Kernel,
    Key,
    KeyPolicy,
    Priority,
    Throttles,
)
from fairlane.scheduler.item import canonical_key
from fairlane.scheduler.keys import PolicyProvider
from fairlane.scheduler.policy import require_whole

Policies: TypeAlias = Mapping[Key, KeyPolicy] | Mapping[str, KeyPolicy]
"""Policies by key. Mappings are invariant in their keys, so plain string keys need a type of their own."""


def monotonic_ms() -> int:
    """Return the system's monotonic clock in milliseconds."""
    return time.monotonic_ns() // 1_000_000


class GateOptions(TypedDict, total=False):
    """The arguments of ``FairGate``, for code that passes them on."""

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
    """A gate that lets a limited number of requests run at once, in fair order.

    It belongs to one event loop, that of the first request. Its methods must be called there, except ``stats``, which
    may be called from anywhere.

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
        """Create a gate with all its slots free.

        Args:
            in_flight: how many requests run at once.
            waiting_max: the limit on waiting requests in total; None for no limit.
            key_waiting_max: the limit on waiting requests of one fairness key, unless its policy sets another.
            backpressure: what happens when a limit is reached.
            strict_priority: serve higher priority first across all keys, not only within one.
            policies: the weights, caps and limits of keys.
            policy_provider: returns the policy of each key that is not in ``policies``.
            wait_timeout_ms: how long a request may wait; None for no limit.
            clock: returns the current time in milliseconds, and never runs backwards.

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
        self._completion_rate = CompletionRate()
        self._waiting: dict[QueuedRequest, None] = {}
        self._in_flight = self._granted = self._finished = self._disconnected = 0
        self._refused: Counter[str] = Counter()
        self._timer = LoopTimer(self._serve)

    # -------------------------------------------------------------------------------------------- for the operator

    def stats(self) -> GateStats:
        """Return the current statistics."""
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
        """Return how many requests of a key, including the keys below it, wait."""
        return self._kernel.waiting(key)

    def in_flight(self, key: Key) -> int:
        """Return how many requests of a key, including the keys below it, have a slot."""
        return self._kernel.in_use(key)

    def explain(self, key: Key) -> Explanation | None:
        """Return why the request of a key that has waited longest waits, or None if the key has none."""
        key = canonical_key(key)
        request = next((request for request in self._waiting if request.key == key), None)
        return None if request is None else self._kernel.explain(request, self._clock())

    def set_policy(self, key: Key, policy: KeyPolicy) -> None:
        """Set the weight, cap and limits of a key. They act at once and last until cleared."""
        self._begin_change()
        self._kernel.set_policy(key, policy)
        self._serve()

    def clear_policy(self, key: Key) -> None:
        """Return a key to the provider's policy, or the default."""
        self._begin_change()
        self._kernel.clear_policy(key)
        self._serve()

    def refresh_policy(self, key: Key) -> None:
        """Call the policy provider again for a key."""
        self._begin_change()
        self._kernel.refresh_policy(key)
        self._serve()

    def set_in_flight(self, in_flight: int) -> None:
        """Change how many requests run at once. If more run now, they finish, and no other starts before that."""
        require_whole("in_flight", in_flight, least=1)
        self._begin_change()
        self._in_flight_max = in_flight
        self._serve()

    def pause(self, key: Key) -> None:
        """Hold back the requests of a key, and of the keys below it, until it is resumed. New requests may still
        wait.
        """
        self._begin_change()
        self._kernel.pause(key)

    def resume(self, key: Key) -> None:
        """Undo ``pause``."""
        self._begin_change()
        self._kernel.resume(key)
        self._serve()

    # ------------------------------------------------------------------------------------------ for the middleware

    def create_request(
        self, key: Key, *, cost: int, priority: Priority, throttles: Sequence[str], wait_max_ms: int | None
    ) -> QueuedRequest:
        """Return a request that arrives now. ``wait_max_ms`` is the client's own limit; the gate's applies too."""
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

    def enter(self, request: QueuedRequest) -> None:
        """Add a request to the queue, and grant it a slot at once if it may run.

        Raises:
            KeyFull, GlobalFull: a limit on waiting requests is reached.
            WrongEventLoop: the gate is in use by another event loop.
        """
        self._timer.settle_in(is_busy=bool(self._in_flight or self._waiting))
        was_backlogged = len(self._kernel) > 0
        now_ms = self._clock()
        refusal = self._kernel.offer(request, now_ms)
        if refusal is not None:
            raise refusal_error(refusal, self._retry_after_ms())
        self._waiting[request] = None
        self._serve()
        if not was_backlogged and self._waiting:
            self._completion_rate.begin(now_ms)

    def begin(self) -> None:
        """Count a granted request whose application is about to be called."""
        self._granted += 1

    def finish(self, request: QueuedRequest) -> None:
        """Free the slot of a request whose application has ended."""
        self._finished += 1
        self._completion_rate.note_completion(self._clock())
        self._free(request)

    def abandon(self, request: QueuedRequest) -> None:
        """Free what a request holds whose client has left: its entry in the queue, or the slot it was just granted."""
        self._disconnected += 1
        self._free(request)

    def note_refusal(self, error: FairlaneError) -> None:
        """Count a request that was answered with an error."""
        self._refused[error.code] += 1

    # ------------------------------------------------------------------------------------------------------ inside

    def _begin_change(self) -> int:
        self._timer.require_own_loop()
        return self._clock()

    def _serve(self) -> None:
        """Fill the free slots, refuse the requests that expired or were dropped, and set the timer for the next
        event.
        """
        if self._timer.loop is None or self._timer.loop.is_closed():
            return
        now_ms = self._clock()
        for request in self._kernel.take(max(0, self._in_flight_max - self._in_flight), now_ms):
            self._in_flight += 1
            del self._waiting[request]
            request.grant()
        for departure in self._kernel.reap(now_ms):
            if isinstance(departure.item, QueuedRequest):
                del self._waiting[departure.item]
                departure.item.refuse(departure_error(departure.item, departure.reason, self._retry_after_ms()))
        self._timer.set(self._kernel.next_event_at(), now_ms)

    def _free(self, request: QueuedRequest) -> None:
        if request.is_granted:
            self._in_flight -= 1
            self._kernel.release(request.key)
        elif self._kernel.cancel(request):
            del self._waiting[request]
        self._serve()

    def _retry_after_ms(self) -> int:
        return self._completion_rate.estimate_ms(len(self._kernel), self._clock())


class GateThrottles(Throttles):
    """The throttles of a gate. Changes use the gate's clock, so ``now_ms`` is optional."""

    def __init__(self, *, begin_change: Callable[[], int], end_change: Callable[[], None]) -> None:
        super().__init__()
        self._begin_change = begin_change
        self._end_change = end_change

    def set(
        self,
        name: str,
        *,
        rate: float,
        burst: float | None = None,
        tokens: float | None = None,
        charges_cost: bool = False,
        now_ms: int | None = None,
    ) -> None:
        """Set or change a throttle; see ``Throttles.set``."""
        present_ms = self._begin_change()
        at_ms = present_ms if now_ms is None else now_ms
        super().set(name, rate=rate, burst=burst, tokens=tokens, charges_cost=charges_cost, now_ms=at_ms)
        self._end_change()

    def remove(self, name: str, *, now_ms: int | None = None) -> bool:
        """Remove a throttle; see ``Throttles.remove``."""
        present_ms = self._begin_change()
        was_there = super().remove(name, now_ms=present_ms if now_ms is None else now_ms)
        self._end_change()
        return was_there


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStats:
    """The statistics of a gate at one instant.

    Each request that has arrived either waits or is counted in exactly one of ``granted``, ``refused`` and
    ``disconnected``.

    Attributes:
        in_flight: slots in use.
        in_flight_max: the number of slots.
        waiting: requests that wait for a slot.
        granted: requests for which the application was called.
        finished: granted requests whose application has ended, successfully or not.
        refused: requests answered with an error, by error code.
        disconnected: requests whose client left, or that the server cancelled, before their turn.
    """

    in_flight: int
    in_flight_max: int
    waiting: int
    granted: int
    finished: int
    refused: Mapping[str, int]
    disconnected: int
