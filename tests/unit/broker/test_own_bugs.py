"""Bugs of the broker: the caller is not blamed, the operator finds them in the log, and the broker goes on."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from fairlane.adapters.lua.hooks import LuaHooks
from fairlane.broker.requests import Read
from fairlane.errors import InternalError, StoreFailed
from fairlane.model.answers import EnqueueAnswer
from fairlane.ports.hooks import UNLIMITED_NS, EnqueueQuestion
from fairlane.verbs.messages import Enqueue, Peek
from tests.unit.broker.stepping import broker_with, message


class BuggyHooks(LuaHooks):
    """Hooks with a bug that every enqueue to a queue with a script runs into."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__(lambda _queue, _key: None)
        self._error = error if error is not None else KeyError("our own bug")

    def on_enqueue(
        self, queue: str, questions: Sequence[EnqueueQuestion], now_ms: int, *, most_ns: int = UNLIMITED_NS
    ) -> list[EnqueueAnswer | None] | None:
        del queue, questions, now_ms, most_ns
        raise self._error


def test_a_bug_is_an_internal_error_with_a_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets internal, not invalid_argument; the log has the traceback; the metrics count it."""
    broker = broker_with({"on_enqueue": "function on_enqueue(m) end"}, hooks=BuggyHooks())
    with caplog.at_level(logging.ERROR, logger="fairlane.broker"), pytest.raises(InternalError) as caught:
        broker.enqueue("q", b"payload")
    assert "our own bug" in str(caught.value)
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)
    assert broker.engine.metrics.internal_errors == 1


def test_a_bug_in_one_request_leaves_the_others_of_its_cycle_alone() -> None:
    """Nothing was applied for the request that failed, so the broker neither recovers nor refuses anything else."""
    broker = broker_with({"on_enqueue": "function on_enqueue(m) end"}, hooks=BuggyHooks())
    broker.create_queue("sound")
    recoveries = broker.engine.metrics.recoveries
    with pytest.raises(InternalError):
        broker.enqueue("q", b"payload")
    assert broker.enqueue("sound", b"payload")
    assert broker.engine.metrics.recoveries == recoveries


def test_a_bug_in_a_view_is_an_internal_error_too(caplog: pytest.LogCaptureFixture) -> None:
    """Reading goes through the engine as well, and a bug there is as loud."""
    broker = broker_with()

    def look() -> object:
        raise KeyError("our own bug")

    with caplog.at_level(logging.ERROR, logger="fairlane.broker"), pytest.raises(InternalError):
        broker.wait(broker.submit(lambda reply: Read(look, reply)))
    assert len(caplog.records) == 1


def test_a_question_that_was_postponed_outlives_a_cycle_that_fails() -> None:
    """The second peek with bodies is for the next cycle; when this one is interrupted, it is answered all the same."""
    hooks = BuggyHooks(KeyboardInterrupt())
    broker = broker_with({"on_enqueue": "function on_enqueue(m) end"}, hooks=hooks)
    first, postponed = [broker.start(Peek(queue="q", with_body=True)) for _ in range(2)]
    enqueued = broker.start(Enqueue(queue="q", messages=[message()]))
    with pytest.raises(KeyboardInterrupt):
        broker.step()
    broker.step()
    for interrupted in (first, enqueued):
        with pytest.raises(StoreFailed, match="interrupted"):
            interrupted.get()
    assert postponed.done()
    assert postponed.get().messages == []
