"""The gate: limits how many requests run at once, and decides which one is next."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypedDict

from fairlane.asgi.backlog import Backlog
from fairlane.asgi.loop_timer import LoopTimer
from fairlane.asgi.queued_request import QueuedRequest
from fairlane.asgi.refusal import departure_error, refusal_error
from fairlane.asgi.statistics import GateStats, GateTally
from fairlane.errors import FairlaneError
from fairlane.scheduler import (
    Backpressure,
    DepartureReason,
    Explanation,
    Kernel,
    Key,
    KeyPolicy,
    Priority,
    RefusalReason,
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
    stats_keys_max: int
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
        stats_keys_max: int = 256,
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
            stats_keys_max: how many keys have statistics of their own. Beyond it, the key inactive longest is
                forgotten; keys with waiting requests are kept. All keys count towards the totals.
            clock: returns the current time in milliseconds, and never runs backwards.

        Raises:
            ValueError: a number is out of range.
        """
        require_whole("in_flight", in_flight, least=1)
        require_whole("stats_keys_max", stats_keys_max, least=1)
        if wait_timeout_ms is not None:
            require_whole("wait_timeout_ms", wait_timeout_ms, least=0)
        self._in_flight_max = in_flight
        self._waiting_max = waiting_max
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
        self._backlog = Backlog(self.throttles)
        self._tally = GateTally(keys_max=stats_keys_max)
        self._in_flight = 0
        self._timer = LoopTimer(self._serve)

    # -------------------------------------------------------------------------------------------- for the operator

    def stats(self) -> GateStats:
        """Return the current statistics."""
        return self._tally.snapshot(
            in_flight=self._in_flight,
            in_flight_max=self._in_flight_max,
            waiting=len(self._kernel),
            waiting_max=self._waiting_max,
        )

    def waiting(self, key: Key) -> int:
        """Return how many requests of a key, including the keys below it, wait."""
        return self._kernel.waiting(key)

    def in_flight(self, key: Key) -> int:
        """Return how many requests of a key, including the keys below it, have a slot."""
        return self._kernel.in_use(key)

    def explain(self, key: Key) -> Explanation | None:
        """Return why the request of a key that has waited longest waits, or None if the key has none."""
        request = self._backlog.first_of(canonical_key(key))
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
        self._backlog.set_paused(key, is_paused=True)

    def resume(self, key: Key) -> None:
        """Undo ``pause``."""
        self._begin_change()
        self._kernel.resume(key)
        self._backlog.set_paused(key, is_paused=False)
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
        self._timer.settle_in(is_busy=bool(self._in_flight or self._backlog))
        now_ms = self._clock()
        refusal = self._kernel.offer(request, now_ms)
        if refusal is not None:
            self._tally.count_rejected(request.key)
            is_service_full = refusal.reason is RefusalReason.GLOBAL_FULL
            retry_after_ms = self._backlog.retry_after_ms(request, now_ms, is_service_full=is_service_full)
            raise refusal_error(refusal, retry_after_ms)
        self._tally.count_entered(request.key)
        self._serve()
        if not request.is_decided:
            self._backlog.add(request, now_ms)

    def begin(self, request: QueuedRequest) -> None:
        """Count a granted request whose application is about to be called."""
        request.waited_ms = max(0, self._clock() - request.arrived_ms)
        self._tally.count_granted(request.key, request.waited_ms)

    def finish(self, request: QueuedRequest) -> None:
        """Free the slot of a request whose application has ended, and charge its key for its true cost."""
        true_cost = request.cost if request.true_cost is None else request.true_cost
        self._tally.count_finished(request.key, true_cost)
        self._backlog.note_completion(request.key, self._clock())
        if true_cost != request.cost:
            self._kernel.settle(request.key, true_cost - request.cost, request.priority)
        self._free(request)

    def abandon(self, request: QueuedRequest) -> None:
        """Free what a request holds whose client has left: its entry in the queue, or the slot it was just granted."""
        self._tally.count_disconnected(request.key, has_departed=request.error is not None)
        self._free(request)

    def note_refusal(self, error: FairlaneError) -> None:
        """Count a request that was answered with an error."""
        self._tally.count_refused(error)

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
            self._backlog.remove(request)
            request.grant()
        for departure in self._kernel.reap(now_ms):
            self._refuse(departure.item, departure.reason, now_ms)
        self._timer.set(self._kernel.next_event_at(), now_ms)

    def _refuse(self, request: QueuedRequest, reason: DepartureReason, now_ms: int) -> None:
        retry_after_ms = self._backlog.retry_after_ms(request, now_ms)
        self._backlog.remove(request)
        self._tally.count_departed(request.key, reason)
        request.refuse(departure_error(request, reason, retry_after_ms))

    def _free(self, request: QueuedRequest) -> None:
        if request.is_granted:
            self._in_flight -= 1
            self._kernel.release(request.key)
        elif self._kernel.cancel(request):
            self._backlog.remove(request)
        self._serve()


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
