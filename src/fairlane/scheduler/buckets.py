"""Throttles: named token buckets.

Theory of operation
-------------------
A bucket is not filled by a timer. It remembers its level at an instant and works out what has been earned since when
it is read. All arithmetic is in integers (billionths of a token, milliseconds), for two reasons: no rounding error can
accumulate, so a bucket never lets more than ``rate * t + burst`` through in any window of length t; and a replay of the
same calls gives the same answers on any machine.

Several kernels may share one table of throttles. A kernel that parks work behind a bucket registers as a watcher, so
that a change of the rate acts on waiting work at once. Kernels take tokens through their *portions*; ``portions``
explains how they divide a bucket that several of them use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakKeyDictionary, ref

from fairlane.scheduler.portions import TOKEN, Division, Portion

_RATE_LEAST = 0.000001
_RATE_STEPS = 1_000_000  # billionths of a token a millisecond, for a rate of one token a second


class Watcher(Protocol):
    """Something that parks work behind a bucket and must learn when its rate changes."""

    def throttle_changed(self, bucket: Bucket, now_ms: int) -> None:
        """Re-evaluate the work that waits for the bucket."""

    def tokens_returned(self, bucket: Bucket) -> str:
        """Note that there may be a token for the work that waits for the bucket, and return whose work it is."""


@dataclass(slots=True, eq=False, repr=False)
class Bucket:
    """A throttle. Without a rate it is open: an unknown throttle limits nothing."""

    name: str
    is_limited: bool = False
    rate: float = math.inf
    burst: float = math.inf
    rate_steps: int = 0
    burst_steps: int = 0
    level: int = 0
    at_ms: int = 0
    passed: int = 0  # items let through while it had a rate
    held_back: int = 0  # how often a lane was parked because there was no token
    # Of the kernels with a lane that names this throttle. An open throttle that no lane names is forgotten.
    portions: tuple[Portion, ...] = ()
    division: Division | None = None  # while there are several portions
    # Weak, so that a table shared by kernels does not keep a discarded kernel alive. Notified in order of
    # registration.
    watchers: WeakKeyDictionary[Watcher, None] = field(default_factory=WeakKeyDictionary)

    def limit(self, rate: float, burst: float, tokens: float | None, now_ms: int) -> None:
        """Set the rate from now on. Tokens already earned stay, up to the new burst; a new throttle starts full."""
        if self.is_limited:
            self.refill(now_ms)
        else:
            self.at_ms = now_ms
        self.rate, self.burst = rate, burst
        self.rate_steps = math.floor(rate * _RATE_STEPS) if burst else 0  # rounded down: never faster than configured
        self.burst_steps = round(burst * TOKEN)
        if tokens is not None:
            self.level = round(tokens * TOKEN)
        elif not self.is_limited:
            self.level = self.burst_steps
        self.level = min(self.level, self.burst_steps)
        self.is_limited = True
        if self.division is not None:
            self.division.restart()

    def unlimit(self) -> None:
        """Remove the limit, so that everything passes."""
        self.is_limited = False
        self.rate = self.burst = math.inf
        if self.division is not None:
            self.division.restart()

    def refill(self, now_ms: int) -> None:
        """Add the tokens earned since the last refill."""
        elapsed_ms = now_ms - self.at_ms
        if elapsed_ms > 0:
            self.at_ms = now_ms
            self.level = min(self.level + elapsed_ms * self.rate_steps, self.burst_steps)
            if self.division is not None:
                self.division.deal()

    def tokens(self, now_ms: int) -> int:
        """Return the number of whole tokens available now; meaningless while the bucket is open."""
        self.refill(now_ms)
        return self.level // TOKEN

    def has_token(self, now_ms: int) -> bool:
        """Return whether an item may pass now."""
        if not self.is_limited:
            return True
        self.refill(now_ms)
        return self.level >= TOKEN

    def take(self, count: int = 1) -> None:
        """Spend tokens. The caller has checked with ``has_token`` that they are there."""
        if self.is_limited:
            self.level -= count * TOKEN
            self.passed += count

    def token_at(self, now_ms: int) -> int | None:
        """Return the first instant with a token, or None if there will never be one."""
        return now_ms if self.has_token(now_ms) else self.next_token_at()

    def next_token_at(self) -> int | None:
        """Return when the next whole token will have been earned, or None if there will never be one."""
        if self.rate_steps == 0:
            return None
        # Floor division of a negative number rounds away from zero, so negating it gives the ceiling: an instant that
        # is never early. A gate that opened a millisecond early would find no token and arm its timer again.
        return self.at_ms + -((self.level % TOKEN - TOKEN) // self.rate_steps)

    def add(self, portion: Portion) -> bool:
        """Add the portion of a kernel. Return whether it is the second one, so that the bucket is divided now."""
        self.portions = (*self.portions, portion)
        if self.division is not None or len(self.portions) == 1:
            return False
        self.division = Division(self)
        for member in self.portions:
            if member.busy:
                self.division.join(member)
        return True

    def remove(self, portion: Portion) -> bool:
        """Remove the portion of a kernel. Return whether one is left, which has the bucket to itself now."""
        self.portions = tuple(other for other in self.portions if other is not portion)
        if self.division is not None and portion in self.division.members:
            self.division.leave(portion)
        if self.division is None or len(self.portions) > 1:
            return False
        self.division = None
        self.portions[0].reset()
        return True

    def another_token_at(self, now_ms: int) -> int | None:
        """Return when one more token will have been earned, even if the bucket is full by then; None for never."""
        return None if self.rate_steps == 0 else now_ms - (-TOKEN // self.rate_steps)


class Throttles:
    """A table of throttles. Kernels that share a table share its rates, and divide what each throttle lets through.

    Attributes:
        divided: how many of its throttles several kernels use.
        on_shared: called with the names of two kernels when one begins to use a throttle that the other uses.
        on_returned: called with the name of a kernel that may go on with tokens that another has given back.
    """

    def __init__(
        self,
        on_shared: Callable[[str, str], None] | None = None,
        on_returned: Callable[[str], None] | None = None,
    ) -> None:
        self._buckets: dict[str, Bucket] = {}
        self._weights: dict[tuple[str, str], int] = {}
        self._portions = 0
        self.divided = 0
        self.on_shared = on_shared
        self.on_returned = on_returned

    def set(
        self, name: str, *, rate: float, burst: float | None = None, tokens: float | None = None, now_ms: int
    ) -> None:
        """Set or change a throttle. The change acts on waiting items at once.

        Args:
            name: the name that items use.
            rate: tokens per second; 0 lets through only the tokens already in the bucket.
            burst: the capacity of the bucket: at least 1, or 0 to let nothing through. Default: the tokens of one
                second.
            tokens: what the bucket holds now. Default: a new bucket is full, a known one keeps its tokens.
            now_ms: the present instant.

        Raises:
            ValueError: a number is negative or not finite, or the burst is between 0 and 1.
        """
        for number in (rate, burst, tokens):
            if number is not None and not isinstance(number, (int, float)):
                raise ValueError(f"Rate, burst and tokens of throttle {name!r} must be numbers, got {number!r}.")
        burst = max(1.0, rate) if burst is None else burst
        if not (math.isfinite(rate) and (rate == 0 or rate >= _RATE_LEAST)):
            raise ValueError(f"The rate of throttle {name!r} must be 0, or finite and at least 0.000001, got {rate!r}.")
        if not (math.isfinite(burst) and (burst == 0 or burst >= 1)):
            raise ValueError(f"The burst of throttle {name!r} must be 0, or finite and at least 1, got {burst!r}.")
        if tokens is not None and not (math.isfinite(tokens) and tokens >= 0):
            raise ValueError(f"The tokens of throttle {name!r} must be finite and at least 0, got {tokens!r}.")
        bucket = self._named(name)
        bucket.limit(rate, burst, tokens, now_ms)
        self._notify(bucket, now_ms)

    def remove(self, name: str, *, now_ms: int) -> bool:
        """Remove a throttle; what it held back may go at once. Return whether there was one."""
        bucket = self._buckets.get(name)
        if bucket is None or not bucket.is_limited:
            return False
        bucket.unlimit()
        self._notify(bucket, now_ms)
        self._forget_unused(bucket)
        return True

    def get(self, name: str) -> Bucket | None:
        """Return the bucket of a limited throttle, for reading."""
        bucket = self._buckets.get(name)
        return bucket if bucket is not None and bucket.is_limited else None

    def __iter__(self) -> Iterator[Bucket]:
        return (bucket for bucket in self._buckets.values() if bucket.is_limited)

    def set_weight(self, name: str, kernel: str, weight: int | None, *, now_ms: int) -> None:
        """Set the weight of a kernel in a throttle that it shares with others; None for the default of 1.

        Raises:
            ValueError: the weight is not an integer of at least 1.
        """
        if weight is not None and (type(weight) is not int or weight < 1):
            raise ValueError(f"The weight of {kernel!r} in throttle {name!r} must be at least 1, got {weight!r}.")
        self._weights.pop((name, kernel), None)
        if weight is not None:
            self._weights[name, kernel] = weight
        bucket = self._buckets.get(name)
        for portion in () if bucket is None else bucket.portions:
            if portion.name == kernel:
                portion.set_weight(weight or 1, now_ms)

    def join(self, name: str, kernel: str, owner: object, now_ms: int) -> Portion:
        """Return the portion of a kernel that begins to use a throttle, which it must ``leave`` when it ends.

        Args:
            name: the throttle.
            kernel: the name of the kernel.
            owner: lives as long as the kernel; the portion of a kernel that was discarded is removed.
            now_ms: the present instant.
        """
        bucket = self._named(name)
        bucket.refill(now_ms)
        for other in bucket.portions:
            if other.owner() is None:
                has_held = other.held > 0
                self.divided -= bucket.remove(other)
                if has_held:
                    self.note_returned(bucket)
        self._portions += 1
        portion = Portion(bucket, kernel, self._portions, ref(owner), self._weights.get((name, kernel), 1))
        self.divided += bucket.add(portion)
        if bucket.division is not None and self.on_shared is not None:
            self.on_shared(bucket.portions[0].name, kernel)
        return portion

    def leave(self, portion: Portion, now_ms: int) -> None:
        """Undo ``join``."""
        portion.bucket.refill(now_ms)
        self.divided -= portion.bucket.remove(portion)
        self._forget_unused(portion.bucket)

    def note_returned(self, bucket: Bucket) -> None:
        """Wake the kernels that wait for a throttle, because another has given its tokens back."""
        for watcher in tuple(bucket.watchers):
            kernel = watcher.tokens_returned(bucket)
            if self.on_returned is not None:
                self.on_returned(kernel)

    def _named(self, name: str) -> Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(name)
        return bucket

    def _forget_unused(self, bucket: Bucket) -> None:
        if not bucket.is_limited and not bucket.portions:
            self._buckets.pop(bucket.name, None)

    def _notify(self, bucket: Bucket, now_ms: int) -> None:
        # A copy: a watcher whose last lane wakes removes itself while we iterate.
        for watcher in tuple(bucket.watchers):
            watcher.throttle_changed(bucket, now_ms)
