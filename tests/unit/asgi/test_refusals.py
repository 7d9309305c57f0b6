from __future__ import annotations

import pytest

from fairlane.asgi import FairQueue, RefusedRequest
from fairlane.asgi.protocol import ASGIApp, Receive, Scope, Send
from fairlane.errors import DeadlinePassed, Dropped, GlobalFull, InvalidArgument, KeyFull, WaitTimedOut
from fairlane.scheduler import Backpressure, KeyPolicy

from .driver import Clock, FairService, Stage, run, until


def test_a_key_at_its_limit_gets_429(clock: Clock) -> None:
    """A request beyond the key's limit is refused, with code, remedy and ``Retry-After``."""

    async def scenario() -> None:
        stage = Stage()
        there = FairService(FairQueue(stage, in_flight=1, key_waiting_max=2, clock=clock), stage)
        await there.send_waiting("a1", "a2", "a3")
        response = await there.send("a4").response()
        assert response.status == 429
        assert response.headers["content-type"] == "application/json"
        assert response.headers["content-length"] == str(len(response.body))
        assert response.headers["retry-after"] == "1"
        assert response.error == {
            "code": "key_full",
            "message": "Key 'a' has reached its limit of 2 waiting requests.",
            "remedy": KeyFull.remedy,
            "retry_after_ms": 1000,
        }
        await there.send_waiting("b1")
        assert dict(there.gate.stats().refused) == {"key_full": 1}
        await there.drained()
        assert stage.started == ["a1", "a2", "b1", "a3"]

    run(clock, scenario())


def test_the_global_limit_gives_503(clock: Clock) -> None:
    """At the global limit, every key is refused with ``global_full``."""

    async def scenario() -> None:
        stage = Stage()
        there = FairService(FairQueue(stage, in_flight=1, waiting_max=2, clock=clock), stage)
        await there.send_waiting("a1", "a2", "b1")
        response = await there.send("c1").response()
        assert (response.status, response.error["code"]) == (503, "global_full")
        assert response.error["remedy"] == GlobalFull.remedy
        assert int(response.headers["retry-after"]) >= 1
        await there.drained()

    run(clock, scenario())


def test_a_request_that_waits_too_long_gets_503(clock: Clock) -> None:
    """The service's own limit on waiting ends the wait exactly in time, and the request leaves the queue."""

    async def scenario() -> None:
        stage = Stage()
        there = FairService(FairQueue(stage, in_flight=1, wait_timeout_ms=500, clock=clock), stage)
        start_ms = clock.now_ms
        _, second = await there.send_waiting("a1", "a2")
        response = await second.response()
        assert clock.now_ms - start_ms == 501
        assert (response.status, response.error["code"]) == (503, "wait_timed_out")
        assert response.error["remedy"] == WaitTimedOut.remedy
        assert there.gate.stats().waiting == 0
        await there.drained()
        assert stage.started == ["a1"]

    run(clock, scenario())


@pytest.mark.parametrize(("wait_timeout_ms", "after_ms"), [(None, 201), (10_000, 201), (200, 201)])
def test_a_deadline_that_passes_gives_503(clock: Clock, wait_timeout_ms: int | None, after_ms: int) -> None:
    """The client's deadline ends its wait, whether or not the service has a longer limit."""

    async def scenario() -> None:
        stage = Stage()
        there = FairService(FairQueue(stage, in_flight=1, wait_timeout_ms=wait_timeout_ms, clock=clock), stage)
        start_ms = clock.now_ms
        await there.send_waiting("a1")
        response = await there.send("a2", x_deadline_ms="200").response()
        assert clock.now_ms - start_ms == after_ms
        assert (response.status, response.error["code"]) == (503, "deadline_passed")
        assert response.error["remedy"] == DeadlinePassed.remedy
        assert response.headers["retry-after"] == "1"
        await there.drained()
        assert stage.started == ["a1"]

    run(clock, scenario())


def test_the_clock_of_the_gate_counts_not_that_of_the_event_loop(clock: Clock) -> None:
    """A timer that fires early by the gate's own clock is set again, and the wait ends by that clock."""

    async def scenario() -> None:
        stage = Stage()
        there = FairService(FairQueue(stage, in_flight=1, wait_timeout_ms=100, clock=lambda: clock.now_ms // 4), stage)
        start_ms = clock.now_ms
        _, second = await there.send_waiting("a1", "a2")
        assert (await second.response()).error["code"] == "wait_timed_out"
        assert 404 <= clock.now_ms - start_ms <= 410
        await there.drained()

    run(clock, scenario())


def test_the_shorter_of_both_limits_counts(clock: Clock) -> None:
    """A deadline beyond the service's limit does not extend it."""

    async def scenario() -> None:
        stage = Stage()
        there = FairService(FairQueue(stage, in_flight=1, wait_timeout_ms=100, clock=clock), stage)
        await there.send_waiting("a1")
        response = await there.send("a2", x_deadline_ms="5000").response()
        assert response.error["code"] == "wait_timed_out"
        await there.drained()

    run(clock, scenario())


def test_a_deadline_that_is_met_changes_nothing(clock: Clock) -> None:
    """A request with no time to wait runs if a slot is free."""

    async def scenario() -> None:
        stage = Stage()
        stage.open()
        there = FairService(FairQueue(stage, in_flight=1, clock=clock), stage)
        assert (await there.send("a1", x_deadline_ms="0").response()).status == 200

    run(clock, scenario())


@pytest.mark.parametrize("value", ["", "soon", "-1", "1.5", "1e3", "0x10", "²", "86400001", "9" * 5000])
def test_a_malformed_deadline_gives_400(clock: Clock, value: str) -> None:
    """A deadline that is not an integer in range is refused, and nothing is queued."""

    async def scenario() -> None:
        stage = Stage()
        there = FairService(FairQueue(stage, clock=clock), stage)
        response = await there.send("a1", x_deadline_ms=value).response()
        assert (response.status, response.error["code"]) == (400, "invalid_argument")
        assert response.error["remedy"] == InvalidArgument.remedy
        assert "retry-after" not in response.headers
        assert len(response.body) < 400
        assert stage.started == []
        assert dict(there.gate.stats().refused) == {"invalid_argument": 1}

    run(clock, scenario())


def test_the_deadline_header_can_be_renamed_or_ignored(clock: Clock) -> None:
    """With another name, or with None, the default header is ignored."""

    async def scenario() -> None:
        stage = Stage()
        stage.open()
        renamed = FairService(FairQueue(stage, deadline_header="X-Wait", clock=clock), stage)
        assert (await renamed.send("a1", x_deadline_ms="soon").response()).status == 200
        assert (await renamed.send("a2", x_wait="soon").response()).status == 400
        deaf = FairService(FairQueue(stage, deadline_header=None, clock=clock), stage)
        assert (await deaf.send("a3", x_deadline_ms="soon").response()).status == 200

    run(clock, scenario())


def test_a_dropped_request_gets_503(clock: Clock) -> None:
    """With a dropping policy the longest waiting request of the key is dropped and answered."""

    async def scenario() -> None:
        stage = Stage()
        policies = {"a": KeyPolicy(waiting_max=1, backpressure=Backpressure.DROP_OLDEST)}
        there = FairService(FairQueue(stage, in_flight=1, policies=policies, clock=clock), stage)
        _, second, third = await there.send_waiting("a1", "a2", "a3")
        response = await second.response()
        assert (response.status, response.error["code"]) == (503, "dropped")
        assert response.error["remedy"] == Dropped.remedy
        await there.drained()
        assert (await third.response()).status == 200
        assert stage.started == ["a1", "a3"]

    run(clock, scenario())


def test_a_full_queue_is_not_full_when_its_requests_have_expired(clock: Clock) -> None:
    """A request that comes when the others have expired is accepted, and they are answered."""

    async def scenario() -> None:
        stage = Stage()
        there = FairService(FairQueue(stage, in_flight=1, key_waiting_max=1, wait_timeout_ms=100, clock=clock), stage)
        _, second = await there.send_waiting("a1", "a2")
        clock.now_ms += 101
        third = there.send("a3")
        assert (await second.response()).error["code"] == "wait_timed_out"
        assert there.gate.stats().waiting == 1
        await there.drained()
        assert (await third.response()).status == 200

    run(clock, scenario())


def test_retry_after_follows_the_recent_rate(clock: Clock) -> None:
    """With ten waiting and one finished every 2 s, ``Retry-After`` is about 20 s."""

    async def scenario() -> None:
        stage = Stage()
        there = FairService(FairQueue(stage, in_flight=1, key_waiting_max=10, wait_timeout_ms=None, clock=clock), stage)
        await there.send_waiting(*(f"a{i}" for i in range(11)))
        for done in range(3):
            clock.now_ms += 2000
            stage.let_go(f"a{done}")
            await until(lambda done=done: len(stage.started) == done + 2)  # type: ignore[misc]
            await there.send_waiting(f"a{11 + done}")
        response = await there.send("a20").response()
        assert response.error["retry_after_ms"] == 20_000
        assert response.headers["retry-after"] == "20"
        clock.now_ms += 3_600_000
        assert (await there.send("a21").response()).headers["retry-after"] == "60"
        await there.drained()

    run(clock, scenario())


def test_an_application_can_render_refusals(clock: Clock) -> None:
    """``on_refusal`` gets the scope and the reason, and returns the response as an ASGI application."""

    def teapot(scope: Scope, refused: RefusedRequest) -> ASGIApp:
        async def respond(_scope: Scope, _receive: Receive, send: Send) -> None:
            text = f"{scope['path']} {refused.status} {refused.error.code} {refused.retry_after_s}"
            await send({"type": "http.response.start", "status": 418, "headers": []})
            await send({"type": "http.response.body", "body": text.encode()})

        return respond

    async def scenario() -> None:
        stage = Stage()
        there = FairService(FairQueue(stage, in_flight=1, key_waiting_max=1, on_refusal=teapot, clock=clock), stage)
        await there.send_waiting("a1", "a2")
        response = await there.send("a3").response()
        assert (response.status, response.body) == (418, b"/a3 429 key_full 1")
        response = await there.send("a4", x_deadline_ms="soon").response()
        assert (response.status, response.body) == (418, b"/a4 400 invalid_argument None")
        await there.drained()

    run(clock, scenario())


def test_a_key_function_may_refuse(clock: Clock) -> None:
    """An ``InvalidArgument`` from the key function is answered with 400; any other error is the service's."""

    def key(scope: Scope) -> str:
        if scope["path"] == "/bad":
            raise InvalidArgument("There is no such tenant.")
        raise LookupError("a bug")

    async def scenario() -> None:
        stage = Stage()
        there = FairService(FairQueue(stage, key=key, clock=clock), stage)
        response = await there.send("bad").response()
        assert (response.status, response.error["message"]) == (400, "There is no such tenant.")
        with pytest.raises(LookupError, match="a bug"):
            await there.send("worse").task

    run(clock, scenario())


def test_errors_of_the_application_are_its_own(clock: Clock) -> None:
    """A Fairlane error that the application raises is not treated as a refusal."""

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise KeyFull("Another queue, inside the application.")

    async def scenario() -> None:
        queue = FairQueue(app, clock=clock)
        with pytest.raises(KeyFull):
            await FairService(queue, Stage()).send("a1").task
        assert dict(queue.stats().refused) == {}

    run(clock, scenario())
