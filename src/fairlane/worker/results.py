"""Results that a handler can return, and counts of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Self, TypeAlias

from fairlane.model.message import NewMessage


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Acknowledge the message; a handler that returns None does the same.

    Attributes:
        cost: its actual cost, if known.
        result: its result, which is kept for the message's ``result_ttl_ms``.
    """

    cost: int | None = None
    result: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Retry the message after ``delay_ms`` or the queue's backoff, unless it has failed too often."""

    delay_ms: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Move the message to the dead letters, with ``error`` as the reason."""

    error: str = ""


@dataclass(frozen=True, slots=True)
class ForwardTo:
    """Acknowledge the message and enqueue others, by queue, in the same commit: all of it or nothing.

    The others inherit its correlation id, fairness key and trace unless they have their own.
    """

    messages: Mapping[str, Sequence[NewMessage]]
    cost: int | None = None
    result: bytes | None = None


@dataclass(frozen=True, slots=True)
class Defer:
    """Return the message for delivery after a delay, without a failure."""

    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Expired:
    """Return a message whose deadline passed before its handler started. It expires in its queue, without a failure."""


HandlerResult: TypeAlias = Acknowledge | Retry | DeadLetter | ForwardTo | Defer
ACK = Acknowledge()
EXPIRED = Expired()
KINDS = (Acknowledge, Retry, DeadLetter, ForwardTo, Defer)


def result_of(answer: object) -> HandlerResult:
    """Return the result that a handler's answer stands for; None acknowledges. Raises TypeError for other values."""
    if answer is None:
        return ACK
    if isinstance(answer, KINDS):
        return answer
    raise TypeError(
        f"A handler must return None, Acknowledge, Retry, DeadLetter, ForwardTo or Defer, got {type(answer)}."
    )


@dataclass(slots=True)
class Counters:
    """Counts of messages.

    Attributes:
        handled: acknowledged or forwarded messages; the acknowledgement is durable.
        failed: messages whose handler raised, timed out, or returned an invalid result.
        retried: messages returned as failed that wait again.
        dead: messages moved to the dead letters, by the handler's result or because they have failed too often.
        deferred: messages returned without a failure.
        expired: messages returned after their deadline, such as before their handler started; none of them waits again.
        lost: messages whose lease ended before they were settled; they are delivered again.
        cancelled: messages that a caller cancelled while the worker had them.
        in_flight: messages whose handler is running now.
    """

    handled: int = 0
    failed: int = 0
    retried: int = 0
    dead: int = 0
    deferred: int = 0
    lost: int = 0
    in_flight: int = 0
    expired: int = 0
    cancelled: int = 0

    def __add__(self, other: Self) -> Counters:
        return Counters(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))
