"""Runs of scenarios on groups of queues, cut into tasks: what one process does, here or in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from fairlane.spark.whatif.measures import KeyMeasures, MeasuredPeriod, Yardstick
from fairlane.spark.whatif.messages import messages_of
from fairlane.spark.whatif.recording import Recording, record
from fairlane.spark.whatif.scenario import Scenario
from fairlane.spark.whatif.simulation import play

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
