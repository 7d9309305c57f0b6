"""Runs of scenarios as the tasks of a Spark job. Works with Spark Connect, too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, cast
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fairlane.spark.whatif.tasks import LoadedGroup, RunOutcome, RunPlan, RunTask, run_tasks, split

Progress: TypeAlias = Callable[[int, int], None]
"""Called with how many runs are done, and how many there are."""
_TASKS_FOR_EACH: Final = 8
"""So many tasks for each that Spark runs at once: progress moves, and a slow task delays little."""
_POLL_S: Final = 0.5
_GROUP: Final = "spark.jobGroup.id"
_DESCRIPTION: Final = "spark.job.description"
_kept: dict[bytes, LoadedGroup] = {}
"""In a worker of Spark: the group of queues that its last task loaded. The next task often has the same."""


def run_in_spark(
    spark: SparkSession,
    work: RunPlan,
    *,
    sizes: Sequence[int],
    tasks: int | None = None,
    progress: Progress | None = None,
) -> list[RunOutcome]:
    """Run all scenarios on all groups. The files must be where executors find them under the same names.

    A task gets the numbers of its group and scenarios, reads the group's Parquet files itself, and returns a few rows.
    Nothing is shuffled, so one busy queue under many policies is as parallel as many queues. A worker keeps what it has
    read for its next task.

    Args:
        spark: the session to run in.
        work: what to run.
        sizes: how many messages each group has.
        tasks: how many tasks to run it in; a few for each that Spark runs at once, unless told otherwise.
        progress: called with how many runs are done, and how many there are.
    """
    runs = len(sizes) * len(work.numbers)
    parts = split(sizes, numbers=work.numbers, into=tasks or _TASKS_FOR_EACH * parallelism_of(spark))
    told = msgspec.msgpack.encode(work)
    plan = msgspec.msgpack.encode(parts)

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        known = msgspec.msgpack.decode(told, type=RunPlan)
        tasks = msgspec.msgpack.decode(plan, type=list[list[RunTask]])
        for batch in batches:
            for part in batch.column("id").to_pylist():
                found = run_tasks(known, tasks[part], kept=_kept)
                outcomes = [msgspec.msgpack.encode(outcome) for outcome in found]
                yield pa.RecordBatch.from_arrays([pa.array(outcomes, pa.binary())], names=["outcome"])

    frame = spark.range(0, len(parts), 1, len(parts)).mapInArrow(run, "outcome binary")
    note = progress or _nothing
    note(0, runs)
    with _watched(spark, lambda done: note(runs * done // len(parts), runs)):
        rows = frame.collect()
    note(runs, runs)
    return [msgspec.msgpack.decode(bytes(row.outcome), type=RunOutcome) for row in rows]


def parallelism_of(spark: SparkSession) -> int:
    """Return how many tasks Spark runs at once."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkException:  # Spark Connect has no context; a range has so many partitions unless told otherwise
        return spark.range(0, 1 << 12).select(F.spark_partition_id()).distinct().count()


def _nothing(_done: int, _total: int) -> None:
    pass


@contextmanager
def _watched(spark: SparkSession, note: Callable[[int], None]) -> Iterator[None]:
    """Call a function with how many tasks are done, while a job of this thread runs."""
    try:
        context = spark.sparkContext
    except PySparkException:
        with _watched_remotely(spark, note):
            yield
        return
    group, over = f"whatif-{uuid4().hex}", threading.Event()

    def watch() -> None:
        tracker = context.statusTracker()
        while not over.wait(_POLL_S):
            stages = [
                stage
                for job in tracker.getJobIdsForGroup(group)
                if (info := tracker.getJobInfo(job)) is not None
                for stage in map(tracker.getStageInfo, info.stageIds)
                if stage is not None
            ]
            note(sum(stage.numCompletedTasks for stage in stages))

    before = context.getLocalProperty(_GROUP), context.getLocalProperty(_DESCRIPTION)
    context.setJobGroup(group, "fairlane what-if: replay scenarios")
    watcher = threading.Thread(target=watch, daemon=True, name="fairlane-whatif-progress")
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        for name, value in zip((_GROUP, _DESCRIPTION), before, strict=True):
            context.setLocalProperty(name, cast("str", value))  # None removes a property, unlike its type says


@contextmanager
def _watched_remotely(spark: SparkSession, note: Callable[[int], None]) -> Iterator[None]:
    def handle(stages: Any, **_: object) -> None:  # noqa: ANN401 - Spark Connect's own type, which needs grpc
        note(sum(stage.num_completed_tasks for stage in stages or ()))

    handler: Any = handle
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)
