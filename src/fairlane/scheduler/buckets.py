"""Throttles: named token buckets.

Several kernels may share one table of throttles. A kernel that parks work behind a bucket registers as a watcher, so
that a change of the rate acts on waiting work at once. Kernels take tokens through their *portions*; ``portions``
explains how they divide a bucket that several of them use.

A throttle is set by its name, or a *provider* knows its limit when items first name it. Throttles of a provider, and
the buckets of keys with a rate, are made when they are needed and forgotten when they are not; see ``key_limits``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple
from weakref import ref

from fairlane.scheduler.compiled import Life
from fairlane.scheduler.item import Key, path_of
from fairlane.scheduler.key_limits import IdleBuckets
from fairlane.scheduler.portions import Portion
from fairlane.scheduler.token_bucket import Bucket, Limit, LimitProvider, burst_of, require_limit, steps_of


class BucketCounts(NamedTuple):
    """What a throttle, or a family of them, has done since the table was made.

    Attributes:
        name: the throttle, or what the family is called.
        buckets: how many buckets there are now.
        tokens: the whole tokens in them.
        passed: items let through.
        held_back: how often a lane or a key was held back because there was no token.
    """

    name: str
    buckets: int
    tokens: int
    passed: int
    held_back: int

    def plus(self, other: BucketCounts) -> BucketCounts:
        """Return the sum."""
        return BucketCounts(
            self.name,
            self.buckets + other.buckets,
            self.tokens + other.tokens,
            self.passed + other.passed,
            self.held_back + other.held_back,
        )


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
        self._key_buckets: dict[tuple[str, Key], Bucket] = {}
        self._provider: LimitProvider | None = None
        self._idle = IdleBuckets(self._forget)
        self._forgotten: dict[str, BucketCounts] = {}
        self._weights: dict[tuple[str, str], int] = {}
        self._portions = 0
        self.divided = 0
        self.on_shared = on_shared
        self.on_returned = on_returned

    def set(
        self,
        name: str,
        *,
        rate: float,
        burst: float | None = None,
        tokens: float | None = None,
        charges_cost: bool = False,
        now_ms: int,
    ) -> None:
        """Set or change a throttle. The change acts on waiting items at once.

        Args:
            name: the name that items use.
            rate: tokens per second; 0 lets through only the tokens already in the bucket.
            burst: the capacity of the bucket: at least 1, or 0 to let nothing through. Default: the tokens of one
                second.
            tokens: what the bucket holds now. Default: a new bucket is full, a known one keeps its tokens.
            charges_cost: whether an item takes as many tokens as it costs, instead of one. An item that costs more than
                the burst goes when the bucket is full, and leaves a debt.
            now_ms: the present instant.

        Raises:
            ValueError: a number is negative or not finite, or the burst is between 0 and 1.
        """
        require_limit(f"throttle {name!r}", rate, burst)
        if tokens is not None and not (isinstance(tokens, (int, float)) and math.isfinite(tokens) and tokens >= 0):
            raise ValueError(f"The tokens of throttle {name!r} must be finite and at least 0, got {tokens!r}.")
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(name)
        self._idle.use(bucket)
        bucket.is_set = True
        bucket.charges_cost = charges_cost
        bucket.limit(rate, burst_of(rate, burst), tokens, now_ms)
        self._notify(bucket, now_ms)

    def remove(self, name: str, *, now_ms: int) -> bool:
        """Remove a throttle; what it held back may go at once. Return whether there was one.

        A throttle for which the provider knows a limit has that limit from now on.
        """
        bucket = self._buckets.get(name)
        if bucket is None or not bucket.is_set:
            return False
        bucket.is_set = False
        self._provide(bucket, now_ms)
        self._forget_unused(bucket, now_ms)
        return True

    def set_provider(self, provider: LimitProvider | None, *, now_ms: int) -> None:
        """Set the function that returns the limits of throttles that have not been set by name.

        It is called when items first name a throttle, now for throttles that are already named, and again by
        ``refresh``. Such a throttle is forgotten when no item names it and it is full.
        """
        self._provider = provider
        self.refresh("", now_ms=now_ms)

    def refresh(self, prefix: str, *, now_ms: int) -> None:
        """Call the provider again for throttles whose names begin with a prefix. It acts on waiting items at once."""
        names = [name for name, bucket in self._buckets.items() if not bucket.is_set and name.startswith(prefix)]
        for name in names:
            bucket = self._buckets.get(name)
            if bucket is None:
                continue  # forgotten meanwhile, because it was full
            self._idle.use(bucket)  # with another limit it is full at another instant
            self._provide(bucket, now_ms)
            self._forget_unused(bucket, now_ms)

    def _provide(self, bucket: Bucket, now_ms: int) -> None:
        """Give a bucket the limit that the provider knows, if any."""
        limit = None if self._provider is None else self._provider(bucket.name)
        if limit is None and bucket.is_limited:
            bucket.unlimit()
            self._notify(bucket, now_ms)
        elif limit is not None and self._limit(bucket, limit, now_ms):
            self._notify(bucket, now_ms)

    def _limit(self, bucket: Bucket, limit: Limit, now_ms: int) -> bool:
        """Limit a bucket that is made and forgotten. Return whether that changed anything."""
        bucket.family = limit.family
        if bucket.has(limit):
            return False
        is_new = not bucket.is_limited
        bucket.charges_cost = limit.charges_cost
        bucket.limit(limit.rate, burst_of(limit.rate, limit.burst), None, now_ms)
        if is_new:
            self._idle.begin(bucket, now_ms)
        return True

    def begin_empty(self, family: str, *, now_ms: int) -> None:
        """Make the buckets of a family begin as if they had been empty at this instant, whenever they are made."""
        self._idle.empty_ms[family] = now_ms

    def change_family(self, family: str, before: Limit | None, after: Limit | None, *, now_ms: int) -> None:
        """Note that a family has another limit. Its buckets begin full if it had none before, or has none now."""
        if before is None or after is None:
            self._idle.empty_ms.pop(family, None)
        else:
            self._idle.change(family, _steps(before), _steps(after), now_ms)

    def counts(self, now_ms: int) -> list[BucketCounts]:
        """Return what each throttle has done. Those that are made and forgotten are added up by family."""
        found = [_counts(bucket, bucket.name, now_ms) for bucket in self if bucket.is_set]
        sums = dict(self._forgotten)
        for bucket in (*self, *self._key_buckets.values()):
            if not bucket.is_set:
                known = sums.get(bucket.family)
                counts = _counts(bucket, bucket.family, now_ms)
                sums[bucket.family] = counts if known is None else known.plus(counts)
        return found + list(sums.values())

    def join_key(self, kernel: str, key: Key, limit: Limit, now_ms: int) -> Bucket:
        """Return the bucket of a key with a rate, for one more node of it, which must ``leave_key`` when it ends."""
        bucket = self._key_buckets.get((kernel, key))
        if bucket is None:
            bucket = self._key_buckets[kernel, key] = Bucket(
                f"rate:{kernel}:{'/'.join(path_of(key))}", key=(kernel, key)
            )
        self._idle.use(bucket)
        bucket.users += 1
        self._limit(bucket, limit, now_ms)
        return bucket

    def leave_key(self, bucket: Bucket, now_ms: int) -> None:
        """Undo ``join_key``."""
        bucket.users -= 1
        self._forget_unused(bucket, now_ms)

    def get(self, name: str) -> Bucket | None:
        """Return the bucket of a limited throttle, for reading."""
        bucket = self._buckets.get(name)
        return bucket if bucket is not None and bucket.is_limited else None

    def setting_of(self, name: str) -> str:
        """Return the name that the rate of a throttle is set by: its own, or the family of a provider's limit."""
        bucket = self._buckets.get(name)
        return name if bucket is None or bucket.is_set or not bucket.family else bucket.family

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

    def weight_of(self, name: str, kernel: str) -> int:
        """Return the weight of a kernel in a throttle."""
        return self._weights.get((name, kernel), 1)

    def join(self, name: str, kernel: str, owner: Life, now_ms: int) -> Portion:
        """Return the portion of a kernel that begins to use a throttle, which it must ``leave`` when it ends.

        Args:
            name: the throttle.
            kernel: the name of the kernel.
            owner: lives as long as the kernel; the portion of a kernel that was discarded is removed.
            now_ms: the present instant.
        """
        bucket = self._named(name, now_ms)
        bucket.refill(now_ms)
        for other in bucket.portions:
            if other.owner() is None:
                has_held = other.held > 0
                self.divided -= bucket.remove(other)
                if has_held:
                    self.note_returned(bucket)
        self._portions += 1
        portion = Portion(bucket, kernel, self._portions, ref(owner), self.weight_of(name, kernel))
        self.divided += bucket.add(portion)
        if bucket.division is not None and self.on_shared is not None:
            self.on_shared(bucket.portions[0].name, kernel)
        return portion

    def leave(self, portion: Portion, now_ms: int) -> None:
        """Undo ``join``."""
        portion.bucket.refill(now_ms)
        self.divided -= portion.bucket.remove(portion)
        self._forget_unused(portion.bucket, now_ms)

    def note_returned(self, bucket: Bucket) -> None:
        """Wake the kernels that wait for a throttle, because another has given its tokens back."""
        for watcher in bucket.watching():
            kernel = watcher.tokens_returned(bucket)
            if self.on_returned is not None:
                self.on_returned(kernel)

    def _named(self, name: str, now_ms: int) -> Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(name)
            self._provide(bucket, now_ms)
        self._idle.use(bucket)
        return bucket

    def _forget_unused(self, bucket: Bucket, now_ms: int) -> None:
        """Forget a bucket that nothing uses, now or when it is full."""
        if bucket.is_set or bucket.portions or bucket.users or bucket.idle_until_ms is not None:
            return
        if bucket.is_limited:
            self._idle.add(bucket, now_ms)
        else:
            self._forget(bucket)

    def _forget(self, bucket: Bucket) -> None:
        if bucket.key is None:
            del self._buckets[bucket.name]
        else:
            del self._key_buckets[bucket.key]
        if bucket.passed or bucket.held_back:
            counts = BucketCounts(bucket.family, 0, 0, bucket.passed, bucket.held_back)
            known = self._forgotten.get(bucket.family)
            self._forgotten[bucket.family] = counts if known is None else known.plus(counts)

    def _notify(self, bucket: Bucket, now_ms: int) -> None:
        for watcher in bucket.watching():
            watcher.throttle_changed(bucket, now_ms)


def rate_family(kernel: str) -> str:
    """Return the family of the buckets of a kernel's keys."""
    return f"rate:{kernel}:*"


def _steps(limit: Limit) -> tuple[int, int]:
    return steps_of(limit.rate, burst_of(limit.rate, limit.burst))


def _counts(bucket: Bucket, name: str, now_ms: int) -> BucketCounts:
    return BucketCounts(name, 1, bucket.tokens(now_ms), bucket.passed, bucket.held_back)
