"""Consumers as a journal shows them: leases are not consumers, and forecasts with them are what a broker does."""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import replace

import numpy as np
import pytest

from fairlane.spark.whatif.consumers import NEVER_ENDED, ConsumerKind, LeaseLog, consumers_of
from fairlane.spark.whatif.files import journal_files
from fairlane.spark.whatif.fleet import play
from fairlane.spark.whatif.load import loaded
from fairlane.spark.whatif.measures import KeyMeasures, MeasuredPeriod, Yardstick
from fairlane.spark.whatif.messages import messages_of
from fairlane.spark.whatif.presence import presences, summed
from fairlane.spark.whatif.recording import Recording, record
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.sweeps import setting_of
from fairlane.testing.stepped import SteppedBroker
from fairlane.testing.traffic import Traffic
from fairlane.testing.traffic_drive import drive, make_journal

TRAFFIC = Traffic(messages=3_000, span_ms=60_000, tenants=6, consumers=4, load=0.9, poison_part=0.0, vanishing_part=0.0)
POLICY = {"backoff_jitter": 0.0}


def _terms(kind: ConsumerKind) -> tuple[int, int, int, int]:
    return kind.holds, kind.asks, kind.refills, kind.works


def _p99(waits: list[int]) -> int:
    return sorted(waits)[-(-99 * len(waits) // 100) - 1]


def _modelled(recording: Recording, scenario: Scenario | None = None) -> dict[str, KeyMeasures]:
    used = scenario or Scenario(name=ORIGINAL)
    under = loaded(recording, used.load)
    found = Yardstick(under, MeasuredPeriod()).measure(0, play(under, used, messages_of(under)))
    return {one.key: one for one in found}


# ------------------------------------------------------------------------------------------------------ batch leasers


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """The recording of four workers that lease eight messages at a time and work on them one after the other."""
    folder = tmp_path_factory.mktemp("batches")
    make_journal(folder, TRAFFIC, policy=POLICY, batch=8)
    return record(journal_files(folder), ("work",))


def test_a_worker_that_leases_eight_is_one_consumer(batches: Recording) -> None:
    """Four workers with batches of eight are four consumers that work on one message at a time, and not 32."""
    (kind,) = batches.consumers[0]
    assert _terms(kind) == (8, 8, 0, 1)
    assert (kind.counts, kind.rests_ms) == ([(0, 4)], [])


def test_work_on_a_batch_is_told_from_waiting_in_it(batches: Recording) -> None:
    """The time that messages take of consumers is their service times, though leases last many times as long."""
    service_ms = sum(arrival.service_ms * (arrival.failures + 1) for arrival in TRAFFIC.arrivals())
    assert sum(batches.busy_ms) == service_ms
    assert sum(batches.hold_ms) > 3 * service_ms


def test_the_model_of_batch_leasers_leases_when_they_did(batches: Recording) -> None:
    """Under the original settings every first lease is at its millisecond; as 32 consumers waits would be shorter."""
    played = play(batches, Scenario(name=ORIGINAL), messages_of(batches))
    assert list(played.leased_ms) == batches.leased_ms.tolist()
    slots = replace(batches, consumers=[[ConsumerKind(counts=[(0, 32)])]], is_plain=True)
    assert _modelled(slots)[""].wait_p99_ms < 0.1 * _modelled(batches)[""].wait_p99_ms


@pytest.mark.parametrize(
    ("setting", "value", "change"),
    [
        ("consumers", "6", {"consumers": 6}),
        ("consumers", "x1.5", {"consumers": 6}),
        ("service", "x0.5", {"service": 0.5}),
    ],
)
def test_a_forecast_of_another_load_is_what_a_broker_does(
    batches: Recording, setting: str, value: str, change: dict[str, float]
) -> None:
    """More workers, or faster ones: p99 waits are within 15 % or 100 ms of a broker with that load."""
    arrivals = TRAFFIC.arrivals()
    if "service" in change:
        arrivals = [replace(one, service_ms=max(1, round(one.service_ms * change["service"]))) for one in arrivals]
    broker = SteppedBroker()
    broker.create_queue("work", POLICY)
    real = drive(broker, arrivals, queue="work", consumers=int(change.get("consumers", 4)), batch=8).waits_ms
    found = _modelled(batches, setting_of(setting, value, ["work"]))
    for key, waits in real.items():
        assert found[key].wait_p99_ms == pytest.approx(_p99(waits), rel=0.15, abs=100), key
    assert found[""].wait_p99_ms < 0.8 * _modelled(batches)[""].wait_p99_ms


# ---------------------------------------------------------------------------------------------- logs of other consumers


def _log(leases: list[tuple[int, int, int, int, int]], *, ready_ms: int = 0) -> LeaseLog:
    """Return the log of leases, each with its instant, request, owner, how many were requested, and its end."""
    ends = sorted(range(len(leases)), key=lambda at: (leases[at][4], at))
    sequence: dict[int, int] = {}
    end_sequence: dict[int, int] = {}
    events = sorted([(one[0], 1, at) for at, one in enumerate(leases)] + [(leases[at][4], 0, at) for at in ends])
    for number, (_, is_lease, at) in enumerate(events):
        (sequence if is_lease else end_sequence)[at] = number
    order = sorted(range(len(leases)), key=sequence.__getitem__)
    columns = [np.array([leases[at][place] for at in order], dtype=np.int64) for place in range(5)]
    return LeaseLog(
        sequence=np.array([sequence[at] for at in order]),
        at_ms=columns[0],
        record=columns[1],
        owner=columns[2],
        asked=columns[3],
        end_sequence=np.array([end_sequence[at] for at in order]),
        end_ms=columns[4],
        ready_ms=np.full(len(leases), ready_ms, dtype=np.int64),
    )


def _stream(*, credit: int, works: int, messages: int, spread: float) -> list[tuple[int, int, int, int, int]]:
    """Return the leases of a streaming consumer on a queue that is empty at times, simulated event by event."""
    chance = random.Random(7)
    arrivals = deque(sorted(chance.randrange(messages * 100 // works) for _ in range(messages)))
    leases: list[tuple[int, int, int, int, int]] = []
    waiting: deque[int] = deque()
    backlog: deque[tuple[int, int, int]] = deque()
    running: list[int] = []
    held = now_ms = record_number = 0
    while arrivals or waiting or running:
        now_ms = min([*(arrivals and [arrivals[0]]), *running[:1], *([now_ms] if waiting and held < credit else [])])
        while arrivals and arrivals[0] <= now_ms:
            waiting.append(arrivals.popleft())
        while running and running[0] <= now_ms:
            heapq.heappop(running)
            held -= 1
        asked, record_number = credit - held, record_number + 1
        while waiting and held < credit:
            waiting.popleft()
            backlog.append((now_ms, record_number, asked))
            held += 1
        while backlog and len(running) < works:
            leased_ms, request, wanted = backlog.popleft()
            end_ms = now_ms + max(1, round(90 * chance.lognormvariate(0, spread)))
            heapq.heappush(running, end_ms)
            leases.append((leased_ms, request, 0, wanted, end_ms))
    return leases


@pytest.mark.parametrize("works", [1, 3, 8])
@pytest.mark.parametrize("spread", [0.05, 0.8])
def test_a_stream_is_known_by_its_credit_and_its_hands(works: int, spread: float) -> None:
    """A consumer with credit for four times what it works on is found to request again and again, and its hands too."""
    credit = 4 * works
    found = consumers_of(_log(_stream(credit=credit, works=works, messages=3_000, spread=spread)))
    (kind,) = found.kinds
    assert _terms(kind)[:3] == (credit, credit, credit - 1)
    assert abs(kind.works - works) <= works // 4


def _batch_log(sizes: list[int], took_ms: list[int]) -> LeaseLog:
    """Return the log of one worker that acknowledges each batch as a whole."""
    leases, now_ms = [], 0
    for number, (size, took) in enumerate(zip(sizes, took_ms, strict=True)):
        leases += [(now_ms, number, 0, 8, now_ms + took)] * size
        now_ms += took + 1
    return _log(leases)


def test_batches_that_take_longer_the_larger_they_are_are_worked_off_one_by_one() -> None:
    """A batch of n that takes n times as long is worked off one by one, though all its messages end together."""
    sizes = [1 + at % 8 for at in range(200)]
    found = consumers_of(_batch_log(sizes, [10 * size for size in sizes]))
    log_end = _batch_log(sizes, [10 * size for size in sizes]).end_ms
    assert [_terms(kind) for kind in found.kinds] == [(8, 8, 0, 1)]
    assert set((log_end - found.begin_ms).tolist()) == {10}


def test_batches_that_take_the_same_whatever_their_size_are_worked_on_at_once() -> None:
    """A batch that takes 50 ms with one message and with eight is worked on all at once."""
    sizes = [1 + at % 8 for at in range(200)]
    (kind,) = consumers_of(_batch_log(sizes, [50] * 200)).kinds
    assert _terms(kind) == (8, 8, 0, 8)


def test_a_pause_between_batches_is_part_of_the_model() -> None:
    """A worker that takes 30 ms to request more while messages wait does so in the model."""
    leases = [(at * 130, at, 0, 1, at * 130 + 100) for at in range(50)]
    (kind,) = consumers_of(_log(leases)).kinds
    assert set(kind.rests_ms) == {30}
    assert not kind.is_plain


def test_batches_without_an_owner_belong_to_the_consumer_that_is_idle() -> None:
    """Two workers without names that lease four at a time are two consumers, by which batches are open at once."""
    leases = [
        (number * 100, number, -1, 4, number * 100 + 50 * (place + 1) - 1)
        for number in range(100)
        for place in range(4)
    ]
    (kind,) = consumers_of(_log(leases)).kinds
    assert _terms(kind) == (4, 4, 0, 1)
    assert max(count for _, count in kind.counts) == 2


def test_leases_without_an_owner_and_a_rule_are_consumers_of_their_own() -> None:
    """Requests for different numbers of messages don't tell which leases belong together: each is a consumer."""
    leases = [(at * 10, at, -1, 1 + at % 3, at * 10 + 35) for at in range(60)]
    (kind,) = consumers_of(_log(leases)).kinds
    assert _terms(kind) == (1, 1, 0, 1)
    assert kind.most == 4


def test_an_owner_for_each_request_is_no_consumer() -> None:
    """Two workers that make up a new owner for each request are two consumers, and not a hundred."""
    leases = [(at * 50, at, at, 1, at * 50 + 99) for at in range(100)]
    (kind,) = consumers_of(_log(leases)).kinds
    assert kind.most == 2


def test_a_lease_without_an_end_keeps_its_consumer_there() -> None:
    """A consumer that holds a lease when the journal ends is there to the end."""
    log = _log([(at * 10, at, 0, 1, at * 10 + 5) for at in range(30)])
    ends = (
        np.where(np.arange(30) == 29, NEVER_ENDED, log.end_ms),
        np.where(np.arange(30) == 29, NEVER_ENDED, log.end_sequence),
    )
    (kind,) = consumers_of(replace(log, end_ms=ends[0], end_sequence=ends[1])).kinds
    assert kind.counts == [(0, 1)]


def test_consumers_come_and_go() -> None:
    """One that gets nothing while another is served forty times is gone, and one that begins late came late."""
    leases = [(at * 10, at, 0, 1, at * 10 + 5) for at in range(300)]
    leases += [(at * 10, 1_000 + at, 1, 1, at * 10 + 5) for at in range(100, 150)]
    (kind,) = consumers_of(_log(leases)).kinds
    assert kind.counts == [(0, 1), (1_000, 2), (1_495, 1)]


def test_presence_is_broken_by_a_long_absence() -> None:
    """A consumer that was idle while others were served again and again was there twice."""
    at_ms = np.arange(100) * 10
    first, second = np.array([0, 99]), np.arange(1, 99)
    idle = np.full(100, -1)
    idle[99] = 5
    spans = presences(
        [first, second], np.arange(100) * 10, at_ms, idle_sequence=idle, idle_ms=idle, ends=[(995, 995), (994, 994)]
    )
    assert spans[0] == [(0, 5), (990, None)]
    assert summed(spans[0]) == [(0, 1), (5, 0), (990, 1)]
