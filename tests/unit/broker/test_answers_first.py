"""Answers leave before the broker does what no caller waits for."""

from __future__ import annotations

import asyncio
from typing import Any

from fairlane.adapters.memory.store import MemoryStore
from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.journal.records import Enqueued
from fairlane.verbs.messages import Enqueue
from tests.unit.broker.brokers import engine_on, run
from tests.unit.broker.stepping import message


class Connection:
    """A reply that sends its answer at the end of the answers, as the stream does."""

    def __init__(self, broker: AsyncBroker, events: list[str]) -> None:
        self._broker, self._events = broker, events

    def done(self) -> bool:
        return False

    def set_result(self, _result: object, /) -> None:
        self._broker.call_after_answers(lambda: self._events.append("sent"))

    def set_exception(self, exception: BaseException, /) -> None:
        raise exception


def test_answers_are_sent_before_taps_see_the_commit() -> None:
    """Answers go out before the taps run, and a tap that fails costs neither an answer nor the other taps."""
    engine, events, seen = engine_on(MemoryStore()), list[str](), asyncio.Event()

    def tap(records: Any, _now_ms: int) -> None:
        if any(isinstance(record, Enqueued) for record in records):
            events.append("tap")
            seen.set()

    def failing_tap(_records: Any, _now_ms: int) -> None:
        raise ZeroDivisionError

    async def scenario() -> None:
        async with AsyncBroker(engine) as broker:
            await broker.create_queue("q")
            engine.taps.extend((failing_tap, tap))
            broker.ask(Enqueue(queue="q", messages=[message()]), Connection(broker, events))
            await seen.wait()

    run(scenario())
    assert events == ["sent", "tap"]
