"""What hooks may answer. An answer travels inside the command and into the record."""

from __future__ import annotations

import msgspec

from fairlane.model.message import Key


class EnqueueAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="on_enqueue"):
    """What ``on_enqueue`` says of a message. None means that the script did not say.

    All values are within the limits of ``fairlane.model.limits``: whoever runs the script has checked them.
    """

    fairness_key: Key | None = None
    weight: int | None = None
    throttles: tuple[str, ...] | None = None
    cost: int | None = None
    priority: int | None = None
    cap: int | None = None
    delay_ms: int | None = None
    deadline_ms: int | None = None
    """From the instant of the enqueue."""


class FailureAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="on_failure"):
    """What ``on_failure`` says of a failed attempt. Without a delay the queue's backoff applies."""

    is_dead: bool
    delay_ms: int | None = None
