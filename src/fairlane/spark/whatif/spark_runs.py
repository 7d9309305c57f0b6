"""Runs of scenarios as the tasks of a Spark job. Works with Spark Connect, too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast
from uuid import uuid4

import msgspec
import pyarrow as pa

from fairlane.spark.whatif.tasks import LoadedGroup, RunOutcome, RunPlan, RunTask, run_tasks, split

if TYPE_CHECKING:  # without Spark, scenarios run in this process
    from pyspark import SparkContext, StatusTracker
    from pyspark.sql import SparkSession

Progress: TypeAlias = Callable[[int, int], None]
"""Called with how many runs are done, and how many there are."""
_TASKS_FOR_EACH: Final = 8
"""The number of tasks for each that Spark runs at once: progress moves, and a slow task delays little."""
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
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        return int(context.defaultParallelism)
    # Spark Connect has no context; but a range has one partition for each task that runs at once.
    return spark.range(0, 1 << 12).selectExpr("spark_partition_id() AS part").distinct().count()


def _nothing(_done: int, _total: int) -> None:
    pass


def _watched(spark: SparkSession, note: Callable[[int], None]) -> AbstractContextManager[None]:
    """Call a function with how many tasks are done, while a job of this thread runs."""
    context = getattr(spark, "sparkContext", None)
    return _watched_remotely(spark, note) if context is None else _watched_here(context, note)


@contextmanager
def _watched_here(context: SparkContext, note: Callable[[int], None]) -> Iterator[None]:
    group, over = f"whatif-{uuid4().hex}", threading.Event()

    def watch() -> None:
        while not over.wait(_POLL_S):
            note(_done(context.statusTracker(), group))

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


def _done(tracker: StatusTracker, group: str) -> int:
    """Return how many tasks of a group of jobs are done."""
    jobs = [info for job in tracker.getJobIdsForGroup(group) if (info := tracker.getJobInfo(job)) is not None]
    stages = [tracker.getStageInfo(stage) for info in jobs for stage in info.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)


class _Stage(Protocol):
    """What Spark Connect tells of a stage; its own type needs grpc."""

    num_completed_tasks: int


@contextmanager
def _watched_remotely(spark: SparkSession, note: Callable[[int], None]) -> Iterator[None]:
    def handle(stages: Iterable[_Stage] | None, **_: object) -> None:
        note(sum(stage.num_completed_tasks for stage in stages or ()))

    handler: Any = handle
    spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        spark.removeProgressHandler(handler)
