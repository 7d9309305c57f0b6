"""``Retry-After`` follows what holds the key back, not only how many requests wait."""

from __future__ import annotations

from fairlane.asgi import FairQueue
from fairlane.scheduler import KeyPolicy

from .driver import Clock, FairService, Stage, run, until


def test_a_cap_counts(clock: Clock) -> None:
    """A capped key that finishes one request in 2 s waits 2 s for each that waits, however fast the others are."""

    async def scenario() -> None:
        stage = Stage()
        policies = {"a": KeyPolicy(cap=1)}
        queue = FairQueue(stage, in_flight=2, key_waiting_max=5, policies=policies, wait_timeout_ms=None, clock=clock)
        there = FairService(queue, stage)
        await there.send_waiting(*(f"a{number}" for number in range(6)))
        for done in range(3):
            for fast in range(10):
                await there.send_waiting(f"b{done}{fast}")
                clock.now_ms += 200
                stage.let_go(f"b{done}{fast}")
                await until(lambda: there.gate.in_flight("b") == 0)
            stage.let_go(f"a{done}")
            await until(lambda done=done: f"a{done + 1}" in stage.started)  # type: ignore[misc]
            await there.send_waiting(f"a{6 + done}")
        assert (await there.send("a20").response()).error["retry_after_ms"] == 10_000
        await there.drained()

    run(clock, scenario())


def test_a_cap_above_the_key_counts(clock: Clock) -> None:
    """A route without requests of its own is estimated by its tenant, whose cap holds it back."""

    async def scenario() -> None:
        stage = Stage()
        policies = {"a": KeyPolicy(cap=1, waiting_max=2)}
        queue = FairQueue(
            stage,
            key=lambda scope: (scope["path"][1], scope["path"]),
            policies=policies,
            wait_timeout_ms=None,
            clock=clock,
        )
        there = FairService(queue, stage)
        await there.send_waiting("a1", "a2", "a3")
        clock.now_ms += 4000
        stage.let_go("a1")
        await until(lambda: "a2" in stage.started)
        await there.send_waiting("a4")
        assert (await there.send("a5").response()).error["retry_after_ms"] == 8000
        await there.drained()

    run(clock, scenario())


def test_a_throttle_counts(clock: Clock) -> None:
    """With 7 waiting for one token every 2 s, an eighth has its token in 16 s; without a rate it never has one."""

    async def scenario() -> None:
        stage = Stage()
        queue = FairQueue(
            stage,
            key_waiting_max=7,
            throttles=lambda scope: ["mail"] if scope["path"][1] == "a" else [],
            wait_timeout_ms=None,
            clock=clock,
        )
        there = FairService(queue, stage)
        there.gate.throttles.set("mail", rate=0.5, tokens=0)
        await there.send_waiting(*(f"a{number}" for number in range(7)))
        assert (await there.send("a7").response()).error["retry_after_ms"] == 16_000
        there.gate.throttles.set("mail", rate=0)
        assert (await there.send("a8").response()).error["retry_after_ms"] == 60_000
        there.gate.throttles.remove("mail")
        await there.drained()

    run(clock, scenario())


def test_requests_of_other_keys_count_for_a_shared_throttle(clock: Clock) -> None:
    """Requests of all keys that name a throttle take its tokens."""

    async def scenario() -> None:
        stage = Stage()
        queue = FairQueue(stage, key_waiting_max=1, throttles=lambda _: ["mail"], wait_timeout_ms=None, clock=clock)
        there = FairService(queue, stage)
        there.gate.throttles.set("mail", rate=1, tokens=0)
        await there.send_waiting("a1", "b1", "c1", "d1")
        assert (await there.send("a2").response()).error["retry_after_ms"] == 5000
        there.gate.throttles.remove("mail")
        await there.drained()

    run(clock, scenario())


def test_costs_count_for_a_throttle_that_charges_them(clock: Clock) -> None:
    """With 10 tokens a second, three that wait and one that comes, at 100 tokens each, need 40 s."""

    async def scenario() -> None:
        stage = Stage()
        queue = FairQueue(
            stage,
            key_waiting_max=3,
            throttles=lambda _: ["model"],
            cost=lambda _: 100,
            wait_timeout_ms=None,
            clock=clock,
        )
        there = FairService(queue, stage)
        there.gate.throttles.set("model", rate=10, burst=100, tokens=0, charges_cost=True)
        await there.send_waiting("a1", "a2", "a3")
        assert (await there.send("a4").response()).error["retry_after_ms"] == 40_000
        there.gate.throttles.set("model", rate=10, tokens=0)
        assert (await there.send("a5").response()).error["retry_after_ms"] == 1_000
        there.gate.throttles.remove("model")
        await there.drained()

    run(clock, scenario())


def test_costs_of_requests_that_left_do_not_count(clock: Clock) -> None:
    """What counts is the cost of those that wait, and a request that has waited in vain counts once."""

    async def scenario() -> None:
        stage = Stage()
        costs = {"a": 200, "b": 50}
        queue = FairQueue(
            stage,
            throttles=lambda _: ["model"],
            cost=lambda scope: costs[scope["path"][1]],
            wait_timeout_ms=100,
            clock=clock,
        )
        there = FairService(queue, stage)
        there.gate.throttles.set("model", rate=10, burst=1000, tokens=0, charges_cost=True)
        assert (await there.send("a1").response()).error["retry_after_ms"] == 19_900
        assert (await there.send("b1").response()).error["retry_after_ms"] == 4_800
        there.gate.throttles.remove("model")

    run(clock, scenario())


def test_a_pause_counts(clock: Clock) -> None:
    """A paused key, or a key below one, is told the longest time, because nothing says when it will be resumed."""

    async def scenario() -> None:
        stage = Stage()
        queue = FairQueue(stage, key=lambda scope: ("t", scope["path"][1]), key_waiting_max=1, clock=clock)
        there = FairService(queue, stage)
        there.gate.pause("t")
        await there.send_waiting("a1")
        assert (await there.send("a2").response()).headers["retry-after"] == "60"
        there.gate.pause(("t", "a"))
        there.gate.resume("t")
        assert (await there.send("a3").response()).headers["retry-after"] == "60"
        there.gate.resume(("t", "a"))
        await there.drained()

    run(clock, scenario())


def test_a_full_service_counts_the_whole_backlog(clock: Clock) -> None:
    """A key that would be quick is told the time of the whole backlog if the limit of the service refuses it."""

    async def scenario() -> None:
        stage = Stage()
        queue = FairQueue(stage, in_flight=1, waiting_max=3, wait_timeout_ms=None, clock=clock)
        there = FairService(queue, stage)
        await there.send_waiting("b1", "a1", "a2", "a3")
        clock.now_ms += 3000
        stage.let_go("b1")
        await until(lambda: "a1" in stage.started)
        await there.send_waiting("c1")
        response = await there.send("b2").response()
        assert (response.error["code"], response.error["retry_after_ms"]) == ("global_full", 9000)
        await there.drained()

    run(clock, scenario())


def test_a_request_that_waited_in_vain_is_told_how_long_its_key_takes(clock: Clock) -> None:
    """A request that expires behind a slow throttle is told when the throttle will have had enough tokens."""

    async def scenario() -> None:
        stage = Stage()
        queue = FairQueue(stage, throttles=lambda _: ["mail"], wait_timeout_ms=100, clock=clock)
        there = FairService(queue, stage)
        there.gate.throttles.set("mail", rate=0.1, tokens=0)
        response = await there.send("a1").response()
        assert response.error["code"] == "wait_timed_out"
        assert response.error["retry_after_ms"] == 10_000
        there.gate.throttles.remove("mail")

    run(clock, scenario())
