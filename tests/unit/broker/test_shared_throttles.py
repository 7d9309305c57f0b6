"""A throttle that several queues of a broker share is divided among them by weight."""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass, field

import pytest

from fairlane.errors import InvalidArgument
from fairlane.model.message import NewMessage
from fairlane.testing.stepped import Pending, SteppedBroker
from fairlane.verbs.leases import Lease, LeasedMessages
from fairlane.verbs.queues import PurgeQueue

pytestmark = pytest.mark.no_cover


@dataclass
class Worker:
    """A worker with a long poll: it leases, works, acknowledges, and comes back a moment later.

    Attributes:
        work_ms: how long it works on a batch.
        away_ms: how long it takes from an acknowledgement to its next long poll.
    """

    queue: str
    count: int = 1
    work_ms: int = 0
    away_ms: int = 2
    poll: Pending[LeasedMessages] | None = None
    back_ms: int = 0


@dataclass
class Factory:
    """Workers at queues of a broker on virtual time, and how many messages they have got."""

    broker: SteppedBroker
    workers: list[Worker]
    got: Counter[str] = field(default_factory=Counter)

    def run(self, ms: int) -> Counter[str]:
        """Run for a while, from event to event, and return what was got by queue in that time."""
        self.got.clear()
        clock = self.broker.clock
        end_ms = clock.now_ms() + ms
        while clock.now_ms() < end_ms:
            for worker in self.workers:
                self._tend(worker, clock.now_ms())
            self.broker.step()
            next_ms = self.broker.engine.next_event_at()
            events_ms = [worker.back_ms for worker in self.workers if worker.poll is None]
            events_ms += [
                clock.now_ms() + 1 for worker in self.workers if worker.poll is not None and worker.poll.done()
            ]
            events_ms += [] if next_ms is None else [next_ms]
            clock.advance(max(1, min([end_ms, *events_ms]) - clock.now_ms()))
        return self.got

    def _tend(self, worker: Worker, now_ms: int) -> None:
        if worker.poll is not None and worker.poll.done():
            deliveries = worker.poll.get().deliveries
            worker.poll = None
            worker.back_ms = now_ms + worker.away_ms
            if deliveries:
                self.got[worker.queue] += len(deliveries)
                self.broker.ack_many(worker.queue, deliveries)
                worker.back_ms += worker.work_ms
        if worker.poll is None and now_ms >= worker.back_ms:
            worker.poll = self.broker.start(Lease(queue=worker.queue, count=worker.count, wait_ms=20_000))


def broker_with(*queues: str, rate: float = 20, burst: float | None = None, messages: int = 2_000) -> SteppedBroker:
    """Return a broker whose queues have many messages for the throttle ``api``."""
    broker = SteppedBroker()
    broker.set_throttle("api", rate=rate, burst=burst)
    for queue in queues:
        broker.create_queue(queue)
        fill(broker, queue, messages)
    return broker


def fill(broker: SteppedBroker, queue: str, messages: int) -> None:
    """Enqueue messages for the throttle."""
    broker.enqueue_many(queue, [NewMessage(throttles=("api",))] * messages)


@pytest.mark.parametrize("burst", [None, 1, 1.5, 2, 5])
@pytest.mark.parametrize(("at_a", "at_b"), [(3, 3), (1, 6), (6, 1), (1, 1)])
def test_two_queues_get_half_each(at_a: int, at_b: int, burst: float | None) -> None:
    """However many workers each queue has, and whatever the burst, both get 10 of 20 messages a second."""
    broker = broker_with("a", "b", burst=burst)
    factory = Factory(broker, [Worker("a") for _ in range(at_a)] + [Worker("b") for _ in range(at_b)])
    factory.run(2_000)  # the tokens of the start
    got = factory.run(20_000)
    assert sum(got.values()) >= 390
    assert got["a"] == pytest.approx(200, abs=10)
    assert got["b"] == pytest.approx(200, abs=10)


@pytest.mark.parametrize("burst", [None, 1, 2])
def test_weights_divide_the_rate(burst: float | None) -> None:
    """With weights 3 to 1 two queues get 15 and 5 of 20 messages a second, and 10 each again without them."""
    broker = broker_with("a", "b", burst=burst)
    broker.set_config("throttle_weight:a:api", "3")
    factory = Factory(broker, [Worker("a") for _ in range(3)] + [Worker("b") for _ in range(3)])
    factory.run(2_000)
    got = factory.run(20_000)
    assert [got["a"], got["b"]] == [pytest.approx(300, abs=10), pytest.approx(100, abs=10)]
    broker.set_config("throttle_weight:a:api", None)
    factory.run(1_000)
    got = factory.run(20_000)
    assert [got["a"], got["b"]] == [pytest.approx(200, abs=10), pytest.approx(200, abs=10)]


@pytest.mark.parametrize("burst", [None, 1])
def test_a_queue_that_is_alone_gets_the_whole_rate(burst: float | None) -> None:
    """A queue without messages, and one without consumers, leave the whole rate to the queue that can use it."""
    broker = broker_with("a", "b", "empty", burst=burst, messages=1_500)
    broker.call(PurgeQueue(queue="empty"))
    factory = Factory(broker, [Worker("a"), Worker("a"), Worker("empty")])
    factory.run(3_000)
    got = factory.run(20_000)
    assert got["a"] == pytest.approx(400, abs=4)
    factory.workers.append(Worker("b"))  # and when its consumers come, they get their half
    factory.run(2_000)
    got = factory.run(10_000)
    assert [got["a"], got["b"]] == [pytest.approx(100, abs=5), pytest.approx(100, abs=5)]


@pytest.mark.parametrize(("work_ms", "least"), [(101, 190), (150, 125), (330, 57)])
def test_a_busy_worker_gets_what_a_throttle_of_its_own_would_give_it(work_ms: int, least: int) -> None:
    """A single worker that comes back a moment after its token finds the token still there."""
    broker = broker_with("a", "b")
    factory = Factory(broker, [Worker("a", work_ms=work_ms), *[Worker("b") for _ in range(6)]])
    factory.run(2_000)
    got = factory.run(20_000)
    assert got["a"] >= least
    assert sum(got.values()) >= 395


def test_three_queues_with_batches_and_different_workers() -> None:
    """Weights 1, 2 and 3 hold with long polls for ten messages at a time, and with workers that work."""
    broker = broker_with("a", "b", "c", rate=120, messages=3_000)
    for queue, weight in (("b", "2"), ("c", "3")):
        broker.set_config(f"throttle_weight:{queue}:api", weight)
    workers = [Worker("a", count=10), Worker("b", count=10, work_ms=30), Worker("b", count=10, work_ms=30)]
    factory = Factory(broker, [*workers, *[Worker("c", count=10, work_ms=7) for _ in range(4)]])
    factory.run(2_000)
    got = factory.run(20_000)
    assert [got[queue] for queue in "abc"] == [
        pytest.approx(400, abs=12),
        pytest.approx(800, abs=12),
        pytest.approx(1_200, abs=12),
    ]


def test_streams_with_credit_share_with_long_polls() -> None:
    """A stream that would take any number of messages gets no more than its half beside one long poll."""
    broker = broker_with("a", "b")
    _, streamed = broker.attach("a", credit=10_000)
    factory = Factory(broker, [Worker("b")])
    factory.run(2_000)
    before = len(streamed)
    got = factory.run(20_000)
    assert len(streamed) - before == pytest.approx(200, abs=10)
    assert got["b"] == pytest.approx(200, abs=10)


def test_keys_caps_and_priorities_within_a_queue_stay_what_they_were() -> None:
    """Within its half of the rate, a queue serves its keys by weight, its paths level by level, up to their caps."""
    broker = SteppedBroker()
    broker.set_throttle("api", rate=20)
    for queue in ("a", "b"):
        broker.create_queue(queue)
    broker.set_config("weight:a:gold", "3")
    broker.set_config("cap:a:none", "0")
    for _ in range(600):
        broker.enqueue("b", b"", throttles=("api",))
        broker.enqueue("a", b"gold", fairness_key="gold", throttles=("api",))
        for name in ("x", "y"):
            broker.enqueue("a", name.encode(), fairness_key=("iron", name), throttles=("api",), priority="high")
        broker.enqueue("a", b"none", fairness_key="none", throttles=("api",))
    seen: Counter[bytes] = Counter()
    broker.engine.hand_out_taps.append(
        lambda queue, messages: seen.update(str(m.key).encode() for m in messages if queue == "a")
    )
    factory = Factory(broker, [Worker("a") for _ in range(5)] + [Worker("b") for _ in range(2)])
    factory.run(2_000)
    seen.clear()
    got = factory.run(20_000)
    assert got["a"] == pytest.approx(200, abs=10)
    assert seen[b"gold"] == pytest.approx(150, abs=10)
    assert seen[b"('iron', 'x')"] == pytest.approx(25, abs=5)
    assert seen[b"none"] == 0


def test_a_queue_whose_messages_need_two_throttles() -> None:
    """Messages that need a token of each of two shared throttles get as many as the scarcer one gives their queue."""
    broker = SteppedBroker()
    broker.set_throttle("api", rate=20)
    broker.set_throttle("db", rate=8)
    for queue, throttles in (("both", ("api", "db")), ("api", ("api",)), ("db", ("db",))):
        broker.create_queue(queue)
        broker.enqueue_many(queue, [NewMessage(throttles=throttles)] * 1_000)
    factory = Factory(broker, [Worker(queue) for queue in ("both", "api", "db") for _ in range(3)])
    factory.run(3_000)
    got = factory.run(20_000)
    assert got["both"] == pytest.approx(80, abs=5)
    assert got["db"] == pytest.approx(80, abs=5)
    assert got["api"] == pytest.approx(320, abs=12)


def test_an_explanation_tells_that_a_throttle_is_shared() -> None:
    """A message that waits for its queue's part of a throttle says so, with the part."""
    broker = broker_with("a", "b", rate=1, burst=4, messages=10)
    broker.set_config("throttle_weight:b:api", "3")
    while broker.lease("a", 10):
        pass
    waiting = broker.peek("a", 10)[-1]
    told = broker.explain("a", waiting.id)
    assert (told.reason, told.throttle, told.share) == ("throttled", "api", 0.25)
    assert told.words.endswith("Other queues share it; this one gets 25% of it.")
    broker.call(PurgeQueue(queue="b"))
    assert broker.explain("a", waiting.id).share is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("throttle_weight:a:api", "0"),
        ("throttle_weight:a:api", "x"),
        ("throttle_weight:a:", "2"),
        ("throttle_weight:a", "2"),
    ],
)
def test_a_weight_that_makes_no_sense_is_refused(key: str, value: str) -> None:
    """A weight in a throttle is a whole number from 1 to 1,000 under a name with queue and throttle."""
    with pytest.raises(InvalidArgument, match="throttle_weight"):
        SteppedBroker().set_config(key, value)


def test_weights_survive_a_restart() -> None:
    """A broker that is opened again divides by the same weights."""
    broker = broker_with("a", "b")
    broker.set_config("throttle_weight:a:api", "3")
    broker.reopen()
    factory = Factory(broker, [Worker("a") for _ in range(3)] + [Worker("b") for _ in range(3)])
    factory.run(2_000)
    got = factory.run(20_000)
    assert [got["a"], got["b"]] == [pytest.approx(300, abs=10), pytest.approx(100, abs=10)]


@pytest.mark.parametrize("others", [1, 2])
def test_tokens_of_a_queue_that_is_purged_go_to_waiting_consumers_at_once(others: int) -> None:
    """A consumer does not wait for the next token while tokens lie in the bucket that nobody else can use."""
    broker = broker_with("a", *"bc"[:others], rate=0.001, burst=6, messages=10)
    broker.clock.advance(10_000_000)
    got = broker.call(Lease(queue="a", count=10)).deliveries
    poll = broker.start(Lease(queue="a", count=10, wait_ms=20_000))
    broker.step()
    assert 0 < len(got) < 6
    assert not poll.done()
    for queue in "bc"[:others]:
        broker.call(PurgeQueue(queue=queue))
    broker.step()
    assert poll.done()
    assert poll.get().deliveries


def test_tokens_of_a_queue_whose_last_message_is_leased_go_to_waiting_consumers_at_once() -> None:
    """A queue that gets tokens only after it was served in a cycle is served again."""
    broker = broker_with("a", rate=0.001, burst=6, messages=10)
    broker.create_queue("b")
    fill(broker, "b", 1)
    broker.clock.advance(10_000_000)
    broker.call(Lease(queue="a", count=10))
    poll = broker.start(Lease(queue="a", count=10, wait_ms=20_000))
    broker.step()
    assert not poll.done()
    assert len(broker.call(Lease(queue="b", count=10)).deliveries) == 1
    broker.step()
    assert poll.done()
    assert poll.get().deliveries


def test_a_queue_that_is_gone_leaves_its_throttles_at_once() -> None:
    """Python may collect its scheduler later: the others divide their throttle, and share their moves, without it."""
    gc.disable()
    try:
        broker = broker_with("first", "second", messages=10)
        schedule = broker.engine.schedule
        broker.delete_queue("first")
        assert schedule.throttles.divided == 0
        broker.create_queue("third")
        fill(broker, "third", 10)
        assert schedule.throttles.divided == 1
        assert schedule._known["second"].moves is schedule._known["third"].moves
        for queue in ("second", "third"):
            broker.delete_queue(queue)
        broker.set_throttle("api", rate=None)
        assert "api" not in schedule.throttles._buckets
    finally:
        gc.enable()
