"""The order of hand-outs, worked out again from the events of a journal alone."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from fairlane.broker.handlers.internal import ReadSlice
from fairlane.broker.settings import Settings
from fairlane.journal.arrow import to_batch
from fairlane.journal.codec import Page, decode
from fairlane.model.ids import message_number
from fairlane.model.message import Key, NewMessage
from fairlane.ports.store import Commit
from fairlane.spark.whatif.files import selected
from fairlane.spark.whatif.reproduction import reproduce, reproduction_of
from fairlane.testing.stepped import SteppedBroker
from fairlane.testing.traffic import Traffic
from fairlane.testing.traffic_drive import make_journal
from fairlane.verbs.leases import Lease
from fairlane.verbs.messages import Cancel
from fairlane.verbs.queues import PurgeQueue
from tests.kit.simulation.simulation import Simulation


def _events_of_seed(seed: int) -> pa.Table:
    """Run a simulation with crashes and faults, and return the events of all that became durable in it."""
    simulation = Simulation(seed)
    pages: list[Page] = []
    heard = simulation.disk.on_durable

    def tap(commit: Commit) -> None:
        pages.append(decode(commit.page))
        heard(commit)

    simulation.disk.on_durable = tap
    simulation.run()
    return selected(pa.Table.from_batches([to_batch(pages)]), None)


@pytest.mark.parametrize(
    "first", [1, 6, 11, *(pytest.param(first, marks=pytest.mark.long) for first in range(16, 36, 5))]
)
def test_journals_of_simulations_are_reproduced_exactly(first: int) -> None:
    """With crashes, claims, throttles, caps, delays and changes of policy, every hand-out comes out as journalled."""
    hand_outs = 0
    for seed in range(first, first + 5):
        found = reproduction_of(_events_of_seed(seed))
        assert (found.differences, found.skipped) == ([], 0), f"seed {seed}"
        hand_outs += found.hand_outs
    assert hand_outs > 100


@pytest.mark.parametrize("seed", [14, 31, 55])
def test_rates_that_charge_by_cost_open_keys_in_the_same_order(seed: int) -> None:
    """Also where a key that saved tokens shuts again until the same instant, where the last of several requests of a
    claim was in vain, and where an expiry in one queue leaves more of a throttle to the others."""
    found = reproduction_of(_events_of_seed(seed))
    assert (found.differences, found.skipped) == ([], 0)
    assert found.hand_outs > 20


@pytest.mark.parametrize("seed", [21, 26, 30])
def test_keys_whose_limits_are_lifted_come_back_in_the_same_order(seed: int) -> None:
    """A cap, a rate or a limit on all that is lifted while it holds keys back brings them back as in the broker, also
    if the broker had been restarted before."""
    found = reproduction_of(_events_of_seed(seed))
    assert (found.differences, found.skipped) == ([], 0)


def test_a_journal_of_traffic_is_reproduced_exactly(tmp_path: Path) -> None:
    """With weights, true costs, priorities, throttles, caps, deadlines and retries, every lease is in its place."""
    traffic = Traffic(
        messages=4_000,
        span_ms=120_000,
        tenants=20,
        load=0.9,
        throttles=("api", "db"),
        high_part=0.05,
        deadline_part=0.05,
        vanishing_part=0.01,
        delayed_part=0.05,
    )
    config = {"throttle:api:rate": "10", "throttle:db:rate": "4", "cap:work:bakery": "2"}
    driven = make_journal(tmp_path, traffic, policy={"weights": {"acme": 3}, "quantum": 2}, config=config)
    found = reproduce(tmp_path)
    assert found.is_exact
    assert found.messages > driven.counts["acked"]


def _events_of(broker: SteppedBroker) -> pa.Table:
    return selected(pa.Table.from_batches([to_batch(broker.call(ReadSlice(after=0)).pages)]), None)


def test_leases_that_are_bounded_by_bytes_are_reproduced() -> None:
    """Where answers end before as many came as were asked for, with throttles and without, each comes out alike."""
    broker = SteppedBroker(settings=Settings(answer_bytes_max=1_000))
    broker.create_queue("work")
    broker.set_config("throttle:api:rate", "20")
    for at in range(60):
        throttles = ("api",) if at % 3 else ()
        broker.enqueue("work", bytes(90 * (at % 7)), fairness_key="ab"[at % 2], cost=1 + at % 5, throttles=throttles)
    for _ in range(40):
        broker.lease("work", 8)
        broker.advance(40)
    found = reproduction_of(_events_of(broker))
    assert found.is_exact
    assert found.messages == 60


def test_a_difference_is_told_with_its_sequence() -> None:
    """A journal in which two leases have changed places does not come out, and the first of them is named."""
    broker = SteppedBroker()
    broker.create_queue("work")
    sent = [broker.enqueue("work", b"", fairness_key=key) for key in ("acme", "bakery", "clinic")]
    ids = [message_number(each) for each in sent]
    tokens = [broker.lease("work")[0].token for _ in ids]
    events = _events_of(broker)
    assert reproduction_of(events).is_exact
    rows = events.to_pylist()
    first, second = (next(row for row in rows if row["sequence"] == token) for token in tokens[:2])
    first["message_id"], second["message_id"] = second["message_id"], first["message_id"]
    found = reproduction_of(pa.Table.from_pylist(rows, schema=events.schema))
    told = found.differences[0]
    assert (told.sequence, told.journalled, told.replayed) == (tokens[0], [ids[1]], [ids[0]])
    assert found.hand_outs == 3


def test_hand_outs_of_messages_from_before_the_journal_are_skipped() -> None:
    """A journal that has lost its beginning is compared as far as it tells what waited."""
    broker = SteppedBroker()
    broker.create_queue("work")
    old = message_number(broker.enqueue("work", b"", fairness_key="acme"))
    new = message_number(broker.enqueue("work", b"", fairness_key="acme"))
    broker.lease("work")
    broker.lease("work")
    events = _events_of(broker)
    rows = [row for row in events.to_pylist() if not (row["kind"] == "enqueued" and row["message_id"] == old)]
    found = reproduction_of(pa.Table.from_pylist(rows, schema=events.schema))
    assert (found.skipped, found.hand_outs, found.differences) == (1, 1, [])
    assert new != old


_KEYS: list[Key] = ["x", "y", ("z", "1"), ("z", "2")]


class _SharedThrottles:
    """Random traffic in queues that share throttles, with all that can change who gets a token."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.broker = SteppedBroker()
        self.queues = ["a", "b", "c", "alone"][: self.chance.randint(2, 4)]
        self.known = {queue: list[str]() for queue in self.queues}
        for name in ("api", "db"):
            rate, burst = self.chance.choice([3, 20, 150]), self.chance.choice([None, 1, 2, 7])
            self.broker.set_throttle(name, rate=rate, burst=burst)
        for queue in self.queues:
            policy = {"waiting_max": self.chance.choice([None, 25]), "backpressure": "drop_oldest"}
            self.broker.create_queue(queue, policy)
            if self.chance.random() < 0.2:
                self.broker.attach(queue, credit=self.chance.choice([1, 5]))

    def run(self) -> SteppedBroker:
        """Do random things, and return the broker."""
        acts = [*[self._enqueue] * 9, *[self._lease] * 6, self._cancel, self._weigh, self._limit, self._change]
        for _ in range(150):
            self.chance.choice(acts)(self.chance.choice(self.queues))
            self.broker.step()
            self.broker.advance(self.chance.choice([0, 1, 7, 60, 400]))
        return self.broker

    def _enqueue(self, queue: str) -> None:
        chance = self.chance
        throttles = chance.choice([("api",), ("api",), ("db",), ("api", "db"), ()])
        for _ in range(chance.randint(1, 4)):
            message = NewMessage(
                fairness_key=chance.choice(_KEYS),
                throttles=("own",) if queue == "alone" else throttles,
                delay_ms=chance.choice([0, 0, 0, 40, 300]),
                deadline_ms=chance.choice([None, None, 500, 3_000]),
            )
            self.known[queue] += [found for found in self.broker.enqueue_many(queue, [message]) if type(found) is str]

    def _lease(self, queue: str) -> None:
        count, wait_ms = self.chance.choice([1, 1, 10]), self.chance.choice([0, 200, 5_000])
        self.broker.start(Lease(queue=queue, count=count, wait_ms=wait_ms))

    def _cancel(self, queue: str) -> None:
        self.broker.start(Cancel(queue=queue, ids=[self.chance.choice([*self.known[queue], "0" * 16])]))

    def _weigh(self, queue: str) -> None:
        self.broker.set_config(f"throttle_weight:{queue}:api", self.chance.choice(["1", "3", None]))

    def _limit(self, _queue: str) -> None:
        self.broker.set_throttle("api", rate=self.chance.choice([5, 40]), burst=self.chance.choice([None, 1, 4]))

    def _change(self, queue: str) -> None:
        act = self.chance.randint(0, 3)
        if act == 0:
            self.broker.call(PurgeQueue(queue=queue))
        elif act == 1:
            self.broker.reopen()
        elif act == 2:
            self.broker.update_queue(queue, {"quantum": self.chance.choice([1, 3])})


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_queues_that_share_throttles_are_reproduced_exactly(first: int) -> None:
    """However tokens were divided, with weights, delays, cancels, purges, restarts and new rates, each lease recurs."""
    hand_outs = 0
    for seed in range(first, first + 10):
        found = reproduction_of(_events_of(_SharedThrottles(seed).run()))
        assert (found.differences, found.skipped) == ([], 0), f"seed {seed}"
        hand_outs += found.hand_outs
    assert hand_outs > 100
