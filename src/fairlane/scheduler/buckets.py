"""Throttles: token buckets by name.

Arithmetic is in whole numbers (billionths of a token, milliseconds), so that a bucket never lets through more than
``rate * t + burst`` in any window of length t, and a replay of the same calls gives the same answers on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol
from weakref import WeakKeyDictionary

TOKEN = 1_000_000_000
_RATE_LEAST = 0.000001
_RATE_STEPS = 1_000_000  # billionths of a token a millisecond, for a rate of one token a second


class Watcher(Protocol):
    """Whoever parks work behind a bucket and wants to hear that its rate has changed."""

    def throttle_changed(self, bucket: Bucket, now_ms: int) -> None:
        """Look again at what waits for the bucket."""


class Bucket:
    """One throttle. Without a rate it is open: an unknown throttle limits nothing."""

    __slots__ = (
        "at_ms",
        "burst",
        "burst_steps",
        "held_back",
        "is_limited",
        "lanes",
        "level",
        "name",
        "passed",
        "rate",
        "rate_steps",
        "watchers",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_limited = False
        self.rate = math.inf
        self.burst = math.inf
        self.rate_steps = 0
        self.burst_steps = 0
        self.level = 0
        self.at_ms = 0
        self.passed = 0  # items that it let pass while it had a rate
        self.held_back = 0  # times a lane was parked for want of a token
        self.lanes = 0  # how many lanes name this throttle: an open one that nobody names is forgotten
        # A kernel that is gone needs not be told; those that are there are told in the order they came.
        self.watchers: WeakKeyDictionary[Watcher, None] = WeakKeyDictionary()

    def limit(self, rate: float, burst: float, tokens: float | None, now_ms: int) -> None:
        """Set the rate from now on. Tokens already earned stay, up to the new burst; a new throttle starts full."""
        if self.is_limited:
            self.refill(now_ms)
        else:
            self.at_ms = now_ms
        self.rate, self.burst = rate, burst
        self.rate_steps = math.floor(rate * _RATE_STEPS) if burst else 0  # never faster than asked
        self.burst_steps = round(burst * TOKEN)
        if tokens is not None:
            self.level = round(tokens * TOKEN)
        elif not self.is_limited:
            self.level = self.burst_steps
        self.level = min(self.level, self.burst_steps)
        self.is_limited = True

    def unlimit(self) -> None:
        """Let everything through."""
        self.is_limited = False
        self.rate = self.burst = math.inf

    def refill(self, now_ms: int) -> None:
        """Add what has been earned since the last look."""
        elapsed_ms = now_ms - self.at_ms
        if elapsed_ms > 0:
            self.at_ms = now_ms
            self.level = min(self.level + elapsed_ms * self.rate_steps, self.burst_steps)

    def tokens(self, now_ms: int) -> int:
        """Return the whole tokens to be had now; meaningless while the bucket is open."""
        self.refill(now_ms)
        return self.level // TOKEN

    def has_token(self, now_ms: int) -> bool:
        """Tell whether an item may pass now."""
        if not self.is_limited:
            return True
        self.refill(now_ms)
        return self.level >= TOKEN

    def take(self, count: int = 1) -> None:
        """Spend tokens; the caller has seen with ``has_token`` that they are there."""
        if self.is_limited:
            self.level -= count * TOKEN
            self.passed += count

    def token_at(self, now_ms: int) -> int | None:
        """Return the first instant with a token, or None when there will never be one."""
        if self.has_token(now_ms):
            return now_ms
        if self.rate_steps == 0:
            return None
        return self.at_ms + -((self.level - TOKEN) // self.rate_steps)

    def another_token_at(self, now_ms: int) -> int | None:
        """Return when one token more will have been earned than now, room for it or not; None for never."""
        return None if self.rate_steps == 0 else now_ms - (-TOKEN // self.rate_steps)


class Throttles:
    """The throttles of a process. Several kernels may share one table, and then they share its rates."""

    def __init__(self) -> None:
        self._buckets: dict[str, Bucket] = {}

    def set(
        self, name: str, *, rate: float, burst: float | None = None, tokens: float | None = None, now_ms: int
    ) -> None:
        """Set or change a throttle; it acts at once on everything that waits.

        Args:
            name: what items call it.
            rate: tokens a second; 0 lets through only what is already in the bucket.
            burst: the most tokens the bucket holds: at least 1, or 0 to let nothing through; without it one second's
                worth.
            tokens: what the bucket holds now; without it a new one is full and a known one keeps what it has.
            now_ms: the present instant.

        Raises:
            ValueError: a number is negative or not finite, or the burst is between 0 and 1.
        """
        for number in (rate, burst, tokens):
            if number is not None and not isinstance(number, (int, float)):
                raise ValueError(f"Rate, burst and tokens of throttle {name!r} are numbers, not {number!r}.")
        burst = max(1.0, rate) if burst is None else burst
        if not (math.isfinite(rate) and (rate == 0 or rate >= _RATE_LEAST)):
            raise ValueError(f"The rate of throttle {name!r} must be 0, or finite and at least 0.000001, not {rate!r}.")
        if not (math.isfinite(burst) and (burst == 0 or burst >= 1)):
            raise ValueError(f"The burst of throttle {name!r} must be 0, or finite and at least 1, not {burst!r}.")
        if tokens is not None and not (math.isfinite(tokens) and tokens >= 0):
            raise ValueError(f"The tokens of throttle {name!r} must be a finite number of at least 0, not {tokens!r}.")
        bucket = self._named(name)
        bucket.limit(rate, burst, tokens, now_ms)
        self._tell(bucket, now_ms)

    def remove(self, name: str, *, now_ms: int) -> bool:
        """Lift a throttle; what it held back is free at once. Returns whether there was one."""
        bucket = self._buckets.get(name)
        if bucket is None or not bucket.is_limited:
            return False
        bucket.unlimit()
        self._tell(bucket, now_ms)
        self._forget_unused(bucket)
        return True

    def get(self, name: str) -> Bucket | None:
        """Return the bucket of a limited throttle, for reading."""
        bucket = self._buckets.get(name)
        return bucket if bucket is not None and bucket.is_limited else None

    def __iter__(self) -> Iterator[Bucket]:
        return (bucket for bucket in self._buckets.values() if bucket.is_limited)

    def join(self, names: tuple[str, ...]) -> tuple[Bucket, ...]:
        """Return the buckets for a new lane, which must ``leave`` them when it goes."""
        buckets = tuple(self._named(name) for name in names)
        for bucket in buckets:
            bucket.lanes += 1
        return buckets

    def leave(self, buckets: tuple[Bucket, ...]) -> None:
        """Undo ``join``."""
        for bucket in buckets:
            bucket.lanes -= 1
            self._forget_unused(bucket)

    def _named(self, name: str) -> Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(name)
        return bucket

    def _forget_unused(self, bucket: Bucket) -> None:
        if not bucket.is_limited and bucket.lanes == 0:
            self._buckets.pop(bucket.name, None)

    def _tell(self, bucket: Bucket, now_ms: int) -> None:
        for watcher in tuple(bucket.watchers):
            watcher.throttle_changed(bucket, now_ms)
