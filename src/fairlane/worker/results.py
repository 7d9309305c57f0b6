"""What a handler can answer: what is to become of its message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fairlane.model.message import NewMessage


@dataclass(frozen=True, slots=True)
class Ack:
    """It is done; so is a message whose handler returns None. ``cost`` is its true cost, where that is now known."""

    cost: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """It failed and is to come again, after ``delay_ms`` or the queue's backoff, unless it has failed too often."""

    delay_ms: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """It is to go to the dead letters, because of ``error``."""

    error: str = ""


@dataclass(frozen=True, slots=True)
class Forward:
    """It is done, and these messages by queue are enqueued in the same commit: all of it happens or nothing."""

    messages: Mapping[str, Sequence[NewMessage]]
    cost: int | None = None


@dataclass(frozen=True, slots=True)
class Defer:
    """It is to come again after a delay, without counting as a failure."""

    delay_ms: int = 0


Result: TypeAlias = Ack | Retry | DeadLetter | Forward | Defer
ACK = Ack()
KINDS = (Ack, Retry, DeadLetter, Forward, Defer)
