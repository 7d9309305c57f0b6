"""What each caller waits for: long polls, channels and subscriptions, a bounded number for each.

The broker bounds all waiters together (``waiters_max``). Without a bound for each, one caller could take all of them,
and every other caller would be refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from fairlane.errors import TooManyWaiters

_RETRY_AFTER_MS: Final = 1_000


class CallerWaits:
    """Counts what each caller waits for. A caller is named by its API key, or by its address; None is not counted."""

    def __init__(self, waits_max: int) -> None:
        self._waits_max = waits_max
        self._waits: Counter[str] = Counter()

    def begin(self, holder: str | None) -> None:
        """Count one more. Raises TooManyWaiters if the caller has as many as it may."""
        if holder is None:
            return
        if self._waits[holder] >= self._waits_max:
            cause = (
                f"This caller has {self._waits[holder]} long polls, channels and subscriptions; "
                f"waiters_per_caller_max is {self._waits_max}."
            )
            raise TooManyWaiters(cause, retry_after_ms=_RETRY_AFTER_MS)
        self._waits[holder] += 1

    def end(self, holder: str | None) -> None:
        """Count one less."""
        if holder is None:
            return
        self._waits[holder] -= 1
        if not self._waits[holder]:
            del self._waits[holder]

    @contextmanager
    def counted(self, holder: str | None) -> Iterator[None]:
        """Count one while the context lasts. Raises TooManyWaiters if the caller has as many as it may."""
        self.begin(holder)
        try:
            yield
        finally:
            self.end(holder)
