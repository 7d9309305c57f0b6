from __future__ import annotations

import asyncio

import pytest

from fairlane.asgi import FairGate, FairQueue
from fairlane.asgi.protocol import Message, Receive, Scope, Send
from fairlane.scheduler import KeyPolicy

from .driver import Clock, FairService, Request, Stage, run, until


def service(clock: Clock, *, in_flight: int = 1) -> FairService:
    stage = Stage()
    return FairService(FairQueue(stage, in_flight=in_flight, clock=clock), stage)


def test_a_client_that_leaves_while_waiting_never_reaches_the_application(clock: Clock) -> None:
    """The second request is gone when its turn would have come, so the third one has it."""

    async def scenario() -> None:
        there = service(clock)
        _, second, third = await there.send_waiting("a1", "a2", "a3")
        second.disconnect()
        await second.task
        assert there.gate.stats().waiting == 1
        there.stage.open()
        assert (await third.response()).body == b"a3"
        assert there.stage.started == ["a1", "a3"]
        assert second.sent == []
        assert there.gate.stats().disconnected == 1

    run(clock, scenario())


def test_a_server_that_cancels_a_waiting_request_removes_it(clock: Clock) -> None:
    """A cancelled task leaves the queue at once, and its pending read is cancelled."""

    async def scenario() -> None:
        there = service(clock)
        _, second, third = await there.send_waiting("a1", "a2", "a3")
        second.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second.task
        assert (there.gate.stats().waiting, there.gate.stats().disconnected) == (1, 1)
        there.stage.open()
        await third.response()
        await until(lambda: len(asyncio.all_tasks()) == 1)

    run(clock, scenario())


def test_a_client_that_leaves_as_its_turn_comes_passes_the_slot_on(clock: Clock) -> None:
    """A disconnect and the grant in the same instant: the application does not run and the next request does."""

    async def scenario() -> None:
        there = service(clock)
        leaves = asyncio.Event()

        async def receive() -> Message:
            await leaves.wait()
            there.gate.set_in_flight(2)
            assert there.gate.stats().in_flight == 2
            return {"type": "http.disconnect"}

        async def send(_message: Message) -> None:
            raise AssertionError("Nobody is there to answer.")

        await there.send_waiting("a1")
        second = asyncio.ensure_future(there.queue({"type": "http", "path": "/a2", "headers": []}, receive, send))
        await until(lambda: there.gate.stats().waiting == 1)
        await there.send_waiting("a3")
        leaves.set()
        await second
        await there.started("a1", "a3")
        await there.drained()
        stats = there.gate.stats()
        assert (stats.in_flight, stats.granted, stats.finished, stats.disconnected) == (0, 2, 2, 1)

    run(clock, scenario())


def test_a_cancel_as_its_turn_comes_passes_the_slot_on(clock: Clock) -> None:
    """A request cancelled after the grant and before it could run does not keep its slot."""

    async def scenario() -> None:
        there = service(clock)
        _, second, third = await there.send_waiting("a1", "a2", "a3")
        there.gate.set_in_flight(2)
        assert there.gate.stats().in_flight == 2
        second.task.cancel()
        await there.started("a1", "a3")
        await there.drained()
        assert (await third.response()).status == 200

    run(clock, scenario())


def test_an_application_that_raises_frees_its_slot(clock: Clock) -> None:
    """The error reaches the server unchanged, and the slot and the cap are free again."""

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise LookupError("no such thing")

    async def scenario() -> None:
        gate = FairGate(in_flight=1, policies={"a": KeyPolicy(cap=1)}, clock=clock)
        queue = FairQueue(app, gate=gate)
        for _ in range(3):
            with pytest.raises(LookupError, match="no such thing"):
                await Request(queue, "/", {"x-tenant": "a"}, None).task
        assert (gate.stats().in_flight, gate.in_flight("a"), gate.stats().finished) == (0, 0, 3)

    run(clock, scenario())


def test_an_application_that_is_cancelled_frees_its_slot(clock: Clock) -> None:
    """The next request runs when the server gives up on the one that has the slot."""

    async def scenario() -> None:
        there = service(clock)
        first, second = await there.send_waiting("a1", "a2")
        first.task.cancel()
        await there.started("a1", "a2")
        there.stage.open()
        assert (await second.response()).status == 200
        assert there.gate.stats().in_flight == 0

    run(clock, scenario())


def test_a_server_whose_receive_fails_removes_the_request(clock: Clock) -> None:
    """An error in the server's own receive propagates to the server, and the request leaves the queue."""

    async def broken() -> Message:
        raise OSError("connection reset")

    async def send(_message: Message) -> None: ...

    async def scenario() -> None:
        there = service(clock)
        await there.send_waiting("a1")
        with pytest.raises(OSError, match="connection reset"):
            await there.queue({"type": "http", "path": "/a2", "headers": []}, broken, send)
        assert there.gate.stats().waiting == 0
        await there.drained()

    run(clock, scenario())


def test_many_requests_with_many_leaving(clock: Clock) -> None:
    """48 requests, 3 slots, every 4th aborted: never more than 3 run at once, and nothing is left at the end."""

    async def scenario() -> None:
        there = service(clock, in_flight=3)
        requests = await there.send_waiting(*(f"{'abcdef'[i % 6]}{i}" for i in range(48)))
        leaving = requests[3::4]
        for at, request in enumerate(leaving):
            if at % 2:
                request.disconnect()
            else:
                request.task.cancel()
        while not all(request.task.done() for request in requests):
            there.stage.open()
            await asyncio.wait([request.task for request in requests])
        stats = there.gate.stats()
        assert there.stage.running_max == 3
        assert (stats.in_flight, stats.waiting, there.stage.running) == (0, 0, 0)
        assert (stats.granted, stats.finished, stats.disconnected) == (36, 36, 12)
        assert len(there.stage.started) == 36
        await until(lambda: len(asyncio.all_tasks()) == 1)

    run(clock, scenario())
