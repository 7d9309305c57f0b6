"""The status of a message, from its enqueue to long after its end."""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

from fairlane.model.message import FailedAttempt, Key

Ending = Literal["done", "cancelled", "expired", "dropped", "purged"]
"""How a message has left the broker: acknowledged, cancelled, past its deadline, dropped for another because a limit
was reached, or purged with its queue.
"""
ENDINGS: Final[tuple[Ending, ...]] = get_args(Ending)
LifeStage = Literal[
    "waiting", "delayed", "failed", "running", "dead", "done", "cancelled", "expired", "dropped", "purged"
]
"""Where a message is in its life. ``failed`` waits for its next attempt, and ``dead`` is a dead letter."""
FINAL: Final = frozenset(("dead", *ENDINGS))
"""The stages in which nothing happens any more by itself. An operator may redrive a dead letter."""


class ProgressView(msgspec.Struct, frozen=True, kw_only=True):
    """How far a running message has come, as its consumer last reported.

    Attributes:
        fraction: the part that is done, from 0 to 1, if the consumer said so.
        note: a short text of the consumer's, such as JSON.
        at_ms: when it was reported.
    """

    fraction: float | None = None
    note: str = ""
    at_ms: int = 0


class MembersView(msgspec.Struct, frozen=True, kw_only=True):
    """How far the members of a fan-out have come, for its continuation.

    Attributes:
        total: how many there are.
        done: how many were acknowledged.
        failed: how many have ended otherwise: as dead letters, cancelled, or removed.
    """

    total: int
    done: int
    failed: int


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a message, while it exists and for as long as its end is known.

    Attributes:
        queue: the queue that it is in, or was in last.
        status: where it is in its life.
        enqueued_ms: when it was enqueued.
        attempts: how many times it has been leased.
        failures: how many of these have failed.
        errors: the latest attempts that failed or were lost.
        reason: for a message that waits, what it waits for, as ``explain`` says; for one that has ended, why.
        words: the same in a sentence, for people.
        starts_ms: about when a message that waits will start; None if that can't be said. It is known for a delay, and
            otherwise estimated from how long messages of its fairness key have waited lately.
        owner: of a running message, the consumer.
        since_ms: of a running message, when the consumer got it.
        expires_ms: of a running message, when the lease ends unless it is extended.
        progress: of a running message, what the consumer last reported.
        finished_ms: when it reached its end.
        result_bytes: of a message that is done, the size of its result; None if none is kept.
        kept_until_ms: until when its end and its result are kept.
        members: of the continuation of a fan-out, how far the members have come.
        version: changes whenever the status does; ``status`` with ``after`` waits for that.
    """

    id: str
    queue: str
    status: LifeStage
    fairness_key: Key
    enqueued_ms: int
    attempts: int = 0
    failures: int = 0
    errors: tuple[FailedAttempt, ...] = ()
    reason: str | None = None
    words: str | None = None
    starts_ms: int | None = None
    owner: str | None = None
    since_ms: int | None = None
    expires_ms: int | None = None
    finished_ms: int | None = None
    result_bytes: int | None = None
    kept_until_ms: int | None = None
    version: str = ""
    progress: ProgressView | None = None
    members: MembersView | None = None

    @property
    def is_final(self) -> bool:
        """Whether nothing happens any more by itself."""
        return self.status in FINAL


class ResultView(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a message.

    Attributes:
        status: where it is in its life; if that is no end, the wait was over before.
        result: the result that its consumer acknowledged it with, if that is kept.
        finished_ms: when it reached its end.
        reason: why it is dead or was cancelled, if that is known.
        errors: the latest attempts that failed or were lost.
    """

    id: str
    status: LifeStage
    result: bytes | None = None
    finished_ms: int | None = None
    reason: str | None = None
    errors: tuple[FailedAttempt, ...] = ()
