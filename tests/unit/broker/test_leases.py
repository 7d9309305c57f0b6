"""Leases: fencing, visibility, extension, expiry, attempts and backoff."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.errors import InvalidArgument, LeaseMismatch, MessageNotFound
from fairlead.model.message import Delivery, Receipt
from fairlead.testing.stepped import SteppedBroker
from tests.unit.broker.desk import Die, broker_with, codes, lease_one, message, payloads, start_lease


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
    for token in (stale.token, foreign.token, present.token + 1, present.token - 1, 0, -1, None, "x", 2**70, [], 1e300):
        assert refusals(broker, as_delivery(present.id, token)) == ["lease_mismatch"] * 7
    for message_id in ("0" * 16, "f" * 16, "", None, 5, "nonsense", present.id.upper() + "0", b"x", []):
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
    assert broker.get("q", late.id).failures == 1


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


def test_expiry_counts_as_a_failure_and_is_remembered() -> None:
    """The attempt that ran out is in the history with its reason, and the message goes again after the backoff."""
    broker = broker_with({"backoff_ms": 100, "backoff_jitter": 0.0})
    message_id = broker.enqueue("q", b"")
    lease_one(broker)
    broker.advance(30_000)
    view = broker.get("q", message_id)
    assert (view.attempts, view.failures, view.status, view.due_ms) == (1, 1, "delayed", broker.clock.now_ms() + 100)
    assert [(error.attempt, error.reason) for error in view.errors] == [(1, "expiry")]


@pytest.mark.parametrize("how", ["failure", "expiry"])
def test_after_max_attempts_a_message_is_a_dead_letter(how: str) -> None:
    """The third failed attempt of three, nacked or expired, is the last, over reopens too."""
    broker = broker_with({"max_attempts": 3, "backoff_ms": 0})
    message_id = broker.enqueue("q", b"x")
    for attempt in (1, 2, 3):
        held = lease_one(broker)
        assert (held.attempt, held.failures) == (attempt, attempt - 1)
        if how == "failure":
            broker.nack(held, error=f"no {attempt}")
        else:
            broker.advance(30_000)
        broker.reopen()
    dead = lease_one(broker, "q.dlq")
    assert dead.id == message_id
    assert dead.dead is not None
    assert (dead.dead.origin, dead.dead.reason) == ("q", "max_attempts")
    assert broker.lease("q") == []


def test_max_attempts_zero_is_any_number() -> None:
    """Without a limit the fiftieth failure is followed by another attempt."""
    broker = broker_with({"max_attempts": 0, "backoff_ms": 0})
    broker.enqueue("q", b"")
    for _ in range(50):
        broker.nack(lease_one(broker))
    assert lease_one(broker).attempt == 51


@pytest.mark.parametrize(
    ("die", "waits"), [(0, [1_000, 3_000, 9_000, 10_000, 10_000]), (999, [500, 1_501, 4_504, 5_005, 5_005])]
)
def test_backoff_grows_by_its_factor_to_its_maximum_less_what_the_dice_take(die: int, waits: list[int]) -> None:
    """With the die at either end, the waits are the whole backoff, and a bit over the half that jitter leaves."""
    policy = {"backoff_ms": 1_000, "backoff_factor": 3.0, "backoff_max_ms": 10_000, "backoff_jitter": 0.5}
    broker = broker_with({**policy, "max_attempts": 0}, entropy=Die(die))
    message_id = broker.enqueue("q", b"")
    found = []
    for _ in waits:
        broker.nack(lease_one(broker, wait_ms=20_000))
        due_ms = broker.get("q", message_id).due_ms
        assert due_ms is not None
        found.append(due_ms - broker.clock.now_ms())
    assert found == pytest.approx(waits, abs=1)


def test_a_nack_can_name_its_delay_and_a_retried_message_goes_to_the_back() -> None:
    """A delay of nothing makes it eligible at once, behind what waited; another is kept to the millisecond."""
    broker = broker_with()
    broker.enqueue_many("q", [message(b"1"), message(b"2")])
    broker.nack(lease_one(broker), delay_ms=0)
    assert payloads(broker.lease("q", 2)) == [b"2", b"1"]
    broker.enqueue("q", b"3")
    broker.nack(lease_one(broker), delay_ms=777)
    broker.advance(776)
    assert broker.lease("q") == []
    broker.advance(1)
    assert lease_one(broker).payload == b"3"


def test_a_deferred_message_has_not_failed() -> None:
    """B5.15/16: with one attempt allowed it can be deferred again and again, keeps its failures, and has no error."""
    broker = broker_with({"max_attempts": 1})
    message_id = broker.enqueue("q", b"")
    for attempt in (1, 2, 3, 4):
        held = lease_one(broker)
        assert (held.attempt, held.failures) == (attempt, 0)
        broker.nack(held, intent="defer", delay_ms=10)
        assert broker.get("q", message_id).errors == ()
        broker.advance(10)
    held = lease_one(broker)
    for bad in ({"intent": "defer", "error": "x"}, {"intent": "Failure"}, {"intent": None}, {"error": 5}):
        arguments: dict[str, Any] = bad
        with pytest.raises(InvalidArgument):
            broker.nack(held, **arguments)
    broker.nack(held)
    assert broker.queue("q.dlq").waiting == 1


@pytest.mark.parametrize("delay_ms", [-1, 366 * 86_400_000 + 1, 1.5, "1", True])
def test_a_bad_delay_is_refused(delay_ms: Any) -> None:
    """The lease stays as it was."""
    broker = broker_with()
    broker.enqueue("q", b"")
    held = lease_one(broker)
    with pytest.raises(InvalidArgument):
        broker.nack(held, delay_ms=delay_ms)
    broker.ack(held)


@pytest.mark.parametrize("error", ["\ud800", "x" * 100_000, "\x00\n", "ключ"])
def test_any_error_text_is_kept_or_refused_but_harms_nobody(error: str) -> None:
    """Texts that can't be written down are refused or mended; long ones are cut; the broker opens again."""
    broker = broker_with({"backoff_ms": 0})
    message_id = broker.enqueue("q", b"")
    try:
        broker.nack(lease_one(broker), error=error)
    except InvalidArgument:
        assert error == "\ud800"
        return
    broker.reopen()
    kept = broker.get("q", message_id).errors[0].error
    assert len(kept) <= 1_024
    if error != "\ud800":
        assert kept == error[:1_024]


def test_intent_dead_goes_to_the_dead_letters_at_once() -> None:
    """It counts as a failed attempt with its error, of reason ``requested``."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"")
    broker.nack(lease_one(broker), intent="dead", error="hopeless")
    view = broker.get("q.dlq", message_id)
    assert view.dead is not None
    assert (view.dead.reason, view.failures, view.errors[0].error) == ("requested", 1, "hopeless")


def test_a_waiter_gets_what_expires() -> None:
    """A consumer that waits is handed an expired message when its backoff ends, without asking again."""
    broker = broker_with({"backoff_ms": 500, "backoff_jitter": 0.0})
    broker.enqueue("q", b"x")
    lease_one(broker)
    waiter = start_lease(broker)
    broker.advance(30_499)
    assert not waiter.done()
    broker.advance(1)
    assert waiter.get()[0].attempt == 2
