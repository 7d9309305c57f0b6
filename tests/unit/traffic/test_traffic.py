"""The generator of traffic, and the drive that sends it through a real broker."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fairlane.broker.handlers.internal import ReadSlice
from fairlane.journal.events import rows
from fairlane.testing.stepped import SteppedBroker
from fairlane.testing.traffic import Arrival, Traffic
from fairlane.testing.traffic_drive import drive, make_journal

_CALM = Traffic(messages=4_000, span_ms=400_000, tenants=10, burst_part=0.0)


def _plain(at_ms: int, service_ms: int, *, failures: int = 0, vanishes: bool = False) -> Arrival:
    return Arrival(
        at_ms=at_ms,
        fairness_key="acme",
        cost=1,
        true_cost=1,
        service_ms=service_ms,
        failures=failures,
        vanishes=vanishes,
        error="no" if failures else "",
    )


def _kinds(broker: SteppedBroker) -> Counter[str]:
    pages = broker.call(ReadSlice(after=0, count=100_000)).pages
    return Counter(str(row["kind"]) for page in pages for row in rows(page))


def test_one_seed_is_one_traffic() -> None:
    """The same seed gives the same arrivals, and another seed gives others."""
    assert _CALM.arrivals() == _CALM.arrivals()
    assert _CALM.arrivals() != replace(_CALM, seed=1).arrivals()


def test_tenants_are_as_unequal_as_the_law_says() -> None:
    """With an exponent of 1 the largest tenant sends twice as much as the second and four times the fourth."""
    counts = Counter(arrival.fairness_key for arrival in replace(_CALM, zipf=1.0, messages=20_000).arrivals())
    assert counts["acme"] / counts["bakery"] == pytest.approx(2, rel=0.1)
    assert counts["acme"] / counts["depot"] == pytest.approx(4, rel=0.1)


def test_a_day_rises_and_falls() -> None:
    """With a swing of a half, the middle half of a day brings (π + 1) / (π - 1) of what its two ends bring."""
    instants = [arrival.at_ms for arrival in replace(_CALM, swing=0.5, messages=20_000).arrivals()]
    middle = sum(100_000 <= at_ms < 300_000 for at_ms in instants)
    assert middle / (len(instants) - middle) == pytest.approx(4.1416 / 2.1416, rel=0.05)


def test_bursts_crowd_arrivals() -> None:
    """With bursts far more arrivals follow the one before of their tenant within a few milliseconds."""

    def crowded(traffic: Traffic) -> int:
        instants = [arrival.at_ms for arrival in traffic.arrivals() if arrival.fairness_key == "acme"]
        return sum(after - before < 10 for before, after in pairwise(instants))

    assert crowded(replace(_CALM, burst_part=0.5, burst_ms=200)) > 5 * crowded(_CALM)


def test_costs_have_a_heavy_tail() -> None:
    """Half of the messages cost 1, and a few hundred times as much."""
    costs = sorted(arrival.cost for arrival in replace(_CALM, messages=20_000).arrivals())
    assert costs[len(costs) // 2] == 1
    assert costs[-1] > 100


def test_service_times_make_the_load() -> None:
    """All first attempts together take the stated part of the consumers' time."""
    traffic = replace(_CALM, consumers=4, load=0.5)
    work_ms = sum(arrival.service_ms for arrival in traffic.arrivals())
    assert work_ms == pytest.approx(0.5 * 4 * 400_000, rel=0.02)


def test_a_drive_ends_with_nothing_left_but_dead_letters() -> None:
    """Every message that came was acked, or is a dead letter because it always fails."""
    traffic = replace(_CALM, messages=500, span_ms=50_000, poison_part=0.02, vanishing_part=0.02)
    broker = SteppedBroker()
    broker.create_queue("work", {"backoff_ms": 10, "visibility_timeout_ms": 5_000})
    driven = drive(broker, traffic.arrivals(), queue="work", consumers=8)
    left = {view.name: view.waiting + view.leased for view in broker.queues()}
    assert left["work"] == 0
    assert left["work.dlq"] == sum(arrival.failures == 1_000 for arrival in traffic.arrivals()) > 0
    assert driven.counts["enqueued"] == 500
    assert driven.counts["acked"] == 500 - left["work.dlq"]


def test_a_busy_consumer_keeps_its_lease() -> None:
    """Work of five times the visibility timeout is done under one lease, which is extended in time."""
    broker = SteppedBroker()
    broker.create_queue("work", {"visibility_timeout_ms": 1_000})
    drive(broker, [_plain(0, 5_000)], queue="work", consumers=1)
    kinds = _kinds(broker)
    assert (kinds["leased"], kinds["acked"], kinds["returned"]) == (1, 1, 0)
    assert kinds["extended"] >= 5


def test_what_a_consumer_loses_comes_back() -> None:
    """A message whose consumer vanishes is leased again once its lease has run out, and acked."""
    broker = SteppedBroker()
    broker.create_queue("work", {"visibility_timeout_ms": 1_000, "backoff_ms": 0})
    driven = drive(broker, [_plain(0, 100, vanishes=True)], queue="work", consumers=1)
    kinds = _kinds(broker)
    assert (kinds["leased"], kinds["returned"], kinds["acked"]) == (2, 1, 1)
    assert driven.waits_ms == {"acme": [0]}


def test_waits_are_those_of_the_line() -> None:
    """With one consumer, three messages that come together wait for those before them."""
    broker = SteppedBroker()
    broker.create_queue("work")
    driven = drive(broker, [_plain(5, 100), _plain(5, 100), _plain(5, 100)], queue="work", consumers=1)
    assert driven.waits_ms == {"acme": [0, 100, 200]}


def test_a_journal_is_made_in_a_folder(tmp_path: Path) -> None:
    """The exported files hold an enqueue for every arrival, and an ack for every one that was done."""
    traffic = replace(_CALM, messages=300, span_ms=20_000)
    driven = make_journal(tmp_path, traffic, policy={"weights": {"acme": 3}}, config={"throttle:api:rate": "5"})
    kinds = Counter(pq.read_table(tmp_path, columns=["kind"]).column("kind").to_pylist())
    assert kinds["enqueued"] == 300
    assert kinds["acked"] == driven.counts["acked"]
    assert kinds["config_set"] == 1
