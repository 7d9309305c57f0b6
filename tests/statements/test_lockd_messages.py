"""lockd's queue: delivery, leases, state, correlation ids, as the broker sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.adapters.memory.store import MemoryStore
from fairlane.assembly import open_broker
from fairlane.broker.settings import Settings
from fairlane.errors import (
    InvalidArgument,
    LeaseMismatch,
    MessageNotFound,
    QueueNotFound,
    StateMismatch,
    StoreFailed,
    TooManyWaiters,
)
from fairlane.model.message import Receipt
from fairlane.ports.store import Commit
from fairlane.verbs.leases import Ack
from tests.unit.broker.brokers import MoodyStore
from tests.unit.broker.stepping import broker_with, bury, codes, lease_one, message, payloads, start_lease


def test_204_delivery_is_at_least_once() -> None:
    """A message that is not acknowledged is delivered again."""
    broker = broker_with({"visibility_timeout_ms": 100})
    broker.enqueue("q", b"x")
    lease_one(broker)
    broker.advance(100)
    assert lease_one(broker).attempt == 2


def test_206_a_payload_may_be_empty() -> None:
    """A message may have an empty payload."""
    broker = broker_with()
    broker.enqueue("q", b"")
    assert lease_one(broker).payload == b""


def test_213_waiting_blocks_on_no_storage() -> None:
    """A consumer that waits costs the store nothing: it is served by the dispatcher."""
    broker = broker_with()
    waiter = start_lease(broker)
    before = broker.read_journal().events
    broker.advance(10_000)
    assert broker.read_journal().events == before
    broker.enqueue("q", b"x")
    assert waiter.done()


def test_214_a_message_goes_to_one_waiter() -> None:
    """Of 30 consumers that wait, 20 messages reach 20."""
    broker = broker_with()
    waiters = [start_lease(broker) for _ in range(30)]
    broker.enqueue_many("q", [message(b"%d" % n) for n in range(20)])
    got = [payloads(waiter.get())[0] for waiter in waiters if waiter.done()]
    assert len(got) == len(set(got)) == 20


def test_215_waiters_are_first_come_first_served() -> None:
    """Consumers that wait are served in the order in which they came."""
    broker = broker_with()
    waiters = [start_lease(broker) for _ in range(5)]
    for number in range(5):
        broker.enqueue("q", b"%d" % number)
    assert [payloads(waiter.get()) for waiter in waiters] == [[b"%d" % number] for number in range(5)]


class Listed(MemoryStore):
    """A store that remembers its commits."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[Commit] = []

    def write(self, commit: Commit) -> None:
        self.commits.append(commit)
        super().write(commit)


def test_217_the_layout_of_objects() -> None:
    """A store keeps the pages of a journal and chunks of bodies, instead of an object for each message."""
    store = Listed()
    broker = broker_with(store=store)
    store.commits.clear()
    broker.enqueue_many("q", [message(b"%d" % number) for number in range(200)])
    broker.ack_many("q", broker.lease("q", 200))
    enqueued, leased, acked = store.commits
    assert all(commit.page for commit in store.commits)
    assert (len(enqueued.bodies), len(leased.bodies), len(acked.bodies)) == (1, 0, 0)
    assert list(acked.dropped) == [number for number, _ in enqueued.bodies]


def test_218_one_writer_and_fencing_instead_of_cas() -> None:
    """One writer and fencing tokens replace compare-and-set on metadata: a repeated ack changes nothing."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    assert codes([broker.call(Ack(queue="q", receipts=[Receipt(delivery.id, delivery.token)])).results[0].error]) == [
        None
    ]
    with pytest.raises(MessageNotFound):
        broker.ack(delivery)


def test_224_not_visible_until() -> None:
    """`delay_ms` hides a message until it is due, and `explain` says so."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"x", delay_ms=500)
    assert (broker.lease("q"), broker.explain("q", message_id).reason) == ([], "not_due")
    broker.advance(500)
    assert lease_one(broker).id == message_id


def test_225_a_number_of_attempts() -> None:
    """A message is retried until it has failed `max_attempts` times."""
    broker = broker_with({"max_attempts": 2})
    broker.enqueue("q", b"x")
    for _ in range(2):
        broker.nack(lease_one(broker), delay_ms=0)
    assert broker.queue("q.dlq").waiting == 1


def test_226_attempts_and_visibility_of_a_message() -> None:
    """A message can have its own `max_attempts` and `visibility_timeout_ms`."""
    broker = broker_with()
    broker.enqueue("q", b"x", max_attempts=1, visibility_timeout_ms=500)
    delivery = lease_one(broker)
    assert delivery.expires_ms == broker.clock.now_ms() + 500
    broker.nack(delivery)
    assert broker.queue("q.dlq").waiting == 1


def test_227_a_time_to_live() -> None:
    """A message or a queue can have a deadline, after which a message is dropped or dead-lettered."""
    broker = broker_with({"deadline_ms": 1_000})
    broker.create_queue("r", {"deadline_action": "dlq"})
    broker.enqueue("q", b"x")
    broker.enqueue("r", b"x", deadline_ms=1_000)
    broker.advance(1_001)
    assert (broker.queue("q").waiting, broker.queue("r").waiting, broker.queue("r.dlq").waiting) == (0, 0, 1)


def test_228_a_retry_past_its_time_to_live() -> None:
    """A message that is returned after its deadline is not delivered again."""
    broker = broker_with()
    broker.enqueue("q", b"x", deadline_ms=1_000)
    delivery = lease_one(broker)
    broker.advance(1_001)
    broker.nack(delivery, delay_ms=0)
    assert broker.lease("q") == []


def test_229_attempts_grow() -> None:
    """The number of attempts grows with each delivery."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    attempts = []
    for _ in range(3):
        delivery = lease_one(broker)
        attempts.append(delivery.attempt)
        broker.nack(delivery, intent="defer", delay_ms=0)
    assert attempts == [1, 2, 3]


def test_230_the_visibility_of_one_dequeue() -> None:
    """A dequeue can ask for its own visibility timeout."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    assert lease_one(broker, visibility_ms=77).expires_ms == broker.clock.now_ms() + 77


def test_231_the_owner_of_a_dequeue() -> None:
    """A dequeue can name its owner, whom `peek` shows."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    lease_one(broker, owner="me")
    assert broker.peek("q")[0].owner == "me"


def test_235_extend() -> None:
    """`extend` renews a lease from now, for a longer or a shorter time."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    broker.advance(10)
    assert broker.extend(delivery, visibility_ms=5) == broker.clock.now_ms() + 5
    assert broker.extend(delivery, visibility_ms=60_000) == broker.clock.now_ms() + 60_000


def test_236_leases_are_fenced() -> None:
    """Ack, nack and extend need the token of the current lease."""
    broker = broker_with({"visibility_timeout_ms": 100})
    broker.enqueue("q", b"x")
    stale = lease_one(broker)
    broker.advance(100)
    lease_one(broker)
    for call in (broker.ack, broker.nack, broker.extend):
        with pytest.raises(LeaseMismatch):
            call(stale)


def test_238_a_second_ack() -> None:
    """A second ack says that the message no longer exists."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    broker.ack(delivery)
    with pytest.raises(MessageNotFound):
        broker.ack(delivery)


def test_239_a_nack_has_a_delay_and_an_error() -> None:
    """A nack can have a delay and an error, which the next delivery shows."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    broker.nack(lease_one(broker), delay_ms=250, error="busy")
    broker.advance(249)
    assert broker.lease("q") == []
    broker.advance(1)
    assert lease_one(broker).errors[0].error == "busy"


def test_240_a_nack_without_delay_wakes_waiters() -> None:
    """A nack without a delay gives the message to a consumer that waits, at once."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    waiter = start_lease(broker)
    broker.nack(delivery)
    assert waiter.done()


def test_241_an_ack_wakes_waiters() -> None:
    """An ack that makes room under a cap wakes a consumer that waits."""
    broker = broker_with({"caps": {"a": 1}})
    broker.enqueue_many("q", [message(fairness_key="a")] * 2)
    delivery = lease_one(broker)
    waiter = start_lease(broker)
    assert not waiter.done()
    broker.ack(delivery)
    assert waiter.done()


def test_242_an_enqueue_wakes_waiters() -> None:
    """An enqueue wakes a consumer that waits."""
    broker = broker_with()
    waiter = start_lease(broker)
    broker.enqueue("q", b"x")
    assert waiter.done()


def test_243_dead_letters_keep_their_payload() -> None:
    """A dead letter keeps its payload and headers."""
    broker = broker_with()
    message_id = bury(broker, b"body", headers={"a": "b"})
    view = broker.get("q.dlq", message_id)
    assert (view.payload, view.headers) == (b"body", {"a": "b"})


def test_244_dead_letters_keep_their_state() -> None:
    """A dead letter keeps its workflow state, at the same version."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    etag = broker.set_state(delivery, b"state", etag=None)
    broker.nack(delivery, intent="dead")
    assert broker.get_state("q.dlq", delivery.id) == (b"state", etag)


def test_245_state_begins_empty() -> None:
    """A message has no state until the first write, instead of an empty one."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    delivery = lease_one(broker, with_state=True)
    assert (delivery.state, delivery.state_etag) == (None, None)


def test_246_state_is_compared_and_set() -> None:
    """State is written only if its version is the expected one."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    etag = broker.set_state(delivery, b"1", etag=None)
    with pytest.raises(StateMismatch):
        broker.set_state(delivery, b"2", etag=None)
    assert broker.set_state(delivery, b"2", etag=etag) != etag


def test_247_the_lease_guards_the_state() -> None:
    """The lease of the message guards its state; there is no second lease."""
    broker = broker_with({"visibility_timeout_ms": 100})
    broker.enqueue("q", b"x")
    stale = lease_one(broker)
    broker.advance(100)
    with pytest.raises(LeaseMismatch):
        broker.set_state(stale, b"late", etag=None)


def test_248_state_survives() -> None:
    """State survives a nack, the dead letters and a redrive."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    broker.set_state(delivery, b"state", etag=None)
    broker.nack(delivery, delay_ms=0)
    broker.nack(lease_one(broker), intent="dead")
    broker.redrive("q.dlq")
    broker.advance(1_000)
    assert lease_one(broker, with_state=True).state == b"state"


def test_249_state_goes_with_the_ack() -> None:
    """An ack deletes the state with the message."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    broker.set_state(delivery, b"state", etag=None)
    broker.ack(delivery)
    with pytest.raises(MessageNotFound):
        broker.get_state("q", delivery.id)


def test_250_state_is_bounded() -> None:
    """State is at most 1 MiB: it is for progress, and payloads are for data."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    etag = broker.set_state(delivery, bytes(1 << 20), etag=None)
    with pytest.raises(InvalidArgument):
        broker.set_state(delivery, bytes((1 << 20) + 1), etag=etag)


def test_251_every_message_has_a_correlation_id() -> None:
    """Every message has a correlation id; by default it is the message's id."""
    broker = broker_with()
    message_id = broker.enqueue("q", b"x")
    assert lease_one(broker).correlation_id == message_id


def test_259_dead_letters_keep_their_correlation_id() -> None:
    """A dead letter keeps its correlation id, through a redrive, too."""
    broker = broker_with()
    message_id = bury(broker, correlation_id="corr")
    assert broker.get("q.dlq", message_id).correlation_id == "corr"
    broker.redrive("q.dlq")
    broker.advance(1_000)
    assert lease_one(broker).correlation_id == "corr"


def test_262_consumers_are_limited() -> None:
    """`waiters_max` limits how many consumers may wait at once; the next one is refused."""
    broker = broker_with(settings=Settings(waiters_max=2))
    for _ in range(2):
        start_lease(broker)
    with pytest.raises(TooManyWaiters):
        start_lease(broker).get()


def test_263_the_default_number_of_consumers() -> None:
    """By default 4,096 consumers may wait, whatever the number of processors."""
    assert Settings().waiters_max == 4_096


def test_216_queues_can_be_created_by_their_first_message() -> None:
    """A queue must exist, unless a template lets the first message create it."""
    broker = broker_with()
    with pytest.raises(QueueNotFound):
        broker.enqueue("missing", b"x")
    broker.set_queue_template("miss*", auto_create=True)
    broker.enqueue("missing", b"x")
    assert broker.queue("missing").waiting == 1


def test_269_a_store_in_memory() -> None:
    """A store in memory serves tests and work that may be lost."""
    broker = broker_with()
    broker.enqueue("q", b"x")
    assert lease_one(broker).payload == b"x"


def test_270_a_store_on_disk(tmp_path: Path) -> None:
    """A folder is a store on disk: what was enqueued is there when it is opened again."""
    for kind in ("log", "rocksdb"):
        address = f"{kind}:{tmp_path / kind}"
        with open_broker(address) as broker:
            broker.create_queue("q")
            broker.enqueue("q", b"x")
        with open_broker(address) as broker:
            assert payloads(broker.lease("q")) == [b"x"]


def test_297_an_ack_can_be_repeated_after_a_failure() -> None:
    """An ack that meets a failing store says so, and the message is delivered again until an ack succeeds."""
    store = MoodyStore()
    broker = broker_with(store=store)
    broker.enqueue("q", b"x")
    delivery = lease_one(broker)
    store.at_write = StoreFailed("No.")
    with pytest.raises(StoreFailed):
        broker.ack(delivery)
    broker.advance(60_000)
    broker.ack(lease_one(broker))
    assert broker.queue("q").leased == 0


def test_298_policies_of_queues() -> None:
    """Each queue has a policy, which changes live; lockd plans one."""
    broker = broker_with()
    broker.create_queue("other")
    broker.enqueue("q", b"x")
    broker.update_queue("q", {"max_attempts": 1})
    assert (broker.queue("q").policy.max_attempts, broker.queue("other").policy.max_attempts) == (1, 5)
    broker.nack(lease_one(broker))
    assert broker.queue("q.dlq").waiting == 1
