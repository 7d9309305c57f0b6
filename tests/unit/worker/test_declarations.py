"""Tests of queues that a worker declares."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fairlane.client import QueuePolicy
from fairlane.errors import Forbidden
from fairlane.worker import WorkMessage

from .bench import WorkerBench, on_bench

if TYPE_CHECKING:
    import pytest


async def handle(_: WorkMessage) -> None:
    return None


def test_a_declared_queue_is_created_at_the_start() -> None:
    """A queue that does not exist is created with the declared policy, and then consumed."""

    async def test(bench: WorkerBench) -> None:
        bench.app.handler("mail", policy=QueuePolicy(max_attempts=3))(handle)
        async with bench.app:
            await bench.until(lambda: len(bench.tap.sinks) == 1)
        assert (await bench.client.queue("mail")).policy.max_attempts == 3

    on_bench(test)


def test_an_operators_change_stays_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A queue that exists keeps its policy; the log names the field with both values."""

    async def test(bench: WorkerBench) -> None:
        await bench.client.update_queue("jobs", {"max_attempts": 9})
        bench.app.handler("jobs", policy={"max_attempts": 3, "backoff_ms": 0})(handle)
        async with bench.app:
            await bench.until(lambda: len(bench.tap.sinks) == 1)
        assert (await bench.client.queue("jobs")).policy.max_attempts == 9

    with caplog.at_level(logging.WARNING, "fairlane.worker"):
        on_bench(test)
    (record,) = caplog.records
    assert record.getMessage().startswith("Queue jobs has max_attempts=9, and the program declares 3.")


def test_a_worker_without_the_right_to_create_queues_consumes() -> None:
    """A consume key is enough: creating queues is then left to operators."""

    async def test(bench: WorkerBench) -> None:
        bench.tap.refusals["ensure_queue"] = [Forbidden("Needs admin.")]
        bench.app.handler("jobs", policy={})(handle)
        async with bench.app:
            await bench.enqueue(b"work")
            await bench.settled("ack")

    on_bench(test)


def test_a_queue_that_is_missing_for_long_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each retry is reported to on_error, and the log has one line for all of them."""

    async def test(bench: WorkerBench) -> None:
        failures: list[BaseException] = []
        bench.app.on_error(lambda error, _: failures.append(error))
        bench.app.handler("mail")(handle)
        async with bench.app:
            await bench.until(lambda: len(failures) >= 2)
            await bench.client.create_queue("mail")
            await bench.enqueue(b"work", queue="mail")
            await bench.settled("ack")

    with caplog.at_level(logging.WARNING, "fairlane.worker"):
        on_bench(test)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["Cannot consume queue mail"]
