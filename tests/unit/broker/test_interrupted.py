"""Callers that are interrupted, cancelled or careless leave nothing behind that harms others."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from fairlane.assembly import open_async_broker, open_broker
from fairlane.broker.requests import Waiter
from fairlane.errors import FairlaneError, InvalidArgument, StoreFailed, WrongProcess
from fairlane.testing.stepped import SteppedBroker
from tests.kit.waiting import PATIENCE_S


def test_a_thread_that_is_interrupted_in_a_turn_leaves_nobody_waiting() -> None:
    """When the thread that runs a turn is interrupted, the others of that turn are told, and the broker goes on."""
    with open_broker() as broker:
        broker.create_queue("q")
        answers: list[object] = []
        execute, is_armed = broker._engine.execute, threading.Event()

        def interrupted(command: object, cycle: object, *given: object) -> object:
            if is_armed.is_set():
                is_armed.clear()
                raise KeyboardInterrupt
            return execute(command, cycle, *given)  # type: ignore[arg-type] # handed on as it came

        broker._engine.execute = interrupted  # type: ignore[assignment, method-assign] # Ctrl-C at the worst moment

        def enqueue() -> None:
            try:
                answers.append(broker.enqueue("q", b"x"))
            except (FairlaneError, KeyboardInterrupt) as error:
                answers.append(error)

        is_armed.set()
        threads = [threading.Thread(target=enqueue, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=PATIENCE_S)
        assert len(answers) == 4
        assert all(isinstance(answer, (str, StoreFailed, KeyboardInterrupt)) for answer in answers)
        broker._engine.execute = execute  # type: ignore[method-assign] # as it was
        assert broker.enqueue("q", b"later")


def test_a_stream_whose_entering_was_cancelled_takes_no_messages() -> None:
    """A task that is cancelled while it enters a stream leaves no consumer behind."""

    async def run() -> tuple[int, int]:
        async with await open_async_broker() as broker:
            await broker.create_queue("q")

            async def consume() -> None:
                async with broker.consume("q") as deliveries:
                    async for _ in deliveries:
                        pass

            for passes in range(4):
                task = asyncio.create_task(consume())
                for _ in range(passes):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await broker.enqueue("q", b"x")
            view = await broker.queue("q")
            return view.consumers, view.leased

    assert asyncio.run(run()) == (0, 0)


def test_a_stream_is_entered_once_and_before_it_is_iterated() -> None:
    """Both mistakes are refused at once, rather than wait for ever."""
    with open_broker() as broker:
        broker.create_queue("q")
        deliveries = broker.consume("q")
        with pytest.raises(InvalidArgument, match="Enter the stream with"):
            deliveries.next(timeout_s=0)
        with deliveries:
            assert broker.queue("q").consumers == 1
        with pytest.raises(InvalidArgument, match="once"), deliveries:
            pass
        assert broker.queue("q").consumers == 0


def test_a_broker_whose_closing_was_cancelled_is_closed_all_the_same(tmp_path: object) -> None:
    """Whoever stops waiting for the end does not stop the end: the folder can be opened again."""

    async def run() -> None:
        broker = await open_async_broker(str(tmp_path))
        await broker.create_queue("q")
        closing = asyncio.create_task(broker.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await broker.close()
        async with await open_async_broker(str(tmp_path)) as again:
            assert [view.name for view in await again.queues()] == ["q", "q.dlq"]

    asyncio.run(run())


def test_polls_beside_an_idle_stream_leave_nothing_behind() -> None:
    """Waits that are over are taken out of a line even while the one in front of it waits on."""
    broker = SteppedBroker()
    broker.create_queue("q")
    broker.attach("q")
    for _ in range(500):
        assert broker.lease("q") == []
    line = broker.engine.consumers.lines["q"]
    assert sum(isinstance(taker, Waiter) for taker in line) <= 40


def test_a_broker_stays_closed_whatever_its_callers_do_afterwards(tmp_path: object) -> None:
    """The ordinary end, close and then cancel those who waited, leaves the folder free and nothing running."""

    async def run() -> None:
        broker = await open_async_broker(str(tmp_path))
        await broker.create_queue("q")
        waiting = [asyncio.create_task(broker.lease("q", wait_ms=60_000)) for _ in range(3)]
        await asyncio.sleep(0)
        await broker.close()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        async with await open_async_broker(str(tmp_path)) as again:
            assert (await again.queue("q")).waiting == 0

    asyncio.run(run())


def test_closing_with_open_streams_gives_back_what_they_held(tmp_path: object) -> None:
    """Everything waits again at once; what the stream had given out is noted as a lost attempt."""
    with open_broker(str(tmp_path)) as broker:
        broker.create_queue("q")
        for _ in range(3):
            broker.enqueue("q", b"x")
        deliveries = broker.consume("q").__enter__()
        assert deliveries.next(timeout_s=PATIENCE_S) is not None
    with open_broker(str(tmp_path)) as broker:
        view = broker.queue("q")
        assert (view.waiting, view.leased) == (3, 0)
        assert sorted(len(message.errors) for message in broker.peek("q")) == [0, 0, 1]


def test_a_forked_process_can_not_use_the_broker_it_inherited(tmp_path: object) -> None:
    """It is refused before it touches the other's store, and closing there does nothing; the opener is not harmed."""
    with open_broker(str(tmp_path)) as broker:
        broker.create_queue("q")
        child = os.fork()
        if child == 0:
            try:
                broker.enqueue("q", b"lost")
            except WrongProcess:
                broker.close()
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        broker.enqueue("q", b"kept")
    with open_broker(str(tmp_path)) as broker:
        assert [delivery.payload for delivery in broker.lease("q", 5)] == [b"kept"]
