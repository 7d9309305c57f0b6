"""Prompt messages, with a deadline or a throttle or of a key with a cap: they go to free handlers only."""

from __future__ import annotations

import pytest

from fairlane.model.message import Delivery
from fairlane.testing.stepped import SteppedBroker
from fairlane.verbs.leases import Lease
from tests.unit.broker.stepping import broker_with, message, payloads


def _take(got: list[Delivery]) -> list[bytes]:
    """Return what has come since the last time."""
    taken = payloads(got)
    got.clear()
    return taken


def _throttled(rate: float = 5, burst: float = 1) -> SteppedBroker:
    broker = broker_with()
    broker.set_throttle("api", rate=rate, burst=burst)
    broker.advance(1_000)
    return broker


def test_a_throttle_limits_starts_whatever_the_credit() -> None:
    """With a rate of 5/s a busy handler gets no second message; freed late, it gets one, and the next 200 ms later."""
    broker = _throttled()
    consumer, got = broker.attach("q", credit=32, handlers=1)
    broker.enqueue_many("q", [message(b"%d" % n, throttles=("api",)) for n in range(4)])
    (first,) = got
    broker.advance(1_000)
    assert payloads(got) == [b"0"]
    broker.ack(first)
    (_, second) = got
    broker.ack(second)
    broker.advance(199)
    assert len(got) == 2
    broker.advance(1)
    assert payloads(got) == [b"0", b"1", b"2"]
    assert len(consumer.held) == 1


@pytest.mark.parametrize(
    "terms", [{"throttles": ("api",)}, {"deadline_ms": 60_000}, {"fairness_key": "capped"}, {"fairness_key": "rated"}]
)
def test_only_plain_messages_are_prefetched(terms: dict[str, object]) -> None:
    """A consumer with two handlers and a credit of six gets two prompt messages, or six plain ones."""
    broker = broker_with({"caps": {"capped": 5}})
    broker.set_throttle("api", rate=1_000, burst=100)
    broker.set_config("rate:q:rated", "1000")
    broker.advance(1_000)
    prompt, got_prompt = broker.attach("q", credit=6, handlers=2)
    broker.enqueue_many("q", [message(b"x", **terms) for _ in range(9)])
    assert len(got_prompt) == 2
    broker.detach(prompt)
    broker.purge("q")
    _, got_plain = broker.attach("q", credit=6, handlers=2)
    broker.enqueue_many("q", [message(b"x") for _ in range(9)])
    assert len(got_plain) == 6


def test_a_limit_on_messages_in_flight_is_not_used_up_by_a_buffer() -> None:
    """In a queue with ``in_flight_max``, a consumer gets as many messages as it has handlers, whatever its credit."""
    broker = broker_with({"in_flight_max": 4})
    _, got = broker.attach("q", credit=6, handlers=2)
    broker.enqueue_many("q", [message(b"x") for _ in range(9)])
    assert len(got) == 2


def test_a_throttled_key_does_not_stop_the_prefetch_of_others() -> None:
    """While its messages wait for a token, plain ones fill the credit; with the token, it has the next free handler."""
    broker = _throttled(rate=1)
    _, got = broker.attach("q", credit=3, handlers=1)
    slow = [message(b"slow", fairness_key="slow", throttles=("api",)) for _ in range(3)]
    broker.enqueue_many("q", [*slow, *(message(b"%d" % n, fairness_key="quick") for n in range(12))])
    broker.ack(got.pop(0))
    assert payloads(got) == [b"0", b"1", b"2"]
    broker.advance(1_000)
    assert len(got) == 3
    for delivery in list(got):
        broker.ack(delivery)
    assert payloads(got)[3:] == [b"slow", b"3", b"4"]


def test_a_prompt_message_waits_for_a_free_handler_and_is_not_starved() -> None:
    """The plain messages in the buffer come first, none are added meanwhile, and then the prompt one has its turn."""
    broker = broker_with()
    _, got = broker.attach("q", credit=3, handlers=1)
    broker.enqueue_many("q", [message(b"%d" % n, fairness_key="plain") for n in range(9)])
    broker.enqueue("q", b"prompt", fairness_key="timely", deadline_ms=60_000)
    seen: list[bytes] = []
    for _ in range(4):
        delivery = got.pop(0)
        seen.append(delivery.payload)
        broker.ack(delivery)
    assert seen == [b"0", b"1", b"2", b"3"]
    assert payloads(got) == [b"prompt", b"4", b"5"]


def test_a_consumer_with_a_free_handler_takes_what_a_busy_one_may_not() -> None:
    """The busy one is passed over; once the prompt message is gone, it is given plain ones ahead again."""
    broker = broker_with()
    _, busy = broker.attach("q", credit=2, handlers=1)
    broker.enqueue("q", b"work")
    assert _take(busy) == [b"work"]
    broker.pause("q")
    broker.enqueue("q", b"prompt", deadline_ms=60_000)
    broker.enqueue_many("q", [message(b"1"), message(b"2")])
    _, idle = broker.attach("q", credit=1, handlers=1)
    broker.resume("q")
    broker.step()
    assert (_take(idle), _take(busy)) == ([b"prompt"], [b"1"])


def test_a_claim_that_takes_the_prompt_messages_lets_a_busy_consumer_prefetch_again() -> None:
    """Claims pick after the consumers of their cycle; what they leave goes to a consumer that was passed over."""
    broker = broker_with()
    _, busy = broker.attach("q", credit=2, handlers=1)
    broker.enqueue("q", b"work")
    assert _take(busy) == [b"work"]
    epoch = broker.register_consumer("q", "c").epoch
    broker.enqueue_many("q", [message(b"prompt", deadline_ms=60_000), message(b"plain")])
    assert _take(busy) == []
    broker.claim("q", "c", epoch=epoch, done=0, count=1)
    broker.step()
    assert _take(busy) == [b"plain"]


def test_without_handlers_the_credit_counts() -> None:
    """A consumer that does not say how many handlers it has gets any message up to its credit."""
    broker = broker_with()
    _, got = broker.attach("q", credit=4)
    broker.enqueue_many("q", [message(b"x", deadline_ms=60_000) for _ in range(9)])
    assert len(got) == 4


@pytest.mark.parametrize(("handlers", "count"), [(None, 5), (2, 2), (0, 0)])
def test_a_lease_can_say_how_many_it_starts_at_once(handlers: int | None, count: int) -> None:
    """Of messages with a deadline it gets no more than that; of plain ones, its whole count."""
    broker = broker_with()
    broker.enqueue_many("q", [message(b"x", deadline_ms=60_000) for _ in range(5)])
    leased = broker.call(Lease(queue="q", count=5, handlers=handlers)).deliveries
    assert len(leased) == count
    broker.purge("q")
    broker.enqueue_many("q", [message(b"x") for _ in range(5)])
    assert len(broker.lease("q", 5, handlers=handlers)) == 5
