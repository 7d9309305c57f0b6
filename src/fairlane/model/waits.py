"""Why a message waited: one wait, split by reason.

A wait begins when a message is enqueued, published, returned, dead-lettered or redriven. Until the message is due it is
*delayed*, or in *backoff* after a failed attempt. From then on until its lease the reasons are those of ``HOLDS``, and
what none of them explains is the *turn*: waiting for the key's turn and for a consumer.

Two reasons can hold at once: the key of a throttled message may be paused. Each instant is then counted for the first
of them in the order of ``HOLDS``. A pause comes first, because an operator decided it: nothing else could have let the
message go.
"""

from __future__ import annotations

from typing import Final, NamedTuple

HOLDS: Final = ("paused_ms", "throttled_ms", "capped_ms")
"""What the broker measures of a wait, in the order of precedence; these are fields of ``Picking`` and event columns."""


class WaitReasons(NamedTuple):
    """One wait from the instant at which the message was due, by reason. The four add up to the wait."""

    paused_ms: int
    throttled_ms: int
    capped_ms: int
    turn_ms: int


def split_wait(wait_ms: int, *, paused_ms: int, throttled_ms: int, capped_ms: int) -> WaitReasons:
    """Split a wait by what was measured. A measurement counts only as far as it fits into what is left of the wait."""
    left_ms = max(0, wait_ms)
    paused_ms = min(paused_ms, left_ms)
    left_ms -= paused_ms
    throttled_ms = min(throttled_ms, left_ms)
    left_ms -= throttled_ms
    capped_ms = min(capped_ms, left_ms)
    return WaitReasons(paused_ms, throttled_ms, capped_ms, left_ms - capped_ms)
