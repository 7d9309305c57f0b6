"""Which calls a client repeats, and when."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from fairlane.errors import (
    Disconnected,
    FairlaneError,
    QueueElsewhere,
    QueueMoving,
    QueueSplit,
    RateLimited,
    StoreFailed,
)
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.table import VERBS
from fairlane.verbs.verb import Shape

T = TypeVar("T")
_NOTHING_DONE: Final = (RateLimited, QueueMoving, QueueElsewhere)
"""Errors after which the request has certainly not been carried out."""
LEASES_STAY: Final = (QueueMoving, QueueElsewhere, QueueSplit)
"""Errors that end a channel because its queue is elsewhere now; the leases remain valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How long and how often a client repeats a request.

    Attributes:
        patience_s: how long to keep trying after the first failure.
        first_s: the longest delay before the first repetition; the actual delay is a random part of it.
        factor: by how much the delay grows each time.
        longest_s: the longest delay.
    """

    patience_s: float = 60.0
    first_s: float = 0.05
    factor: float = 2.0
    longest_s: float = 2.0

    def waits_s(self) -> Iterator[float]:
        """Return the delay before each repetition. Delays grow, and are random so that clients do not retry in step."""
        most = self.first_s
        while True:
            yield most * random.uniform(0.5, 1.0)  # noqa: S311 - a delay is no secret
            most = min(most * self.factor, self.longest_s)

    async def until_answered(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return what an attempt returns; repeat it as long as no server answers, up to ``patience_s``."""
        now = asyncio.get_running_loop().time
        until = now() + self.patience_s
        for wait_s in self.waits_s():
            try:
                return await attempt()
            except Disconnected:
                if now() + wait_s > until:
                    raise
            await asyncio.sleep(wait_s)
        raise AssertionError("waits never end")


def is_passing(error: FairlaneError) -> bool:
    """Return whether an error concerns the connection or the server rather than the request."""
    return isinstance(error, Disconnected | StoreFailed | RateLimited | QueueMoving | QueueElsewhere)


def pause_s(error: FairlaneError, wait_s: float) -> float:
    """Return the delay before a repetition, adjusted to what the server advises."""
    if isinstance(error, QueueMoving) and error.retry_after_ms is not None:
        return min(wait_s, error.retry_after_ms / 1000)  # a move takes moments, so do not wait longer than advised
    advised_ms = error.retry_after_ms if isinstance(error, RateLimited) else None
    return wait_s if advised_ms is None else max(wait_s, advised_ms / 1000)


def is_repeatable(verb: str, request: Shape, error: FairlaneError) -> bool:
    """Return whether a call is safe to repeat: it was not carried out, or a second time has the same result."""
    if isinstance(error, _NOTHING_DONE):
        return True
    repeat = VERBS[verb].repeat
    if repeat == "deduplicated" and isinstance(request, Enqueue):
        return request.producer is not None or all(message.dedup_id is not None for message in request.messages)
    return repeat == "always"
