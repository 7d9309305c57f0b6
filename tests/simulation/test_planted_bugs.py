"""Bugs planted one by one, each a line that could be forgotten: the simulation must find each within thirty seeds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from fairlane.broker import calendar
from fairlane.broker.engine import expiry, recovery
from fairlane.broker.steady_time import BrokerTime
from fairlane.broker.waiting import redrives, ticks
from fairlane.broker.waiting.consumers import WaitingConsumers
from fairlane.broker.waiting.redrives import Redrives
from fairlane.core import apply as apply_module
from fairlane.core import key_policies
from fairlane.core.apply import apply, messages
from fairlane.core.apply import journal as apply_journal
from fairlane.core.apply import schedules as apply_schedules
from fairlane.core.commands import Open, SweepResults
from fairlane.core.dead_letters import numbers_meant
from fairlane.core.decide import DECIDERS, cancel, claims, finished, leases, returns, staging
from fairlane.core.decide import schedules as decide_schedules
from fairlane.core.decision import Decision
from fairlane.core.finished import FinishedMessages
from fairlane.core.ledger import Message
from fairlane.core.schedule import Schedule
from fairlane.core.states.fan_outs import FanOuts
from fairlane.core.states.redrives import RedriveState
from fairlane.errors import MessageNotFound
from fairlane.journal import codec
from fairlane.journal.records import Opened, Staged
from fairlane.model.ids import number_in
from fairlane.model.message import NEVER_MS, Receipt
from fairlane.scheduler.buckets import Throttles
from fairlane.scheduler.kernel import Kernel
from fairlane.scheduler.key_limits import InUseLimit
from fairlane.scheduler.order import OrderedGroup
from fairlane.scheduler.token_bucket import Bucket
from tests.kit.simulate import main
from tests.kit.simulation.simulation import Simulation, SimulationFailed
from tests.kit.simulation.store import SimulatedDisk

SEEDS = range(1, 41)
Plant = Callable[[pytest.MonkeyPatch], None]


def do_nothing(*_: Any, **__: Any) -> None:
    """Do nothing, as if the call had been forgotten."""


def forget_to_release_a_cap(patch: pytest.MonkeyPatch) -> None:
    """Keys at their caps stay there: consumers wait while messages wait, and nothing drains."""
    patch.setattr(Kernel, "release_many", do_nothing)


def forget_to_fence(patch: pytest.MonkeyPatch) -> None:
    """A client that knows the id of a message may ack it under any lease."""
    held = leases.held_under

    def unfenced(ledger: Any, queue: Any, receipts: Any, now_ms: int) -> Any:
        known = [queue.messages.get(number_in(receipt.id) or 0) for receipt in receipts]
        forged = [
            Receipt(receipt.id, message.token) if message is not None and message.token else receipt
            for receipt, message in zip(receipts, known, strict=True)
        ]
        return held(ledger, queue, forged, now_ms)

    for module in (leases, returns):
        patch.setattr(module, "held_under", unfenced)


class ForgetfulDisk(SimulatedDisk):
    """A store that claims to have synced."""

    def sync(self) -> None:
        """Do nothing."""


def forget_to_sync(patch: pytest.MonkeyPatch) -> None:
    """Answered commits are lost in the next crash."""
    patch.setattr(Simulation, "disk_type", ForgetfulDisk)


def forget_to_skip_reserved_sequences(patch: pytest.MonkeyPatch) -> None:
    """A broker whose store lost its end issues ids and tokens again."""

    def opened(ledger: Any, command: Any, *_: Any) -> Any:
        return Decision([Opened(ledger.next_sequence, command.built_ms)], None)

    patch.setitem(DECIDERS, Open, opened)


def forget_to_check_that_records_follow(patch: pytest.MonkeyPatch) -> None:
    """A page that is missing is passed over, with the messages in it."""

    def fold_page(ledger: Any, encoded: bytes) -> None:
        page = codec.decode(encoded)
        for record in page.records:
            if record.sequence >= ledger.base:
                with suppress(KeyError):
                    apply(ledger, record, page.at_ms)

    patch.setattr(recovery, "fold_page", fold_page)


def forget_to_drop_a_body(patch: pytest.MonkeyPatch) -> None:
    """Bodies of acknowledged messages stay in the store forever."""

    def drop(ledger: Any, message: Any) -> None:
        if not message.chunk.live:
            ledger.chunks.remove(message.chunk)

    patch.setattr(messages, "drop_chunk", drop)


def forget_to_note_a_failure(patch: pytest.MonkeyPatch) -> None:
    """Messages are retried forever."""
    patch.setattr(messages, "_note_attempt", do_nothing)


def forget_to_take_a_token(patch: pytest.MonkeyPatch) -> None:
    """Throttles hold nothing back."""
    patch.setattr(Bucket, "take", do_nothing)


def let_buckets_start_full(patch: pytest.MonkeyPatch) -> None:
    """After a crash a throttle has a full burst again."""
    set_throttle: Any = Throttles.set

    def full(*arguments: Any, tokens: float | None = None, **more: Any) -> None:
        del tokens
        set_throttle(*arguments, **more)

    patch.setattr(Throttles, "set", full)


def let_rates_of_tenants_start_full(patch: pytest.MonkeyPatch) -> None:
    """After a crash each tenant, and each throttle of a pattern, has a full burst again."""
    patch.setattr(Throttles, "begin_empty", do_nothing)


def forget_the_limit_on_all(patch: pytest.MonkeyPatch) -> None:
    """More messages are in flight than may be in all."""
    patch.setattr(InUseLimit, "allowance", lambda *_: 1 << 62)


def forget_floors(patch: pytest.MonkeyPatch) -> None:
    """A tenant below its floor waits for others."""
    patch.setattr(InUseLimit, "allowance", lambda limit, _node: max(0, (limit.most or 1 << 62) - limit.in_use))


def charge_every_message_alike(patch: pytest.MonkeyPatch) -> None:
    """A throttle that charges by cost takes one token of each message."""
    take: Any = Bucket.take
    patch.setattr(Bucket, "take", lambda bucket, count=1, _cost=0: take(bucket, count, count))


def charge_tenants_by_message(patch: pytest.MonkeyPatch) -> None:
    """The rate of a tenant that charges by cost takes one token of each message."""
    patch.setattr(key_policies, "BY_COST", "never")


def forget_dedup_ids(patch: pytest.MonkeyPatch) -> None:
    """A repeated enqueue creates a second message."""
    patch.setattr(messages, "_remember", do_nothing)


def forget_unique_keys(patch: pytest.MonkeyPatch) -> None:
    """A second message gets a unique key that another has."""
    patch.setattr(messages, "enter_unique", do_nothing)


def keep_unique_keys(patch: pytest.MonkeyPatch) -> None:
    """A message that is done still has its unique key."""
    patch.setattr(messages, "leave_unique", do_nothing)


def forget_members(patch: pytest.MonkeyPatch) -> None:
    """A continuation waits for members that have ended."""
    patch.setattr(FanOuts, "settle", do_nothing)


def join_too_early(patch: pytest.MonkeyPatch) -> None:
    """A continuation comes when the first member has ended."""
    settle: Any = FanOuts.settle

    def hasty(self: FanOuts, numbers: Any, *, is_done: bool) -> None:
        found = {self.members[number] for number in numbers if number in self.members}
        settle(self, numbers, is_done=is_done)
        self.complete |= {one.order.number: one for one in found}

    patch.setattr(FanOuts, "settle", hasty)


def share_names_between_tenants(patch: pytest.MonkeyPatch) -> None:
    """A tenant that fans out under a name of another is answered with the ids of the other, and has nothing."""

    def shared(self: FanOuts, queue: str, _key: Any, name: str, _now_ms: int) -> Any:
        known = self.by_name.items()
        return next((each for (at, text), each in known if (at, text.split("\0")[-1]) == (queue, name)), None)

    patch.setattr(FanOuts, "named", shared)


def lose_heirs(patch: pytest.MonkeyPatch) -> None:
    """What a member forwards does not take its place."""
    patch.setattr(messages, "take_places", do_nothing)


def forget_producer_numbers(patch: pytest.MonkeyPatch) -> None:
    """A client that repeats an enqueue creates a second message."""
    patch.setattr(messages, "enter_numbers", do_nothing)


def forget_deadlines(patch: pytest.MonkeyPatch) -> None:
    """Messages are handed out after their deadline."""
    patch.setattr(Kernel, "_expire", do_nothing)


def let_a_return_keep_its_place(patch: pytest.MonkeyPatch) -> None:
    """Recovery puts a returned message at its earlier position: the journal and the memory disagree."""
    returned = Message.set_times

    def set_times(self: Message, **times: Any) -> None:
        self.joined = self.number
        returned(self, **times)

    patch.setattr(Message, "set_times", set_times)


def put_retries_at_the_tail(patch: pytest.MonkeyPatch) -> None:
    """In a strict order a message that failed goes again after those that came later."""
    patch.setattr(OrderedGroup, "insert", lambda group, item, _place_of: group.append(item))


def leave_those_behind_leased(patch: pytest.MonkeyPatch) -> None:
    """In a strict order a message fails, and its consumer acknowledges the ones after it."""
    patch.setattr(returns, "sent_back", lambda *_known, **_how: [])


def accept_acks_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """In a strict order a message is acknowledged before one that is leased with it."""
    patch.setattr(leases, "in_order", lambda _queue, held: {message.number for message in held})


def forget_the_order_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    """After a crash messages are handed out behind those of their key that are leased."""
    patch.setattr(Kernel, "resume_order", do_nothing)


def forget_to_give_credit_back(patch: pytest.MonkeyPatch) -> None:
    """A consumer that acks gets no more messages."""
    patch.setattr(WaitingConsumers, "free", do_nothing)


def forget_consumers_at_the_base(patch: pytest.MonkeyPatch) -> None:
    """Recovery from a base after a registration does not know the consumer."""
    patch.setattr(apply_journal, "revive_consumer", do_nothing)


def forget_sinks_at_the_base(patch: pytest.MonkeyPatch) -> None:
    """Recovery from a base after a staging does not know its sink."""
    patch.setattr(apply_journal, "revive_sink", do_nothing)


def forget_to_ack_what_is_done(patch: pytest.MonkeyPatch) -> None:
    """A claim ends, and its messages stay leased forever."""
    ended = claims._ended
    patch.setattr(claims, "_ended", lambda *known: ended(*known)[-1:])


def let_claims_expire(patch: pytest.MonkeyPatch) -> None:
    """Claimed messages are handed to other consumers after a while."""
    patch.setattr(claims, "NEVER_MS", 1_700_100_000_000)


def publish_again(patch: pytest.MonkeyPatch) -> None:
    """A batch that is published again is enqueued again."""
    patch.setattr(staging, "_is_published", lambda _sink, _batch: False)


def leave_parts_behind(patch: pytest.MonkeyPatch) -> None:
    """Staged messages that are never published stay forever."""
    patch.setattr(staging, "_unstaged", lambda *_known, **_how: [])


def stage_into_the_queue(patch: pytest.MonkeyPatch) -> None:
    """Staged messages are handed out before they are published."""
    staged = apply_module._APPLIERS[Staged]

    def seen(ledger: Any, record: Staged, at_ms: int) -> list[Message]:
        staged(ledger, record, at_ms)
        return [ledger.queues[record.queue].staged[record.sequence + at] for at in range(record.count)]

    patch.setitem(apply_module._APPLIERS, Staged, seen)
    build = Schedule.__init__

    def offering(self: Schedule, *known: Any) -> None:
        build(self, *known)
        self._followers[Staged] = self._enqueued

    def victim(self: Schedule, queue: str, *known: Any, **how: Any) -> Message | None:
        found = choose(self, queue, *known, **how)
        return found if found is not None and found.joined else None  # to drop a staged one would never end

    choose = Schedule.victim
    patch.setattr(Schedule, "__init__", offering)
    patch.setattr(Schedule, "victim", victim)


def follow_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """A clock that is set forward ends leases and deadlines that have not ended."""
    patch.setattr(BrokerTime, "_at", lambda self, _monotonic_ms: self._clock.now_ms())


def forget_the_jump(patch: pytest.MonkeyPatch) -> None:
    """A clock that was wrong when the broker started leaves the broker wrong for good."""
    patch.setattr(BrokerTime, "_look", do_nothing)


def forget_redrives_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    """A redrive that was interrupted does not go on, and never ends."""
    patch.setattr(Redrives, "resume", do_nothing)


def redrive_what_died_since(patch: pytest.MonkeyPatch) -> None:
    """A redrive that goes on takes dead letters that it was not ordered for, and those it has moved once more."""
    patch.setattr(redrives, "dead_before", lambda wanted, queue, _sequence: numbers_meant(wanted, queue))


def forget_redrives_at_the_base(patch: pytest.MonkeyPatch) -> None:
    """Recovery from a baseline after its order does not know of a redrive."""
    image = RedriveState.image
    patch.setattr(RedriveState, "image", lambda self: msgspec.structs.replace(image(self), moved=0))


def forget_results_at_the_base(patch: pytest.MonkeyPatch) -> None:
    """Results that recovery does not see again are lost with a restart."""
    carry = FinishedMessages.carry

    def forgetful(self: FinishedMessages, image: Any, home: int) -> None:
        if image.number in self.known:
            carry(self, image, home)

    patch.setattr(FinishedMessages, "carry", forgetful)


def keep_results_for_good(patch: pytest.MonkeyPatch) -> None:
    """Results are never swept, and fill the store."""
    patch.setattr(FinishedMessages, "due_ms", NEVER_MS)


def sweep_results_early(patch: pytest.MonkeyPatch) -> None:
    """A result is gone before its time is over."""
    patch.setattr(expiry, "SweepResults", lambda through_ms: SweepResults(through_ms=through_ms + 2_000))


def mix_up_results(patch: pytest.MonkeyPatch) -> None:
    """Messages that are acknowledged together get the results of each other."""
    keep = finished.done

    def mixed(pairs: Any, sequence: int, now_ms: int) -> Any:
        receipts = [receipt for _, receipt in pairs]
        return keep([(pair[0], receipt) for pair, receipt in zip(pairs, receipts[::-1], strict=True)], sequence, now_ms)

    patch.setattr(leases, "done", mixed)


def cancel_without_a_word(patch: pytest.MonkeyPatch) -> None:
    """The consumer of a cancelled message is told that there never was one."""
    patch.setattr(
        leases, "absent", lambda _ledger, queue, message_id, _number: MessageNotFound(f"{queue} {message_id}")
    )


def cancel_and_keep_the_lease(patch: pytest.MonkeyPatch) -> None:
    """A cancelled message goes while its lease lasts, so that its key stays at its cap."""
    patch.setattr(cancel, "given_back", lambda *_: [])


def forget_settled_ticks_at_the_base(patch: pytest.MonkeyPatch) -> None:
    """A broker that recovers from a baseline fires ticks again that have fired before."""

    def revive(queue: Any, image: Any) -> None:
        apply_schedules.revive_schedule(queue, image)
        queue.schedules[image.name].settled_ms = image.created_ms

    patch.setattr(apply_journal, "revive_schedule", revive)


def count_ticks_from_now(patch: pytest.MonkeyPatch) -> None:
    """A broker that was down forgets the ticks that it should catch up on."""

    def from_now(self: Any, schedule: Any, now_ms: int) -> None:
        schedule.settled_ms = max(schedule.settled_ms, now_ms)
        schedule.due_ms = calendar.next_tick(schedule.spec, schedule.settled_ms)
        if schedule.due_ms is not None and not schedule.is_paused:
            self._push(schedule, schedule.due_ms)

    patch.setattr(ticks.Ticks, "_arm", from_now)


def forget_overlaps(patch: pytest.MonkeyPatch) -> None:
    """A schedule that must not overlap enqueues a second message while the first is there."""
    for module in (ticks, decide_schedules):  # where a tick becomes due, and where one that waited is decided
        patch.setattr(module, "overlaps", lambda *_: False)


def settle_ticks_twice(patch: pytest.MonkeyPatch) -> None:
    """A tick that waited while it was computed again enqueues a second message."""
    patch.setattr(decide_schedules, "_tick_fault", do_nothing)


PLANTS: list[Plant] = [
    forget_redrives_at_a_restart,
    redrive_what_died_since,
    forget_redrives_at_the_base,
    forget_results_at_the_base,
    keep_results_for_good,
    sweep_results_early,
    mix_up_results,
    cancel_without_a_word,
    cancel_and_keep_the_lease,
    follow_the_wall_clock,
    forget_the_jump,
    forget_to_release_a_cap,
    forget_to_fence,
    forget_to_sync,
    forget_to_skip_reserved_sequences,
    forget_to_check_that_records_follow,
    forget_to_drop_a_body,
    forget_to_note_a_failure,
    forget_to_take_a_token,
    let_buckets_start_full,
    let_rates_of_tenants_start_full,
    forget_the_limit_on_all,
    forget_floors,
    charge_every_message_alike,
    charge_tenants_by_message,
    forget_dedup_ids,
    forget_unique_keys,
    keep_unique_keys,
    forget_members,
    join_too_early,
    lose_heirs,
    share_names_between_tenants,
    forget_producer_numbers,
    forget_deadlines,
    let_a_return_keep_its_place,
    put_retries_at_the_tail,
    leave_those_behind_leased,
    accept_acks_out_of_order,
    forget_the_order_at_a_restart,
    forget_to_give_credit_back,
    forget_consumers_at_the_base,
    forget_sinks_at_the_base,
    forget_to_ack_what_is_done,
    let_claims_expire,
    publish_again,
    leave_parts_behind,
    stage_into_the_queue,
    forget_settled_ticks_at_the_base,
    count_ticks_from_now,
    forget_overlaps,
    settle_ticks_twice,
]


def caught_by() -> tuple[int, str] | None:
    """Return the first seed that finds the bug, and its report."""
    for seed in SEEDS:
        try:
            Simulation(seed).run()
        except SimulationFailed as failure:
            return seed, str(failure)
    return None


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation finds the bug and reports the seed, the step and the trace."""
    plant(monkeypatch)
    caught = caught_by()
    assert caught is not None
    seed, text = caught
    assert text.startswith(f"seed {seed}, step ")
    assert "What led to it:" in text


def test_the_command_fails_where_a_promise_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 1, and the trace is printed."""
    forget_to_sync(monkeypatch)
    assert main(["--seed", "1"]) == 1
    assert "What led to it:" in capsys.readouterr().out
