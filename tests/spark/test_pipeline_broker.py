"""From a broker's own journal to the tables, checked against what was done to the broker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fairlane.adapters.parquet_export import export_segment
from fairlane.broker.refusals import RECORDED_EVERY_MS
from fairlane.journal.identity import JournalIdentity
from fairlane.journal.records import SegmentImage
from fairlane.model.ids import message_number
from fairlane.spark.pipeline import JournalFolder, LiveJournal, read_table, run_pipeline, verify
from fairlane.spark.source.server_address import ServerAddress
from fairlane.testing.stepped import SteppedBroker
from tests.kit.simulation.simulation import Simulation
from tests.spark.table_rows import told
from tests.system.server_process import ServerProcess
from tests.unit.broker.stepping import broker_with, message


def export(broker: SteppedBroker, folder: Path) -> None:
    """Write the whole journal of a broker as one segment."""
    end = broker.engine.ledger.next_sequence
    journal = JournalIdentity(journal_id=broker.read_journal(0, count=1).journal_id)
    export_segment(SegmentImage(1, end, 0, 0, 0), broker.store.pages(0), folder, journal=journal)


@pytest.mark.long
def test_what_was_done_to_a_broker_is_in_the_tables(spark: SparkSession, tmp_path: Path) -> None:
    """Counts, costs, waits, throttles and deaths are those that the test itself brought about."""
    broker = SteppedBroker()
    broker.create_queue("jobs", {"max_attempts": 1})
    broker.set_throttle("api", rate=1, burst=1)
    for number in range(30):
        broker.enqueue("jobs", b"x" * number, fairness_key="acme", cost=2)
    for _ in range(10):
        broker.enqueue("jobs", b"yy", fairness_key=("beta", "mobile"))
    broker.enqueue("jobs", b"", fairness_key="slow", throttles=("api",))
    broker.enqueue("jobs", b"", fairness_key="slow", throttles=("api",))
    broker.enqueue("jobs", b"", fairness_key="late", deadline_ms=500)
    broker.pause("jobs", key="late")
    broker.advance(400)
    leased = broker.lease("jobs", 41)
    broker.advance(600)
    for delivery in leased[:-3]:
        broker.ack(delivery, cost=5)
    for number, delivery in enumerate(leased[-3:]):
        broker.nack(delivery, error=f"gave up after {number} tries")
    broker.advance(400)
    (second,) = broker.lease("jobs", 10)
    broker.advance(50)
    broker.ack(second)
    export(broker, tmp_path / "journal")
    run_pipeline(spark, JournalFolder(tmp_path / "journal"), tmp_path / "tables")

    ends = Counter(str(delivery.fairness_key) for delivery in leased[-3:])
    usage = told(
        read_table(spark, tmp_path / "tables", "tenant_usage")
        .groupBy("top_key")
        .sum("enqueued", "leased", "acked", "dead"),
        *("top_key", "sum(enqueued)", "sum(leased)", "sum(acked)", "sum(dead)"),
    )
    lost = {key: sum(count for name, count in ends.items() if key in name) for key in ("acme", "beta", "slow")}
    assert usage == [
        ("acme", 30, 30, 30 - lost["acme"], lost["acme"]),
        ("beta", 10, 10, 10 - lost["beta"], lost["beta"]),
        ("late", 1, 0, 0, 0),
        ("slow", 2, 2, 2 - lost["slow"], lost["slow"]),
    ]
    messages = read_table(spark, tmp_path / "tables", "messages")
    assert told(messages.where("top_key = 'late'"), "outcome", "reason") == [("removed", "deadline")]
    assert messages.where("outcome = 'acked'").selectExpr("sum(cost_true)").first() == (5 * 38,)
    assert told(
        messages.where(f"message_id = '{message_number(second.id)}'"),
        "throttled_ms",
        "turn_ms",
        "wait_ms",
        "service_ms",
    ) == [(1000, 400, 1400, 50)]
    ((signature, count),) = told(read_table(spark, tmp_path / "tables", "dead_letters"), "signature", "count")
    assert (signature, count) == ("gave up after <n> tries", 3)
    assert told(read_table(spark, tmp_path / "tables", "sla"), "top_key", "missed") == [("late", 1)]


@pytest.mark.parametrize("seed", [3])
def test_a_simulation_and_its_tables_agree(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Of a broker under fire: each event once, each message with the outcome the auditor's books have."""
    simulation = Simulation(seed, steps=120)
    simulation.run()
    books = simulation.auditor.books
    segment = SegmentImage(books.trimmed, books.next_sequence, 0, 0, 0)
    export_segment(
        segment,
        simulation.disk.pages(books.trimmed - 1),
        tmp_path / "journal",
        journal=JournalIdentity(journal_id="00000000000000aa"),
    )
    run_pipeline(spark, JournalFolder(tmp_path / "journal"), tmp_path / "tables", on_trimmed="skip")

    events = read_table(spark, tmp_path / "tables", "events")
    kinds = {row["kind"]: row["count"] for row in events.groupBy("kind").count().collect()}
    messages = read_table(spark, tmp_path / "tables", "messages")
    outcomes = {row["outcome"]: row["count"] for row in messages.groupBy("outcome").count().collect()}
    entries = [entry for queue in books.queues.values() for entry in queue.entries.values()]
    alive = Counter(
        "dead" if entry.queue.endswith(".dlq") else "leased" if entry.token else "waiting" for entry in entries
    )
    known = {name: outcomes.get(name, 0) for name in ("dead", "leased", "waiting")}
    assert known == {name: alive.get(name, 0) for name in known}
    assert outcomes["acked"] == kinds["acked"]
    usage = read_table(spark, tmp_path / "tables", "tenant_usage").agg({"enqueued": "sum", "leased": "sum"}).first()
    in_queues = events.where("kind = 'leased' AND queue NOT LIKE '%.dlq'").count()
    assert usage is not None
    assert (usage["sum(enqueued)"], usage["sum(leased)"]) == (kinds["enqueued"] + kinds["published"], in_queues)


@pytest.mark.long
def test_refused_messages_agree_with_the_broker(spark: SparkSession, tmp_path: Path) -> None:
    """What limits keep out is compared with the broker's own count, which begins anew with a queue created again."""
    broker = broker_with({"key_waiting_max": 1})
    broker.create_queue("again", {"key_waiting_max": 1})
    refuse(broker, "q", 5)
    refuse(broker, "again", 2)
    broker.delete_queue("again")
    broker.create_queue("again", {"key_waiting_max": 1})
    refuse(broker, "again", 1)
    export(broker, tmp_path / "journal")
    run_pipeline(spark, JournalFolder(tmp_path / "journal"), tmp_path / "tables")
    refuse(broker, "q", 3)
    found = verify(spark, broker, tmp_path / "tables")
    assert (found.mismatches, found.gaps, found.queues) == ([], (), 4)
    usage = read_table(spark, tmp_path / "tables", "tenant_usage").groupBy("queue").agg(F.sum("refused").alias("sum"))
    assert told(usage, "queue", "sum") == [("again", 3), ("q", 5)]
    assert (broker.queue("q").refused, broker.queue("again").refused) == (8, 1)


def refuse(broker: SteppedBroker, queue: str, count: int) -> None:
    """Have so many messages of a tenant refused that has one already, or gets it now."""
    room = 0 if broker.queue(queue).waiting else 1
    broker.enqueue_many(queue, [message(fairness_key="acme")] * (count + room))
    broker.advance(RECORDED_EVERY_MS)


@pytest.mark.long
def test_the_journal_of_a_live_server(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    """Tables made from a server follow it run by run, it keeps its journal for them, and they agree with it."""
    place = ServerAddress(server=f"http://{server.address}")
    source = LiveJournal(place, reader="tables")
    with place.client() as client:
        client.create_queue("jobs")
        for _ in range(5):
            client.enqueue("jobs", b"x", fairness_key="acme")
        first = run_pipeline(spark, source, tmp_path / "tables")
        for message in client.lease("jobs", 3):
            client.ack(message)
        second = run_pipeline(spark, source, tmp_path / "tables")
        readers = {reader.name: reader.position for reader in client.readers()}
        client.lease("jobs", 1)
        found = verify(spark, client, tmp_path / "tables")
    assert (found.agrees, found.keys, found.followed > 0) == (True, 1, True)
    assert first.run < second.run
    assert told(read_table(spark, tmp_path / "tables", "messages"), "outcome") == [("acked",)] * 3 + [("waiting",)] * 2
    assert readers["tables"] > 0


@pytest.mark.long
def test_an_idle_server_causes_no_spark_job(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    """The reader that a run moves is not news for the next run, and looking writes nothing to the journal."""
    place = ServerAddress(server=f"http://{server.address}")
    source = LiveJournal(place)
    tracker = spark.sparkContext.statusTracker()
    with place.client() as client:
        client.create_queue("jobs")
        client.enqueue("jobs", b"x")
        first = run_pipeline(spark, source, tmp_path / "tables")
        ended, jobs = client.read_journal(0).position, tracker.getJobIdsForGroup(None)
        for _ in range(3):
            idle = run_pipeline(spark, source, tmp_path / "tables")
            assert (idle.segments, idle.run, idle.journals) == (0, first.run, first.journals)
        assert tracker.getJobIdsForGroup(None) == jobs
        assert client.read_journal(0).position == ended
        client.enqueue("jobs", b"y")
        assert run_pipeline(spark, source, tmp_path / "tables").run == first.run + 1


@pytest.mark.long
def test_a_server_without_messages_is_idle_too(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    """Once the beginning of the journal is in the tables, looking starts no job and adds nothing to the journal."""
    place = ServerAddress(server=f"http://{server.address}")
    assert run_pipeline(spark, LiveJournal(place), tmp_path / "tables").events == 1
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    with place.client() as client:
        known = client.read_journal(0).events
        for _ in range(3):
            assert run_pipeline(spark, LiveJournal(place), tmp_path / "tables").segments == 0
        assert client.read_journal(0).events == known
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(None) == jobs
