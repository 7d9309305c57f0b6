"""Which calls may be repeated, and when."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

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

_NOTHING_DONE: Final = (RateLimited, QueueMoving, QueueElsewhere)
"""Errors of those who have not done anything."""
LEASES_STAY: Final = (QueueMoving, QueueElsewhere, QueueSplit)
"""Errors by which a channel ends whose queue is to be found elsewhere, with all leases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """How a client repeats what may be repeated.

    Attributes:
        patience_s: how long it goes on trying, after the first failure.
        first_s: the longest wait before the first repetition; a random part of it is waited.
        factor: what that is multiplied with each time.
        longest_s: the longest it becomes.
    """

    patience_s: float = 60.0
    first_s: float = 0.05
    factor: float = 2.0
    longest_s: float = 2.0

    def waits_s(self) -> Iterator[float]:
        """Return how long to wait before each repetition: more each time, and never in step with others."""
        most = self.first_s
        while True:
            yield most * random.uniform(0.5, 1.0)  # noqa: S311 - nothing secret about a pause
            most = min(most * self.factor, self.longest_s)


def is_passing(error: FairlaneError) -> bool:
    """Tell whether an error speaks of the way or the server's bad day rather than of the request."""
    return isinstance(error, Disconnected | StoreFailed | RateLimited | QueueMoving | QueueElsewhere)


def pause_s(error: FairlaneError, wait_s: float) -> float:
    """Return how long to wait before a repetition: as long as was meant, or until the server says that it helps."""
    if isinstance(error, QueueMoving) and error.retry_after_ms is not None:
        return min(wait_s, error.retry_after_ms / 1000)  # it is a matter of moments, and the first to come is served
    told_ms = error.retry_after_ms if isinstance(error, RateLimited) else None
    return wait_s if told_ms is None else max(wait_s, told_ms / 1000)


def is_repeatable(verb: str, request: Shape, error: FairlaneError) -> bool:
    """Tell whether a call may be repeated: nothing was done, or doing it twice comes to the same."""
    if isinstance(error, _NOTHING_DONE):
        return True
    repeat = VERBS[verb].repeat
    if repeat == "deduplicated" and isinstance(request, Enqueue):
        return all(message.dedup_id is not None for message in request.messages)
    return repeat == "always"
