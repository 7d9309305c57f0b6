"""A session in threads of a user's own: reading and writing work there as in the main thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

from fairlane.client import Client
from fairlane.spark import in_thread
from fairlane.spark.threads import described
from tests.spark.queues import address
from tests.system.server_process import ServerProcess

Start = Callable[[Callable[[], None]], None]


def plain(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def inheritable(work: Callable[[], None]) -> None:
    thread = InheritableThread(target=work)
    thread.start()
    thread.join()


def pooled(work: Callable[[], None]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


@pytest.mark.parametrize("start", [plain, inheritable, pooled])
def test_a_thread_writes_to_a_queue_and_reads_it(spark: SparkSession, server: ServerProcess, start: Start) -> None:
    """Work for another thread finds the format, in whatever thread it runs, and keeps the description of its jobs."""
    with Client(address(server)) as client:
        client.create_queue("orders")
    found: list[object] = []

    def work() -> None:
        options = {"server": address(server), "queue": "orders"}
        spark.range(5).selectExpr("string(id) AS payload").write.format("fairlane").mode("append").options(
            **options
        ).save()
        found.append(spark.read.format("fairlane").options(kind="peek", **options).load().count())
        found.append(spark.sparkContext.getLocalProperty("spark.job.description"))

    with described(spark, "theirs"):
        start(in_thread(spark, work))
    assert found == [5, "theirs"]
