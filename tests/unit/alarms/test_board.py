"""Alarms that are raised, last, and are resolved."""

from __future__ import annotations

from fairlane.alarms.alarm import Alarm
from fairlane.alarms.board import RESOLVED_MAX, AlarmBoard, News


def alarm(subject: str, *, since_ms: int = 1_000, value: float = 1.0) -> Alarm:
    """Return an alarm about a tenant."""
    return Alarm(
        kind="above_entitlement",
        queue="orders",
        subject=subject,
        since_ms=since_ms,
        value=value,
        expected=0.5,
        text=f"{subject} is served too much.",
    )


def test_an_alarm_that_lasts_is_news_once_and_keeps_its_beginning() -> None:
    """Found again, it has the latest value and the first instant."""
    first, news = AlarmBoard().after([alarm("a")], horizon_ms=1_000)
    assert [each.subject for each in news.raised] == ["a"]
    second, later = first.after([alarm("a", since_ms=2_000, value=0.9)], horizon_ms=2_000)
    assert not later
    assert [(each.since_ms, each.value) for each in second.raised] == [(1_000, 0.9)]


def test_an_alarm_that_is_not_found_again_is_resolved() -> None:
    """It is news a second time, and new if it is found once more."""
    first, _ = AlarmBoard().after([alarm("a"), alarm("b")], horizon_ms=1_000)
    second, news = first.after([alarm("b")], horizon_ms=2_000)
    assert news.lines() == ["Resolved: a is served too much."]
    assert [(each.alarm.subject, each.resolved_ms) for each in second.resolved] == [("a", 2_000)]
    third, again = second.after([alarm("a", since_ms=3_000), alarm("b")], horizon_ms=3_000)
    assert again.lines() == ["Alarm: a is served too much."]
    assert [each.subject for each in third.raised] == ["b", "a"]


def test_news_wait_for_the_webhook_in_order() -> None:
    """What was not told yet stays until it is, the latest last."""
    first, _ = AlarmBoard().after([alarm("a")], horizon_ms=1_000)
    second, _ = first.after([alarm("b", since_ms=2_000)], horizon_ms=2_000)
    assert second.untold == News(raised=(alarm("a"), alarm("b", since_ms=2_000)), resolved=second.resolved)


def test_the_board_stays_small() -> None:
    """Of many resolved alarms the latest are kept."""
    board = AlarmBoard()
    for number in range(RESOLVED_MAX + 10):
        board, _ = board.after([alarm(f"tenant {number}")], horizon_ms=number)
    assert len(board.resolved) == RESOLVED_MAX
    assert board.resolved[0].alarm.subject == f"tenant {RESOLVED_MAX + 8}"
