"""A queue as a stream: fair, each batch the same however often it is read, and acked once Spark has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

from fairlane.client import Client, NewMessage
from fairlane.model.message import Receipt
from tests.spark.queues import address, each_batch, fill, queue_stream, until
from tests.system.server_process import ServerProcess


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    """A client, with a queue ``orders``."""
    with Client(address(server)) as client:
        client.create_queue("orders")
        yield client


class Batches:
    """Keeps the rows of each batch, and fails when told to."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.rows: dict[int, list[Row]] = {}
        self._fails_at = fails_at

    def __call__(self, frame: DataFrame, number: int) -> None:
        self.rows[number] = frame.collect()
        if number == self._fails_at:
            raise RuntimeError("the sink is out of order")

    @property
    def payloads(self) -> list[str]:
        """All payloads, in order of the batches."""
        return [bytes(row.payload).decode() for number in sorted(self.rows) for row in self.rows[number]]


def test_every_message_comes_once_and_is_acked(
    spark: SparkSession, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """All that waits comes in batches of the size asked for, with what is known of it, and nothing stays leased."""
    sent = fill(client, 2_500)
    seen = Batches()
    each_batch(queue_stream(spark, server, rows_max=1_000), seen, tmp_path / "cp").awaitTermination()
    assert sorted(seen.payloads) == sent
    assert [len(rows) for rows in seen.rows.values()] == [1_000, 1_000, 500]
    row = seen.rows[0][0]
    assert (row.queue, row.claim, row.attempt, row.failures, row.priority, row.cost) == ("orders", 1, 1, 0, "normal", 1)
    assert row.headers == {"n": bytes(row.payload).decode()}
    assert row.fairness_key == [f"t{int(row.headers['n']) % 5}"]
    assert row.correlation_id == row.id
    view = client.queue("orders")
    assert (view.waiting, view.leased) == (0, 0)
    fill(client, 10)
    more = Batches()
    each_batch(queue_stream(spark, server), more, tmp_path / "cp").awaitTermination()
    assert len(more.payloads) == 10


def test_weights_hold_for_spark_too(spark: SparkSession, server: ServerProcess, client: Client, tmp_path: Path) -> None:
    """A batch has three messages of a key of weight 3 for each of a key of weight 1."""
    for key, weight in (("large", 3), ("small", 1)):
        client.enqueue_many("orders", [NewMessage(fairness_key=key, weight=weight)] * 100)
    seen = Batches()
    each_batch(queue_stream(spark, server, rows_max=40), seen, tmp_path / "cp").awaitTermination()
    assert Counter(row.fairness_key[0] for row in seen.rows[0]) == {"large": 30, "small": 10}


def test_a_batch_that_failed_comes_again_as_it_was(
    spark: SparkSession, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """After a failure the same rows come in the same batch, under the same leases, though more has come meanwhile."""
    sent = fill(client, 50)
    failing = Batches(fails_at=1)
    with pytest.raises(StreamingQueryException, match="out of order"):
        each_batch(queue_stream(spark, server, rows_max=20), failing, tmp_path / "cp").awaitTermination()
    assert client.queue("orders").leased == 20
    client.enqueue_many("orders", [NewMessage(payload=b"new", fairness_key="t0")] * 3)
    seen = Batches()
    each_batch(queue_stream(spark, server, rows_max=20), seen, tmp_path / "cp").awaitTermination()
    assert 0 not in seen.rows
    assert sorted(seen.rows[1]) == sorted(failing.rows[1])
    assert sorted([bytes(row.payload).decode() for row in failing.rows[0]] + seen.payloads) == [
        *sent,
        "new",
        "new",
        "new",
    ]
    assert client.queue("orders").leased == 0


def test_what_a_lost_checkpoint_had_claimed_comes_first(
    spark: SparkSession, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """A query with a new checkpoint begins with the claim that the one before left open: nothing is lost."""
    sent = fill(client, 30)
    failing = Batches(fails_at=1)
    with pytest.raises(StreamingQueryException):
        each_batch(queue_stream(spark, server, rows_max=10), failing, tmp_path / "cp").awaitTermination()
    seen = Batches()
    each_batch(queue_stream(spark, server, rows_max=10), seen, tmp_path / "another").awaitTermination()
    assert sorted(seen.rows[0]) == sorted(failing.rows[1])
    assert sorted([bytes(row.payload).decode() for row in failing.rows[0]] + seen.payloads) == sent


def test_an_idle_query_acks_its_last_batch_and_a_second_driver_fences_it(
    spark: SparkSession, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """Though nothing more comes the last batch is acked; and who registers the consumer anew ends the query."""
    seen = Batches()
    query = each_batch(queue_stream(spark, server), seen, tmp_path / "cp", now=False)
    try:
        fill(client, 20)
        until(lambda: len(seen.payloads) == 20)
        until(lambda: client.queue("orders").leased == 0)
        client.register_consumer("orders", "etl")
        with pytest.raises(StreamingQueryException, match="at epoch"):
            query.awaitTermination(60)
    finally:
        query.stop()


def test_a_poisonous_message_can_be_settled_by_its_token(
    spark: SparkSession, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """A row's id and token are the right to settle its message: it goes to the dead letters, and the rest is acked."""
    fill(client, 10)

    def take(frame: DataFrame, _: int) -> None:
        bad = [row for row in frame.collect() if row.headers["n"] == "000007"]
        for row in bad:
            answers = client.nack_many("orders", [Receipt(row.id, row.token)], error="poison", intent="dead")
            assert answers == ["dead"]

    each_batch(queue_stream(spark, server), take, tmp_path / "cp").awaitTermination()
    view = client.queue("orders")
    assert (view.waiting, view.leased, view.dead) == (0, 0, 1)


def test_a_claim_that_was_given_back_is_told_or_skipped(
    spark: SparkSession, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """With idle_ms the claim of a dead driver is given back; its checkpoint then fails, or goes on and repeats."""
    sent = fill(client, 10)
    options: dict[str, Any] = {"idle_ms": 500}
    with pytest.raises(StreamingQueryException, match="out of order"):
        each_batch(queue_stream(spark, server, **options), Batches(fails_at=0), tmp_path / "cp").awaitTermination()
    until(lambda: client.queue("orders").leased == 0)
    with pytest.raises(StreamingQueryException, match="is over"):
        each_batch(queue_stream(spark, server, **options), Batches(), tmp_path / "cp").awaitTermination()
    seen = Batches()
    skipping = queue_stream(spark, server, on_released="skip", **options)
    each_batch(skipping, seen, tmp_path / "cp").awaitTermination()
    assert sorted(seen.payloads) == sent


def test_a_long_batch_keeps_its_claim(
    spark: SparkSession, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """While a batch is worked on, for longer than idle_ms, its claim is not given back."""
    fill(client, 10)
    leased: list[int] = []

    def take(frame: DataFrame, _: int) -> None:
        frame.collect()
        before = client.consumers("orders")[0].heard_ms
        until(lambda: client.consumers("orders")[0].heard_ms > before + 1_500)
        leased.append(client.queue("orders").leased)

    each_batch(queue_stream(spark, server, idle_ms=900), take, tmp_path / "cp").awaitTermination()
    assert leased == [10]
    assert client.queue("orders").leased == 0


def test_a_checkpoint_of_a_released_consumer_is_refused(
    spark: SparkSession, server: ServerProcess, client: Client, tmp_path: Path
) -> None:
    """A checkpoint that knows more claims than the broker belongs to a consumer that was released."""
    fill(client, 10)
    each_batch(queue_stream(spark, server), Batches(), tmp_path / "cp").awaitTermination()
    client.release_consumer("orders", "etl")
    with pytest.raises(StreamingQueryException, match="Use a new checkpoint"):
        each_batch(queue_stream(spark, server), Batches(), tmp_path / "cp").awaitTermination()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rows_max": "50001"}, "at most 50000 messages"),
        ({"on_released": "hope"}, "fail or skip"),
        ({"costumer": "x"}, "Did you mean consumer"),
    ],
)
def test_options_of_a_queue_are_checked(
    spark: SparkSession, server: ServerProcess, options: dict[str, str], told: str
) -> None:
    """An option that makes no sense is refused when the stream is made."""
    with pytest.raises(AnalysisException, match=told):
        queue_stream(spark, server, **options)


def test_a_queue_is_no_batch(spark: SparkSession, server: ServerProcess) -> None:
    """What is consumed is a stream, and the error says so."""
    reader = spark.read.format("fairlane").options(kind="queue", server=address(server), queue="orders", consumer="etl")
    with pytest.raises(AnalysisException, match="use readStream"):
        reader.load().collect()
