"""Spinning: staying awake for a moment where something is expected, within bounds."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

import pytest

from fairlane.wire.spin import SPIN_S, LoopSpin, SpinRecord, may_spin


class Loop:
    """An event loop without I/O, whose passes take a tenth of the longest spinning each."""

    def __init__(self) -> None:
        self.passes = 0
        self._callbacks: deque[Callable[[], None]] = deque()
        self.spin = LoopSpin(self._callbacks.append, is_on=True, now=lambda: self.passes * SPIN_S / 10)

    def run(self, passes: int) -> int:
        """Run passes as long as anything keeps the loop awake, and return how many there were."""
        for done in range(passes):
            if not self._callbacks:
                return done
            self.passes += 1
            self._callbacks.popleft()()
        return passes


def test_a_loop_stays_awake_for_a_moment() -> None:
    """Without a request the loop goes to sleep after the longest spinning."""
    loop = Loop()
    loop.spin.begin()
    assert 10 <= loop.run(1_000) <= 11


def test_what_was_expected_ends_the_spinning() -> None:
    """When the request has come, the loop may sleep after the present pass."""
    loop = Loop()
    loop.spin.begin()
    assert loop.run(3) == 3
    loop.spin.end()
    assert loop.run(1_000) == 1


def test_spinning_again_needs_no_second_callback() -> None:
    """However often spinning begins, it is one callback in each pass."""
    loop = Loop()
    for _ in range(5):
        loop.spin.begin()
    assert loop.run(1_000) <= 11


def test_fruitless_spinning_is_given_up() -> None:
    """A process whose waits are always longer spins on one of nine occasions."""
    record = SpinRecord()
    spun = 0
    for _ in range(9_000):
        if record.is_worth_it():
            spun += 1
            record.note(is_fruitful=False)
    assert spun == 1_000


def test_fruitful_spinning_goes_on() -> None:
    """One success in seven keeps it on."""
    record = SpinRecord()
    for at in range(1_000):
        assert record.is_worth_it()
        record.note(is_fruitful=at % 7 == 0)


@pytest.mark.parametrize("environ", [{}, {"FAIRLANE_SPIN": "off"}, {"FAIRLANE_SPIN": ""}])
def test_it_is_off_unless_asked_for(environ: dict[str, str]) -> None:
    """Without the variable, or with any other value than a yes, no process spins."""
    assert not may_spin(environ)


def test_a_process_with_one_core_does_not_spin() -> None:
    """A process that may use one core leaves it to the other side."""
    allowed = os.sched_getaffinity(0)
    assert may_spin({"FAIRLANE_SPIN": "on"}) == (len(allowed) > 1)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert not may_spin({"FAIRLANE_SPIN": "on"})
    finally:
        os.sched_setaffinity(0, allowed)
