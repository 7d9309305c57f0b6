from __future__ import annotations

import asyncio
import dataclasses
import threading

import pytest

from fairlane.asgi import FairGate, FairQueue
from fairlane.errors import InvalidArgument
from fairlane.scheduler import KeyPolicy, WaitReason

from .driver import Clock, FairService, Stage, run, until


def service(gate: FairGate) -> FairService:
    stage = Stage()
    return FairService(FairQueue(stage, gate=gate), stage)


def test_statistics_are_a_snapshot(clock: Clock) -> None:
    """The snapshot is frozen, does not change with the gate, and is the same from the gate and the middleware."""

    async def scenario() -> None:
        there = service(FairGate(in_flight=1, clock=clock))
        await there.send_waiting("a1", "a2")
        before = there.queue.stats()
        assert before == there.gate.stats()
        assert (before.in_flight, before.in_flight_max, before.waiting) == (1, 1, 1)
        assert (before.granted, before.finished, before.refused, before.disconnected) == (1, 0, {}, 0)
        await there.drained()
        assert before.waiting == 1
        assert there.gate.stats().finished == 2
        with pytest.raises(dataclasses.FrozenInstanceError):
            before.waiting = 0  # type: ignore[misc]

    run(clock, scenario())


def test_pause_and_resume_act_at_once(clock: Clock) -> None:
    """A paused key waits although slots are free, explains itself, and goes when resumed."""

    async def scenario() -> None:
        there = service(FairGate(in_flight=4, clock=clock))
        there.gate.pause("a")
        await there.send_waiting("a1", "b1")
        await there.started("b1")
        explanation = there.gate.explain("a")
        assert explanation is not None
        assert (explanation.reason, explanation.key) == (WaitReason.PAUSED, "a")
        there.gate.resume("a")
        await there.started("b1", "a1")
        assert there.gate.explain("a") is None
        await there.drained()

    run(clock, scenario())


def test_a_policy_acts_on_waiting_requests(clock: Clock) -> None:
    """Raising a cap starts requests at once; clearing it returns to the provider's policy."""

    async def scenario() -> None:
        gate = FairGate(in_flight=9, policy_provider=lambda _: KeyPolicy(cap=1), clock=clock)
        there = service(gate)
        await there.send_waiting("a1", "a2", "a3", "a4")
        gate.set_policy("a", KeyPolicy(cap=3))
        await there.started("a1", "a2", "a3")
        gate.clear_policy("a")
        there.stage.let_go("a1")
        there.stage.let_go("a2")
        await until(lambda: gate.stats().finished == 2)
        assert gate.stats().waiting == 1
        await there.drained()

    run(clock, scenario())


def test_a_provider_is_called_again(clock: Clock) -> None:
    """After ``refresh_policy`` the provider's new answer acts at once."""
    caps = {"a": 1}

    async def scenario() -> None:
        gate = FairGate(in_flight=9, policy_provider=lambda key: KeyPolicy(cap=caps[str(key)]), clock=clock)
        there = service(gate)
        await there.send_waiting("a1", "a2")
        caps["a"] = 2
        gate.refresh_policy("a")
        await there.started("a1", "a2")
        await there.drained()

    run(clock, scenario())


def test_throttles_change_at_once(clock: Clock) -> None:
    """A throttle with a rate of 0 is explained, and removing it or raising its rate frees waiting requests."""

    async def scenario() -> None:
        stage = Stage()
        stage.open()
        queue = FairQueue(stage, throttles=lambda scope: [scope["path"][1]], clock=clock, wait_timeout_ms=None)
        there = FairService(queue, stage)
        for name in "ab":
            there.gate.throttles.set(name, rate=0, tokens=0)
        waiting = await there.send_waiting("a1", "b1")
        explanation = there.gate.explain("a")
        assert explanation is not None
        assert (explanation.reason, explanation.throttle) == (WaitReason.THROTTLED, "a")
        assert there.gate.throttles.remove("a")
        assert (await waiting[0].response()).status == 200
        start_ms = clock.now_ms
        there.gate.throttles.set("b", rate=4)
        assert (await waiting[1].response()).status == 200
        assert clock.now_ms - start_ms == 250
        assert not there.gate.throttles.remove("a")

    run(clock, scenario())


def test_the_number_of_slots_can_change(clock: Clock) -> None:
    """More slots act at once; with fewer, running requests finish before a new one starts."""

    async def scenario() -> None:
        there = service(FairGate(in_flight=1, clock=clock))
        await there.send_waiting("a1", "a2", "a3", "a4")
        there.gate.set_in_flight(3)
        await there.started("a1", "a2", "a3")
        there.gate.set_in_flight(1)
        there.stage.let_go("a1")
        there.stage.let_go("a2")
        await until(lambda: there.gate.stats().finished == 2)
        assert there.gate.stats().waiting == 1
        there.stage.let_go("a3")
        await there.started("a1", "a2", "a3", "a4")
        await there.drained()

    run(clock, scenario())


def test_a_gate_can_be_shared(clock: Clock) -> None:
    """Two applications behind one gate share its slots."""

    async def scenario() -> None:
        gate = FairGate(in_flight=1, clock=clock)
        one, two = service(gate), service(gate)
        await one.send_waiting("a1")
        await two.send_waiting("b1")
        assert two.stage.started == []
        one.stage.open()
        await two.started("b1")
        await two.drained()

    run(clock, scenario())


def test_a_gate_and_options_do_not_go_together() -> None:
    """Options that an existing gate would ignore are an error that says where they belong."""
    with pytest.raises(InvalidArgument, match="in_flight must be given to the gate"):
        FairQueue(Stage(), gate=FairGate(), in_flight=3)


@pytest.mark.parametrize("options", [{"in_flight": 0}, {"wait_timeout_ms": -1}, {"waiting_max": 0}])
def test_limits_must_be_possible(options: dict[str, int]) -> None:
    """Limits that no request could pass are refused when the gate is created."""
    with pytest.raises(ValueError, match=next(iter(options))):
        FairGate(**options)  # type: ignore[arg-type]


def test_two_event_loops_at_once_are_an_error(clock: Clock) -> None:
    """A request from a second event loop, and a change from another thread, fail clearly and change nothing."""

    async def scenario() -> None:
        there = service(FairGate(in_flight=1, clock=clock))
        await there.send_waiting("a1")
        finished = threading.Event()

        async def intrude() -> None:
            await there.send("b1").task

        def elsewhere() -> None:
            with pytest.raises(RuntimeError, match="belongs to one event loop"):
                run(Clock(), intrude())
            with pytest.raises(RuntimeError, match="call_soon_threadsafe"):
                there.gate.pause("a")
            finished.set()

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert finished.is_set()
        finished.clear()
        await there.drained()

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert finished.is_set()
        assert there.gate.stats().granted == 1
        assert there.gate.stats().waiting == 0
        await there.drained()

    run(clock, scenario())


def test_one_event_loop_after_another_is_fine(clock: Clock) -> None:
    """A gate whose event loop has ended works on the next one, which test clients need; changes work in between."""
    there = service(FairGate(in_flight=1, clock=clock))
    there.stage.open()

    async def scenario(name: str) -> int:
        return (await there.send(name).response()).status

    assert run(clock, scenario("a1")) == 200
    there.gate.pause("b")
    there.gate.throttles.set("any", rate=1)
    assert run(clock, scenario("a2")) == 200


def test_an_event_loop_that_ends_removes_its_requests(clock: Clock) -> None:
    """Requests cut off by the end of their event loop leave the gate empty."""
    there = service(FairGate(in_flight=1, clock=clock))

    async def scenario() -> None:
        await there.send_waiting("a1", "a2")

    run(clock, scenario())
    stats = there.gate.stats()
    assert (stats.in_flight, stats.waiting) == (0, 0)
    there.stage.open()

    async def again() -> int:
        return (await there.send("a3").response()).status

    assert run(clock, again()) == 200


def test_the_default_clock_and_timer_work_together() -> None:
    """With the system's own clock a deadline of a few milliseconds passes by itself."""

    async def scenario() -> str:
        there = service(FairGate(in_flight=1))
        await there.send_waiting("a1")
        response = await there.send("a2", x_deadline_ms="5").response()
        await there.drained()
        return str(response.error["code"])

    assert asyncio.run(scenario()) == "deadline_passed"
