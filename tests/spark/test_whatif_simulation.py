"""Messages as they came, under other policies: what modelled consumers would have been handed, and when."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane.adapters.memory.store import MemoryStore
from fairlane.adapters.numbered_store import NumberedStore
from fairlane.broker.settings import Settings
from fairlane.model.message import NewMessage
from fairlane.model.partitions import NUMBER_BITS
from fairlane.spark.whatif.consumers import ConsumerKind
from fairlane.spark.whatif.files import journal_files
from fairlane.spark.whatif.fleet import play
from fairlane.spark.whatif.messages import messages_of
from fairlane.spark.whatif.recording import record
from fairlane.spark.whatif.reproduction import reproduce
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.sweeps import setting_of
from fairlane.testing.stepped import SteppedBroker
from fairlane.testing.traffic import Arrival, Traffic
from fairlane.testing.traffic_drive import drive, make_journal
from tests.spark.whatif_journals import MINUTE_MS, exported, measured, stepped_broker

AS_IT_WAS = Scenario(name=ORIGINAL)
TRAFFIC = Traffic(messages=4_000, span_ms=60_000, tenants=12, consumers=8, load=0.9, vanishing_part=0.002)


def _arrival(at_ms: int, key: str, service_ms: int = 100, *, cost: int = 1) -> Arrival:
    return Arrival(at_ms=at_ms, fairness_key=key, cost=cost, true_cost=cost, service_ms=service_ms)


def _journal(folder: Path, arrivals: list[Arrival], *, consumers: int = 1) -> Path:
    broker = stepped_broker()
    broker.create_queue("work")
    drive(broker, arrivals, queue="work", consumers=consumers)
    return exported(broker, folder)


def test_a_weight_gives_a_key_its_share(tmp_path: Path) -> None:
    """With one consumer and weight 3, three of acme go for one of bakery: its sixth goes seventh, and not eleventh."""
    arrivals = [_arrival(0, key) for key in ["acme"] * 6 + ["bakery"] * 6]
    recording = record(journal_files(_journal(tmp_path, arrivals)), ("work",))
    before = measured(recording, AS_IT_WAS)
    after = measured(recording, setting_of("weight:acme", "3", ["work"]))
    assert (before["acme"].wait_max_ms, before["bakery"].wait_max_ms) == (1_000, 1_100)
    assert (after["acme"].wait_max_ms, after["bakery"].wait_max_ms) == (600, 1_100)


def test_a_throttle_holds_messages_up(tmp_path: Path) -> None:
    """At two tokens a second and a burst of one, five messages leave half a second apart though consumers are idle."""
    arrivals = [replace(_arrival(0, "acme", 10), throttles=("api",)) for _ in range(5)]
    recording = record(journal_files(_journal(tmp_path, arrivals, consumers=5)), ("work",))
    limited = Scenario(name="", config={"throttle:api:rate": "2", "throttle:api:burst": "1"})
    before, after = measured(recording, AS_IT_WAS), measured(recording, limited)
    assert (before["acme"].wait_max_ms, before["acme"].throttled_ms) == (0, 0)
    assert after["acme"].wait_max_ms == 2_000
    assert after["acme"].throttled_ms == 500 + 1_000 + 1_500 + 2_000


def test_a_pattern_of_throttles_holds_each_tenant_up_by_itself(tmp_path: Path) -> None:
    """Tried on two tenants, a pattern with one token a second limits each; a name of its own goes before it."""
    arrivals = [
        replace(_arrival(0, tenant, 10), throttles=(f"tenant-{tenant}",))
        for tenant in ("acme", "bakery", "vip")
        for _ in range(3)
    ]
    recording = record(journal_files(_journal(tmp_path, arrivals, consumers=9)), ("work",))
    config: dict[str, str | None] = {
        "throttle:tenant-*:rate": "1",
        "throttle:tenant-*:burst": "1",
        "throttle:tenant-vip:rate": "2",
    }
    after = measured(recording, Scenario(name="", config=config))
    assert [after[key].wait_max_ms for key in ("acme", "bakery", "vip")] == [2_000, 2_000, 1_000]


def test_a_cap_holds_a_key_up(tmp_path: Path) -> None:
    """With a cap of 1, messages of one key leave one after the other though three consumers are there."""
    arrivals = [_arrival(0, "acme") for _ in range(3)]
    recording = record(journal_files(_journal(tmp_path, arrivals, consumers=3)), ("work",))
    after = measured(recording, setting_of("cap:acme", "1", ["work"]))
    assert after["acme"].wait_max_ms == 200
    assert after["acme"].capped_ms == 100 + 200


def test_a_pause_leaves_a_key_behind(tmp_path: Path) -> None:
    """What is paused all the time is left in the end, and all else goes earlier."""
    arrivals = [_arrival(0, key) for key in ("acme", "bakery", "acme", "bakery")]
    recording = record(journal_files(_journal(tmp_path, arrivals)), ("work",))
    after = measured(recording, setting_of("pause:acme", "true", ["work"]))
    assert (after["acme"].leased, after["acme"].left) == (0, 2)
    assert after["bakery"].wait_max_ms == 100


def test_a_quantum_makes_turns_longer(tmp_path: Path) -> None:
    """With a quantum of 2 two of a key go in a row."""
    arrivals = [_arrival(0, key) for key in ("acme", "acme", "bakery", "bakery")]
    recording = record(journal_files(_journal(tmp_path, arrivals)), ("work",))
    after = measured(recording, setting_of("quantum", "2", ["work"]))
    assert (after["acme"].wait_max_ms, after["bakery"].wait_p50_ms) == (100, 200)


def test_deadlines_are_missed_when_the_rest_goes_first(tmp_path: Path) -> None:
    """A message with half a second to live is missed once another key has all the weight."""
    arrivals = [_arrival(0, "bakery") for _ in range(9)] + [replace(_arrival(0, "acme"), deadline_ms=500)]
    recording = record(journal_files(_journal(tmp_path, arrivals)), ("work",))
    after = measured(recording, setting_of("weight:bakery", "100", ["work"]))
    assert (measured(recording, AS_IT_WAS)["acme"].misses, after["acme"].misses, after["acme"].left) == (0, 1, 0)


def test_config_pauses_and_crashes_of_the_journal_happen_again(tmp_path: Path) -> None:
    """A weight set on the way, a pause and a crash give the journalled hand-outs again, instant by instant."""
    broker = stepped_broker()
    broker.create_queue("work")
    broker.enqueue_many("work", [NewMessage(fairness_key=key) for key in ["acme", "bakery"] * 6])

    def serve(count: int) -> None:
        for _ in range(count):
            delivery = broker.lease("work")[0]
            broker.advance(50)
            broker.ack(delivery)

    serve(3)
    broker.set_config("weight:work:acme", "3")
    serve(2)
    broker.pause("work", key="bakery")
    serve(1)
    broker.reopen()
    serve(1)
    broker.resume("work", key="bakery")
    serve(5)
    recording = record(journal_files(exported(broker, tmp_path)), ("work",))
    assert len({type(change.record) for change in recording.changes}) == 4
    played = play(recording, AS_IT_WAS, messages_of(recording))
    assert list(played.leased_ms) == recording.leased_ms.tolist()


@pytest.mark.parametrize("name", ["orders", "orders~1"])
def test_live_settings_hold_in_a_partition_as_in_a_whole_queue(tmp_path: Path, name: str) -> None:
    """After ``weight:orders:acme`` is 3, acme gets 30 of 40 hand-outs: from the broker, and in what-if."""
    first = 1 << NUMBER_BITS if name == "orders~1" else 0
    broker = SteppedBroker(NumberedStore(MemoryStore(), first=first), settings=Settings(segment_ms=MINUTE_MS))
    broker.create_queue(name)
    broker.set_config("weight:orders:acme", "1")
    for key in ("acme", "bakery"):
        broker.enqueue_many(name, [NewMessage(fairness_key=key)] * 80)
    broker.set_config("weight:orders:acme", "3")
    served = []
    for _ in range(40):
        (delivery,) = broker.lease(name, 1)
        broker.advance(100)
        broker.ack(delivery)
        served.append(str(delivery.fairness_key))
    assert Counter(served) == {"acme": 30, "bakery": 10}
    recording = record(journal_files(exported(broker, tmp_path)), (name,))
    played = play(recording, AS_IT_WAS, messages_of(recording))
    in_order = sorted((at_ms, number) for number, at_ms in enumerate(played.leased_ms) if at_ms >= 0)
    assert [recording.key[number] for _, number in in_order[:40]] == served
    assert reproduce(tmp_path).is_exact
    even = play(recording, setting_of("weight:acme", "1", [name]), messages_of(recording))
    in_order = sorted((at_ms, number) for number, at_ms in enumerate(even.leased_ms) if at_ms >= 0)
    assert Counter(recording.key[number] for _, number in in_order[:40]) == {"acme": 20, "bakery": 20}


def test_a_pause_shows_as_a_pause(tmp_path: Path) -> None:
    """What the journal tells of a pause and what the replay makes of it are the same, and no consumer was busy."""
    broker = stepped_broker()
    broker.create_queue("work")
    broker.enqueue("work", b"", fairness_key="acme")
    broker.pause("work", key="acme")
    broker.advance(5_000)
    broker.resume("work", key="acme")
    (delivery,) = broker.lease("work", 1)
    broker.advance(100)
    broker.ack(delivery)
    recording = record(journal_files(exported(broker, tmp_path)), ("work",))
    assert recording.paused_ms.tolist() == [5_000]
    assert measured(recording, AS_IT_WAS)["acme"].paused_ms == 5_000
    assert measured(recording, setting_of("pause:acme", "false", ["work"]))["acme"].wait_max_ms == 0


def test_without_throttles_the_original_comes_out_as_it_was(tmp_path: Path) -> None:
    """Bursts, true costs, retries, delays and consumers that vanish: all first leases are at their milliseconds."""
    make_journal(tmp_path, TRAFFIC, policy={"weights": {"acme": 2}})
    recording = record(journal_files(tmp_path), ("work",))
    assert recording.consumers == [[ConsumerKind(counts=[(0, 8)])]]
    played = play(recording, AS_IT_WAS, messages_of(recording))
    assert list(played.leased_ms) == recording.leased_ms.tolist()


def test_one_run_leaves_nothing_behind_for_the_next(tmp_path: Path) -> None:
    """The same items give the same again, after runs that paused, throttled and capped."""
    make_journal(tmp_path, replace(TRAFFIC, messages=500, span_ms=8_000, throttles=("api",), deadline_part=0.1))
    recording = record(journal_files(tmp_path), ("work",))
    items = messages_of(recording)
    fresh = play(recording, AS_IT_WAS, messages_of(recording))
    for setting, value in (("pause:acme", "true"), ("rate:api", "1"), ("cap:bakery", "1")):
        play(recording, setting_of(setting, value, ["work"]), items)
    assert play(recording, AS_IT_WAS, items) == fresh


CANDIDATES = {
    "weight": {"weight:work:acme": "4", "weight:work:tenant-012": "3"},
    "throttle and cap": {"throttle:api:rate": "20", "throttle:api:burst": "5", "cap:work:acme": "3"},
}


@pytest.mark.parametrize("config", CANDIDATES.values(), ids=CANDIDATES)
def test_predictions_are_what_a_real_broker_does(tmp_path: Path, config: dict[str, str]) -> None:
    """A predicted p99 wait of a key is within 5 % of a real broker's on the same traffic, lost consumers included."""
    traffic = replace(TRAFFIC, messages=6_000, span_ms=90_000, throttles=("api",), throttled_part=0.3)
    by_no_chance = {"backoff_jitter": 0.0}  # otherwise two runs of a real broker would not agree either
    make_journal(tmp_path, traffic, policy=by_no_chance)
    predicted = measured(record(journal_files(tmp_path), ("work",)), Scenario(name="", config=dict(config)))
    broker = SteppedBroker()
    broker.create_queue("work", by_no_chance)
    broker.set_config_many(config)
    waits = drive(broker, traffic.arrivals(), queue="work", consumers=traffic.consumers).waits_ms
    compared = 0
    for key, real in waits.items():
        delays = sorted(real)
        p99 = delays[max(0, -(-99 * len(delays) // 100) - 1)]
        if len(delays) >= 100:
            compared += 1
            assert predicted[key].wait_p99_ms == pytest.approx(p99, rel=0.05, abs=20), key
    assert compared >= 8
