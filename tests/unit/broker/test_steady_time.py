"""The broker's time measures durations, never runs backwards, and forgets jumps of the wall clock."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.broker.steady_time import BrokerTime
from fairlane.testing.clock import FakeClock

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def passing(time: BrokerTime, clock: FakeClock, ms: int) -> int:
    """Advance the clock in steps of 100 ms, as a busy broker sees it, and return the broker's time."""
    for _ in range(ms // 100):
        clock.advance(100)
        time.advance()
    return time.now_ms()


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(-(10**9), 10**9), st.booleans()), max_size=50))
def test_time_never_runs_backwards_and_keeps_pace(moves: list[tuple[int, int, bool]]) -> None:
    """Whatever the wall clock does, no reading is before an earlier one, and each duration is right to a tenth."""
    clock = FakeClock(START_MS)
    time = BrokerTime(clock)
    before_ms = START_MS
    for passed_ms, jump_ms, looks in moves:
        clock.advance(passed_ms)
        clock.jump(jump_ms)
        now_ms = time.advance() if looks else time.now_ms()
        assert abs(now_ms - before_ms - passed_ms) <= passed_ms // 10 + 1
        before_ms = now_ms


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_a_short_jump_leaves_no_trace(jump_ms: int) -> None:
    """An hour forward or back for three seconds: the broker's time is exact during the jump and after it."""
    clock = FakeClock(START_MS)
    time = BrokerTime(clock)
    clock.jump(jump_ms)
    assert passing(time, clock, 3_000) == START_MS + 3_000
    clock.jump(-jump_ms)
    assert passing(time, clock, 600_000) == START_MS + 603_000 == clock.now_ms()


@pytest.mark.parametrize("jump_ms", [HOUR_MS, -HOUR_MS])
def test_a_jump_that_persists_is_approached_slowly(jump_ms: int) -> None:
    """After a minute time follows by a tenth, so 600 s after the jump it has moved 54 s towards the clock."""
    clock = FakeClock(START_MS)
    time = BrokerTime(clock)
    clock.jump(jump_ms)
    moved_ms = passing(time, clock, 600_000) - START_MS - 600_000
    assert abs(moved_ms) == pytest.approx(54_000, abs=100)
    assert moved_ms * jump_ms > 0


def test_a_clock_that_is_right_again_is_met_exactly() -> None:
    """An hour wrong for ten minutes, then right: eleven minutes later the broker's time is the wall clock's."""
    clock = FakeClock(START_MS)
    time = BrokerTime(clock)
    clock.jump(HOUR_MS)
    passing(time, clock, 600_000)
    clock.jump(-HOUR_MS)
    assert passing(time, clock, 660_000) == pytest.approx(clock.now_ms(), abs=5)


def test_drift_is_corrected_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """A wall clock that NTP moves by half a second is met within ten seconds, and the log stays empty."""
    clock = FakeClock(START_MS)
    time = BrokerTime(clock)
    clock.jump(500)
    assert passing(time, clock, 10_000) == pytest.approx(clock.now_ms(), abs=5)
    assert caplog.records == []


def test_an_idle_broker_takes_no_step() -> None:
    """Hours without a look at a clock that is wrong add nothing to the first reading afterwards."""
    clock = FakeClock(START_MS)
    time = BrokerTime(clock)
    clock.jump(HOUR_MS)
    clock.advance(5 * HOUR_MS)
    assert time.advance() == START_MS + 5 * HOUR_MS


def test_time_starts_at_the_end_of_the_journal_and_is_slewed_back(caplog: pytest.LogCaptureFixture) -> None:
    """A journal that ends ten seconds in the future holds time there, and time meets the clock 100 s later."""
    clock = FakeClock(START_MS)
    time = BrokerTime(clock)
    with caplog.at_level(logging.WARNING, "fairlane.broker"):
        time.reach(START_MS + 10_000)
    assert time.now_ms() == START_MS + 10_000
    assert "The journal ends 10.0 s after the time of the wall clock" in caplog.text
    assert passing(time, clock, 50_000) == pytest.approx(START_MS + 55_000, abs=50)
    assert passing(time, clock, 60_000) == pytest.approx(clock.now_ms(), abs=5)


def test_the_end_of_the_journal_is_met_exactly_while_time_is_slewed() -> None:
    """A journal that was opened late, 10 ms ahead of a time that is slewed by 20 ms, is not undercut by the slew."""
    clock = FakeClock(START_MS)
    time = BrokerTime(clock)
    clock.jump(500)
    passing(time, clock, 100)
    clock.advance(200)
    before_ms = time.now_ms()
    time.reach(before_ms + 10)
    assert time.now_ms() == before_ms + 10


def test_a_journal_of_the_past_changes_nothing() -> None:
    """The wall clock alone knows how long the broker was down."""
    clock = FakeClock(START_MS)
    time = BrokerTime(clock)
    time.reach(START_MS - HOUR_MS)
    assert time.now_ms() == START_MS


def test_jumps_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The log names each jump, the gap, and when the broker's time begins to follow."""
    clock = FakeClock(START_MS)
    time = BrokerTime(clock)
    jumped = (
        "The wall clock jumped by +3600.0 s and is +3600.0 s away from the broker's time, which goes on as before: "
        "no lease, delay, deadline or API key expires by it."
    )
    with caplog.at_level(logging.WARNING, "fairlane.broker"):
        clock.jump(HOUR_MS)
        passing(time, clock, 59_000)
        assert [record.getMessage() for record in caplog.records] == [jumped]
        passing(time, clock, 2_000)
    assert "The wall clock has stayed +3600.0 s away for 60 s." in caplog.text
