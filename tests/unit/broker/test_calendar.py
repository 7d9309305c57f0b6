"""When schedules fire: time zones, clock changes and gaps, against dates written by hand and a table of minutes."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairlane.broker.calendar import due_ticks, expression_fault, instant_text, next_tick, ticks_after
from fairlane.model.schedules import ScheduleSpec
from tests.kit.naive_cron import ticks

DAY_MS = 86_400_000
YEAR_MS = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * 1000


def at(text: str) -> int:
    """Return an instant."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


FIRST_TICKS = [
    ("0 7 * * MON-FRI", "Europe/Berlin", "2026-11-20T12:00+00:00", ["2026-11-23T06:00:00Z", "2026-11-24T06:00:00Z"]),
    ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+00:00", ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
    ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00+00:00", ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
    ("30 2 * * *", "Europe/Berlin", "2026-10-25T01:15+00:00", ["2026-10-26T01:30:00Z"]),  # within the repeated hour
    ("30 * * * *", "Europe/Berlin", "2026-10-25T00:00+00:00", ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]),
    ("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:20+00:00", ["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z"]),
    ("0 0 29 2 *", "UTC", "2026-01-01T00:00+00:00", ["2028-02-29T00:00:00Z"]),
    ("0 9 L * *", "Asia/Kolkata", "2026-02-01T00:00+00:00", ["2026-02-28T03:30:00Z", "2026-03-31T03:30:00Z"]),
    ("15 0 0 1 1 *", "UTC", "2026-06-01T00:00+00:00", ["2027-01-01T00:00:15Z"]),
]


@pytest.mark.parametrize(("cron", "zone", "after", "expected"), FIRST_TICKS)
def test_an_expression_fires_when_its_clocks_say_so(cron: str, zone: str, after: str, expected: list[str]) -> None:
    """Weekdays, leap days, last days, seconds, and the days on which clocks are changed."""
    found = islice(ticks_after(ScheduleSpec(cron=cron, timezone=zone), at(after)), len(expected))
    assert [instant_text(tick_ms) for tick_ms in found] == expected


FIELD = {
    "minute": st.sampled_from(("*", "0", "30", "*/15", "5,35", "10-50/20", "59")),
    "hour": st.sampled_from(("*", "0", "2", "1,2,3", "*/6", "9-17", "23")),
    "day": st.sampled_from(("*", "1", "15", "31", "*/10", "28-31")),
    "month": st.sampled_from(("*", "3,10", "2,3", "JAN-JUN", "*/5")),
    "weekday": st.sampled_from(("*", "0", "7", "MON-FRI", "SUN", "1,3")),
}
ZONES = st.sampled_from(
    ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/Santiago")
)
EXPRESSIONS = st.builds(" ".join, st.tuples(*FIELD.values()))


@given(cron=EXPRESSIONS, zone=ZONES, day=st.integers(0, 364))
@example(cron="0,30 2,3 * * *", zone="Europe/Berlin", day=86)
@example(cron="*/15 2 * * *", zone="Europe/Berlin", day=296)
@example(cron="56 * * * *", zone="Australia/Lord_Howe", day=91)
@example(cron="56 * * * *", zone="Australia/Lord_Howe", day=273)
@example(cron="*/15 3 * * *", zone="Australia/Lord_Howe", day=273)
@example(cron="*/15 1,2 * * *", zone="Australia/Lord_Howe", day=91)
@example(cron="*/10 * * * *", zone="Australia/Lord_Howe", day=273)
@example(cron="5,45 0-3 * * *", zone="Australia/Lord_Howe", day=273)
@example(cron="*/15 0-2 * * SUN", zone="Asia/Beirut", day=86)
@example(cron="* 0 * 9 SUN", zone="America/Santiago", day=247)
@settings(max_examples=150, deadline=None)
def test_ticks_are_those_of_a_table_of_minutes(cron: str, zone: str, day: int) -> None:
    """Four days of any expression in any zone, clock changes included, are what brute force over minutes finds."""
    first_ms = YEAR_MS + day * DAY_MS
    end_ms = first_ms + 4 * DAY_MS
    spec = ScheduleSpec(cron=cron, timezone=zone)
    expected = ticks(cron, zone, first_ms, end_ms)
    found = []
    for tick_ms in ticks_after(spec, first_ms):
        if tick_ms > end_ms:
            break
        found.append(tick_ms)
    assert found == expected
    assert due_ticks(spec, first_ms, end_ms, most=10_000) == expected
    assert due_ticks(spec, first_ms, end_ms, most=7) == expected[-7:]


@given(
    every_ms=st.integers(1_000, 10_000_000),
    anchor_ms=st.integers(0, 10**13),
    after_ms=st.integers(10**12, 2 * 10**12),
    span_ms=st.integers(0, 100_000_000),
    most=st.integers(1, 20),
)
def test_an_interval_counts_from_its_anchor(
    every_ms: int, anchor_ms: int, after_ms: int, span_ms: int, most: int
) -> None:
    """The ticks of an interval are the instants a whole number of intervals from the anchor, before and after it."""
    spec = ScheduleSpec(every_ms=every_ms, anchor_ms=anchor_ms)
    first = after_ms + 1
    while (first - anchor_ms) % every_ms:
        first += every_ms - (first - anchor_ms) % every_ms
    expected = list(range(first, after_ms + span_ms + 1, every_ms))
    assert due_ticks(spec, after_ms, after_ms + span_ms, most=most) == expected[-most:]
    assert next_tick(spec, after_ms) == first


def test_a_long_gap_costs_no_more_than_its_latest_ticks() -> None:
    """Of ten years of seconds in the repeated and skipped hours of Berlin, the latest come in order, none missing."""
    spec = ScheduleSpec(cron="* * * * * *", timezone="Europe/Berlin")
    found = due_ticks(spec, at("2016-01-01T00:00+00:00"), at("2026-10-25T01:00+00:00"), most=1_000)
    end_ms = at("2026-10-25T01:00+00:00")
    assert found == list(range(end_ms - 999_000, end_ms + 1, 1_000))


def test_nothing_fires_outside_of_its_limits() -> None:
    """The instants from and until are the first and the last that may fire."""
    spec = ScheduleSpec(every_ms=1_000, from_ms=5_000, until_ms=7_000)
    assert list(ticks_after(spec, 0)) == [5_000, 6_000, 7_000]
    assert due_ticks(spec, 0, 100_000, most=10) == [5_000, 6_000, 7_000]
    assert next_tick(spec, 7_000) is None


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        (ScheduleSpec(cron="0 25 * * *"), "Bad hour"),
        (ScheduleSpec(cron="0 7 * *"), "Wrong number of fields"),
        (ScheduleSpec(cron="@daily"), "five fields"),
        (ScheduleSpec(cron="0 0 30 2 *"), "Bad day-of-month"),
        (ScheduleSpec(cron="0 0 * 2 MON#5", timezone="UTC"), None),
        (ScheduleSpec(cron="0 7 * * *", timezone="Europe/Atlantis"), "Europe/Atlantis"),
        (ScheduleSpec(cron="0 7 * * *", timezone="../../etc/passwd"), "not known"),
        (ScheduleSpec(cron="*" * 1_000), "at most 256"),
        (ScheduleSpec(every_ms=1_000), None),
    ],
)
def test_what_is_wrong_with_an_expression_is_told(spec: ScheduleSpec, part: str | None) -> None:
    """An expression that can't be read, never fires or names no time zone is refused with the reason."""
    fault = expression_fault(spec)
    assert (fault is None) == (part is None)
    assert part is None or part in str(fault)
