"""Limits of keys besides their caps: rates, and a limit on all items in use with floors below it.

Theory of rates
---------------
A key whose policy has a rate has a *rate*: a bucket that every item under the key takes a token of. A key without a
token is *shut*: it leaves the ring of its parent like a key at its cap, keeps its deficit and its turn, and a timer
opens it when the next token is there. This is checked lazily, when the turn of the key comes, as lanes are parked.

If the rate *charges by cost*, a key is shut when the item whose turn it is needs more tokens than there are, and when
its deficit pays for it: tokens are saved for that item, and cheaper ones of the same key don't take them. If the item
leaves meanwhile, or another one is before it, the key opens, and its next turn shows what it lacks now.

Buckets of keys, and of names that a provider knows the limit of, are made when they are first needed, and there may be
as many as there are tenants. So they are forgotten again. A bucket that nothing uses and that is full can be forgotten
without a trace: made again, it is full. Others wait in ``IdleBuckets`` until they are full. If there are too many of
them, as when a tenant invents names, those that would be full first are forgotten early. What they lack is not
forgiven: ``empty_ms`` is the latest instant at which a forgotten bucket of the same family (of the same pattern, or of
the same queue) was empty, and a bucket that is made later has no more than it would have earned since. So no name ever
gets more than ``rate * t + burst``, and memory is bounded. A change of a family's limit moves that instant, so that a
bucket that is made later has what it would have had if it had been there: a higher burst is earned, not given.

Theory of floors
----------------
An outermost key may have more items in use while it has fewer than its *floor*, or while fewer than ``most`` are in use
in total. So a floor holds whatever others do, and ``most`` may be exceeded by what floors add.

Whether a key may go is checked when its turn comes, as with rates: a key that may not is *crowded out*, and leaves the
ring. When items are released, the keys that have waited longest try again, as many as there is room for. One whose turn
was cut short goes first, so that turns keep their length and shares follow weights.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from fairlane.scheduler.lanes import StopWatch
from fairlane.scheduler.timers import Timers

if TYPE_CHECKING:
    from fairlane.scheduler.token_bucket import Bucket
    from fairlane.scheduler.tree import KeyNode

NEVER_MS: Final = 1 << 62
IDLE_BUCKETS_MAX: Final = 65_536
"""How many buckets that nothing uses are remembered until they are full."""


class KeyRate:
    """The rate of a key.

    Attributes:
        node: the key.
        bucket: its tokens.
        shut_ms: when the key opens again, because it had no token; None while it may go.
        watch: the stopwatch that runs while the key is shut.
    """

    __slots__ = ("bucket", "node", "shut_ms", "watch")

    def __init__(self, node: KeyNode, bucket: Bucket) -> None:
        self.node = node
        self.bucket = bucket
        self.shut_ms: int | None = None
        self.watch = StopWatch()

    @property
    def is_saving(self) -> bool:
        """Whether the key is shut until there are as many tokens as an item costs."""
        return self.shut_ms is not None and self.bucket.charges_cost

    def shut(self, now_ms: int, cost: int = 1) -> int:
        """Shut the key until an item of this cost may pass, and return when that is."""
        self.bucket.held_back += 1
        self.watch.note(now_ms, is_so=True)
        at_ms = self.bucket.token_at(now_ms, cost)
        self.shut_ms = NEVER_MS if at_ms is None else at_ms
        return self.shut_ms

    def open(self, now_ms: int) -> None:
        """Open the key, because it has a token again or another rate."""
        self.watch.note(now_ms, is_so=False)
        self.shut_ms = None


class IdleBuckets:
    """Buckets that were made on demand, and that nothing uses at the moment.

    Attributes:
        empty_ms: by family, since when a bucket that is made now has earned what it has; those of others are full.
    """

    def __init__(self, forget: Callable[[Bucket], None], *, most: int = IDLE_BUCKETS_MAX) -> None:
        self._forget = forget
        self._most = most
        self._count = 0
        self._full_at: Timers[Bucket] = Timers(lambda at_ms, bucket: bucket.idle_until_ms == at_ms)
        self.empty_ms: dict[str, int] = {}

    def begin(self, bucket: Bucket, now_ms: int) -> None:
        """Set the level of a bucket that has just been made."""
        empty_ms = self.empty_ms.get(bucket.family)
        if empty_ms is not None:
            bucket.level = min(bucket.level, (now_ms - empty_ms) * bucket.rate_steps)

    def change(self, family: str, before: tuple[int, int], after: tuple[int, int], now_ms: int) -> None:
        """Give buckets that are made later the tokens that they would have kept through a change of the limit.

        Args:
            family: the family whose limit changes.
            before: what its buckets earned a millisecond and held at most, in billionths of a token.
            after: what they earn and hold from now on.
            now_ms: the present instant.
        """
        empty_ms = self.empty_ms.pop(family, None)
        (earned, held), (earns, holds) = before, after
        level = held if empty_ms is None else min(held, (now_ms - empty_ms) * earned)
        if level < holds:
            self.empty_ms[family] = now_ms - level // earns if earns else now_ms

    def add(self, bucket: Bucket, now_ms: int) -> None:
        """Keep a bucket that nothing uses until it is full."""
        bucket.refill(now_ms)
        bucket.idle_until_ms = bucket.full_at()
        self._full_at.push(bucket.idle_until_ms, bucket)
        self._count += 1
        self.sweep(now_ms)

    def use(self, bucket: Bucket) -> None:
        """Take out a bucket that is used again."""
        if bucket.idle_until_ms is not None:
            bucket.idle_until_ms = None
            self._count -= 1

    def sweep(self, now_ms: int) -> None:
        """Forget the buckets that are full by now, and those that are too many."""
        while (bucket := self._full_at.pop_one(now_ms)) is not None:
            self._remove(bucket)
        while self._count > self._most and (bucket := self._full_at.pop_one(NEVER_MS)) is not None:
            # Without a rate any finite instant will do: nothing is ever earned, so it begins empty when made again.
            empty_ms = bucket.at_ms - bucket.level // bucket.rate_steps if bucket.rate_steps else -NEVER_MS
            self.empty_ms[bucket.family] = max(self.empty_ms.get(bucket.family, empty_ms), empty_ms)
            self._remove(bucket)

    def _remove(self, bucket: Bucket) -> None:
        self.use(bucket)
        self._forget(bucket)


class InUseLimit:
    """The limit of a kernel on items in use.

    Attributes:
        most: how many items may be in use in all; None for no limit.
        in_use: how many are, counted only while there is a limit.
    """

    __slots__ = ("_crowd", "in_use", "most")

    def __init__(self) -> None:
        self.most: int | None = None
        self.in_use = 0
        self._crowd: deque[KeyNode] = deque()

    def set(self, most: int | None, in_use: int) -> list[KeyNode]:
        """Set the limit, with as many items in use as there are now. Return the keys that try again, in their order."""
        self.most, self.in_use = most, in_use
        crowd = [node for node in self._crowd if node.is_crowded]
        self._crowd.clear()
        for node in crowd:
            node.is_crowded = False
        return crowd

    def allowance(self, node: KeyNode) -> int:
        """Return how many more items of an outermost key may be in use."""
        if self.most is None:
            return 1 << 62
        return max(self.most - self.in_use, node.floor - node.in_use, 0)

    def wait(self, node: KeyNode) -> None:
        """Crowd an outermost key out."""
        node.is_crowded = True
        (self._crowd.appendleft if node.is_open else self._crowd.append)(node)

    def has_room(self) -> bool:
        """Return whether a key that was crowded out may try again."""
        return self.most is not None and self.in_use < self.most and bool(self._crowd)

    def admit(self, count: int) -> list[KeyNode]:
        """Return the keys that may try again, which are no longer crowded out: at most ``count``."""
        found: list[KeyNode] = []
        while self.has_room() and self.most is not None and len(found) < min(count, self.most - self.in_use):
            node = self._crowd.popleft()
            if node.is_crowded:  # others have got below their floor, or another policy, or are forgotten
                node.is_crowded = False
                found.append(node)
        return found

    def replace(self, old: KeyNode, new: KeyNode) -> None:
        """Put another node in the place of one that was crowded out."""
        if old.is_crowded:
            old.is_crowded = False
            new.is_crowded = True
            self._crowd.append(new)
