"""Runs of scenarios on groups of queues, cut into tasks, and distributed over the tasks of a Spark job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from fairlane.spark.whatif.measures import KeyMeasures, MeasuredPeriod, Yardstick
from fairlane.spark.whatif.messages import messages_of
from fairlane.spark.whatif.recording import Recording, record
from fairlane.spark.whatif.scenario import Scenario
from fairlane.spark.whatif.simulation import play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ORIGINAL_AT: Final = 0
"""The number of the scenario that changes nothing."""


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """What is uncertain about the results of one group of queues.

    Attributes:
        unknown: messages by queue that were enqueued before the journal begins, and are left out.
        assumed: attempts without an end in the journal, which get the median length of their key.
        slots: by queue, pairs of an instant and the number of leases that consumers hold from then on.
    """

    unknown: dict[str, int]
    assumed: int
    slots: dict[str, list[tuple[int, int]]]


class RunPlan(msgspec.Struct, frozen=True):
    """What to run, in a form that can be sent to a Spark task."""

    files: list[str]
    groups: list[tuple[str, ...]]
    scenarios: list[Scenario]
    span: MeasuredPeriod | None = None


class RunTask(msgspec.Struct, frozen=True):
    """Some scenarios to be run on one group of queues, by number."""

    group: int
    scenarios: list[int]


class RunOutcome(msgspec.Struct, frozen=True):
    """The results of a task."""

    group: int
    measures: list[KeyMeasures]
    notes: Notes


def run_tasks(work: RunPlan, tasks: Iterable[RunTask]) -> Iterator[RunOutcome]:
    """Run tasks. The journal of a group is read once for consecutive tasks."""
    current, loaded = -1, None
    for task in tasks:
        if loaded is None or task.group != current:
            loaded = _Loaded(work, task.group)
            current = task.group
        yield loaded.run(task)


class _Loaded:
    """A group of queues in memory, with the items that one run after the other uses."""

    def __init__(self, work: RunPlan, group: int) -> None:
        self._work = work
        self._recording = record([Path(path) for path in work.files], tuple(work.groups[group]))
        self._items = messages_of(self._recording)
        self._yardstick = Yardstick(self._recording, work.span or MeasuredPeriod())

    def run(self, task: RunTask) -> RunOutcome:
        measures = []
        for at in task.scenarios:
            measures += self._yardstick.measure(at, play(self._recording, self._work.scenarios[at], self._items))
        if ORIGINAL_AT in task.scenarios:
            measures += self._yardstick.journalled()
        return RunOutcome(task.group, measures, _notes(self._recording))


def _notes(recording: Recording) -> Notes:
    unknown = {name: count for name, count in zip(recording.queues, recording.unknown, strict=True) if count}
    slots = dict(zip(recording.queues, recording.slots, strict=True))
    return Notes(unknown=unknown, assumed=recording.assumed, slots=slots)


def run_in_spark(
    spark: SparkSession,
    work: RunPlan,
    *,
    sizes: Sequence[int],
    tasks: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[RunOutcome]:
    """Run all scenarios on all groups. The files must be where executors find them under the same names.

    A task gets the numbers of its group and scenarios, reads the group's Parquet files itself, once, and returns a few
    rows. Nothing is shuffled, so one busy queue under many policies is as parallel as many queues.

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
