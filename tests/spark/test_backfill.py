"""Backfill sends the rows of files once, at a rate, and goes on where it was interrupted."""

from __future__ import annotations

import shutil
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from fairlane.client import Client
from fairlane.errors import InvalidArgument, QueueNotFound
from fairlane.spark.bulk.backfill import Backfill, Progress, Rows, forget_rows, run_backfill
from fairlane.spark.source.server_address import ServerAddress
from tests.spark.queues import address
from tests.system.server_process import ServerProcess

ROWS = 230


class FakePace:
    """A clock that passes only when it is waited for."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def now_s(self) -> float:
        return self.at_s

    def wait(self, seconds: float) -> None:
        self.at_s += seconds


@pytest.fixture
def rows(spark: SparkSession, tmp_path: Path) -> Rows:
    """Orders of three tenants in JSON files, read as messages."""
    orders = spark.range(ROWS).selectExpr(
        "id AS number", "concat('t', id % 3) AS tenant", "concat('order ', id) AS body"
    )
    orders.repartition(3).write.json(str(tmp_path / "orders"))
    columns = ("body AS payload", "tenant AS fairness_key", "map('number', string(number)) AS headers")
    return Rows(path=str(tmp_path / "orders"), file_format="json", columns=columns)


def backfill(server: ServerProcess, tmp_path: Path, rows: Rows, *, rate: float | None = 50.0) -> Backfill:
    place = ServerAddress(server=address(server))
    return Backfill(place=place, queue="orders", name="old", source=str(rows), work=tmp_path / "work", rate=rate)


def payloads(server: ServerProcess) -> list[str]:
    """Return the payloads of all messages in the queue."""
    with Client(address(server)) as client:
        return [str(view.payload, "utf-8") for view in client.peek("orders", 10_000, with_body=True) if view.payload]


def create(server: ServerProcess) -> None:
    with Client(address(server)) as client:
        client.create_queue("orders")


def test_every_row_becomes_a_message_at_the_rate(
    spark: SparkSession, server: ServerProcess, rows: Rows, tmp_path: Path
) -> None:
    """All rows are there once, with their keys, and the time it takes is what the rate says."""
    create(server)
    pace = FakePace()
    told = list(run_backfill(spark, lambda: rows.frame(spark), backfill(server, tmp_path, rows), pace=pace))
    assert told[0] == Progress(0, ROWS)
    assert told[-1] == Progress(ROWS, ROWS)
    assert all(later.sent - earlier.sent <= 50 for earlier, later in pairwise(told))
    assert ROWS / 50 - 1 <= pace.at_s <= ROWS / 50
    assert sorted(payloads(server)) == sorted(f"order {number}" for number in range(ROWS))
    with Client(address(server)) as client:
        view = client.peek("orders", 1, with_body=True)[0]
        number = int(view.headers["number"])  # type: ignore[index] # bodies were asked for
        assert view.fairness_key == f"t{number % 3}"


@pytest.mark.parametrize("kind", [threading.Thread, InheritableThread])
def test_a_backfill_runs_in_a_thread_of_the_user(
    spark: SparkSession, server: ServerProcess, rows: Rows, tmp_path: Path, kind: type[threading.Thread]
) -> None:
    """In a thread that has no session, plain or inheritable, all rows are sent as well."""
    create(server)
    told: list[Progress] = []
    chosen = backfill(server, tmp_path, rows, rate=None)

    def work() -> None:
        told.extend(run_backfill(spark, lambda: rows.frame(spark), chosen, pace=FakePace()))

    thread = kind(target=work)
    thread.start()
    thread.join()
    assert told[-1:] == [Progress(ROWS, ROWS)]
    assert len(payloads(server)) == ROWS


def test_an_interrupted_backfill_goes_on_and_sends_nothing_twice(
    spark: SparkSession, server: ServerProcess, rows: Rows, tmp_path: Path
) -> None:
    """Left in the middle, with its source gone and a batch sent that nobody noted, it sends just the rest."""
    create(server)
    chosen = backfill(server, tmp_path, rows)
    first = run_backfill(spark, lambda: rows.frame(spark), chosen, pace=FakePace())
    sent = [next(first).sent, next(first).sent, next(first).sent][-1]
    del first
    shutil.rmtree(tmp_path / "orders")
    rest = list(run_backfill(spark, lambda: rows.frame(spark), chosen, pace=FakePace()))
    assert (rest[0], rest[-1]) == (Progress(sent, ROWS), Progress(ROWS, ROWS))
    again = list(run_backfill(spark, lambda: rows.frame(spark), chosen, pace=FakePace()))
    assert again == [Progress(ROWS, ROWS)]
    assert sorted(payloads(server)) == sorted(f"order {number}" for number in range(ROWS))
    forget_rows(chosen)
    assert not chosen.work.exists()


def test_what_can_not_be_sent_is_refused_before_anything_is(
    spark: SparkSession, server: ServerProcess, rows: Rows, tmp_path: Path
) -> None:
    """Columns that are no message's, files that are not there, another source under the same name, an unknown queue."""
    missing = Rows(path=str(tmp_path / "nowhere"))
    with pytest.raises(InvalidArgument, match="Could not read"):
        missing.frame(spark)
    wrong = Rows(path=rows.path, file_format="json")
    chosen = backfill(server, tmp_path, rows)
    with pytest.raises(InvalidArgument, match="drop or rename it"):
        list(run_backfill(spark, lambda: wrong.frame(spark), chosen, pace=FakePace()))
    with pytest.raises(QueueNotFound):
        list(run_backfill(spark, lambda: rows.frame(spark), chosen, pace=FakePace()))
    other = backfill(server, tmp_path, Rows(table="customers"))
    with pytest.raises(InvalidArgument, match="another name"):
        list(run_backfill(spark, lambda: rows.frame(spark), other, pace=FakePace()))
    with pytest.raises(InvalidArgument, match="either a path or a table"):
        Rows()
