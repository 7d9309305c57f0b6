"""A system clock that is wrong, and that signals set an hour forward or back."""

from __future__ import annotations

import signal

from fairlane.adapters.system import SystemClock

FORWARD = signal.SIGUSR1
BACK = signal.SIGUSR2
HOUR_MS = 3_600_000


def skew(by_ms: int = 0) -> None:
    """Shift every wall clock of this process; each ``FORWARD`` and ``BACK`` that it gets shifts them by an hour."""
    now_ms, shift_ms = SystemClock.now_ms, by_ms

    def skewed(self: SystemClock) -> int:
        return now_ms(self) + shift_ms

    def jump(number: int, _frame: object) -> None:
        nonlocal shift_ms
        shift_ms += HOUR_MS if number == FORWARD else -HOUR_MS

    SystemClock.now_ms = skewed  # type: ignore[method-assign] # that is what this process is for
    for number in (FORWARD, BACK):
        signal.signal(number, jump)
