"""The measured number of handlers: it rises at once, and falls when at most half of it was needed for ten seconds."""

from __future__ import annotations

from fairlane.verbs.handler_count import PERIOD_MS, HandlerCount


def raised(count: int) -> HandlerCount:
    """Return a count that rose at instant 0."""
    handlers = HandlerCount()
    assert (handlers.count, handlers.update(count, 0), handlers.count) == (1, True, count)
    return handlers


def test_a_reader_that_takes_message_after_message_has_one_handler_again() -> None:
    """Not before a whole period has shown that it needs no more."""
    handlers = raised(8)
    for now_ms in range(0, 2 * PERIOD_MS, PERIOD_MS // 4):
        assert not handlers.update(1, now_ms)
    assert (handlers.update(1, 2 * PERIOD_MS), handlers.count) == (True, 1)


def test_a_reader_that_works_in_bursts_keeps_its_handlers() -> None:
    """In each period it has needed more than half of them once."""
    handlers = raised(8)
    for now_ms in range(0, 10 * PERIOD_MS, PERIOD_MS // 4):
        assert not handlers.update(5 if now_ms % PERIOD_MS == 0 else 1, now_ms)


def test_the_count_falls_to_the_most_that_was_needed() -> None:
    """The reader that needed three of eight has three, and rises at once when it needs more."""
    handlers = raised(8)
    handlers.update(3, PERIOD_MS)
    assert not handlers.update(1, PERIOD_MS + 1)
    assert (handlers.update(2, 2 * PERIOD_MS), handlers.count) == (True, 3)
    assert (handlers.update(4, 2 * PERIOD_MS), handlers.count) == (True, 4)
