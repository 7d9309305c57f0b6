"""One throttle: a token bucket.

Theory of operation
-------------------
A bucket is not filled by a timer. It remembers its level at an instant, and when it is read it works out what has been
earned since. All arithmetic is in integers (billionths of a token, milliseconds), for two reasons: no rounding error
can accumulate, so a bucket never lets more than ``rate * t + burst`` through in any window of length t; and a replay of
the same calls gives the same answers on any machine.

An item takes one token from a bucket, or as many as it costs. An item that costs more than the burst would never find
enough tokens. It goes when the bucket is full, and leaves a debt: the level is below zero until it is earned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import NamedTuple, Protocol, TypeAlias
from weakref import WeakKeyDictionary

from fairlane.scheduler.compiled import Watch
from fairlane.scheduler.item import Key
from fairlane.scheduler.key_limits import NEVER_MS
from fairlane.scheduler.portions import TOKEN, Division, Portion

_RATE_LEAST = 0.000001
_RATE_STEPS = 1_000_000  # billionths of a token a millisecond, for a rate of one token a second


class Limit(NamedTuple):
    """The rate and burst of a bucket that is made on demand.

    Attributes:
        rate: tokens per second.
        burst: the capacity of the bucket; None for the tokens of one second, at least 1.
        charges_cost: whether an item takes as many tokens as it costs, instead of one.
        family: what its counts are added up under when it is forgotten, such as the pattern that it comes from.
    """

    rate: float
    burst: float | None = None
    charges_cost: bool = False
    family: str = ""


LimitProvider: TypeAlias = Callable[[str], Limit | None]
"""A function that returns the limit of a throttle that has none of its own when items first name it; None for none."""


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
    charges_cost: bool = False  # an item takes as many tokens as it costs
    level: int = 0
    at_ms: int = 0
    passed: int = 0  # items let through while it had a rate
    held_back: int = 0  # how often a lane was parked because there was no token
    is_set: bool = False  # set by its name, and kept until it is removed; all others are made and forgotten
    family: str = ""  # what its counts are added up under, if it is made and forgotten
    key: tuple[str, Key] | None = None  # the kernel and the key that it is the rate of; None for a throttle
    users: int = 0  # nodes of that key
    idle_until_ms: int | None = None  # when it may be forgotten; None while it is used
    # Of the kernels with a lane that names this throttle. An open throttle that no lane names is forgotten.
    portions: tuple[Portion, ...] = ()
    division: Division | None = None  # while there are several portions
    # Weak, so that a table shared by kernels does not keep a discarded kernel alive. Notified in order of
    # registration. Most buckets of a table with very many never have one.
    watchers: WeakKeyDictionary[Watch, None] | None = None

    def limit(self, rate: float, burst: float, tokens: float | None, now_ms: int) -> None:
        """Set the rate from now on. Tokens already earned stay, up to the new burst; a new throttle starts full."""
        if self.is_limited:
            self.refill(now_ms)
        else:
            self.at_ms = now_ms
        self.rate, self.burst = rate, burst
        self.rate_steps, self.burst_steps = steps_of(rate, burst)
        if tokens is not None:
            self.level = round(tokens * TOKEN)
        elif not self.is_limited:
            self.level = self.burst_steps
        self.level = min(self.level, self.burst_steps)
        self.is_limited = True
        if self.division is not None:
            self.division.restart()

    def has(self, limit: Limit) -> bool:
        """Return whether this is its limit."""
        present = (self.rate, self.burst, self.charges_cost)
        return self.is_limited and present == (limit.rate, burst_of(limit.rate, limit.burst), limit.charges_cost)

    def unlimit(self) -> None:
        """Remove the limit, so that everything passes."""
        self.is_limited = self.charges_cost = False
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

    def ready(self) -> int:
        """Return the number of whole tokens as of the last refill."""
        return self.level // TOKEN

    def need(self, cost: int) -> int:
        """Return how many tokens must be there for an item to pass."""
        return max(1, min(cost, self.burst_steps // TOKEN)) if self.charges_cost else 1

    def has_token(self, now_ms: int, cost: int = 1) -> bool:
        """Return whether an item of this cost may pass now."""
        if not self.is_limited:
            return True
        self.refill(now_ms)
        return self.level >= self.need(cost) * TOKEN

    def take(self, count: int = 1, cost: int = 0) -> int:
        """Spend the tokens of items that cost ``cost`` together, and return how many these are.

        The caller has checked that the tokens are there.
        """
        if not self.is_limited:
            return 0
        tokens = cost if self.charges_cost else count
        self.level -= tokens * TOKEN
        self.passed += count
        return tokens

    def token_at(self, now_ms: int, cost: int = 1) -> int | None:
        """Return the first instant at which an item of this cost may pass, or None for never."""
        return now_ms if self.has_token(now_ms, cost) else self.reaches_at(self.need(cost))

    def reaches_at(self, tokens: int) -> int | None:
        """Return when there will be this number of tokens, or None for never. There are fewer now."""
        if self.rate_steps == 0:
            return None
        # Floor division of a negative number rounds away from zero, so negating it gives the ceiling: an instant that
        # is never early. A gate that opened a millisecond early would find no token and arm its timer again.
        return self.at_ms + -((self.level - tokens * TOKEN) // self.rate_steps)

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

    def watch(self, watch: Watch) -> None:
        """Notify a watcher of changes from now on."""
        if self.watchers is None:
            self.watchers = WeakKeyDictionary()
        self.watchers[watch] = None

    def unwatch(self, watch: Watch) -> None:
        """Undo ``watch``."""
        if self.watchers is not None:
            self.watchers.pop(watch, None)

    def watching(self) -> tuple[Watcher, ...]:
        """Return its watchers, as a copy: one whose last lane wakes removes itself while it is notified."""
        return () if self.watchers is None else tuple([watch.watcher for watch in self.watchers])

    def full_at(self) -> int:
        """Return when it will be full."""
        missing = self.burst_steps - self.level
        if missing <= 0:
            return self.at_ms
        return self.at_ms - (-missing // self.rate_steps) if self.rate_steps else NEVER_MS

    def another_token_at(self, now_ms: int) -> int | None:
        """Return when one more token will have been earned, even if the bucket is full by then; None for never."""
        return None if self.rate_steps == 0 else now_ms - (-TOKEN // self.rate_steps)


def burst_of(rate: float, burst: float | None) -> float:
    """Return the burst of a bucket: by default the tokens of one second, at least 1."""
    return max(1.0, rate) if burst is None else burst


def steps_of(rate: float, burst: float) -> tuple[int, int]:
    """Return what a bucket earns a millisecond and what it holds, in billionths of a token."""
    return math.floor(rate * _RATE_STEPS) if burst else 0, round(burst * TOKEN)  # never faster than configured


def require_limit(what: str, rate: object, burst: object) -> None:
    """Raise ``ValueError`` unless a rate and a burst are in range."""
    if not isinstance(rate, (int, float)) or not isinstance(burst, (int, float, NoneType)):
        raise ValueError(f"The rate and burst of {what} must be numbers, got {rate!r} and {burst!r}.")
    if not (math.isfinite(rate) and (rate == 0 or rate >= _RATE_LEAST)):
        raise ValueError(f"The rate of {what} must be 0, or finite and at least 0.000001, got {rate!r}.")
    if burst is not None and not (math.isfinite(burst) and (burst == 0 or burst >= 1)):
        raise ValueError(f"The burst of {what} must be 0, or finite and at least 1, got {burst!r}.")
