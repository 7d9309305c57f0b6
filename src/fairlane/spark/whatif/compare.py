"""Many scenarios on one journal: planned once, run here or in Spark, merged into one comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fairlane.errors import JournalIncomplete
from fairlane.model.policy import QueuePolicy
from fairlane.spark.whatif.files import QueueFacts, chosen, groups, journal_files, latest_config, survey
from fairlane.spark.whatif.measures import KeyMeasures, Span, Yardstick
from fairlane.spark.whatif.places import items_of
from fairlane.spark.whatif.recording import Recording, record
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.simulate import play

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORIGINAL_AT = 0
JOURNAL = -1


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """What is not as sure as the rest, of one group of queues.

    Attributes:
        unknown: messages by queue that came before the journal begins, and are left out.
        assumed: attempts that the journal does not see end, and that are taken to be as long as usual.
        slots: by queue, since which instants how many leases consumers can hold at once.
    """

    unknown: dict[str, int]
    assumed: int
    slots: dict[str, list[tuple[int, int]]]


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All scenarios, measured. The first is the original policy, simulated like the others."""

    scenarios: list[Scenario]
    queues: list[str]
    measures: list[KeyMeasures]
    notes: list[Notes]

    def of(self, scenario: int, queue: str) -> dict[str, KeyMeasures]:
        """Return the keys of a queue under a scenario; ``JOURNAL`` is what the journal itself tells."""
        found = (one for one in self.measures if one.scenario == scenario and one.queue == queue)
        return {one.key: one for one in found}


class Journal:
    """An exported journal, and what of it is looked at.

    Attributes:
        queues: the queues that are looked at.
        groups: the groups in which they are replayed, with others that share a throttle with them.
        policies: the latest policy of each queue of a group.
        rates: the rates of the throttles that they use, in the end.
    """

    def __init__(self, folder: Path | str, *, queues: Sequence[str] = ()) -> None:
        """Look at what there is.

        Raises:
            JournalIncomplete: there is no journal, it has a gap, or it begins too late.
            QueueNotFound: it does not speak of a queue.
        """
        self.files = journal_files(folder)
        found = survey(self.files)
        self.queues = chosen(found, queues)
        self.groups = groups(found, self.queues)
        self.policies = {name: _latest(found[name], name) for group in self.groups for name in group}
        used = {throttle for group in self.groups for name in group for throttle in found[name].throttles}
        told = latest_config(self.files)
        self.rates = {name: float(told[f"throttle:{name}:rate"]) for name in used if f"throttle:{name}:rate" in told}
        self.sizes = [sum(found[name].messages for name in group) for group in self.groups]


def _latest(facts: QueueFacts, name: str) -> QueuePolicy:
    try:
        return msgspec.json.decode(facts.policies[-1], type=QueuePolicy)
    except msgspec.ValidationError as error:
        raise JournalIncomplete(f"The policy of queue {name!r} in the journal can't be read: {error}.") from error


class Task(msgspec.Struct, frozen=True):
    """Some scenarios to be run on one group of queues, by number."""

    group: int
    scenarios: list[int]


class Outcome(msgspec.Struct, frozen=True):
    """What a task found."""

    group: int
    measures: list[KeyMeasures]
    notes: Notes


def compare(
    journal: Journal,
    scenarios: Sequence[Scenario],
    *,
    span: Span | None = None,
    spark: SparkSession | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Run scenarios, and the original before them, on a journal.

    The same journal and scenarios give the same comparison, wherever they are run.

    Args:
        journal: what to run them on.
        scenarios: what to run.
        span: which messages to measure. All are replayed, since those before decide about those after.
        spark: where to run; None for this process.
        progress: called with how many runs are done, and how many there are.
    """
    from fairlane.spark.whatif.spread import run_in_spark  # noqa: PLC0415 - it needs what this module defines

    everything = [Scenario(name=ORIGINAL), *scenarios]
    work = Work(files=[str(path) for path in journal.files], groups=journal.groups, scenarios=everything, span=span)
    if spark is None:
        outcomes = _run_here(work, progress)
    else:
        outcomes = run_in_spark(spark, work, sizes=journal.sizes, progress=progress)
    measures = [one for outcome in outcomes for one in outcome.measures if one.queue in journal.queues]
    notes = {outcome.group: outcome.notes for outcome in outcomes}
    unique = {(one.scenario, one.queue, one.key): one for one in measures}
    in_order = [unique[at] for at in sorted(unique)]
    return Comparison(
        scenarios=everything,
        queues=journal.queues,
        measures=in_order,
        notes=[notes[group] for group in sorted(notes)],
    )


class Work(msgspec.Struct, frozen=True):
    """What is to be run, as it travels to whoever runs it."""

    files: list[str]
    groups: list[tuple[str, ...]]
    scenarios: list[Scenario]
    span: Span | None = None


def run_tasks(work: Work, tasks: Iterable[Task]) -> Iterator[Outcome]:
    """Run tasks; of a group that several of them are about in a row, the journal is read once."""
    current, loaded = -1, None
    for task in tasks:
        if loaded is None or task.group != current:
            loaded = _Loaded(work, task.group)
            current = task.group
        yield loaded.run(task)


class _Loaded:
    """A group of queues in memory, with the items that one run after the other uses."""

    def __init__(self, work: Work, group: int) -> None:
        self._work = work
        self._recording = record([Path(path) for path in work.files], tuple(work.groups[group]))
        self._items = items_of(self._recording)
        self._yardstick = Yardstick(self._recording, work.span or Span())

    def run(self, task: Task) -> Outcome:
        measures = []
        for at in task.scenarios:
            measures += self._yardstick.measure(at, play(self._recording, self._work.scenarios[at], self._items))
        if ORIGINAL_AT in task.scenarios:
            measures += self._yardstick.journalled()
        return Outcome(task.group, measures, _notes(self._recording))


def _notes(recording: Recording) -> Notes:
    unknown = {name: count for name, count in zip(recording.queues, recording.unknown, strict=True) if count}
    slots = dict(zip(recording.queues, recording.slots, strict=True))
    return Notes(unknown=unknown, assumed=recording.assumed, slots=slots)


def _run_here(work: Work, progress: Callable[[int, int], None] | None) -> list[Outcome]:
    tasks = [Task(group, [at]) for group in range(len(work.groups)) for at in range(len(work.scenarios))]
    outcomes = []
    for outcome in run_tasks(work, tasks):
        outcomes.append(outcome)
        if progress is not None:
            progress(len(outcomes), len(tasks))
    return outcomes
