"""Other loads, the search for the fewest consumers, and the model's error."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fairlane.cli.main import cli
from fairlane.errors import CandidateInvalid, ModelInaccurate
from fairlane.model.message import NewMessage
from fairlane.spark.whatif.accuracy import model_errors
from fairlane.spark.whatif.advice import advise
from fairlane.spark.whatif.capacity import find_capacity
from fairlane.spark.whatif.comparison import Journal, compare
from fairlane.spark.whatif.consumers import ConsumerKind
from fairlane.spark.whatif.load import Load, loaded, mean_count
from fairlane.spark.whatif.measures import KeyCheck
from fairlane.spark.whatif.recording import Recording, record
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.sweeps import assumed, setting_of, sweep
from fairlane.spark.whatif.targets import target_of
from fairlane.testing.traffic import Traffic
from fairlane.testing.traffic_drive import make_journal
from tests.spark.whatif_journals import exported, stepped_broker

TRAFFIC = Traffic(messages=1_500, span_ms=30_000, tenants=5, consumers=4, load=0.95)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a busy queue with four consumers."""
    folder = tmp_path_factory.mktemp("journal")
    make_journal(folder, TRAFFIC)
    return folder


@pytest.fixture(scope="module")
def inaccurate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal that the model can't fit: its one consumer sleeps for a while, though messages wait."""
    broker = stepped_broker()
    broker.create_queue("work")
    for burst in range(60):
        broker.enqueue_many("work", [NewMessage(fairness_key="acme")] * 2)
        if burst % 20 == 10:
            broker.advance(20_000)
        for _ in range(2):
            (delivery,) = broker.lease("work", owner="sleepy")
            broker.advance(10)
            broker.ack(delivery)
    return exported(broker, tmp_path_factory.mktemp("inaccurate"))


@pytest.fixture(scope="module")
def recording(folder: Path) -> Recording:
    return record(Journal(folder).files, ("work",))


# ------------------------------------------------------------------------------------------------------------- loads


@pytest.mark.parametrize("factor", [0.5, 1.3, 2.0, 3.0])
def test_arrivals_are_so_many_times_as_many_for_each_key(recording: Recording, factor: float) -> None:
    """Each key has its messages times the factor, rounded down; they come in order, within the same time."""
    before, found = Counter(recording.key), loaded(recording, {"work": Load(arrivals={"": factor})})
    after = Counter(found.key)
    assert {key: after[key] for key in before} == {key: int(before[key] * factor + 1e-9) for key in before}
    assert list(found.at_ms) == sorted(found.at_ms)
    assert found.at_ms[-1] <= recording.at_ms[-1]


def test_arrivals_of_one_key_leave_the_others_alone(recording: Recording) -> None:
    """Three times as many messages of acme are three times as many of acme, and as many of the others."""
    found = loaded(recording, {"work": Load(arrivals={"acme": 3.0})})
    before, after = Counter(recording.key), Counter(found.key)
    assert after["acme"] == 3 * before["acme"]
    assert [after[key] for key in before if key != "acme"] == [before[key] for key in before if key != "acme"]


def test_delays_and_deadlines_move_with_their_message(tmp_path: Path) -> None:
    """A repetition is due, and missed, as long after it comes as the original."""
    broker = stepped_broker()
    broker.create_queue("work")
    broker.enqueue("work", NewMessage(delay_ms=500, deadline_ms=2_000))
    broker.advance(40_000)
    broker.enqueue("work", b"")
    found = loaded(record(Journal(exported(broker, tmp_path)).files, ("work",)), {"work": Load(arrivals={"": 2.0})})
    timed = [at for at, due_ms in enumerate(found.due_ms) if due_ms is not None]
    assert len(timed) == 2
    assert len({found.at_ms[at] for at in timed}) == 2
    for at in timed:
        assert (found.due_ms[at], found.deadline_ms[at]) == (found.at_ms[at] + 500, found.at_ms[at] + 2_000)


def test_service_times_keep_their_mean(recording: Recording) -> None:
    """Work that takes 0.7 times as long does so in the sum, though each message has whole milliseconds."""
    found = loaded(recording, {"work": Load(service={"": 0.7})})
    assert sum(found.busy_ms) == pytest.approx(0.7 * sum(recording.busy_ms), rel=0.005)


def test_kinds_of_consumers_keep_their_parts(recording: Recording) -> None:
    """Nine consumers instead of six are divided as before: six of one kind and three of the other."""
    kinds = [ConsumerKind(counts=[(0, 4)]), ConsumerKind(holds=8, counts=[(0, 2)])]
    base = replace(recording, consumers=[kinds])
    assert [kind.counts for kind in loaded(base, {"work": Load(consumers=9)}).consumers[0]] == [[(0, 6)], [(0, 3)]]
    assert [kind.counts for kind in loaded(base, {"work": Load(consumers_times=0.5)}).consumers[0]] == [
        [(0, 2)],
        [(0, 1)],
    ]


def test_the_mean_number_of_consumers_is_by_time() -> None:
    """Two consumers for a quarter of the time and six for the rest are five in the mean."""
    assert mean_count([(0, 2), (250, 6)], 1_000) == 5


@pytest.mark.parametrize(
    "text",
    ["consumers=x", "consumers=-1", "consumers=1.5", "consumers=10001", "arrivals=2", "service=x0", "arrivals=x1e3"],
)
def test_a_load_that_makes_no_sense_is_refused(text: str) -> None:
    """A load is a number of consumers, or a factor with an x before it."""
    setting, _, value = text.partition("=")
    with pytest.raises(CandidateInvalid):
        setting_of(setting, value, ["work"])


def test_loads_are_combined_with_settings(folder: Path) -> None:
    """Sweeps over consumers and arrivals are combined, on top of what they vary; the last value of a load counts."""
    journal = Journal(folder)
    found = sweep(Scenario(name=ORIGINAL), ["arrivals=x2", "consumers=4,8"], journal.queues, journal.policies)
    assert [one.name for one in found] == ["arrivals=x2, consumers=4", "arrivals=x2, consumers=8"]
    assert found[1].load["work"] == Load(consumers=8, arrivals={"": 2.0})
    twice = assumed(["arrivals=x2", "arrivals=x3"], journal.queues, journal.policies)
    assert twice.load["work"].arrivals == {"": 3.0}


# ---------------------------------------------------------------------------------------------------------- capacity


def test_the_search_finds_the_fewest_consumers(folder: Path) -> None:
    """The number it finds meets the target and one less does not, as trying every number by hand shows."""
    journal, target = Journal(folder), target_of("wait_p99:*<=500ms")
    steps = [setting_of("consumers", str(number), ["work"]) for number in range(1, 13)]
    found = compare(journal, steps)
    meets = [
        max(one.wait_p99_ms for key, one in found.of(at, "work").items() if key) <= 500
        for at in range(1, len(steps) + 1)
    ]
    fewest = meets.index(True) + 1
    capacity = find_capacity(journal, [target])
    assert (capacity.consumers, capacity.consumers_now) == (fewest, 4)
    assert fewest > 4
    assert len(capacity.tried) < 8
    assert {one.consumers for one in capacity.tried} >= {fewest, fewest - 1}


def test_twice_the_traffic_needs_more_consumers(folder: Path) -> None:
    """With arrivals x2 the fewest consumers are between 1.5 and 2.5 times as many."""
    journal, target = Journal(folder), target_of("wait_p99:*<=1s")
    once, twice = find_capacity(journal, [target]), find_capacity(journal, [target], assume=["arrivals=x2"])
    assert once.consumers is not None
    assert twice.consumers is not None
    assert 1.5 <= twice.consumers / once.consumers <= 2.5


def test_a_target_that_consumers_cannot_meet_has_no_number(folder: Path) -> None:
    """A search that reaches its limit says so, and shows what it tried."""
    found = find_capacity(Journal(folder), [target_of("wait_max<=1ms")], most=8)
    assert found.consumers is None
    assert [one.consumers for one in found.tried] == [4, 8]


def test_the_backlog_for_each_consumer_follows_from_its_speed(folder: Path) -> None:
    """A consumer that takes n messages a second may have n waiting if they may wait for a second."""
    attempts = sum(arrival.service_ms for arrival in TRAFFIC.arrivals()) / TRAFFIC.messages
    found = find_capacity(Journal(folder), [target_of("wait_p99:*<=1s")])
    assert found.waiting_per_consumer == pytest.approx(1000 / attempts, rel=0.1)


def _call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def test_the_command_answers_autoscalers(folder: Path) -> None:
    """As JSON it has the number of consumers, the backlog for each, and the model's error."""
    base = ("capacity", "--journal", str(folder), "--queue", "work", "--master", "none")
    result = _call("-o", "json", *base, "--target", "wait_p99:*<=1s", "--assume", "arrivals=x2")
    assert result.exit_code == 0, result.output
    told = json.loads(result.output)
    assert told["consumers"] > told["consumers_now"] == 4
    assert told["waiting_per_consumer"] > 0
    assert told["error"]["error"] < 0.05
    assert told["assumed"] == ["arrivals=x2"]
    shown = _call(*base, "--target", "wait_max<=1ms", "--most", "5")
    assert shown.exit_code == 4
    assert "none that was tried" in shown.output


# ------------------------------------------------------------------------------------------------------- the error


def _check(key: str, leased: int, journal_ms: int, model_ms: int) -> KeyCheck:
    return KeyCheck(queue="work", key=key, leased=leased, journal_p99_ms=journal_ms, model_p99_ms=model_ms)


def test_the_error_is_of_all_keys_and_of_each_by_its_messages() -> None:
    """A key with three quarters of the messages that is 40 % off makes an error of 30 %; a tiny key makes none."""
    checks = [_check("", 410, 1_000, 1_100), _check("a", 300, 1_000, 600), _check("b", 100, 1_000, 1_000)]
    (found,) = model_errors([*checks, _check("c", 10, 100, 900)], ["work"])
    assert found.error == pytest.approx(0.3)
    assert (found.all_keys, found.worst_key, found.worst) == (0.1, "a", 0.4)


def test_a_few_milliseconds_are_no_error() -> None:
    """Two milliseconds in the journal and nine in the model are the same."""
    (found,) = model_errors([_check("", 100, 2, 9)], ["work"])
    assert found.error == 0


def test_advice_is_declined_if_the_model_does_not_fit(inaccurate: Path) -> None:
    """Neither advice nor a number of consumers comes from a model that is far from the journal; the error says why."""
    journal = Journal(inaccurate)
    with pytest.raises(ModelInaccurate, match="more than 20%"):
        advise(journal, [target_of("wait_p99:acme<=1s")])
    with pytest.raises(ModelInaccurate, match="more than 20%"):
        find_capacity(journal, [target_of("wait_p99<=1s")])


def test_the_commands_say_how_far_the_model_is_off(inaccurate: Path) -> None:
    """whatif warns and shows the error, and advise ends with the code model_inaccurate."""
    base = ("--journal", str(inaccurate), "--master", "none")
    result = _call("whatif", *base, "--sweep", "quantum=2")
    assert result.exit_code == 0, result.output
    assert "its forecasts are not reliable" in result.stderr
    assert "error of the model" in result.stdout
    declined = _call("advise", *base, "--queue", "work", "--target", "wait_p99<=1s")
    assert declined.exit_code != 0
    assert "model_inaccurate" in declined.stderr


def test_a_journal_that_ends_in_a_backlog_is_compared_up_to_its_end(tmp_path: Path) -> None:
    """Messages that were never leased in the journal don't count against the model, which leases them later."""
    broker = stepped_broker()
    broker.create_queue("work")
    broker.enqueue_many("work", [NewMessage(fairness_key="acme")] * 400)
    for _ in range(100):
        (delivery,) = broker.lease("work", owner="one")
        broker.advance(100)
        broker.ack(delivery)
    found = compare(Journal(exported(broker, tmp_path)), [])
    assert found.of(0, "work")["acme"].wait_p99_ms > 30_000
    assert found.errors[0].error < 0.02
