"""Leases: fencing, batches, visibility and extension."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from fairlane.core.ledger import Message
from fairlane.errors import InvalidArgument, LeaseMismatch, MessageNotFound
from fairlane.model.message import Delivery, Receipt
from fairlane.testing.stepped import SteppedBroker
from tests.unit.broker.stepping import broker_with, codes, lease_one, message


def as_delivery(message_id: Any, token: Any, queue: str = "q") -> Delivery:
    return Delivery(
        id=message_id,
        queue=queue,
        token=token,
        payload=b"",
        headers={},
        fairness_key="",
        attempt=1,
        expires_ms=0,
        enqueued_ms=0,
        correlation_id="",
    )


def refusals(broker: SteppedBroker, bad: Delivery) -> list[str]:
    """Return the code that each verb of a lease answers."""
    found = []
    for verb in (
        lambda: broker.ack(bad),
        lambda: broker.ack(bad, forward={"q": [message(b"forwarded")]}),
        lambda: broker.nack(bad),
        lambda: broker.nack(bad, intent="defer"),
        lambda: broker.nack(bad, intent="dead"),
        lambda: broker.extend(bad),
        lambda: broker.set_state(bad, b"stolen", etag=None),
    ):
        with pytest.raises((LeaseMismatch, MessageNotFound)) as caught:
            verb()
        found.append(caught.value.code)
    return found


def test_every_verb_refuses_a_stale_foreign_or_future_token() -> None:
    """Only the token of the present lease has a right; with any other nothing changes, over a reopen too."""
    broker = broker_with()
    broker.enqueue_many("q", [message(b"1"), message(b"2")])
    stale = lease_one(broker)
    broker.nack(stale, delay_ms=0)
    foreign, present = broker.lease("q", 2)
    assert present.id == stale.id
    broker.reopen()
    before = broker.get("q", present.id)
    journal = broker.engine.ledger.next_sequence
    tokens: list[Any] = [
        stale.token,
        foreign.token,
        present.token + 1,
        present.token - 1,
        0,
        -1,
        None,
        "x",
        2**70,
        [],
        1e300,
    ]
    for token in tokens:
        assert refusals(broker, as_delivery(present.id, token)) == ["lease_mismatch"] * 7
    ids: list[Any] = ["0" * 16, "f" * 16, "", None, 5, "nonsense", present.id.upper() + "0", b"x", []]
    for message_id in ids:
        assert refusals(broker, as_delivery(message_id, present.token)) == ["message_not_found"] * 7
    assert broker.get("q", present.id) == before
    assert broker.engine.ledger.next_sequence <= journal + 1  # nothing but the record of the reopening
    broker.ack(present)
    assert refusals(broker, present) == ["message_not_found"] * 7


def test_an_expired_lease_has_no_right_although_nobody_has_looked() -> None:
    """At the instant of its end a lease is over, before any turn has taken it back."""
    broker = broker_with()
    broker.enqueue("q", b"")
    late = lease_one(broker)
    broker.clock.advance(30_000)
    assert refusals(broker, late) == ["lease_mismatch"] * 7
    assert [error.reason for error in broker.get("q", late.id).errors] == ["expiry"]


def test_a_lease_is_good_until_the_last_millisecond() -> None:
    """One millisecond before its end it can still be acked."""
    broker = broker_with()
    broker.enqueue("q", b"")
    held = lease_one(broker)
    broker.advance(29_999)
    broker.ack(held)


def test_tokens_only_grow_also_over_a_reopen() -> None:
    """Each later lease of any message has a greater token than all before."""
    broker = broker_with()
    broker.enqueue_many("q", [message()] * 3)
    tokens = [delivery.token for delivery in broker.lease("q", 2)]
    broker.reopen()
    tokens.append(lease_one(broker).token)
    broker.advance(60_000)
    tokens += [delivery.token for delivery in broker.lease("q", 3)]
    assert tokens == sorted(set(tokens))


def test_batches_judge_each_on_its_own_and_a_repeat_is_good_once() -> None:
    """A batch with good, repeated, stale and unknown ones does the good ones and says the rest, for each verb."""
    broker = broker_with()
    broker.enqueue_many("q", [message(b"%d" % n) for n in range(4)])
    one, two, three, four = broker.lease("q", 4)
    unknown = Receipt("0" * 16, 1)
    mixed: list[Any] = [one, one, Receipt(two.id, two.token + 9), unknown, three]
    expected = [None, "lease_mismatch", "lease_mismatch", "message_not_found", None]
    ends = broker.extend_many("q", mixed, visibility_ms=99_000)
    assert codes(ends) == expected
    assert [end for end in ends if isinstance(end, int)] == [broker.clock.now_ms() + 99_000] * 2
    assert codes(broker.nack_many("q", mixed, delay_ms=5)) == expected
    assert codes(broker.ack_many("q", [two, two, four], costs=[None, 1, 5])) == [None, "lease_mismatch", None]
    assert broker.ack_many("q", []) == []
    assert (broker.queue("q").waiting, broker.queue("q").leased) == (2, 0)


def test_visibility_is_the_queues_or_the_leases_own() -> None:
    """A lease lasts as long as asked, to the millisecond, and expires on its own while another still holds."""
    broker = broker_with({"visibility_timeout_ms": 1_000, "backoff_ms": 0})
    broker.enqueue_many("q", [message(b"1"), message(b"2")])
    short, long = lease_one(broker), lease_one(broker, visibility_ms=5_000)
    assert (short.expires_ms, long.expires_ms) == (broker.clock.now_ms() + 1_000, broker.clock.now_ms() + 5_000)
    broker.advance(1_000)
    assert (broker.queue("q").waiting, broker.queue("q").leased) == (1, 1)
    broker.ack(long)


@pytest.mark.parametrize("visibility_ms", [0, -1, 366 * 86_400_000 + 1, 1.5, "5", True])
def test_bad_visibilities_counts_and_owners_are_refused(visibility_ms: Any) -> None:
    """Nothing is leased, nothing extended, and consume refuses the same."""
    broker = broker_with()
    broker.enqueue("q", b"")
    held = lease_one(broker)
    for verb in (
        lambda: broker.lease("q", visibility_ms=visibility_ms),
        lambda: broker.extend(held, visibility_ms=visibility_ms),
        lambda: broker.lease("q", visibility_ms if visibility_ms in (0, -1) else 0),
        lambda: broker.lease("q", 10_001),
        lambda: broker.lease("q", wait_ms=-1),
        lambda: broker.lease("q", owner=""),
        lambda: broker.lease("q", owner="\ud800"),
    ):
        with pytest.raises(InvalidArgument):
            verb()
    assert broker.get("q", held.id).expires_ms == held.expires_ms


def test_extend_moves_the_end_either_way_from_now() -> None:
    """An extended lease lives on past its first end; the new end holds over a reopen; shorter is possible too."""
    broker = broker_with({"backoff_ms": 0})
    broker.enqueue("q", b"")
    held = lease_one(broker)
    broker.advance(20_000)
    assert broker.extend(held) == broker.clock.now_ms() + 30_000
    broker.reopen()
    broker.advance(29_999)
    assert broker.extend(held, visibility_ms=10) == broker.clock.now_ms() + 10
    broker.advance(10)
    assert lease_one(broker).attempt == 2


def test_what_is_acked_is_not_held_on_to_until_its_lease_would_have_ended() -> None:
    """A message takes no memory once it is done, however long it was leased for."""
    broker = broker_with()
    broker.enqueue_many("q", [message(b"x") for _ in range(10)])
    broker.ack_many("q", broker.lease("q", 10, visibility_ms=3_600_000)[:9])
    gc.collect()
    queue = broker.engine.ledger.queues["q"]
    assert sum(type(known) is Message and known.queue is queue for known in gc.get_objects()) == 1
