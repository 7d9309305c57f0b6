"""Registered consumers and their numbered claims."""

from __future__ import annotations

import random

import pytest

from fairlane.broker.handlers.internal import ReadSlice
from fairlane.broker.settings import Settings
from fairlane.errors import (
    ClaimNotFound,
    ConsumerFenced,
    ConsumerNotFound,
    FairlaneError,
    InvalidArgument,
    QueueNotFound,
    StoreFailed,
)
from fairlane.journal.events import rows
from fairlane.model.claims import Claim
from fairlane.model.limits import BATCH_MAX, CLAIM_MAX, CONSUMERS_MAX
from fairlane.model.message import NEVER_MS, NewMessage
from fairlane.testing.faulty_store import FaultyStore
from fairlane.testing.stepped import Pending, SteppedBroker
from fairlane.verbs.batches import MakeClaim
from tests.unit.broker.stepping import broker_with, lease_one, message

YEAR_MS = 366 * 24 * 3600 * 1000


def claimed(broker: SteppedBroker, *payloads: bytes, idle_ms: int | None = None) -> int:
    """Claim messages for consumer c, and return its epoch."""
    broker.enqueue_many("q", [message(payload) for payload in payloads])
    epoch = broker.register_consumer("q", "c", idle_ms=idle_ms).epoch
    claim = broker.claim("q", "c", epoch=epoch, done=0)
    assert claim == Claim(number=1, count=len(payloads), size_bytes=sum(map(len, payloads)))
    return epoch


def test_a_claim_is_read_again_and_again_until_it_is_done() -> None:
    """The same messages come under the same leases, over years and reopenings, and an end acks them all."""
    broker = broker_with()
    epoch = claimed(broker, b"1", b"22", b"333")
    first = broker.read_claim("q", "c", claim=1)
    assert [delivery.payload for delivery in first.deliveries] == [b"1", b"22", b"333"]
    assert [delivery.expires_ms for delivery in first.deliveries] == [NEVER_MS] * 3
    broker.advance(3 * YEAR_MS)
    assert broker.read_claim("q", "c", claim=1) == first
    broker.reopen()
    assert broker.read_claim("q", "c", claim=1) == first
    assert broker.claim("q", "c", epoch=epoch, done=0) == Claim(number=1, count=3, size_bytes=6)
    assert broker.lease("q", 10) == []
    assert broker.claim("q", "c", epoch=epoch, done=1) == Claim(number=1, count=0, size_bytes=0)
    assert (broker.queue("q").leased, broker.queue("q").waiting) == (0, 0)
    with pytest.raises(ClaimNotFound, match="is over"):
        broker.read_claim("q", "c", claim=1)
    with pytest.raises(ClaimNotFound, match="was not made"):
        broker.read_claim("q", "c", claim=2)


def test_ending_one_claim_makes_the_next_in_one_commit() -> None:
    """What is done is acked and what waits is leased in one turn, under the next number."""
    broker = broker_with()
    epoch = claimed(broker, b"1")
    broker.enqueue("q", b"2")
    before = broker.store.recover().next_sequence
    assert broker.claim("q", "c", epoch=epoch, done=1).number == 2
    pages = [page for page in broker.call(ReadSlice(after=before - 1)).pages if page.records[0].sequence >= before]
    assert [[row["kind"] for row in rows(page)] for page in pages] == [["acked", "claims_ended", "leased"]]
    lease = rows(pages[0])[-1]
    assert (lease["owner"], lease["claim"], "expires_ms" in lease) == ("c", 2, False)


def test_slices_are_places_of_the_claim() -> None:
    """A message that was settled with its own receipt is left out, and the others keep their places."""
    broker = broker_with({"backoff_ms": 0})
    epoch = claimed(broker, b"0", b"1", b"2", b"3")
    deliveries = broker.read_claim("q", "c", claim=1).deliveries
    broker.ack(deliveries[1])
    broker.nack(deliveries[2], intent="dead")
    assert [one.payload for one in broker.read_claim("q", "c", claim=1, start=1, count=2).deliveries] == []
    rest = broker.read_claim("q", "c", claim=1, start=1, count=10)
    assert ([one.payload for one in rest.deliveries], rest.total) == ([b"3"], 4)
    assert broker.read_claim("q", "c", claim=1, start=99).deliveries == []
    (dead,) = broker.lease("q.dlq")
    assert broker.claim("q", "c", epoch=epoch, done=1).count == 0
    broker.ack(dead)
    assert broker.queue("q").leased == 0


def test_a_nacked_message_of_a_claim_is_somebody_elses() -> None:
    """Once it is leased again, the end of the claim does not ack it."""
    broker = broker_with({"backoff_ms": 0})
    epoch = claimed(broker, b"0", b"1")
    deliveries = broker.read_claim("q", "c", claim=1).deliveries
    broker.nack(deliveries[0], delay_ms=0)
    (other,) = broker.lease("q")
    assert broker.claim("q", "c", epoch=epoch, done=1).count == 0
    assert (other.id, broker.queue("q").leased) == (deliveries[0].id, 1)
    broker.ack(other)


def test_a_new_registration_fences_the_old_one() -> None:
    """The new one has the open claim; whoever has an older epoch can't claim, and nothing changes."""
    broker = broker_with()
    old = claimed(broker, b"1")
    view = broker.register_consumer("q", "c")
    assert (view.epoch > old, view.claimed, view.done, view.open_messages) == (True, 1, 0, 1)
    for epoch in (old, view.epoch + 100):
        with pytest.raises(ConsumerFenced):
            broker.claim("q", "c", epoch=epoch, done=1)
    assert broker.claim("q", "c", epoch=view.epoch, done=0) == Claim(number=1, count=1, size_bytes=1)


def test_a_released_consumer_gives_everything_back() -> None:
    """Its messages wait again without a failed attempt, its name is free, and an epoch never comes twice."""
    broker = broker_with()
    old = claimed(broker, b"1", b"2")
    assert broker.release_consumer("q", "c", by="me") == 2
    assert broker.consumers("q") == []
    with pytest.raises(ConsumerNotFound):
        broker.claim("q", "c", epoch=old, done=1)
    with pytest.raises(ConsumerNotFound):
        broker.release_consumer("q", "c")
    assert {(one.failures, one.attempt) for one in broker.lease("q", 2)} == {(0, 2)}
    assert broker.register_consumer("q", "c").epoch > old


def test_claims_keep_to_pauses_caps_and_shares() -> None:
    """A claim takes what a lease would: fair between keys, within caps, nothing of what is paused."""
    broker = broker_with({"caps": {"a": 2}})
    broker.enqueue_many("q", [message(b"%d" % at, fairness_key="ab"[at % 2]) for at in range(8)])
    broker.pause("q", key="b")
    epoch = broker.register_consumer("q", "c").epoch
    assert broker.claim("q", "c", epoch=epoch, done=0).count == 2
    broker.resume("q", key="b")
    assert broker.claim("q", "c", epoch=epoch, done=1, count=3).count == 3
    keys = [one.fairness_key for one in broker.read_claim("q", "c", claim=2).deliveries]
    assert sorted(keys) in (["a", "a", "b"], ["a", "b", "b"])
    broker.pause("q")
    assert broker.claim("q", "c", epoch=epoch, done=2) == Claim(number=2, count=0, size_bytes=0)


def test_size_bytes_ends_a_claim() -> None:
    """A claim ends with the message that reaches the size, and has at least one."""
    broker = broker_with()
    broker.enqueue_many("q", [message(b"x" * 10) for _ in range(5)])
    epoch = broker.register_consumer("q", "c").epoch
    assert broker.claim("q", "c", epoch=epoch, done=0, size_bytes=15) == Claim(number=1, count=2, size_bytes=20)
    assert broker.claim("q", "c", epoch=epoch, done=1, size_bytes=1) == Claim(number=2, count=1, size_bytes=10)


def test_an_idle_consumers_claim_is_given_back() -> None:
    """After idle_ms without a word its messages wait again; a claim or a read is a word, and a reopening too."""
    broker = broker_with()
    epoch = claimed(broker, b"1", idle_ms=1_000)
    broker.advance(900)
    broker.read_claim("q", "c", claim=1)
    broker.advance(900)
    assert broker.claim("q", "c", epoch=epoch, done=0).number == 1
    broker.advance(900)
    broker.reopen()
    broker.advance(900)
    assert broker.queue("q").claimed == 1
    broker.advance(101)
    assert (broker.queue("q").claimed, broker.queue("q").waiting) == (0, 1)
    (view,) = broker.consumers("q")
    assert (view.epoch, view.claimed, view.done, view.idle_ms) == (epoch, 1, 1, 1_000)
    assert broker.claim("q", "c", epoch=epoch, done=0).number == 2


def test_an_extension_leaves_a_claimed_message_as_it_is() -> None:
    """The answer is that it never ends, and nothing is written."""
    broker = broker_with()
    claimed(broker, b"1")
    (delivery,) = broker.read_claim("q", "c", claim=1).deliveries
    before = broker.engine.ledger.next_sequence
    assert broker.extend(delivery, visibility_ms=5) == NEVER_MS
    assert broker.engine.ledger.next_sequence == before
    broker.advance(YEAR_MS)
    assert broker.read_claim("q", "c", claim=1).deliveries == [delivery]


def test_observers_see_who_has_claimed() -> None:
    """explain, get and the queue's view tell of the claim, and a purge leaves it."""
    broker = broker_with()
    claimed(broker, b"1")
    (delivery,) = broker.read_claim("q", "c", claim=1).deliveries
    found = broker.explain("q", delivery.id)
    assert (found.reason, found.owner, found.until_ms) == ("leased", "c", None)
    assert "claimed by consumer c under claim 1" in found.words
    view = broker.get("q", delivery.id)
    assert (view.status, view.owner, view.claim, view.expires_ms) == ("leased", "c", 1, None)
    assert broker.purge("q") == 0
    assert [(one.name, one.open_messages) for one in broker.inspect("q").registered] == [("c", 1)]


def test_a_deleted_queue_takes_its_consumers_along() -> None:
    """A queue of the same name begins without them."""
    broker = broker_with()
    epoch = claimed(broker, b"1")
    broker.delete_queue("q")
    with pytest.raises(QueueNotFound):
        broker.claim("q", "c", epoch=epoch, done=0)
    broker.create_queue("q")
    assert broker.consumers("q") == []
    broker.reopen()


def test_what_makes_no_sense_is_refused() -> None:
    """Names, numbers and counts out of range change nothing."""
    broker = broker_with()
    epoch = claimed(broker, b"1")
    before = broker.engine.ledger.next_sequence
    for ask in (
        lambda: broker.register_consumer("q", ""),
        lambda: broker.register_consumer("q", "x" * 200),
        lambda: broker.register_consumer("q", "c", idle_ms=0),
        lambda: broker.claim("q", "c", epoch=epoch, done=2),
        lambda: broker.claim("q", "c", epoch=epoch, done=-1),
        lambda: broker.claim("q", "c", epoch=epoch, done=0, count=-1),
        lambda: broker.claim("q", "c", epoch=epoch, done=0, size_bytes=0),
        lambda: broker.read_claim("q", "c", claim=1, start=-1),
        lambda: broker.read_claim("q", "c", claim=1, count=0),
    ):
        with pytest.raises(InvalidArgument):
            ask()
    with pytest.raises(QueueNotFound):
        broker.consumers("no")
    with pytest.raises(QueueNotFound):
        broker.register_consumer("no", "c")
    assert broker.engine.ledger.next_sequence == before


def test_consumers_of_a_queue_are_limited() -> None:
    """One more than the limit is refused, and one that is there may register again."""
    broker = broker_with()
    for at in range(CONSUMERS_MAX):
        broker.register_consumer("q", f"c{at}")
    with pytest.raises(InvalidArgument, match="Release one"):
        broker.register_consumer("q", "another")
    broker.register_consumer("q", "c0")


def test_two_claims_in_one_turn_are_one() -> None:
    """A claim that is repeated before the first is answered gets the same one."""
    broker = broker_with()
    broker.enqueue_many("q", [message(b"1"), message(b"2")])
    epoch = broker.register_consumer("q", "c").epoch
    asked = [start_claim(broker, epoch) for _ in range(2)]
    broker.step()
    assert [one.get() for one in asked] == [Claim(number=1, count=2, size_bytes=2)] * 2


def start_claim(broker: SteppedBroker, epoch: int, consumer: str = "c") -> Pending[Claim]:
    """Ask for a claim, without waiting for it."""
    return broker.start(MakeClaim(queue="q", consumer=consumer, epoch=epoch, done=0, count=10))


def test_waiters_go_before_claims_of_the_same_turn() -> None:
    """Whoever waits already is served first, and the claim takes the rest."""
    broker = broker_with()
    epoch = broker.register_consumer("q", "c").epoch
    _, got = broker.attach("q", credit=1)
    asked = start_claim(broker, epoch)
    broker.enqueue_many("q", [message(b"1"), message(b"2")])
    assert ([one.payload for one in got], asked.get().count) == ([b"1"], 1)


def test_a_large_claim_is_one_commit_and_others_wait_their_turn() -> None:
    """Each claim is whole, however little a turn is meant to hold."""
    broker = SteppedBroker(settings=Settings(cycle_events_max=5))
    broker.create_queue("q")
    broker.enqueue_many("q", [NewMessage(payload=b"x") for _ in range(25)])
    epochs = {name: broker.register_consumer("q", name).epoch for name in "ab"}
    asked = [start_claim(broker, epoch, name) for name, epoch in epochs.items()]
    broker.cycle()
    assert [one.done() for one in asked] == [True, False]
    broker.step()
    assert [one.get().count for one in asked] == [10, 10]


def test_a_claim_has_more_than_one_request_may_carry() -> None:
    """It is made and acked in one commit each, read in pages, and beyond its own limit it is refused."""
    broker = broker_with()
    for _ in range(2):
        broker.enqueue_many("q", [NewMessage(payload=b"x")] * BATCH_MAX)
    epoch = broker.register_consumer("q", "c").epoch
    with pytest.raises(InvalidArgument, match=str(CLAIM_MAX)):
        broker.claim("q", "c", epoch=epoch, done=0, count=CLAIM_MAX + 1)
    assert broker.claim("q", "c", epoch=epoch, done=0, count=CLAIM_MAX).count == 2 * BATCH_MAX
    pages = [broker.read_claim("q", "c", claim=1, start=at, count=BATCH_MAX) for at in (0, BATCH_MAX)]
    assert len({one.id for page in pages for one in page.deliveries}) == 2 * BATCH_MAX
    broker.claim("q", "c", epoch=epoch, done=1)
    assert (broker.queue("q").leased, broker.queue("q").waiting) == (0, 0)


def test_a_claim_whose_commit_failed_is_found_by_the_next_call() -> None:
    """The refusal says that nobody knows; asking again gives a claim that is whole, once."""
    store = FaultyStore(random.Random(1))
    broker = SteppedBroker(store)
    broker.create_queue("q")
    broker.enqueue_many("q", [message(b"1"), message(b"2")])
    epoch = broker.register_consumer("q", "c").epoch
    store.faults.arm("after_write")
    with pytest.raises(StoreFailed):
        broker.claim("q", "c", epoch=epoch, done=0)
    broker.advance(2_000)
    assert broker.claim("q", "c", epoch=epoch, done=0) == Claim(number=1, count=2, size_bytes=2)
    assert [one.payload for one in broker.read_claim("q", "c", claim=1).deliveries] == [b"1", b"2"]


def test_moving_the_base_keeps_consumers_and_claims() -> None:
    """Recovery that begins after the registration and the claim knows both."""
    broker = SteppedBroker(carry_floor=1)
    broker.create_queue("q")
    epoch = claimed(broker, b"1", b"2")
    first = broker.read_claim("q", "c", claim=1)
    for at in range(60):
        broker.enqueue("q", b"%d" % at)
        broker.ack(lease_one(broker))
    assert broker.store.recover().base > first.deliveries[-1].token
    broker.reopen()
    assert broker.read_claim("q", "c", claim=1) == first
    (view,) = broker.consumers("q")
    assert (view.epoch, view.claimed, view.open_messages) == (epoch, 1, 2)
    assert broker.claim("q", "c", epoch=epoch, done=1).count == 0


def test_a_dead_letter_queue_has_consumers_too() -> None:
    """Dead letters are claimed like other messages."""
    broker = broker_with()
    broker.enqueue("q", b"1")
    (delivery,) = broker.lease("q")
    broker.nack(delivery, intent="dead")
    epoch = broker.register_consumer("q.dlq", "c").epoch
    assert broker.claim("q.dlq", "c", epoch=epoch, done=0).count == 1
    (dead,) = broker.read_claim("q.dlq", "c", claim=1).deliveries
    assert (dead.dead and dead.dead.reason, dead.queue) == ("requested", "q.dlq")
    assert isinstance(broker.cancel_many("q.dlq", [dead.id])[0], FairlaneError)
