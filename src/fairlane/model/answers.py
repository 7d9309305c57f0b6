"""The answers of hooks. An answer is part of the command and of the record."""

from __future__ import annotations

import msgspec

from fairlane.model.message import Key


class EnqueueAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="on_enqueue"):
    """The answer of ``on_enqueue`` for a message. None means that the script left the field out.

    All values are within the limits of ``fairlane.model.limits``: the adapter that runs the script checks them.
    """

    fairness_key: Key | None = None
    weight: int | None = None
    throttles: tuple[str, ...] | None = None
    cost: int | None = None
    priority: int | None = None
    cap: int | None = None
    delay_ms: int | None = None
    deadline_ms: int | None = None
    """Counted from the enqueue."""


class FailureAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="on_failure"):
    """The answer of ``on_failure``. Without a delay the queue's backoff applies, to failed attempts."""

    is_dead: bool
    delay_ms: int | None = None
