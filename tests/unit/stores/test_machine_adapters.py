"""The clock and the chance of the machine."""

from __future__ import annotations

import time

from fairlane.adapters.system import SystemClock, SystemEntropy


def test_the_clock_tells_the_time_of_day_in_milliseconds() -> None:
    """It lies between two looks at the clock of the operating system."""
    before = time.time_ns() // 1_000_000
    now = SystemClock().now_ms()
    assert before <= now <= time.time_ns() // 1_000_000


def test_chance_stays_below_its_bound_and_reaches_everything() -> None:
    """A die of three sides shows all three, and no other."""
    entropy = SystemEntropy()
    assert {entropy.below(3) for _ in range(500)} == {0, 1, 2}
