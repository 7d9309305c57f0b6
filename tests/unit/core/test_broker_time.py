"""The broker's time goes forward whatever the clock does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlane.broker.engine.life import BrokerTime


@given(st.integers(0, 10**13), st.lists(st.integers(-(10**9), 10**9), max_size=50))
def test_time_never_runs_backwards(start_ms: int, jumps: list[int]) -> None:
    """Whatever jumps the clock makes, each reading is at least the one before."""
    time = BrokerTime(start_ms)
    before, clock_ms = start_ms, start_ms
    for jump in jumps:
        clock_ms += jump
        now_ms = time.advance(clock_ms)
        assert now_ms >= before
        before = now_ms


def test_a_clock_set_back_does_not_stop_time() -> None:
    """After the clock was set back by an hour, time goes on at its pace from where it was."""
    time = BrokerTime(10_000_000)
    assert time.advance(10_000_500) == 10_000_500
    assert time.advance(6_400_500) == 10_000_500
    assert time.advance(6_400_700) == 10_000_700


def test_a_clock_set_forward_is_followed() -> None:
    """After a suspend, or a clock that was set right, time is what the clock says."""
    time = BrokerTime(1_000)
    assert time.advance(9_000_000) == 9_000_000


def test_time_begins_no_earlier_than_the_journal_ends() -> None:
    """With a clock behind the last record, time begins at that record and goes on from there."""
    time = BrokerTime(1_000, not_before_ms=5_000)
    assert time.advance(1_000) == 5_000
    assert time.advance(1_300) == 5_300
