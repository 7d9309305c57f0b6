"""Answers leave before the broker does what no caller waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
        self.then: Callable[[], None] = lambda: None

    def done(self) -> bool:
        return False

    def set_result(self, _result: object, /) -> None:
        self._broker.call_after_answers(self._send)

    def _send(self) -> None:
        self._events.append("sent")
        self.then()

    def set_exception(self, exception: BaseException, /) -> None:
        raise exception


def test_what_is_asked_for_while_answers_are_sent_is_called_too() -> None:
    """A callback that asks for another one, which asks for a third, gets both without a further cycle."""

    async def scenario() -> None:
        async with AsyncBroker(engine_on(MemoryStore())) as broker:
            seen = asyncio.Event()
            events: list[str] = []
            reply = Connection(broker, events)
            await broker.create_queue("q")
            reply.then = lambda: broker.call_after_answers(lambda: broker.call_after_answers(seen.set))
            broker.ask(Enqueue(queue="q", messages=[message()]), reply)
            while not events:
                await broker.queue("q")
            for _ in range(3):
                await asyncio.sleep(0)
            assert seen.is_set()

    run(scenario())


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
