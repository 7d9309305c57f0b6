"""The limits of a queue's scripts."""

from __future__ import annotations

from typing import Final

import msgspec


class HookLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a queue's policy allows its scripts; None where the broker's setting applies.

    Attributes:
        timeout_ms: how long a script may take for one message.
        memory_bytes_max: how much memory a script may use.
        breaker_threshold: the number of consecutive faults after which the scripts are bypassed.
        breaker_cooldown_ms: how long they are bypassed.
    """

    timeout_ms: int | None = None
    memory_bytes_max: int | None = None
    breaker_threshold: int | None = None
    breaker_cooldown_ms: int | None = None


NO_HOOK_LIMITS: Final = HookLimits()
"""The broker's settings apply."""
