"""Failed attempts: expiry, backoff, the last attempt, and what does not count as one."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.errors import InvalidArgument
from tests.unit.broker.stepping import Die, broker_with, codes, lease_one, message, payloads, start_lease


def test_an_expired_lease_is_an_attempt_but_no_failure() -> None:
    """The message goes again at once, whatever the backoff, as often as it takes; the history has the reason."""
    broker = broker_with({"backoff_ms": 100, "max_attempts": 1})
    message_id = broker.enqueue("q", b"")
    for attempt in range(1, 8):
        held = lease_one(broker)
        assert (held.attempt, held.failures) == (attempt, 0)
        broker.advance(30_000)
    view = broker.get("q", message_id)
    assert (view.attempts, view.failures, view.status, view.due_ms) == (7, 0, "waiting", None)
    assert [(error.attempt, error.reason) for error in view.errors] == [(at, "expiry") for at in range(1, 8)]


def test_a_nack_is_retried_at_once_by_default() -> None:
    """Without a delay, a hook or a backoff of the queue, the next lease gets the message."""
    broker = broker_with()
    broker.enqueue("q", b"")
    broker.nack(lease_one(broker))
    assert lease_one(broker).failures == 1


@pytest.mark.parametrize("how", ["failure", "expiry"])
def test_at_its_limit_a_message_is_a_dead_letter(how: str) -> None:
    """The third failed attempt of three, or the third expiry, is the last, over reopens too."""
    limit = "max_attempts" if how == "failure" else "max_expiries"
    broker = broker_with({limit: 3})
    message_id = broker.enqueue("q", b"x")
    for attempt in (1, 2, 3):
        held = lease_one(broker)
        assert held.attempt == attempt
        if how == "failure":
            broker.nack(held, error=f"no {attempt}")
        else:
            broker.advance(30_000)
        broker.reopen()
    dead = lease_one(broker, "q.dlq")
    assert dead.id == message_id
    assert dead.dead is not None
    assert (dead.dead.origin, dead.dead.reason) == ("q", limit)
    assert broker.lease("q") == []


def test_failures_and_expiries_are_counted_apart() -> None:
    """Two expiries between failures bring a message no closer to ``max_attempts``, nor do failures to the other."""
    broker = broker_with({"max_attempts": 3, "max_expiries": 3})
    broker.enqueue("q", b"x")
    for _ in range(2):
        lease_one(broker)
        broker.advance(30_000)
        broker.nack(lease_one(broker))
    assert lease_one(broker).failures == 2
    broker.advance(30_000)
    assert broker.peek("q.dlq")[0].dead.reason == "max_expiries"  # type: ignore[union-attr] # it is dead


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
    """A consumer that waits is handed a message when its lease expires, without asking again."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    lease_one(broker)
    waiter = start_lease(broker)
    broker.advance(29_999)
    assert not waiter.done()
    broker.advance(1)
    assert waiter.get()[0].attempt == 2


def test_a_nack_says_what_became_of_each_message() -> None:
    """Waiting, delayed, dead or expired, and an error for a receipt that is no longer good."""
    broker = broker_with({"max_attempts": 2, "backoff_ms": 1_000, "backoff_jitter": 0.0})
    broker.enqueue_many("q", [message(b"%d" % n) for n in range(3)] + [message(b"3", deadline_ms=500)])
    first, second, third, late = broker.lease("q", 4)
    assert broker.nack(first, intent="defer") == "waiting"
    assert broker.nack(second, error="no") == "delayed"
    assert broker.nack(third, intent="dead") == "dead"
    broker.clock.advance(501)
    assert broker.nack(late, intent="defer") == "expired"
    broker.clock.advance(1_000)
    again = broker.lease("q", 9)
    assert payloads(again) == [b"0", b"1"]
    results = broker.nack_many("q", [*again, third])
    assert (results[:2], codes(results[2:])) == (["delayed", "dead"], ["message_not_found"])
