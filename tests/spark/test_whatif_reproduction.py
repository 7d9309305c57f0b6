"""The order of hand-outs, worked out again from the events of a journal alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fairlane.broker.handlers.internal import ReadSlice
from fairlane.broker.settings import Settings
from fairlane.journal.arrow import to_batch
from fairlane.journal.codec import Page, decode
from fairlane.ports.store import Commit
from fairlane.spark.whatif.files import selected
from fairlane.spark.whatif.reproduction import reproduce, reproduction_of
from fairlane.testing.stepped import SteppedBroker
from fairlane.testing.traffic import Traffic
from fairlane.testing.traffic_drive import make_journal
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


@pytest.mark.parametrize("first", range(1, 36, 5))
def test_journals_of_simulations_are_reproduced_exactly(first: int) -> None:
    """With crashes, claims, throttles, caps, delays and changes of policy, every hand-out comes out as journalled."""
    hand_outs = 0
    for seed in range(first, first + 5):
        found = reproduction_of(_events_of_seed(seed))
        assert (found.differences, found.skipped) == ([], 0), f"seed {seed}"
        hand_outs += found.hand_outs
    assert hand_outs > 100


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
    ids = [broker.enqueue("work", b"", fairness_key=key) for key in ("acme", "bakery", "clinic")]
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
    old = broker.enqueue("work", b"", fairness_key="acme")
    new = broker.enqueue("work", b"", fairness_key="acme")
    broker.lease("work")
    broker.lease("work")
    events = _events_of(broker)
    rows = [row for row in events.to_pylist() if not (row["kind"] == "enqueued" and row["message_id"] == old)]
    found = reproduction_of(pa.Table.from_pylist(rows, schema=events.schema))
    assert (found.skipped, found.hand_outs, found.differences) == (1, 1, [])
    assert new != old
