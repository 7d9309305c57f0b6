from __future__ import annotations

from fairlane.asgi.refusal import CompletionRate


def test_without_a_backlog_the_estimate_is_the_minimum() -> None:
    """Before any request has waited nothing is known, and completions are not counted."""
    pace = CompletionRate()
    pace.note_completion(5)
    assert pace.estimate_ms(100, 10) == 1000


def test_without_completions_the_estimate_is_the_age_of_the_backlog() -> None:
    """A backlog that no request has left is expected to last as long again."""
    pace = CompletionRate()
    pace.begin(1000)
    assert pace.estimate_ms(5, 8000) == 7000
    assert pace.estimate_ms(5, 1000) == 1000
    assert pace.estimate_ms(5, 500_000) == 60_000


def test_only_the_latest_completions_count() -> None:
    """A changed rate is fully reflected after as many completions as are kept."""
    pace = CompletionRate()
    pace.begin(0)
    now_ms = 0
    for _ in range(64):
        now_ms += 1000
        pace.note_completion(now_ms)
    assert pace.estimate_ms(10, now_ms) == 10_000
    for _ in range(64):
        now_ms += 200
        pace.note_completion(now_ms)
    assert pace.estimate_ms(10, now_ms) == 2000


def test_a_new_backlog_starts_from_zero() -> None:
    """A quiet period between two backlogs does not affect the rate."""
    pace = CompletionRate()
    pace.begin(0)
    pace.note_completion(10)
    pace.begin(1_000_000)
    pace.note_completion(1_000_500)
    assert pace.estimate_ms(4, 1_000_500) == 2000
