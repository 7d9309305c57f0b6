"""The requests that wait at a gate, and the estimate of when one of them would have its turn.

The estimate is based on each key's own requests, at every level of its path: a key that is held back by its cap, its
weight or a slow route finishes few requests, whatever the rest of the service finishes. Tokens of throttles are known
exactly, so they are counted rather than estimated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from fairlane.asgi.queued_request import QueuedRequest
from fairlane.asgi.refusal import RETRY_AFTER_LEAST_MS, RETRY_AFTER_MAX_MS, CompletionRate
from fairlane.scheduler import Key, Throttles
from fairlane.scheduler.item import path_of

Path: TypeAlias = tuple[str, ...]

_SERVICE: Path = ()
_MS_A_SECOND = 1_000


class _Level:
    """The waiting requests of one key and all keys below it; the empty path is the whole service."""

    __slots__ = ("rate", "waiting")

    def __init__(self, now_ms: int) -> None:
        self.waiting = 0
        self.rate = CompletionRate()
        self.rate.begin(now_ms)

    def estimate_ms(self, now_ms: int) -> int:
        return self.rate.estimate_ms(self.waiting, now_ms)


class Backlog:
    """The waiting requests of a gate, by arrival, by key and by throttle.

    Only keys with waiting requests are remembered, so its size is bounded by the number of waiting requests.
    """

    def __init__(self, throttles: Throttles) -> None:
        self._throttles = throttles
        self._requests: dict[QueuedRequest, None] = {}
        self._levels: dict[Path, _Level] = {}
        self._by_throttle: Counter[str] = Counter()
        self._costs: Counter[str] = Counter()
        self._paused: set[Path] = set()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: QueuedRequest, now_ms: int) -> None:
        """Add a request that waits."""
        self._requests[request] = None
        for name in request.throttles:
            self._by_throttle[name] += 1
            self._costs[name] += request.cost
        for path in _levels_of(request.key):
            level = self._levels.get(path)
            if level is None:
                level = self._levels[path] = _Level(now_ms)
            level.waiting += 1

    def remove(self, request: QueuedRequest) -> None:
        """Remove a request that no longer waits, if it did."""
        if request not in self._requests:
            return
        del self._requests[request]
        for name in request.throttles:
            self._by_throttle[name] -= 1
            self._costs[name] -= request.cost
            if not self._by_throttle[name]:
                del self._by_throttle[name], self._costs[name]
        for path in _levels_of(request.key):
            self._levels[path].waiting -= 1
            if not self._levels[path].waiting:
                del self._levels[path]

    def first_of(self, key: Key) -> QueuedRequest | None:
        """Return the request of exactly this key that has waited longest."""
        return next((request for request in self._requests if request.key == key), None)

    def note_completion(self, key: Key, now_ms: int) -> None:
        """Record that a request of a key has finished."""
        for path in _levels_of(key):
            level = self._levels.get(path)
            if level is not None:
                level.rate.note_completion(now_ms)

    def set_paused(self, key: Key, *, is_paused: bool) -> None:
        """Record that a key was paused or resumed."""
        (self._paused.add if is_paused else self._paused.discard)(path_of(key))

    def retry_after_ms(self, request: QueuedRequest, now_ms: int, *, is_service_full: bool = False) -> int:
        """Return when a request like this one is likely to have its turn, within fixed bounds.

        Args:
            request: the request that is refused, or that waited in vain.
            now_ms: the present instant.
            is_service_full: whether the limit of the whole service refused it, so that the whole backlog counts.
        """
        paths = list(_levels_of(request.key))
        if any(path in self._paused for path in paths):
            return RETRY_AFTER_MAX_MS
        own = [level for path in paths if path and (level := self._levels.get(path)) is not None]
        service = self._levels.get(_SERVICE)
        # Without a completion of its own, the key's requests are expected to move as all others do.
        if service is not None and (is_service_full or not any(level.rate.is_known for level in own)):
            own.append(service)
        estimates = [level.estimate_ms(now_ms) for level in own]
        estimates += [self._tokens_in_ms(name, request, now_ms) for name in request.throttles]
        return max(RETRY_AFTER_LEAST_MS, min(max(estimates, default=0), RETRY_AFTER_MAX_MS))

    def _tokens_in_ms(self, name: str, request: QueuedRequest, now_ms: int) -> int:
        """Return when a throttle will have had tokens for all waiting requests that name it, and for this one."""
        bucket = self._throttles.get(name)
        if bucket is None:
            return 0
        needed = self._costs[name] if bucket.charges_cost else self._by_throttle[name]
        if request not in self._requests:
            needed += request.cost if bucket.charges_cost else 1
        missing = needed - bucket.tokens(now_ms)
        if missing <= 0:
            return 0
        if not bucket.rate or not bucket.burst:
            return RETRY_AFTER_MAX_MS
        return int(missing * _MS_A_SECOND / bucket.rate)


def _levels_of(key: Key) -> Iterator[Path]:
    path = path_of(key)
    return (path[:length] for length in range(len(path) + 1))
