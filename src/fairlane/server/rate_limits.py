"""Rate limits of callers: a token bucket for each, on the broker's clock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from fairlane.errors import RateLimited
from fairlane.scheduler.token_bucket import Bucket

CALLERS_MAX: Final = 65_536
"""Callers that are remembered: those that called most recently."""


class RateLimits:
    """The rate limit of each caller, by its API key or, with authentication disabled, by its address."""

    def __init__(
        self, rate: float, burst: int | None = None, *, now_ms: Callable[[], int], callers_max: int = CALLERS_MAX
    ) -> None:
        self._rate = rate
        self._burst = max(1.0, rate) if burst is None else float(burst)
        self._now_ms = now_ms
        self._callers_max = callers_max
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def check(self, caller: str) -> None:
        """Count a request of a caller.

        Raises:
            RateLimited: the caller exceeded its rate; the request must not be carried out.
        """
        if not self.allows(caller):
            text = f"The caller exceeded {self._rate:g} requests per second."
            raise RateLimited(text, retry_after_ms=self.retry_after_ms(caller))

    def allows(self, caller: str) -> bool:
        """Count a request of a caller, unless it exceeds the rate, and return whether it was counted."""
        now_ms = self._now_ms()
        bucket = self._buckets.get(caller)
        if bucket is None:
            bucket = self._new(caller, now_ms)
        else:
            self._buckets.move_to_end(caller)
        if not bucket.has_token(now_ms):
            return False
        bucket.take()
        return True

    def retry_after_ms(self, caller: str) -> int | None:
        """Return in how many milliseconds a request of a caller would be allowed; None if it is allowed now."""
        bucket = self._buckets.get(caller)
        if bucket is None or bucket.has_token(now_ms := self._now_ms()):
            return None
        again_ms = bucket.token_at(now_ms)
        return None if again_ms is None else max(1, again_ms - now_ms)

    def _new(self, caller: str, now_ms: int) -> Bucket:
        if len(self._buckets) >= self._callers_max:
            self._buckets.popitem(last=False)
        bucket = self._buckets[caller] = Bucket(caller)
        bucket.limit(self._rate, self._burst, None, now_ms)
        return bucket
