"""Schedules: each tick fires once, late ticks by policy, and nothing but what was set."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from fairlane.errors import (
    FairlaneError,
    InvalidArgument,
    PayloadTooLarge,
    QueueFull,
    QueueNotFound,
    ScheduleNotFound,
)
from fairlane.model.message import Delivery, NewMessage
from fairlane.model.schedules import ScheduleSpec
from fairlane.testing import FakeClock, Fault, FaultyStore, SteppedBroker
from fairlane.verbs.schedules import RunSchedule

HOUR_MS = 3_600_000
START_MS = int(datetime(2026, 11, 18, 6, 30, tzinfo=UTC).timestamp()) * 1000
HOURLY = ScheduleSpec(cron="0 * * * *")


def opened(**policy: object) -> SteppedBroker:
    """Return a broker with one queue, at half past six."""
    broker = SteppedBroker(clock=FakeClock(START_MS), carry_floor=10)
    broker.create_queue("q", policy)
    return broker


def take_all(broker: SteppedBroker) -> list[str]:
    """Acknowledge what is in the queue, and return the ticks that it came from."""
    found: list[Delivery] = []
    while deliveries := broker.lease("q", count=100):
        found += deliveries
        broker.ack_many("q", deliveries)
    return [delivery.headers["fairlane-scheduled-at"] for delivery in found]


def hours(*numbers: int) -> list[str]:
    """Return full hours of the day as headers have them."""
    return [f"2026-11-18T{number:02}:00:00Z" for number in numbers]


def test_each_tick_enqueues_the_message_once() -> None:
    """The message has the terms that were set, and two headers that name schedule and tick."""
    broker = opened()
    message = NewMessage(payload=b"x", headers={"a": "b"}, fairness_key="acme", cost=3, priority="high")
    broker.set_schedule("q", "s", ScheduleSpec(cron="0 7,8 * * *", message=message))
    broker.advance(3 * HOUR_MS)
    first, second = broker.lease("q", count=10)
    assert first.headers == {"a": "b", "fairlane-schedule": "s", "fairlane-scheduled-at": "2026-11-18T07:00:00Z"}
    assert (first.payload, first.fairness_key, first.cost, first.priority) == (b"x", "acme", 3, "high")
    assert first.enqueued_ms == START_MS + HOUR_MS // 2
    assert second.headers["fairlane-scheduled-at"] == "2026-11-18T08:00:00Z"


def test_a_tick_fires_once_whatever_is_opened_again() -> None:
    """Brokers that follow each other on one store, each recovering from the journal, fire each tick once."""
    broker = opened()
    broker.set_schedule("q", "s", ScheduleSpec(every_ms=60_000))
    for _ in range(240):
        broker.clock.advance(30_000)
        broker.reopen()
        broker.step()
    assert broker.get_schedule("q", "s").fired == 120
    assert len(set(take_all(broker))) == 120


def test_a_wall_clock_that_is_set_back_fires_nothing_again() -> None:
    """Neither while the broker runs nor when it is opened again before the instant of a tick that has fired."""
    broker = opened()
    broker.set_schedule("q", "s", HOURLY)
    broker.advance(HOUR_MS)
    broker.clock.jump(-2 * HOUR_MS)
    broker.advance(60_000)
    broker.reopen()
    broker.advance(60_000)
    assert take_all(broker) == hours(7)
    broker.advance(4 * HOUR_MS)
    found = take_all(broker)
    assert len(found) == len(set(found))
    assert "2026-11-18T07:00:00Z" not in found


@pytest.mark.parametrize("fault", ["before_write", "after_write", "sync"])
@pytest.mark.parametrize("seed", range(5))
def test_a_commit_that_fails_fires_its_tick_once(fault: Fault, seed: int) -> None:
    """Whether or not the commit with the tick is in the store, there is one message after recovery."""
    store = FaultyStore(Random(seed))
    broker = SteppedBroker(store, clock=FakeClock(START_MS))
    broker.create_queue("q")
    broker.set_schedule("q", "s", HOURLY)
    store.faults.arm(fault)
    broker.advance(HOUR_MS)
    broker.advance(10_000)
    assert take_all(broker) == hours(7)


@pytest.mark.parametrize(
    ("fields", "expected", "missed"),
    [
        ({"catch_up": "skip"}, [], 4),
        ({"catch_up": "last"}, hours(10), 3),
        ({"catch_up": "all"}, hours(7, 8, 9, 10), 0),
        ({"catch_up": "all", "catch_up_max": 2}, hours(9, 10), 2),
        ({"catch_up": "last", "until_ms": START_MS + 2 * HOUR_MS}, hours(8), 1),
        ({"catch_up": "all", "from_ms": START_MS + 2 * HOUR_MS}, hours(9, 10), 0),
    ],
)
@pytest.mark.parametrize("is_paused", [False, True])
def test_late_ticks_are_caught_up_by_policy(
    fields: dict[str, Any], expected: list[str], missed: int, *, is_paused: bool
) -> None:
    """After four hours down or paused, at 10:30, the policy says which ticks fire and how many are missed."""
    broker = opened()
    broker.set_schedule("q", "s", ScheduleSpec(cron="0 * * * *", **fields))
    if is_paused:
        broker.pause_schedule("q", "s")
        broker.advance(4 * HOUR_MS)
        broker.resume_schedule("q", "s")
    else:
        broker.clock.advance(4 * HOUR_MS)
        broker.reopen()
    broker.step()
    view = broker.get_schedule("q", "s")
    assert (take_all(broker), view.fired, view.missed) == (expected, len(expected), missed)
    assert view.missed_reason == ("late" if missed else None)


def test_a_tick_within_a_minute_is_on_time() -> None:
    """A schedule that skips late ticks still fires one that a takeover has delayed for some seconds."""
    broker = opened()
    broker.set_schedule("q", "s", ScheduleSpec(cron="0 * * * *", catch_up="skip"))
    broker.clock.advance(2 * HOUR_MS - HOUR_MS // 2 + 50_000)
    broker.reopen()
    broker.step()
    assert take_all(broker) == hours(8)
    assert broker.get_schedule("q", "s").missed == 1


def test_a_tick_is_skipped_while_the_message_before_it_waits_or_runs() -> None:
    """With overlap skip there is never a second message; an acknowledged one makes way, and so does a dead letter."""
    broker = opened(max_attempts=1, visibility_timeout_ms=24 * HOUR_MS)
    broker.set_schedule("q", "s", ScheduleSpec(cron="0 * * * *", overlap="skip"))
    broker.advance(2 * HOUR_MS)  # 7:00 fires, 8:00 finds it waiting
    [first] = broker.lease("q", count=10)
    broker.advance(HOUR_MS)  # 9:00 finds it leased
    assert broker.get_schedule("q", "s").missed_reason == "overlap"
    broker.nack(first)
    broker.advance(HOUR_MS)  # 10:00 fires: the first is a dead letter
    assert take_all(broker) == hours(10)
    assert (broker.get_schedule("q", "s").fired, broker.get_schedule("q", "s").missed) == (2, 2)


def test_a_tick_that_waited_for_capacity_is_skipped_if_another_message_came_in() -> None:
    """A schedule that is run by hand just before its tick, at a full queue, has one message later, not two."""
    broker = opened(waiting_max=2, backpressure="wait")
    broker.enqueue_many("q", [NewMessage(payload=b"other")] * 2)
    broker.set_schedule("q", "s", ScheduleSpec(cron="0 * * * *", overlap="skip"))
    broker.advance(HOUR_MS // 2 - 10_000)
    broker.start(RunSchedule(queue="q", name="s", wait_ms=60_000))
    broker.step()
    broker.advance(20_000)  # the run waits for capacity, and the tick of 7:00 behind it
    broker.ack_many("q", broker.lease("q", count=2))
    broker.advance(60_000)
    assert broker.queue("q").waiting == 1
    assert broker.get_schedule("q", "s").missed_reason == "overlap"


@pytest.mark.parametrize("backpressure", ["reject", "wait"])
def test_a_tick_waits_for_a_full_queue(backpressure: str) -> None:
    """A tick that finds no capacity stays due, tells why, and fires within a minute of there being some."""
    broker = opened(waiting_max=1, backpressure=backpressure)
    broker.enqueue("q", b"other")
    broker.set_schedule("q", "s", HOURLY)
    broker.advance(HOUR_MS)
    view = broker.get_schedule("q", "s")
    assert (view.fired, view.missed, view.next_ms) == (0, 0, START_MS + HOUR_MS // 2)
    assert view.error is not None
    broker.ack(broker.lease("q")[0])
    broker.advance(60_000)
    assert broker.get_schedule("q", "s").error is None
    assert take_all(broker) == hours(7)


def test_a_full_queue_makes_ticks_late() -> None:
    """Ticks that come while the queue stays full are caught up by policy: the latest fires, the others are missed."""
    broker = opened(waiting_max=1, backpressure="reject")
    broker.enqueue("q", b"other")
    broker.set_schedule("q", "s", HOURLY)
    broker.advance(3 * HOUR_MS)
    broker.ack(broker.lease("q")[0])
    broker.advance(60_000)
    assert take_all(broker) == hours(9)
    assert broker.get_schedule("q", "s").missed == 2


def test_a_tick_that_waits_through_a_recovery_fires_once() -> None:
    """After recovery the tick is computed again while its first enqueue still waits; only one of the two counts."""
    store = FaultyStore(Random(1))
    broker = SteppedBroker(store, clock=FakeClock(START_MS))
    broker.create_queue("q", {"waiting_max": 1, "backpressure": "wait"})
    broker.enqueue("q", b"other")
    broker.set_schedule("q", "s", HOURLY)
    broker.advance(HOUR_MS // 2 + 1_000)
    assert len(broker.engine.producers.waiting["q"]) == 1
    store.faults.arm("sync")
    with pytest.raises(FairlaneError):
        broker.set_config("a", "b")
    broker.advance(5_000)
    assert len(broker.engine.producers.waiting["q"]) == 2
    broker.update_queue("q", {"waiting_max": 100})
    broker.advance(60_000)
    broker.ack(broker.lease("q")[0])
    assert take_all(broker) == hours(7)
    assert broker.get_schedule("q", "s").fired == 1


def test_a_tick_that_waits_is_void_once_its_schedule_is_paused_or_replaced() -> None:
    """Whatever waited for capacity belongs to the old spec, and enqueues nothing."""
    broker = opened(waiting_max=1, backpressure="wait")
    broker.enqueue("q", b"other")
    broker.set_schedule("q", "s", HOURLY)
    broker.set_schedule("q", "t", HOURLY)
    broker.advance(HOUR_MS // 2 + 1_000)
    broker.pause_schedule("q", "s")
    broker.set_schedule("q", "t", ScheduleSpec(cron="30 * * * *"))
    broker.update_queue("q", {"waiting_max": 100})
    broker.advance(60_000)
    assert broker.queue("q").waiting == 1


def test_a_tick_drops_others_where_the_policy_says_so() -> None:
    """A queue that drops its oldest message for a new one does so for the message of a tick."""
    broker = opened(waiting_max=1, backpressure="drop_oldest")
    broker.enqueue("q", b"other")
    broker.set_schedule("q", "s", HOURLY)
    broker.advance(HOUR_MS)
    assert take_all(broker) == hours(7)


def test_a_tick_that_is_refused_for_good_is_missed() -> None:
    """A policy that no longer allows the message makes its ticks missed, with the error; nothing is enqueued."""
    broker = opened(producer_weights=True)
    broker.set_schedule("q", "s", ScheduleSpec(cron="0 * * * *", message=NewMessage(weight=5)))
    broker.update_queue("q", {"producer_weights": False})
    broker.advance(2 * HOUR_MS)
    view = broker.get_schedule("q", "s")
    assert (view.fired, view.missed, view.missed_reason) == (0, 2, "refused")
    assert view.error is not None
    assert view.error.startswith("forbidden: ")
    assert broker.queue("q").waiting == 0


def test_a_tick_goes_through_the_hook_of_its_queue() -> None:
    """The script of the queue gives the message its key, as for any other enqueue."""
    script = 'function on_enqueue(m) return {fairness_key = "tenant-" .. m.headers["fairlane-schedule"]} end'
    broker = opened(on_enqueue=script)
    broker.set_schedule("q", "s", HOURLY)
    broker.advance(HOUR_MS)
    [delivery] = broker.lease("q")
    assert delivery.fairness_key == "tenant-s"


def test_jitter_spreads_messages_the_same_way_each_time() -> None:
    """Each message is due within the jitter after its tick, at an instant that a second broker gives it, too."""

    def dues() -> list[int]:
        broker = opened()
        for name in "abcdef":
            broker.set_schedule("q", name, ScheduleSpec(cron="0 * * * *", jitter_ms=60_000))
        broker.advance(HOUR_MS // 2)
        return [view.due_ms or 0 for view in broker.peek("q", count=10)]

    tick_ms = START_MS + HOUR_MS // 2
    assert all(tick_ms <= due_ms <= tick_ms + 60_000 for due_ms in dues() if due_ms)
    assert len(set(dues())) > 3
    assert dues() == dues()


def test_running_a_schedule_leaves_its_ticks_alone() -> None:
    """A paused schedule can be run by hand; the message tells when, and neither counts nor next tick change."""
    broker = opened()
    broker.set_schedule("q", "s", HOURLY)
    broker.pause_schedule("q", "s")
    message_id = broker.run_schedule("q", "s", by="ann")
    view = broker.get_schedule("q", "s")
    assert (view.fired, view.last_ms, view.last_id) == (0, None, message_id)
    assert take_all(broker) == ["2026-11-18T06:30:00Z"]


def test_running_a_schedule_of_a_full_queue_is_refused() -> None:
    """The caller gets the refusal of the enqueue."""
    broker = opened(waiting_max=1, backpressure="reject")
    broker.set_schedule("q", "s", HOURLY)
    broker.enqueue("q", b"other")
    with pytest.raises(QueueFull):
        broker.run_schedule("q", "s")


def test_setting_a_schedule_again_changes_nothing() -> None:
    """A repeated set writes no record; another message keeps the ticks, another expression counts from now."""
    broker = opened()
    assert broker.set_schedule("q", "s", HOURLY).is_created
    position = broker.engine.ledger.next_sequence
    again = broker.set_schedule("q", "s", ScheduleSpec(cron="0 * * * *"))
    assert (again.is_created, again.is_changed) == (False, False)
    assert broker.engine.ledger.next_sequence == position
    broker.clock.advance(HOUR_MS)
    broker.reopen()
    costly = ScheduleSpec(cron="0 * * * *", message=NewMessage(cost=2))
    assert broker.set_schedule("q", "s", costly).is_changed
    broker.set_schedule("q", "s", ScheduleSpec(cron="15 * * * *"))
    broker.advance(HOUR_MS)
    assert take_all(broker) == ["2026-11-18T07:00:00Z", "2026-11-18T08:15:00Z"]


LATER = ScheduleSpec(cron="5 * * * *", catch_up="skip")


def test_ensure_never_changes_what_an_operator_has_set() -> None:
    """It names the fields that differ, also after the operator set what the program had declared, and a restart."""
    broker = opened()
    assert broker.ensure_schedule("q", "s", HOURLY).is_created
    assert broker.get_schedule("q", "s").is_declared
    assert not broker.set_schedule("q", "s", HOURLY).is_changed
    broker.reopen()
    found = broker.ensure_schedule("q", "s", LATER)
    assert (found.is_created, found.is_changed, found.spec) == (False, False, HOURLY)
    assert found.differing == ["cron", "catch_up"]
    view = broker.get_schedule("q", "s")
    assert (view.spec, view.is_declared) == (HOURLY, False)


def test_a_program_that_declares_a_schedule_otherwise_changes_it() -> None:
    """A schedule that was declared follows its declaration, also after a restart, and is not created again."""
    broker = opened()
    broker.ensure_schedule("q", "s", HOURLY)
    broker.reopen()
    found = broker.ensure_schedule("q", "s", LATER)
    assert (found.is_created, found.is_changed, found.spec, found.differing) == (False, True, LATER, [])
    assert broker.get_schedule("q", "s").spec == LATER
    assert not broker.ensure_schedule("q", "s", LATER).is_changed


def test_a_schedule_goes_with_its_queue() -> None:
    """A queue that is deleted and created again has no schedules, and nothing fires."""
    broker = opened()
    broker.set_schedule("q", "s", HOURLY)
    broker.delete_queue("q")
    broker.create_queue("q")
    broker.advance(2 * HOUR_MS)
    assert broker.schedules() == []
    assert broker.queue("q").waiting == 0


def test_a_deleted_schedule_fires_no_more() -> None:
    """Its messages stay, and the name is free."""
    broker = opened()
    broker.set_schedule("q", "s", HOURLY)
    broker.advance(HOUR_MS)
    broker.delete_schedule("q", "s")
    broker.advance(2 * HOUR_MS)
    assert take_all(broker) == hours(7)
    with pytest.raises(ScheduleNotFound):
        broker.get_schedule("q", "s")


def test_everything_about_a_schedule_survives_a_new_base() -> None:
    """Recovery from a baseline alone, long after the schedule was set, knows its spec, pause, counts and ticks."""
    broker = opened()
    broker.set_schedule("q", "s", ScheduleSpec(cron="0 * * * *", message=NewMessage(payload=b"x")), by="ann")
    broker.set_schedule("q", "t", ScheduleSpec(every_ms=60_000, until_ms=START_MS), by="bob")
    broker.advance(2 * HOUR_MS)
    broker.pause_schedule("q", "t")
    before = broker.schedules()
    base = broker.engine.ledger.base
    for _ in range(300):
        broker.enqueue_many("q", [NewMessage(payload=b"y")] * 50)
        broker.ack_many("q", broker.lease("q", count=100))
    assert broker.engine.ledger.base > base
    broker.reopen()
    assert broker.schedules() == before


def test_a_schedule_tells_when_it_fires() -> None:
    """The view has the next ticks; a paused one has no next, and shows those that come if it is resumed now."""
    broker = opened()
    broker.set_schedule("q", "s", HOURLY)
    broker.advance(HOUR_MS)
    view = broker.get_schedule("q", "s", upcoming=2)
    assert view.next_ms == START_MS + 3 * HOUR_MS // 2
    assert view.upcoming_ms == (START_MS + 3 * HOUR_MS // 2, START_MS + 5 * HOUR_MS // 2)
    assert view.last_ms == START_MS + HOUR_MS // 2
    broker.pause_schedule("q", "s")
    broker.advance(3 * HOUR_MS)
    view = broker.get_schedule("q", "s", upcoming=1)
    assert (view.next_ms, view.upcoming_ms) == (None, (START_MS + 9 * HOUR_MS // 2,))
    assert [each.name for each in broker.schedules("q")] == ["s"]


def test_a_thousand_schedules_cost_nothing_until_they_are_due() -> None:
    """A cycle in which nothing is due looks at no schedule: the first instant of the heap is in the future."""
    broker = opened()
    for number in range(1_000):
        broker.set_schedule("q", f"s{number}", ScheduleSpec(cron=f"{number % 60} 3 * * *"))
    ticks = broker.engine.ticks
    assert ticks.due_ms == START_MS - 30 * 60_000 + 21 * HOUR_MS
    assert ticks.timers.entries[0][0] == ticks.due_ms
    broker.advance(24 * HOUR_MS)
    assert broker.queue("q").waiting == 1_000


REFUSED: list[tuple[str, ScheduleSpec, type[FairlaneError]]] = [
    ("", HOURLY, InvalidArgument),
    ("s" * 129, HOURLY, InvalidArgument),
    ("s", ScheduleSpec(), InvalidArgument),
    ("s", ScheduleSpec(cron="0 * * * *", every_ms=1_000), InvalidArgument),
    ("s", ScheduleSpec(cron="61 * * * *"), InvalidArgument),
    ("s", ScheduleSpec(cron="0 * * * *", timezone="Mars"), InvalidArgument),
    ("s", ScheduleSpec(cron="0 * * * *", anchor_ms=1), InvalidArgument),
    ("s", ScheduleSpec(every_ms=999), InvalidArgument),
    ("s", ScheduleSpec(every_ms=1_000, timezone="Europe/Berlin"), InvalidArgument),
    ("s", ScheduleSpec(every_ms=1_000, catch_up_max=0), InvalidArgument),
    ("s", ScheduleSpec(every_ms=1_000, catch_up="some"), InvalidArgument),  # type: ignore[arg-type] # a program may
    ("s", ScheduleSpec(every_ms=1_000, jitter_ms=-1), InvalidArgument),
    ("s", ScheduleSpec(every_ms=1_000, message=NewMessage(dedup_id="d")), InvalidArgument),
    ("s", ScheduleSpec(every_ms=1_000, message=NewMessage(headers={"fairlane-schedule": "x"})), InvalidArgument),
    ("s", ScheduleSpec(every_ms=1_000, message=NewMessage(payload=b"x" * 65_537)), PayloadTooLarge),
    ("s", ScheduleSpec(every_ms=1_000, message=NewMessage(cost=0)), InvalidArgument),
    ("s", ScheduleSpec(every_ms=1_000, message=NewMessage(upload="u")), InvalidArgument),
]


@pytest.mark.parametrize(("name", "spec", "error"), REFUSED)
def test_what_is_not_valid_is_refused(name: str, spec: ScheduleSpec, error: type[FairlaneError]) -> None:
    """Nothing is written for a schedule that could not work."""
    broker = opened()
    position = broker.engine.ledger.next_sequence
    with pytest.raises(error):
        broker.set_schedule("q", name, spec)
    assert broker.engine.ledger.next_sequence == position


def test_schedules_belong_to_queues_that_exist() -> None:
    """A missing queue and a dead-letter queue have none."""
    broker = opened()
    with pytest.raises(QueueNotFound):
        broker.set_schedule("missing", "s", HOURLY)
    with pytest.raises(InvalidArgument, match="dead-letter"):
        broker.set_schedule("q.dlq", "s", HOURLY)
    for verb in (broker.pause_schedule, broker.resume_schedule, broker.delete_schedule, broker.run_schedule):
        with pytest.raises(ScheduleNotFound):
            verb("q", "nope")
