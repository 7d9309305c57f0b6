"""Fila, deficit round robin."""

from __future__ import annotations

import io
import random
import re
import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest
from rich.console import Console

from benchmarks.broker import batches, compare_with_fifo, in_broker, names, whole_life_cpu
from benchmarks.report import Options, Report
from fairlane.assembly import AsyncBroker
from fairlane.scheduler import Item, Kernel, KeyPolicy
from fairlane.scheduler.tree import KeyNode
from tests.unit.broker.stepping import broker_with, lease_one, message, payloads, start_lease
from tests.unit.scheduler.workload import offer, take_keys

from .test_fila_lifecycle import runs


def test_104_a_round_adds_weight_times_quantum() -> None:
    """A key's turn adds its weight times the quantum to its deficit."""
    kernel: Kernel[Item] = Kernel(quantum=2)
    kernel.set_policy("a", KeyPolicy(weight=3))
    offer(kernel, "a", 12)
    offer(kernel, "b", 4)
    assert runs(list(take_keys(kernel, 16))) == [("a", 6), ("b", 2), ("a", 6), ("b", 2)]


def test_105_a_key_is_served_until_its_deficit_is_used_up() -> None:
    """A key is served until its deficit is used up; then the next key follows."""
    kernel: Kernel[Item] = Kernel(quantum=3)
    offer(kernel, "a", 9)
    offer(kernel, "b", 9)
    kernel.take(2, 0)
    assert kernel.deficit("a") == 1
    assert take_keys(kernel, 2) == ["a", "b"]


def test_106_only_active_keys_take_part() -> None:
    """Only keys with messages take part in rounds."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key=key) for key in "abc"])
    before = broker.inspect("q").active_keys
    for delivery in broker.lease("q", 9):
        broker.ack(delivery)
    assert (before, broker.inspect("q").active_keys) == (3, 0)


def test_107_an_empty_key_leaves_the_active_set() -> None:
    """A key without messages is skipped from then on."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "a", 1)
    offer(kernel, "b", 3)
    assert take_keys(kernel, 4) == ["a", "b", "b", "b"]


def test_108_a_new_message_brings_a_key_back() -> None:
    """A new message brings its key back into the rounds."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "a", 1)
    offer(kernel, "b", 4)
    kernel.take(2, 0)
    offer(kernel, "a", 1)
    assert "a" in take_keys(kernel, 2)


def test_109_the_state_of_rounds_is_in_memory() -> None:
    """Deficits and positions are in memory only: a lease of many messages writes one record and no scheduler state."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key=key) for key in "abc"])
    before = len(broker.read_journal().events)
    broker.lease("q", 3)
    assert [event["kind"] for event in broker.read_journal().events[before:]] == ["leased"] * 3


def test_110_three_equal_keys_get_a_third_each() -> None:
    """Three keys of equal weight get a third of the deliveries each."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key=key) for key in "abc" * 200])
    counts = Counter(delivery.fairness_key for delivery in broker.lease("q", 300))
    assert counts == {"a": 100, "b": 100, "c": 100}


def steps_of(keys: int) -> int:
    """Return how many lines of Python enqueue, lease and acknowledge 1,000 messages of some keys, with a backlog."""
    chance, broker = random.Random(keys), broker_with()
    news = [message(fairness_key=f"tenant-{chance.randrange(keys)}") for _ in range(2_000)]
    broker.enqueue_many("q", news[:1_000])
    lines = 0

    def count(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        for at in range(1_000, 2_000, 100):
            broker.enqueue_many("q", news[at : at + 100])
            broker.ack_many("q", broker.lease("q", 100))
    finally:
        sys.settrace(before)
    assert broker.queue("q").waiting == 1_000
    return lines


def test_111_fairness_costs_next_to_nothing() -> None:
    """From enqueue to ack, messages of 10 or 100 keys take at most 5 % more steps, not time, than those of one key, a
    FIFO; the time is a benchmark."""
    fifo = steps_of(1)
    for keys in (10, 100):
        assert steps_of(keys) <= 1.05 * fifo


def test_112_adding_a_key_again_keeps_its_deficit() -> None:
    """Messages that arrive for a key in the middle of its turn leave its deficit as it is."""
    kernel: Kernel[Item] = Kernel(quantum=10)
    offer(kernel, "a", 10)
    offer(kernel, "b", 10)
    kernel.take(4, 0)
    before = kernel.deficit("a")
    offer(kernel, "a", 5)
    assert (before, kernel.deficit("a")) == (6, 6)


def test_113_a_key_is_removed() -> None:
    """A key whose messages were all cancelled takes no turns."""
    broker = broker_with()
    ids = [broker.enqueue("q", b"", fairness_key=key) for key in "ab"]
    broker.cancel("q", ids[0])
    assert [delivery.fairness_key for delivery in broker.lease("q", 9)] == ["b"]


def test_114_the_next_key_has_a_positive_deficit() -> None:
    """A key in debt is passed over until its rounds have paid the debt off."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "a", 5)
    offer(kernel, "b", 5)
    kernel.take(2, 0)
    kernel.settle("a", 3)
    assert take_keys(kernel, 4) == ["b", "b", "b", "a"]


def test_115_a_new_round_adds_to_the_deficit() -> None:
    """A key saves the deficit of several rounds for a message that costs more than one round."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "dear", 1, cost=3)
    offer(kernel, "cheap", 5)
    assert take_keys(kernel, 6).index("dear") == 2


def test_116_a_new_weight_counts_from_the_next_round() -> None:
    """A new weight counts from the key's next turn on, for messages that already wait, too."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key=key) for key in "ab" * 50])
    first = Counter(delivery.fairness_key for delivery in broker.lease("q", 40))
    broker.set_config("weight:q:a", "3")
    second = Counter(delivery.fairness_key for delivery in broker.lease("q", 40))
    assert (first, second) == ({"a": 20, "b": 20}, {"a": 30, "b": 10})


def test_117_the_quantum_is_part_of_a_queues_policy() -> None:
    """The quantum belongs to a queue's policy instead of the broker's config, and changes live; its default is 1."""
    broker = broker_with()
    broker.enqueue_many("q", [message(fairness_key=key) for key in "ab" * 20])
    fine = runs([delivery.fairness_key for delivery in broker.lease("q", 4)])
    broker.update_queue("q", {"quantum": 4})
    coarse = runs([delivery.fairness_key for delivery in broker.lease("q", 16)])
    assert len(fine) == 4
    assert coarse[1:-1] == [(key, 4) for key, _ in coarse[1:-1]]


def test_118_a_single_key_is_first_in_first_out() -> None:
    """A single key gets everything, first in, first out."""
    broker = broker_with()
    broker.enqueue_many("q", [message(b"%d" % n) for n in range(5)])
    assert payloads(broker.lease("q", 9)) == [b"0", b"1", b"2", b"3", b"4"]


def test_119_a_new_key_waits_for_one_turn_of_each_other() -> None:
    """A key that is added in the middle of a round waits for at most one turn of each other key, not for a round."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "a", 5)
    offer(kernel, "b", 5)
    kernel.take(1, 0)
    offer(kernel, "new", 1)
    assert take_keys(kernel, 3) == ["b", "a", "new"]


def test_120_when_one_key_is_exhausted_the_others_go_on() -> None:
    """When one key has no more messages, the others share all of the service."""
    kernel: Kernel[Item] = Kernel()
    offer(kernel, "a", 1)
    offer(kernel, "b", 3)
    offer(kernel, "c", 3)
    assert Counter(take_keys(kernel, 7)) == {"a": 1, "b": 3, "c": 3}


def test_121_a_returning_key_has_no_old_deficit() -> None:
    """A key that left early loses the rest of its turn, and starts with a deficit of 0 when it returns."""
    kernel: Kernel[Item] = Kernel(quantum=10)
    offer(kernel, "a", 3)
    offer(kernel, "b", 20)
    assert runs(list(take_keys(kernel, 5))) == [("a", 3), ("b", 2)]
    offer(kernel, "a", 20)
    assert runs(list(take_keys(kernel, 20))) == [("b", 8), ("a", 10), ("b", 2)]


def test_122_recovery_fills_the_active_keys() -> None:
    """After a restart keys with messages are active, with their weights."""
    broker = broker_with({"weights": {"a": 3, "b": 2}})
    broker.enqueue_many("q", [message(fairness_key=key) for key in "abc" * 60])
    broker.reopen()
    counts = Counter(delivery.fairness_key for delivery in broker.lease("q", 60))
    assert counts == {"a": 30, "b": 20, "c": 10}


def test_123_deficits_may_be_lost_in_a_crash() -> None:
    """Deficits begin with 0 after a restart."""
    broker = broker_with({"quantum": 10})
    broker.enqueue_many("q", [message(fairness_key="a")] * 20)
    broker.lease("q", 4)
    before = broker.inspect("q").keys[0].deficit
    broker.reopen()
    assert (before, broker.inspect("q").keys[0].deficit) == (6, 0)


def test_124_queues_are_independent() -> None:
    """Each queue has rounds of its own."""
    broker = broker_with()
    broker.create_queue("r")
    for queue in ("q", "r"):
        broker.enqueue_many(queue, [message(fairness_key=key) for key in "ab" * 5])
    broker.lease("q", 1)
    assert [delivery.fairness_key for delivery in broker.lease("r", 2)] == ["a", "b"]


def test_125_a_lease_is_written_atomically() -> None:
    """A delivery is durable with its lease: after a crash the holder still has it, and no other consumer gets it."""
    broker = broker_with()
    broker.enqueue("q", b"")
    held = lease_one(broker)
    broker.reopen()
    assert broker.lease("q") == []
    broker.ack(held)


def test_126_consumers_of_a_queue_share_evenly() -> None:
    """Consumers of a queue get messages in turn."""
    broker = broker_with()
    lists = [broker.attach("q", credit=100)[1] for _ in range(3)]
    for _ in range(150):
        broker.enqueue("q", b"")
    assert [len(got) for got in lists] == [50, 50, 50]


def test_127_delivery_is_immediate() -> None:
    """A message is delivered when it arrives if a consumer waits, and when a consumer comes if it waits itself."""
    broker = broker_with()
    waiter = start_lease(broker)
    broker.enqueue("q", b"1")
    assert waiter.done()
    broker.enqueue("q", b"2")
    assert broker.attach("q")[1][0].payload == b"2"


def order_in(keys: int) -> list[str]:
    """Return the keys of the messages that the benchmark of fairness leases, in order, all of which it acknowledges."""
    events: list[dict[str, Any]] = []

    async def work(broker: AsyncBroker) -> float:
        rate = await whole_life_cpu(broker, backlog=batches(names(keys, 600)), todo=batches(names(keys, 400)))
        events.extend((await broker.read_journal(count=10_000)).events)
        return rate

    assert in_broker(work) > 0
    counts = Counter(event["kind"] for event in events)
    assert counts["enqueued"] == 1_000
    assert counts["acked"] == counts["leased"] >= 400
    keys_of = {event["message_id"]: event["fairness_key"][0] for event in events if event["kind"] == "enqueued"}
    return [keys_of[event["message_id"]] for event in events if event["kind"] == "leased"]


def test_128_there_is_a_benchmark_of_fairness() -> None:
    """`python -m benchmarks.broker` compares messages of 10 and 100 keys, served in turn, with one key, a FIFO, and
    with `--check` fails below 0.95."""
    assert set(order_in(1)) == {"tenant-0"}
    assert set(Counter(order_in(10)[:100]).values()) == {10}
    assert set(Counter(order_in(100)[:100]).values()) == {1}
    printed = io.StringIO()
    report = Report(Options(quick=True, check=True), Console(width=120, file=printed))
    compare_with_fifo(report, report.options, count=300)
    ratios = re.findall(r"100? keys, fair\W+[0-9,]+\W+([0-9.]+)", printed.getvalue())
    assert len(ratios) == 2
    missed = [name for name in report.missed if name.endswith("keys against FIFO")]
    assert len(missed) == sum(float(ratio) < 0.95 for ratio in ratios if ratio != "0.950")
    with pytest.raises(SystemExit) as ended:
        report.finish()
    assert ended.value.code == int(bool(report.missed))


def test_129_a_pick_costs_the_same_with_any_number_of_keys() -> None:
    """Serving 100 messages visits as many nodes of the tree with 10,000 keys as with 10."""
    visits: list[int] = []
    original = KeyNode.__getattribute__

    def counted(self: KeyNode, name: str) -> object:
        visits[-1] += 1
        return original(self, name)

    for keys in (10, 10_000):
        kernel: Kernel[Item] = Kernel()
        for number in range(20_000):  # two for each key, so that no key runs empty meanwhile
            offer(kernel, str(number % keys))
        visits.append(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(KeyNode, "__getattribute__", counted)
            kernel.take(100, 0)
    assert 0 < visits[1] <= 1.1 * visits[0]


def test_130_messages_without_a_key_share_one() -> None:
    """Messages without a key share the key `default`, which takes turns with the others."""
    broker = broker_with()
    broker.enqueue_many("q", [message() for _ in range(4)])
    broker.enqueue_many("q", [message(fairness_key="a")] * 4)
    assert Counter(delivery.fairness_key for delivery in broker.lease("q", 4)) == {"default": 2, "a": 2}
