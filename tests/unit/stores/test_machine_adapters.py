"""The clock and the randomness of the machine."""

from __future__ import annotations

import time

from fairlane.adapters.system import SystemClock, SystemEntropy


def test_the_clock_returns_the_time_of_day_in_milliseconds() -> None:
    """It lies between two readings of the operating system's clock."""
    before = time.time_ns() // 1_000_000
    now = SystemClock().now_ms()
    assert before <= now <= time.time_ns() // 1_000_000


def test_random_numbers_stay_below_their_bound_and_reach_every_value() -> None:
    """A bound of 3 gives 0, 1 and 2, and nothing else."""
    entropy = SystemEntropy()
    assert {entropy.below(3) for _ in range(500)} == {0, 1, 2}
