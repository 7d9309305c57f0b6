"""Distributes scenarios over the tasks of a Spark job.

A task gets the numbers of its group and scenarios, reads the group's Parquet files itself, once, and returns a few
rows. Nothing is shuffled, so one busy queue under many policies is as parallel as many queues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from fairlane.spark.whatif.tasks import RunOutcome, RunPlan, RunTask, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_in_spark(
    spark: SparkSession,
    work: RunPlan,
    *,
    sizes: Sequence[int],
    tasks: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[RunOutcome]:
    """Run all scenarios on all groups. The files must be where executors find them under the same names.

    Args:
        spark: where to run.
        work: what to run.
        sizes: how many messages each group has.
        tasks: how many tasks to run it in; as many as Spark runs at once, unless told otherwise.
        progress: called with how many runs are done, and how many there are.
    """
    into = tasks or spark.sparkContext.defaultParallelism
    parts = split(sizes, scenarios=len(work.scenarios), into=into)
    told = msgspec.msgpack.encode(work)
    plan = msgspec.msgpack.encode(parts)

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        known = msgspec.msgpack.decode(told, type=RunPlan)
        tasks = msgspec.msgpack.decode(plan, type=list[list[RunTask]])
        for batch in batches:
            for part in batch.column("id").to_pylist():
                outcomes = [msgspec.msgpack.encode(outcome) for outcome in run_tasks(known, tasks[part])]
                yield pa.RecordBatch.from_arrays([pa.array(outcomes, pa.binary())], names=["outcome"])

    frame = spark.range(0, len(parts), 1, len(parts)).mapInArrow(run, "outcome binary")
    total = sum(len(task.scenarios) for part in parts for task in part)
    outcomes: list[RunOutcome] = []
    done = 0
    if progress is not None:
        progress(0, total)
    for row in frame.collect():
        outcome = msgspec.msgpack.decode(bytes(row.outcome), type=RunOutcome)
        outcomes.append(outcome)
        done += len({one.scenario for one in outcome.measures if one.scenario >= 0})
    if progress is not None:
        progress(done, total)
    return outcomes


def split(sizes: Sequence[int], *, scenarios: int, into: int) -> list[list[RunTask]]:
    """Return all runs in parts of about equal work, each part with few groups.

    Args:
        sizes: how many messages each group has.
        scenarios: how many scenarios are run on each.
        into: how many parts there should be.
    """
    runs = [(group, at) for group in range(len(sizes)) for at in range(scenarios)]
    whole = sum(max(1, size) for size in sizes) * scenarios
    parts: list[dict[int, list[int]]] = [{} for _ in range(max(1, min(into, len(runs))))]
    done = 0
    for group, at in runs:
        size = max(1, sizes[group])
        part = min(len(parts) - 1, (done + size // 2) * len(parts) // whole)
        parts[part].setdefault(group, []).append(at)
        done += size
    return [[RunTask(group, listed) for group, listed in part.items()] for part in parts if part]
