from __future__ import annotations

import asyncio

from fairlane.asgi import FairGate, FairQueue, header
from fairlane.asgi.protocol import Message, Receive, Scope, Send
from fairlane.scheduler import KeyPolicy, Priority

from .driver import Clock, FairService, Request, Stage, run, until


def service(
    clock: Clock, *, in_flight: int = 1, policies: dict[str | tuple[str, ...], KeyPolicy] | None = None
) -> FairService:
    stage = Stage()
    gate = FairGate(in_flight=in_flight, policies=policies or {}, clock=clock)
    return FairService(FairQueue(stage, gate=gate), stage)


def test_two_tenants_alternate_with_one_slot(clock: Clock) -> None:
    """With one slot, requests a1 a2 b1 b2 start as a1 b1 a2 b2, in any order of arrival."""

    async def scenario() -> list[str]:
        there = service(clock)
        await there.send_waiting("a0", "a1", "a2", "b1", "b2")
        await there.drained()
        return there.stage.started

    assert run(clock, scenario()) == ["a0", "a1", "b1", "a2", "b2"]


def test_a_slot_is_granted_only_when_one_is_free(clock: Clock) -> None:
    """A late but more entitled request overtakes waiting ones, since no request is taken before a slot is free."""

    async def scenario() -> None:
        there = service(clock)
        await there.send_waiting("a0", "a1", "a2", "a3")
        assert there.gate.stats().waiting == 3
        there.stage.let_go("a0")
        await there.started("a0", "a1")
        await there.send_waiting("b1")
        there.stage.let_go("a1")
        await until(lambda: len(there.stage.started) == 3)
        there.stage.let_go(there.stage.started[-1])
        await until(lambda: len(there.stage.started) == 4)
        assert "b1" in there.stage.started[2:4]
        await there.drained()

    run(clock, scenario())


def test_a_free_slot_is_taken_at_once(clock: Clock) -> None:
    """A request that finds a free slot runs without another pass of the event loop and without a buffer."""

    async def scenario() -> None:
        there = service(clock, in_flight=2)
        first = there.send("a1")
        await asyncio.sleep(0)
        assert there.stage.started == ["a1"]
        await there.drained()
        assert (await first.response()).status == 200

    run(clock, scenario())


def test_weights_share_the_slots(clock: Clock) -> None:
    """A key with weight 3 starts three requests for each one of a key with weight 1."""

    async def scenario() -> list[str]:
        there = service(clock, policies={"b": KeyPolicy(weight=3)})
        await there.send_waiting("a0", *(f"a{i}" for i in range(1, 5)), *(f"b{i}" for i in range(1, 7)))
        await there.drained()
        return there.stage.started

    started = run(clock, scenario())
    assert [name[0] for name in started[1:9]].count("b") == 6


def test_a_cap_holds_a_key_back_and_is_released(clock: Clock) -> None:
    """A key at its cap leaves free slots to others and continues as soon as one of its own requests ends."""

    async def scenario() -> None:
        there = service(clock, in_flight=3, policies={"a": KeyPolicy(cap=1)})
        await there.send_waiting("a1", "a2", "a3", "b1")
        await there.started("a1", "b1")
        assert there.gate.in_flight("a") == 1
        assert there.gate.waiting("a") == 2
        there.stage.let_go("a1")
        await there.started("a1", "b1", "a2")
        await there.drained()

    run(clock, scenario())


def test_a_throttle_lets_through_its_rate(clock: Clock) -> None:
    """Requests that name a throttle run at its rate, each exactly when its token comes, without polling."""

    async def scenario() -> list[tuple[str, int]]:
        stage = Stage()
        stage.open()
        queue = FairQueue(stage, throttles=lambda scope: [f"of-{header(scope, 'x-tenant')}"], clock=clock)
        there = FairService(queue, stage)
        there.gate.throttles.set("of-a", rate=2, burst=1)
        start_ms = clock.now_ms
        seen = []
        requests = await there.send_waiting("a1", "a2", "a3", "b1", "b2")
        for request in requests[3:] + requests[:3]:
            name = (await request.response()).body.decode()
            seen.append((name, clock.now_ms - start_ms))
        return seen

    assert run(clock, scenario()) == [("b1", 0), ("b2", 0), ("a1", 0), ("a2", 500), ("a3", 1000)]


def test_tokens_that_come_while_all_slots_are_taken_do_not_spin(clock: Clock) -> None:
    """Many keys that share a throttle and find no free slot cause a bounded number of wake-ups."""
    wakes = 0

    def counted_clock() -> int:
        nonlocal wakes
        wakes += 1
        return clock.now_ms

    async def scenario() -> None:
        stage = Stage()
        queue = FairQueue(
            stage,
            in_flight=2,
            throttles=lambda scope: [] if scope["path"] == "/z1" else ["shared"],
            clock=counted_clock,
            wait_timeout_ms=None,
        )
        there = FairService(queue, stage)
        there.gate.throttles.set("shared", rate=10, burst=1)
        await there.send_waiting("z0", *(f"{chr(97 + i)}1" for i in range(20)), "z1")
        assert there.gate.stats().in_flight == 2
        before = wakes
        await asyncio.sleep(60)  # virtual
        assert wakes - before < 100
        there.gate.throttles.remove("shared")
        await there.drained()

    run(clock, scenario())


def test_priorities_and_costs(clock: Clock) -> None:
    """Within a key high priority goes first; between keys a request of cost 3 counts as three of cost 1."""

    async def scenario() -> list[str]:
        stage = Stage()
        queue = FairQueue(
            stage,
            in_flight=1,
            clock=clock,
            priority=lambda scope: Priority.HIGH if scope["path"].endswith("vip") else Priority.NORMAL,
            cost=lambda scope: 3 if scope["path"].startswith("/b") else 1,
        )
        there = FairService(queue, stage)
        await there.send_waiting("z0", *(f"a{i}" for i in range(5)), "avip", "b1", "b2")
        await there.drained()
        return stage.started

    started = run(clock, scenario())
    assert started.index("avip") == 1
    assert started.index("b2") - started.index("b1") == 4


def test_keys_from_a_function_may_be_paths(clock: Clock) -> None:
    """A tenant that spreads over many sub-keys gets no more turns than one that does not."""

    async def scenario() -> list[str]:
        stage = Stage()
        queue = FairQueue(stage, in_flight=1, clock=clock, key=lambda scope: (scope["path"][1], scope["path"][2:]))
        there = FairService(queue, stage)
        await there.send_waiting("z0", "a1", "a2", "a3", "a4", "b1", "b1")
        await there.drained()
        return [name[0] for name in stage.started[1:5]]

    assert sorted(run(clock, scenario())) == ["a", "a", "b", "b"]


def test_requests_without_a_key_share_the_default_key(clock: Clock) -> None:
    """No header, an empty one and a function that returns None all mean the key ``default``."""

    async def scenario() -> None:
        stage = Stage()
        gate = FairGate(in_flight=1, clock=clock)
        by_header, by_function = FairQueue(stage, gate=gate), FairQueue(stage, gate=gate, key=lambda _: None)
        Request(by_header, "/1", {}, None)
        Request(by_header, "/2", {"x-tenant": " "}, None)
        Request(by_function, "/3", {}, None)
        await until(lambda: gate.stats().waiting == 2)
        assert (gate.in_flight("default"), gate.waiting("default")) == (1, 2)
        await FairService(by_header, stage).drained()

    run(clock, scenario())


def test_exempt_requests_do_not_queue(clock: Clock) -> None:
    """A health check runs although every slot is taken, and is not counted."""

    async def scenario() -> None:
        stage = Stage()
        queue = FairQueue(stage, in_flight=1, clock=clock, exempt=lambda scope: scope["path"] == "/health")
        there = FairService(queue, stage)
        await there.send_waiting("a1", "a2")
        health = there.send("health")
        await there.started("a1", "health")
        assert there.gate.stats().in_flight == 1
        await there.drained()
        assert (await health.response()).status == 200
        assert queue.stats().granted == 2

    run(clock, scenario())


def test_other_connections_pass_untouched(clock: Clock) -> None:
    """WebSocket and lifespan connections reach the application with the server's own objects."""
    seen: list[tuple[Scope, Receive, Send]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append((scope, receive, send))

    async def receive() -> Message:
        raise AssertionError("Nobody reads but the application.")

    async def send(_message: Message) -> None:
        raise AssertionError("Nobody writes but the application.")

    async def scenario() -> None:
        queue = FairQueue(app, in_flight=1, clock=clock)
        for kind in ("lifespan", "websocket"):
            scope: Scope = {"type": kind}
            await queue(scope, receive, send)
            assert seen.pop() == (scope, receive, send)
        assert queue.stats().granted == 0

    run(clock, scenario())
