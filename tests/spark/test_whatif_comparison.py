"""Many scenarios on one journal, in Spark and without; advice; the page; the commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from fairlane.cli.main import cli
from fairlane.errors import CandidateInvalid
from fairlane.model.message import NewMessage
from fairlane.spark.whatif.advice import advise
from fairlane.spark.whatif.comparison import JOURNAL, Journal, compare
from fairlane.spark.whatif.measures import MeasuredPeriod
from fairlane.spark.whatif.page import page_of
from fairlane.spark.whatif.reproduction import reproduce
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.sweeps import sweep
from fairlane.spark.whatif.targets import target_of
from fairlane.spark.whatif.tasks import RunTask, split
from fairlane.testing.traffic import Traffic
from fairlane.testing.traffic_drive import make_journal
from tests.spark.whatif_journals import exported, stepped_broker

START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a busy queue, in which acme waits long."""
    folder = tmp_path_factory.mktemp("journal")
    traffic = Traffic(messages=2_000, span_ms=30_000, tenants=8, consumers=4, load=0.95, throttles=("api",))
    make_journal(folder, traffic, config={"throttle:api:rate": "30"}, segment_events=2_000)
    return folder


def _two_queues(folder: Path) -> Path:
    """A journal of two queues that share no throttle, one with twice as much as the other."""
    broker = stepped_broker()
    for name, count in (("work", 20), ("mail", 10)):
        broker.create_queue(name)
        broker.enqueue_many(name, [NewMessage(fairness_key=f"k{at % 3}") for at in range(count)])
        for _ in range(count):
            delivery = broker.lease(name)[0]
            broker.advance(20)
            broker.ack(delivery)
    return exported(broker, folder)


def test_spark_finds_what_one_process_finds(spark: SparkSession, folder: Path) -> None:
    """One queue under seven policies, spread over two tasks, gives the very same numbers as without Spark."""
    journal = Journal(folder)
    scenarios = sweep(Scenario(name=ORIGINAL), ["weight:acme=2,5", "cap:bakery=1,2,none"], ["work"], journal.policies)
    done: list[tuple[int, int]] = []
    found = compare(journal, scenarios, spark=spark, progress=lambda *counts: done.append(counts))
    assert found == compare(journal, scenarios)
    assert done[-1] == (7, 7)
    assert len({one.wait_p99_ms for at in range(7) for one in [found.of(at, "work")["acme"]]}) > 2


def test_spark_takes_several_queues(spark: SparkSession, tmp_path: Path) -> None:
    """Two queues under two policies come out as without Spark, each measured by itself."""
    journal = Journal(_two_queues(tmp_path))
    scenarios = sweep(Scenario(name=ORIGINAL), ["weight:k0=4"], journal.queues, journal.policies)
    found = compare(journal, scenarios, spark=spark)
    assert found == compare(journal, scenarios)
    assert {queue: found.of(1, queue)[""].messages for queue in found.queues} == {"mail": 10, "work": 20}


def test_a_queue_is_replayed_with_those_that_share_its_throttle(tmp_path: Path) -> None:
    """Two queues take tokens of one bucket in turn: asked about one, both are replayed, and one is measured."""
    broker = stepped_broker()
    broker.set_throttle("api", rate=10, burst=1)
    for name in ("one", "two", "alone"):
        broker.create_queue(name)
        throttles = () if name == "alone" else ("api",)
        broker.enqueue_many(name, [NewMessage(fairness_key="k", throttles=throttles) for _ in range(5)])
    for name in ("one", "two") * 5:
        broker.ack(broker.lease(name, wait_ms=1_000)[0])
    journal = Journal(exported(broker, tmp_path), queues=["one"])
    assert journal.groups == [("one", "two")]
    found = compare(journal, [])
    assert found.queues == ["one"]
    assert {measures.queue for measures in found.measures} == {"one"}
    assert reproduce(tmp_path, queues=["one"]).hand_outs == 10
    assert reproduce(tmp_path, queues=["one"]).is_exact


def test_runs_are_split_into_equal_parts() -> None:
    """One busy queue under eight policies is halved; with a small one beside it, neither is run twice or left out."""
    halves = split([1_000], numbers=range(8), into=2)
    assert halves == [[RunTask(0, [0, 1, 2, 3])], [RunTask(0, [4, 5, 6, 7])]]
    parts = split([1_000, 10], numbers=range(4), into=3)
    runs = [(task.group, at) for part in parts for task in part for at in task.scenarios]
    assert sorted(runs) == [(group, at) for group in range(2) for at in range(4)]
    assert len(parts) == 3


def test_a_span_measures_some_and_replays_all(tmp_path: Path) -> None:
    """Measured are the messages that came within the span; how long they waited is still decided by those before."""
    broker = stepped_broker()
    broker.create_queue("work")
    for key in ("early", "late"):
        broker.enqueue_many("work", [NewMessage(fairness_key=key) for _ in range(3)])
        broker.advance(10)
    for _ in range(6):
        delivery = broker.lease("work")[0]
        broker.advance(100)
        broker.ack(delivery)
    journal = Journal(exported(broker, tmp_path))
    whole, part = compare(journal, []), compare(journal, [], span=MeasuredPeriod(from_ms=START_MS + 10))
    assert set(part.of(0, "work")) == {"", "late"}
    assert part.of(0, "work")["late"].wait_mean_ms == whole.of(0, "work")["late"].wait_mean_ms > 300


def test_the_journal_itself_is_measured_beside_the_model(folder: Path) -> None:
    """What the journal tells and what the model says of the original policy are both there, and close."""
    found = compare(Journal(folder), [])
    told, modelled = found.of(JOURNAL, "work"), found.of(0, "work")
    assert told["acme"].messages == modelled["acme"].messages
    assert modelled["acme"].wait_p99_ms == pytest.approx(told["acme"].wait_p99_ms, rel=0.05)


def test_advice_meets_the_target_at_the_least_cost(folder: Path) -> None:
    """Of the settings that meet the target, none costs the rest less than the one proposed, and commands apply it."""
    journal = Journal(folder)
    before = compare(journal, []).of(0, "work")["acme"].wait_p99_ms
    target = target_of(f"wait_p99:acme<={before // 2}ms")
    found = advise(journal, [target])
    assert found.proposal is not None
    assert found.proposal.values[0] <= before // 2
    assert found.proposal.cost_ms == min(one.cost_ms for one in found.tried if one.is_met)
    assert any("weight:work:acme" in command for command in found.commands)
    assert {one.name for one in found.tried} > {ORIGINAL, "weight:acme=2", "rate:api=60"}


def test_advice_says_when_nothing_helps(folder: Path) -> None:
    """A target that no setting meets gets no proposal; what came closest is first."""
    found = advise(Journal(folder), [target_of("wait_mean<=1ms")], sweeps=["weight:acme=1,2"])
    assert (found.proposal, found.commands) == (None, [])
    assert [one.lack for one in found.tried] == sorted(one.lack for one in found.tried)


def test_advice_about_an_unknown_key_is_refused(folder: Path) -> None:
    """A target for a key of which no message came is refused."""
    with pytest.raises(CandidateInvalid, match="no messages of key 'nobody'"):
        advise(Journal(folder), [target_of("wait_p99:nobody<=1s")])


def test_the_page_needs_nothing_else(folder: Path) -> None:
    """The page has its script inside, loads nothing, and shows every scenario; names are escaped."""
    found = compare(Journal(folder), [Scenario(name="<candidate>", config={"weight:work:acme": "3"})])
    page = page_of(found)
    head, _, body = page.partition("</head>")
    assert "Plotly" in head
    assert "src=" not in body
    assert "&lt;candidate&gt;" in body
    assert "<candidate>" not in body
    assert "Error of the model on this journal: " in body


def test_the_page_has_numbers_and_an_axis_from_zero(tmp_path: Path) -> None:
    """Where no message waits, the page says 0 ms for each key and its axes begin at 0; consumers are described."""
    broker = stepped_broker()
    broker.create_queue("work")
    for _ in range(5):
        broker.enqueue("work", b"", fairness_key="acme")
        (delivery,) = broker.lease("work")
        broker.advance(100)
        broker.ack(delivery)
    page = page_of(compare(Journal(exported(broker, tmp_path)), []))
    body = page.partition("</head>")[2]
    assert "<td>acme</td><td>5</td><td>0 ms</td>" in body
    assert '"range":[0,1.0]' in body.replace(" ", "")
    assert "each with 1 lease, 1 at work at a time" in body


def test_the_page_counts_keys_that_are_better_and_worse(tmp_path: Path) -> None:
    """Ten messages each, one a second: with weight 5 acme is done after 11 s and not 18; bakery after 19 s still."""
    broker = stepped_broker()
    broker.create_queue("work")
    for key in ("acme", "bakery") * 10:
        broker.enqueue("work", b"", fairness_key=key)
    for _ in range(20):
        (delivery,) = broker.lease("work", owner="worker")
        broker.advance(1_000)
        broker.ack(delivery)
    journal = Journal(exported(broker, tmp_path))
    scenarios = sweep(Scenario(name=ORIGINAL), ["weight:acme=5"], journal.queues, journal.policies)
    rows = page_of(compare(journal, scenarios)).partition("</head>")[2].split("<tr>")
    better_and_worse = [row.split("<td>")[-2:] for row in rows if row.startswith(("<td>original", "<td>weight"))]
    assert [[int(cell.partition("<")[0]) for cell in cells] for cells in better_and_worse] == [[0, 0], [1, 0]]


def _call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def test_the_command_tells_what_a_weight_would_have_done(folder: Path, tmp_path: Path) -> None:
    """A candidate in a file and a sweep give a table for each scenario, and a page with plots."""
    candidate, page = tmp_path / "candidate.toml", tmp_path / "page.html"
    candidate.write_text("quantum = 2\n")
    base = ("whatif", "--journal", folder, "--master", "none")
    result = _call(*map(str, base), "--policy", str(candidate), "--sweep", "weight:acme=1,5", "--html", str(page))
    assert result.exit_code == 0, result.output
    assert "work: candidate, weight:acme=5" in result.output
    assert "work: error of the model" in result.output
    assert page.read_text().startswith("<!doctype html>")


def test_the_command_answers_programs(folder: Path) -> None:
    """As JSON the command gives all measures, with the scenarios they are of."""
    result = _call("-o", "json", "whatif", "--journal", str(folder), "--master", "none", "--sweep", "weight:acme=5")
    told = json.loads(result.output)
    assert [scenario["name"] for scenario in told["scenarios"]] == ["original", "weight:acme=5"]
    assert {"wait_p99_ms", "share", "misses"} <= set(told["measures"][0])


def test_the_command_checks_the_journalled_order(folder: Path) -> None:
    """With --reproduce it says that all hand-outs were reproduced."""
    result = _call("whatif", "--journal", str(folder), "--reproduce")
    assert result.output.startswith("All ")
    assert "were reproduced in the journal's order" in result.output


def test_the_command_wants_something_to_try(folder: Path) -> None:
    """Without a candidate or a sweep the command is used wrongly."""
    result = _call("whatif", "--journal", str(folder))
    assert result.exit_code == 2


def test_advice_by_command_prints_what_to_call(folder: Path) -> None:
    """The command prints what was tried and how to apply the proposal; with nothing to propose it ends with 4."""
    base = ("advise", "--journal", str(folder), "--queue", "work", "--master", "none", "--sweep", "weight:acme=same,8")
    result = _call(*base, "--target", "wait_p99:acme<=1h")
    assert result.exit_code == 0, result.output
    assert "no change: the targets are met already" in result.output
    result = _call(*base, "--target", "wait_p99:acme<=1ms")
    assert result.exit_code == 4
    assert "no setting meets the targets" in result.output
