"""Requests that wait for script time: bounded work per cycle, order, atomicity, and what ends a wait.

A script of these hooks takes 2 ms for each message by a clock of its own, and a cycle gives each queue 5 ms. So a cycle
asks about three messages of a queue.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from fairlane.adapters.memory.store import MemoryStore
from fairlane.broker.requests import Attach
from fairlane.broker.settings import Settings
from fairlane.errors import Closed, FairlaneError, QueueNotFound, StoreFailed
from fairlane.model.message import NewMessage, Receipt
from fairlane.ports.store import Commit
from fairlane.testing.stepped import Pending, SteppedBroker
from fairlane.verbs.batches import Publish, Stage
from fairlane.verbs.config import TryHook
from fairlane.verbs.dead_letters import Redrive
from fairlane.verbs.leases import Ack, Forward, Nack
from fairlane.verbs.messages import Enqueue
from fairlane.verbs.queues import CreateQueue, DeleteQueue, UpdateQueue
from tests.kit.simulation.hooks import ON_ENQUEUE, ON_FAILURE, SimulatedHooks
from tests.unit.broker.stepping import lease_one, message

APP = {"device": "app", "tenant": "acme"}


def slow_broker(**opened: Any) -> SteppedBroker:
    """Return a broker with a queue ``slow`` whose script is slow, and a queue ``other`` without one."""
    broker = SteppedBroker(hooks=SimulatedHooks(), **opened)
    broker.create_queue("slow", {"on_enqueue": ON_ENQUEUE})
    broker.create_queue("other")
    return broker


def start(broker: SteppedBroker, queue: str, payloads: Sequence[bytes], **terms: Any) -> Pending[Any]:
    news = [NewMessage(payload=payload, headers=APP) for payload in payloads]
    return broker.start(Enqueue(queue=queue, messages=news, **terms))


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def payloads_of(broker: SteppedBroker, queue: str) -> list[bytes]:
    return [view.payload for view in broker.peek(queue, 100, with_body=True) if view.payload is not None]


def test_an_enqueue_with_a_slow_script_takes_several_cycles_and_is_answered_as_a_whole() -> None:
    """Ten messages take four cycles of three. Until then nothing is in the queue, then all of it, in order."""
    broker = slow_broker()
    pending = start(broker, "slow", numbered(10))
    for _ in range(3):
        broker.cycle()
        assert not pending.done()
        assert not broker.engine.ledger.queues["slow"].messages
        assert broker.engine.has_requests()
    broker.cycle()
    assert pending.done()
    assert [result.error for result in pending.get().results] == [None] * 10
    assert payloads_of(broker, "slow") == numbered(10)
    assert {view.fairness_key for view in broker.peek("slow", 10)} == {("apps", "acme")}
    assert not broker.engine.has_requests()


def test_other_queues_proceed_meanwhile() -> None:
    """A request for another queue that comes later is answered in the next cycle."""
    broker = slow_broker()
    slow = start(broker, "slow", numbered(100))
    broker.cycle()
    other = start(broker, "other", [b"x"])
    broker.cycle()
    assert other.done()
    assert not slow.done()


def test_all_queues_together_have_a_bounded_time_in_a_cycle() -> None:
    """With 10 ms for a cycle and 5 ms for a queue, two of three slow queues go on in each, and each has its turn."""
    broker = slow_broker()
    for name in ("b", "c"):
        broker.create_queue(name, {"on_enqueue": ON_ENQUEUE})
    hooks = broker.engine.hooks
    pending = [start(broker, queue, numbered(9)) for queue in ("slow", "b", "c")]
    cycles = 0
    while not all(each.done() for each in pending):
        before_ns = hooks.spent_ns
        broker.cycle()
        assert hooks.spent_ns - before_ns <= 12_000_000  # the last message of a queue may exceed its time
        cycles += 1
    assert cycles <= 6


def test_a_later_enqueue_to_the_same_queue_does_not_overtake() -> None:
    """Not even if the script was removed meanwhile, so that the later one needs none."""
    broker = slow_broker()
    first = start(broker, "slow", numbered(10))
    broker.cycle()
    broker.start(UpdateQueue(queue="slow", policy={"on_enqueue": None}))
    second = start(broker, "slow", numbered(2, first=10))
    broker.step()
    assert first.done()
    assert second.done()
    assert payloads_of(broker, "slow") == numbered(12)


def test_all_answers_for_a_request_come_from_one_script() -> None:
    """A request that waits when the script is removed is decided without any of its answers."""
    broker = slow_broker()
    start(broker, "slow", numbered(10))
    broker.cycle()
    broker.update_queue("slow", {"on_enqueue": None})
    assert {view.fairness_key for view in broker.peek("slow", 10)} == {"default"}


def test_a_repeated_enqueue_behind_one_that_waits_finds_its_dedup_id() -> None:
    """The second is decided after the first, and answered with the id of the same message."""
    broker = slow_broker()
    news = [NewMessage(payload=b"x", headers=APP, dedup_id=f"d{number}") for number in range(8)]
    first = broker.start(Enqueue(queue="slow", messages=news))
    broker.cycle()
    second = broker.start(Enqueue(queue="slow", messages=news))
    broker.step()
    assert [result.id for result in first.get().results] == [result.id for result in second.get().results]
    assert len(broker.peek("slow", 100)) == 8


def test_a_caller_that_gives_up_leaves_nothing() -> None:
    """A request that waits is dropped when its caller is gone, and the one behind it goes on."""
    broker = slow_broker()
    first, second = start(broker, "slow", numbered(10)), start(broker, "slow", [b"second"])
    broker.cycle()
    first.cancel()
    broker.step()
    assert second.done()
    assert payloads_of(broker, "slow") == [b"second"]
    assert not broker.engine.has_requests()


def test_the_patience_of_a_producer_counts_from_when_it_came() -> None:
    """A full queue with backpressure ``wait``: the time in which scripts ran is part of ``wait_ms``."""
    broker = slow_broker()
    broker.update_queue("slow", {"waiting_max": 1, "backpressure": "wait"})
    pending = start(broker, "slow", numbered(4), wait_ms=1_000)
    broker.cycle()
    broker.clock.advance(400)
    broker.step()
    assert not pending.done()
    broker.advance(599)
    assert not pending.done()
    broker.advance(1)
    assert [result.error is None for result in pending.get().results] == [True, False, False, False]


class BrokenStore(MemoryStore):
    """A store whose next write fails if a test says so."""

    fails = False

    def write(self, commit: Commit) -> None:
        """Fail, or write."""
        if self.fails:
            self.fails = False
            raise StoreFailed("the disk is gone")
        super().write(commit)


def test_a_store_that_fails_meanwhile_refuses_only_what_it_was_asked_to_keep() -> None:
    """The request that waits goes on after recovery, and all of its messages are enqueued once."""
    store = BrokenStore()
    broker = slow_broker(store=store)
    waiting = start(broker, "slow", numbered(10))
    broker.cycle()
    lost = start(broker, "other", [b"lost"])
    store.fails = True
    broker.cycle()
    with pytest.raises(StoreFailed):
        lost.get()
    broker.wait(waiting)
    assert payloads_of(broker, "slow") == numbered(10)


def test_a_store_that_fails_with_the_decision_refuses_the_request() -> None:
    """The cycle in which a request is decided is the one that it depends on."""
    store = BrokenStore()
    broker = slow_broker(store=store)
    pending = start(broker, "slow", numbered(4))
    broker.cycle()
    store.fails = True
    broker.cycle()
    with pytest.raises(StoreFailed):
        pending.get()
    broker.advance(1_000)
    assert payloads_of(broker, "slow") == []


def test_a_queue_whose_creation_failed_is_created_again_for_what_waits() -> None:
    """The cycle that created the queue of a template fails while the script is asked; the request creates it again."""
    store = BrokenStore()
    broker = slow_broker(store=store)
    broker.set_config("queue_template:new*", json.dumps({"auto_create": True, "policy": {"on_enqueue": ON_ENQUEUE}}))
    waiting = start(broker, "new", numbered(10))
    store.fails = True
    broker.cycle()
    broker.wait(waiting)
    assert payloads_of(broker, "new") == numbered(10)


def test_closing_refuses_what_waits() -> None:
    """Nothing of it has been done, so it is refused as such."""
    broker = slow_broker()
    pending = start(broker, "slow", numbered(10))
    broker.cycle()
    broker.close()
    with pytest.raises(Closed):
        pending.get()


def test_handing_the_store_over_refuses_what_waits() -> None:
    """The caller repeats the request where the queue is next."""
    broker = slow_broker()
    pending = start(broker, "slow", numbered(10))
    broker.cycle()
    broker.engine.send_away(QueueNotFound("moved"))
    with pytest.raises(QueueNotFound):
        pending.get()
    assert not broker.engine.has_requests()


def test_a_queue_that_is_deleted_meanwhile_refuses_what_waits() -> None:
    """The request is decided as what it is: an enqueue to a queue that does not exist."""
    broker = slow_broker()
    pending = start(broker, "slow", numbered(10))
    broker.cycle()
    broker.delete_queue("slow")
    with pytest.raises(QueueNotFound):
        broker.wait(pending)


def test_a_part_that_is_staged_waits_for_its_script() -> None:
    """It is staged as a whole, and published with the keys that the script gave it."""
    broker = slow_broker()
    news = [message(payload, headers=APP) for payload in numbered(7)]
    staged = broker.start(Stage(queue="slow", sink="s", batch=1, part="p", at=0, messages=news))
    broker.cycle()
    assert not staged.done()
    assert broker.wait(staged).count == 7
    broker.call(Publish(queue="slow", sink="s", batch=1, parts=["p"]))
    assert {view.fairness_key for view in broker.peek("slow", 10)} == {("apps", "acme")}


def test_a_forward_waits_for_the_scripts_of_all_its_queues() -> None:
    """It is done as a whole, and stays behind what waits for the same queue."""
    broker = slow_broker()
    broker.enqueue("other", b"job")
    job = lease_one(broker, "other")
    before = start(broker, "slow", numbered(5))
    news = {"slow": [message(payload, headers=APP) for payload in numbered(5, first=5)], "other": [message(b"note")]}
    forwarded = broker.start(Forward(queue="other", receipt=Receipt(job.id, job.token), messages=news))
    broker.cycle()
    after = start(broker, "other", [b"after"])
    broker.step()
    assert len(forwarded.get().ids) == 6
    assert before.done()
    assert after.done()
    assert payloads_of(broker, "slow") == numbered(10)
    assert payloads_of(broker, "other") == [b"note", b"after"]


def failing_broker(count: int) -> tuple[SteppedBroker, list[Receipt]]:
    """Return a broker whose ``on_failure`` is slow, with leased messages whose next failure it makes dead letters."""
    broker = SteppedBroker(hooks=SimulatedHooks())
    broker.create_queue("q", {"on_failure": ON_FAILURE, "backoff_ms": 0})
    broker.enqueue_many("q", [message(headers={"cost": "7"}) for _ in range(count)])
    for delivery in broker.lease("q", count):
        broker.nack(delivery)
    return broker, [Receipt(delivery.id, delivery.token) for delivery in broker.lease("q", count)]


def test_failed_attempts_wait_for_their_script() -> None:
    """Ten failures take four cycles, and other requests are answered meanwhile."""
    broker, receipts = failing_broker(10)
    nacked = broker.start(Nack(queue="q", receipts=receipts))
    broker.cycle()
    assert not nacked.done()
    broker.create_queue("r")
    assert [result.error for result in broker.wait(nacked).results] == [None] * 10
    assert len(broker.peek("q.dlq", 100)) == 10


def test_leases_that_end_together_wait_for_their_script() -> None:
    """Of ten leases that end at once a cycle asks about three, and later cycles deal with the others."""
    broker, receipts = failing_broker(10)
    hooks = broker.engine.hooks
    broker.clock.advance(30_000)
    before_ns = hooks.spent_ns
    broker.cycle()
    assert hooks.spent_ns - before_ns <= 6_000_000
    broker.step()
    assert len(broker.peek("q.dlq", 100)) == len(receipts)


def test_a_redrive_moves_as_many_as_the_script_has_time_for() -> None:
    """The others move with later steps, and none is lost."""
    broker = slow_broker()
    broker.update_queue("slow", {"max_attempts": 1})
    broker.enqueue_many("slow", [message(headers=APP) for _ in range(10)])
    for delivery in broker.lease("slow", 10):
        broker.nack(delivery)
    broker.start(Redrive(queue="slow.dlq"))
    hooks = broker.engine.hooks
    for _ in range(8):
        before_ns = hooks.spent_ns
        broker.cycle()
        assert hooks.spent_ns - before_ns <= 6_000_000
    assert len(broker.peek("slow", 100)) == 10


def test_many_trials_and_changes_of_scripts_share_the_time_of_a_cycle() -> None:
    """Compiling and trying scripts counts: of many such requests a cycle does a few, in order."""

    class SlowToCompile(SimulatedHooks):
        """Hooks that take 2 ms to check or try a script."""

        def check(self, **scripts: Any) -> str | None:
            self.spent_ns += 2_000_000
            return super().check(**scripts)

        def try_on_enqueue(self, queue: str, script: str, question: Any) -> Any:
            self.spent_ns += 2_000_000
            return super().try_on_enqueue(queue, script, question)

    broker = SteppedBroker(hooks=SlowToCompile())
    broker.create_queue("q")
    trials = [broker.start(TryHook(queue="q", hook="on_enqueue", script="")) for _ in range(20)]
    requests = [CreateQueue(queue=f"q{number}", policy={"on_enqueue": ON_ENQUEUE}) for number in range(20)]
    created = [broker.start(request) for request in requests]
    enqueued = start(broker, "q19", [b"x"])
    broker.cycle()
    assert sum(each.done() for each in trials) + sum(each.done() for each in created) == 5
    assert not enqueued.done()
    broker.step()
    assert all(each.done() for each in trials)
    assert all(each.done() for each in created)
    assert broker.peek("q19")[0].fairness_key == ("apps", "acme")


def test_the_time_of_a_cycle_can_be_set() -> None:
    """With more time a cycle asks about more messages."""
    broker = slow_broker(settings=Settings(hook_queue_ms_max=100, hook_cycle_ms_max=100))
    pending = start(broker, "slow", numbered(50))
    broker.cycle()
    assert pending.done()


def test_a_request_that_is_refused_anyway_waits_for_no_script() -> None:
    """Invalid messages are not asked about, and their errors come with the others."""
    broker = slow_broker()
    news = [NewMessage(payload=b"x", headers=APP, cost=0), NewMessage(payload=b"y", headers=APP)]
    results = broker.wait(broker.start(Enqueue(queue="slow", messages=news))).results
    assert [result.error is None for result in results] == [False, True]
    assert not isinstance(results[1].error, FairlaneError)


def test_a_consumer_has_left_when_its_messages_are_back() -> None:
    """Its attempts are lost, and the script has to be asked about each before the call is answered."""
    broker, receipts = failing_broker(10)
    broker.call(Nack(queue="q", receipts=receipts, intent="defer", delay_ms=0))
    consumer, got = broker.attach("q", credit=10)
    assert len(got) == 10
    left = broker.submit(lambda reply: Attach(consumer, reply, is_closing=True))
    broker.cycle()
    assert not left.done()
    broker.wait(left)
    assert len(broker.peek("q.dlq", 100)) == 10


def test_a_consumer_has_left_with_what_it_never_saw_though_the_store_failed_meanwhile() -> None:
    """What it never saw went back with a commit that failed, so it goes back with the rest."""
    store = BrokenStore()
    broker = SteppedBroker(store=store, hooks=SimulatedHooks())
    broker.create_queue("q", {"on_failure": ON_FAILURE, "backoff_ms": 0})
    broker.enqueue_many("q", [message(headers={"cost": "7"}) for _ in range(10)])
    consumer, got = broker.attach("q", credit=10)
    left = broker.submit(lambda reply: Attach(consumer, reply, is_closing=True, unseen=got[:2]))
    store.fails = True
    broker.cycle()
    assert not left.done()
    broker.wait(left)
    assert sorted(len(view.errors) for view in broker.peek("q", 100)) == [0] * 2 + [1] * 8
    assert len(broker.lease("q", 10)) == 10


def test_a_consumer_has_left_with_what_it_acked_though_the_store_failed_meanwhile() -> None:
    """The ack was in a commit that failed, so the message goes back with the others."""
    store = BrokenStore()
    broker = SteppedBroker(store=store, hooks=SimulatedHooks())
    broker.create_queue("q", {"on_failure": ON_FAILURE, "backoff_ms": 0})
    broker.enqueue_many("q", [message(headers={"cost": "7"}) for _ in range(10)])
    consumer, got = broker.attach("q", credit=10)
    acked = broker.start(Ack(queue="q", receipts=[Receipt(got[0].id, got[0].token)]))
    left = broker.submit(lambda reply: Attach(consumer, reply, is_closing=True))
    store.fails = True
    broker.cycle()
    with pytest.raises(StoreFailed):
        acked.get()
    assert not left.done()
    broker.wait(left)
    assert [len(view.errors) for view in broker.peek("q", 100)] == [1] * 10


@pytest.mark.parametrize("fails_at", ["once", "later", "never"])
def test_a_consumer_has_left_though_its_queue_was_deleted_meanwhile(fails_at: str) -> None:
    """Whether the deletion works, fails in the cycle in which it left, or in a later one: it holds nothing."""
    store = BrokenStore()
    broker = SteppedBroker(store=store, hooks=SimulatedHooks())
    broker.create_queue("q", {"on_failure": ON_FAILURE, "backoff_ms": 0})
    broker.enqueue_many("q", [message(headers={"cost": "7"}) for _ in range(10)])
    consumer, got = broker.attach("q", credit=10)
    left = broker.submit(lambda reply: Attach(consumer, reply, is_closing=True, unseen=got[:2]))
    if fails_at == "later":
        broker.cycle()
    deleted = broker.start(DeleteQueue(queue="q"))
    store.fails = fails_at != "never"
    broker.cycle()
    assert (deleted.done(), left.done()) == (True, False)
    assert broker.wait(left) is None
    if fails_at == "never":
        deleted.get()
        return
    with pytest.raises(StoreFailed):
        deleted.get()
    assert broker.queue("q").leased == 0
    assert sorted(len(view.errors) for view in broker.peek("q", 100)) == [0] * 2 + [1] * 8


def test_leases_that_ended_are_not_collected_while_the_store_fails() -> None:
    """Each recovery finds them again, so what waited for the script before is dropped."""
    store = BrokenStore()
    broker = SteppedBroker(store=store, hooks=SimulatedHooks())
    broker.create_queue("q", {"on_failure": ON_FAILURE})
    broker.enqueue_many("q", [message(headers={"cost": "7"}) for _ in range(10)])
    broker.lease("q", 10)
    broker.clock.advance(30_000)
    for _ in range(20):
        store.fails = True
        broker.cycle()
        broker.cycle()
        broker.clock.advance(2_000)
    assert sum(len(line) for line in broker.engine.script_lines.lines.values()) + len(broker.engine.inbox) <= 1
    store.fails = False
    broker.advance(10_000)
    assert {len(view.errors) for view in broker.peek("q", 100)} == {1}
