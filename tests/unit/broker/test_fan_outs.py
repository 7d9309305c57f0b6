"""Fan-outs: a continuation enters its queue once, when all members have ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from fairlane.errors import FairlaneError, InvalidArgument, MessageCancelled, QueueFull
from fairlane.model.message import Delivery, NewMessage
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.fan_outs import FannedOutIds
from fairlane.verbs.predecessors import predecessors_in
from tests.kit.ids import numbered
from tests.unit.broker.stepping import broker_with, codes, lease_one, message, payloads


def fan_out(broker: SteppedBroker, count: int = 3, *, name: str = "f", **how: Any) -> FannedOutIds:
    """Fan out to some members and a continuation in ``q``."""
    members = [message(b"%d" % n) for n in range(count)]
    return broker.fan_out("q", message(b"then"), {"q": members} if count else {}, name=name, **how)


def end(broker: SteppedBroker, delivery: Delivery, how: str) -> None:
    """End a member."""
    if how == "ack":
        broker.ack(delivery)
    elif how == "dead":
        broker.nack(delivery, intent="dead")
    elif how == "cancel":
        broker.cancel("q", delivery.id)
    else:
        broker.purge("q", with_leased=True)


def test_the_continuation_comes_when_all_members_are_done() -> None:
    """Before that it is in no line, and its status says how many are missing; after that it comes once."""
    broker = broker_with()
    ids = fan_out(broker)
    for left in (3, 2, 1):
        status = broker.status(ids.id)
        assert (status.status, status.reason) == ("delayed", "members")
        assert status.words == f"It waits for {left} of the 3 messages of its fan-out."
        assert len(broker.lease("q", 9, visibility_ms=1)) == left
        broker.advance(1)
        broker.ack(lease_one(broker))
    assert payloads(broker.lease("q", 9)) == [b"then"]
    assert broker.lease("q", 9) == []


def test_the_continuation_names_the_members_in_a_header() -> None:
    """By queue and by runs of ids; the other headers are those that were sent, and a restart keeps all of them."""
    broker = broker_with()
    broker.create_queue("other")
    last = NewMessage(payload=b"then", headers={"album": "7"})
    members = {"q": [message(b"a"), message(b"b"), message(b"c")], "other": [message(b"d")]}
    ids = broker.fan_out("q", last, members, name="f")
    broker.reopen()
    broker.ack(lease_one(broker, "other"))
    for delivery in broker.lease("q", 9):
        broker.ack(delivery)
    headers = lease_one(broker).headers
    assert headers["album"] == "7"
    assert json.loads(headers["fairlane-before"]) == [["q", ids.ids[0], 3], ["other", ids.ids[3], 1]]
    assert predecessors_in(headers["fairlane-before"]) == list(zip(["q", "q", "q", "other"], ids.ids, strict=True))


def test_a_fan_out_without_members_goes_on_at_once() -> None:
    """There is nothing to wait for, and no header."""
    broker = broker_with()
    fan_out(broker, 0)
    (then,) = broker.lease("q", 9)
    assert (then.payload, then.headers) == (b"then", {})


@pytest.mark.parametrize("how", ["dead", "cancel", "purge"])
def test_a_failed_member_makes_the_continuation_a_dead_letter(how: str) -> None:
    """Not before the others have ended; an operator can redrive it, so that it runs after all."""
    broker = broker_with()
    ids = fan_out(broker, 2)
    first, second = broker.lease("q", 2)
    end(broker, first, how)
    if how != "purge":
        assert broker.status(ids.id).status == "delayed"
        broker.ack(second)
    status = broker.status(ids.id)
    assert (status.status, status.reason) == ("dead", "members")
    assert status.members is not None
    assert status.members.failed == (2 if how == "purge" else 1)
    broker.redrive("q.dlq")
    broker.step()
    assert b"then" in payloads(broker.lease("q", 9))


def test_with_run_the_continuation_runs_whatever_members_do() -> None:
    """Its status says how many were done and how many failed."""
    broker = broker_with()
    ids = fan_out(broker, 2, on_failure="run")
    first, second = broker.lease("q", 2)
    end(broker, first, "dead")
    broker.ack(second)
    then = lease_one(broker)
    assert then.payload == b"then"
    members = broker.status(ids.id).members
    assert members is not None
    assert (members.total, members.done, members.failed) == (2, 1, 1)


def test_a_member_that_is_retried_has_not_ended() -> None:
    """Failures, expiries and deferrals keep it waiting; a redriven dead letter does not bring it a second time."""
    broker = broker_with({"visibility_timeout_ms": 100})
    fan_out(broker, 1)
    broker.nack(lease_one(broker))
    broker.nack(lease_one(broker), intent="defer")
    lease_one(broker)
    broker.advance(100)
    assert payloads(broker.lease("q", 9)) == [b"0"]
    broker.advance(100)
    broker.nack(lease_one(broker), intent="dead")
    broker.redrive("q.dlq")
    broker.step()
    assert sorted(payloads(broker.lease("q", 9))) == [b"0", b"then"]


def test_what_a_member_forwards_takes_its_place() -> None:
    """Members may be chains: the continuation comes after the last message of each."""
    broker = broker_with()
    ids = fan_out(broker, 2)
    first, second = broker.lease("q", 2)
    broker.ack(first)
    broker.ack(second, forward={"q": [message(b"a"), message(b"b")]})
    assert broker.status(ids.id).words == "It waits for 2 of the 4 messages of its fan-out."
    broker.ack(lease_one(broker))
    broker.ack(lease_one(broker), forward={"q": [message(b"c")]})
    broker.ack(lease_one(broker))
    assert payloads(broker.lease("q", 9)) == [b"then"]


def test_a_repeated_name_is_answered_with_the_same_ids() -> None:
    """While it is open and for the dedup window after its end, also after a restart."""
    broker = broker_with({"dedup_window_ms": 1_000})
    first = fan_out(broker, 1)
    assert not first.is_repeat
    broker.reopen()
    again = fan_out(broker, 1)
    assert (again.id, again.ids, again.is_repeat) == (first.id, first.ids, True)
    broker.ack(lease_one(broker))
    broker.ack(lease_one(broker))
    broker.advance(999)
    assert fan_out(broker, 1).is_repeat
    broker.advance(1)
    fan_out(broker, 0, name="other")
    assert not fan_out(broker, 1).is_repeat


def test_a_name_is_free_when_its_window_is_over() -> None:
    """Even if no other fan-out has ended since, and one with a longer window ended before; also after restarts."""
    broker = broker_with({"dedup_window_ms": 1_000})
    broker.create_queue("slow", {"dedup_window_ms": 1_000_000})
    broker.fan_out("slow", message(), {}, name="f")
    first = fan_out(broker, 0)
    broker.advance(999)
    assert fan_out(broker, 0).is_repeat
    broker.advance(1)
    second = fan_out(broker, 1)
    assert second.id != first.id
    for _ in range(2):
        broker.reopen()
        again = fan_out(broker, 1)
        assert (again.id, again.is_repeat) == (second.id, True)
    assert broker.fan_out("slow", message(), {}, name="f").is_repeat


def test_members_may_be_in_other_queues() -> None:
    """The continuation waits for all of them, and a queue that is deleted ends the members that were in it."""
    broker = broker_with()
    broker.create_queue("r")
    broker.create_queue("s")
    ids = broker.fan_out("q", message(b"then"), {"r": [message()], "s": [message(), message()]}, name="f")
    assert len(ids.ids) == 3
    broker.ack(lease_one(broker, "r"))
    broker.delete_queue("s")
    assert broker.status(ids.id).status == "dead"


def test_all_or_nothing() -> None:
    """If a member or the continuation finds no room or no queue, nothing is enqueued and the name is free."""
    broker = broker_with({"waiting_max": 3})
    with pytest.raises(QueueFull):
        fan_out(broker, 3)
    with pytest.raises(FairlaneError, match="Queue 'missing' does not exist"):
        broker.fan_out("q", message(), {"q": [message()], "missing": [message()]}, name="f")
    assert broker.queue("q").waiting == 0
    assert not fan_out(broker, 2).is_repeat
    assert codes(broker.enqueue_many("q", [message()])) == ["queue_full"]  # the continuation has its place already


def test_a_held_continuation_can_be_cancelled() -> None:
    """Its members go on, and it never comes."""
    broker = broker_with({"result_ttl_ms": 10_000})
    ids = fan_out(broker, 1)
    broker.cancel("q", ids.id, reason="no more")
    assert (broker.status(ids.id).status, broker.status(ids.id).reason) == ("cancelled", "no more")
    with pytest.raises(MessageCancelled):
        broker.cancel("q", ids.id)
    broker.ack(lease_one(broker))
    assert broker.lease("q", 9) == []


def test_a_delay_counts_from_the_end_of_the_members() -> None:
    """So does a deadline."""
    broker = broker_with()
    broker.fan_out("q", message(b"then", delay_ms=500, deadline_ms=800), {"q": [message()]}, name="f")
    broker.advance(5_000)
    broker.ack(lease_one(broker))
    broker.advance(499)
    assert broker.lease("q", 1) == []
    broker.advance(1)
    assert payloads(broker.lease("q", 1)) == [b"then"]


def test_fan_outs_survive_a_restart_and_a_moved_base() -> None:
    """Members that ended after the base, before they were written down again, are not waited for."""
    broker = broker_with(carry_floor=20)
    ids = fan_out(broker, 3)
    members = broker.lease("q", 3, visibility_ms=1_000_000)
    for n in range(200):
        broker.enqueue("q", b"")
        broker.ack(lease_one(broker))
        if n in (50, 150):
            broker.ack(members.pop())
    assert broker.engine.ledger.base > numbered(ids.id)
    broker.reopen()
    assert broker.status(ids.id).words == "It waits for 1 of the 3 messages of its fan-out."
    broker.ack(members.pop())
    broker.reopen()
    assert payloads(broker.lease("q", 9)) == [b"then"]


@pytest.mark.parametrize("how", ["name", "dedup_id", "unique_key", "on_failure", "dlq"])
def test_what_a_fan_out_can_not_be(how: str) -> None:
    """Each fault is named."""
    broker = broker_with()
    members: Sequence[Any] = {"dedup_id": [NewMessage(dedup_id="x")], "unique_key": [NewMessage(unique_key="x")]}.get(
        how, []
    )
    with pytest.raises(InvalidArgument):
        broker.fan_out(
            "q.dlq" if how == "dlq" else "q",
            message(),
            {"q": members},
            name="" if how == "name" else "f",
            on_failure="maybe" if how == "on_failure" else "dead",  # type: ignore[arg-type] # what the test is about
        )
