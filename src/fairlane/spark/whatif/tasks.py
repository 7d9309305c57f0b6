"""Runs of scenarios on groups of queues, cut into tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from fairlane.spark.whatif.consumers import ConsumerKind
from fairlane.spark.whatif.load import loaded
from fairlane.spark.whatif.measures import KeyCheck, KeyMeasures, MeasuredPeriod, Yardstick
from fairlane.spark.whatif.recording import Recording, record_with_steps
from fairlane.spark.whatif.scenario import Scenario
from fairlane.spark.whatif.twin.choice import PlayerChoice, PlayerName, Players, TwinVerdict, steps_from

ORIGINAL_AT: Final = 0
"""The number of the scenario that changes nothing."""


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """What is uncertain about the results of one group of queues.

    Attributes:
        unknown: messages by queue that were enqueued before the journal begins, and are left out.
        assumed: attempts without an end in the journal, which get the median length of their key.
        consumers: by queue, the consumers that the model has.
        rate_per_consumer: by queue, how many messages a second one consumer works off when it never waits.
        twin: whether the array twin may play the group.
    """

    unknown: dict[str, int]
    assumed: int
    consumers: dict[str, list[ConsumerKind]]
    rate_per_consumer: dict[str, float] = {}
    twin: TwinVerdict = TwinVerdict()


class RunPlan(msgspec.Struct, frozen=True):
    """What to run, in a form that can be sent to a Spark task.

    Attributes:
        begin: the number of the first scenario to run; those before it have been run.
        player: what plays the recordings.
    """

    files: list[str]
    groups: list[tuple[str, ...]]
    scenarios: list[Scenario]
    span: MeasuredPeriod | None = None
    begin: int = 0
    player: PlayerChoice = "auto"

    @property
    def numbers(self) -> range:
        """The numbers of the scenarios to run."""
        return range(self.begin, len(self.scenarios))

    def name_of(self, group: int) -> bytes:
        """Return what tells the journal of a group from others."""
        return msgspec.msgpack.encode((self.files, self.groups[group], self.span, self.player))


class RunTask(msgspec.Struct, frozen=True):
    """Some scenarios to be run on one group of queues, by number."""

    group: int
    scenarios: list[int]


class RunOutcome(msgspec.Struct, frozen=True):
    """The results of a task.

    Attributes:
        checks: how the model compares with the journal; empty unless the task ran the original settings.
        players: by the number of the scenario, what played it.
    """

    group: int
    measures: list[KeyMeasures]
    notes: Notes
    checks: list[KeyCheck] = []
    players: dict[int, PlayerName] = {}


def run_tasks(
    work: RunPlan, tasks: Iterable[RunTask], *, kept: dict[bytes, LoadedGroup] | None = None
) -> Iterator[RunOutcome]:
    """Run tasks. The journal of a group is read once for consecutive tasks.

    Args:
        work: what to run.
        tasks: which part of it.
        kept: the group that was loaded last, for the next call; at most one, since it may take all the memory there is.
    """
    known = {} if kept is None else kept
    for task in tasks:
        name = work.name_of(task.group)
        if name not in known:
            known.clear()
            known[name] = LoadedGroup(work, task.group)
        yield known[name].run(work, task)


class LoadedGroup:
    """A group of queues in memory, with what one run after the other uses."""

    def __init__(self, work: RunPlan, group: int) -> None:
        files, queues = [Path(path) for path in work.files], tuple(work.groups[group])
        self._recording, steps = record_with_steps(files, queues, steps_from=steps_from(work.player))
        self._players = Players(self._recording, steps, work.player)
        self._span = work.span or MeasuredPeriod()
        self._yardstick = Yardstick(self._recording, self._span)

    def run(self, work: RunPlan, task: RunTask) -> RunOutcome:
        """Run scenarios, and measure them."""
        measures: list[KeyMeasures] = []
        checks: list[KeyCheck] = []
        players: dict[int, PlayerName] = {}
        for at in task.scenarios:
            scenario = work.scenarios[at]
            if scenario.load:
                found, players[at] = self._run_loaded(at, scenario)
                measures += found
                continue
            played, players[at] = self._players.play(scenario)
            measures += self._yardstick.measure(at, played)
            if at == ORIGINAL_AT:
                measures += self._yardstick.journalled()
                checks = self._yardstick.check(played)
        return RunOutcome(task.group, measures, _notes(self._recording, self._players.verdict), checks, players)

    def _run_loaded(self, at: int, scenario: Scenario) -> tuple[list[KeyMeasures], PlayerName]:
        """Run a scenario with another load, which has messages of its own."""
        recording = loaded(self._recording, scenario.load)
        played, player = self._players.play_loaded(scenario, recording)
        return Yardstick(recording, self._span).measure(at, played), player


def _notes(recording: Recording, twin: TwinVerdict) -> Notes:
    unknown = {name: count for name, count in zip(recording.queues, recording.unknown, strict=True) if count}
    consumers = dict(zip(recording.queues, recording.consumers, strict=True))
    rates = {name: _rate(recording, place) for place, name in enumerate(recording.queues)}
    return Notes(unknown=unknown, assumed=recording.assumed, consumers=consumers, rate_per_consumer=rates, twin=twin)


def _rate(recording: Recording, place: int) -> float:
    """Return how many messages a second one consumer of a queue works off, retries included; 0 if nothing tells."""
    first = np.array(recording.first, dtype=np.int64)
    attempts = np.diff(np.append(first, len(recording.busy_ms)))
    is_here = np.array(recording.queue, dtype=np.int64) == place
    busy_ms = int(np.array(recording.busy_ms, dtype=np.int64)[np.repeat(is_here, attempts)].sum())
    kinds = recording.consumers[place]
    count = sum(kind.most for kind in kinds)
    if not busy_ms or not count:
        return 0.0
    works = sum(kind.works * kind.most for kind in kinds) / count
    return 1000 * works * int(is_here.sum()) / busy_ms


def split(sizes: Sequence[int], *, numbers: Sequence[int], into: int) -> list[list[RunTask]]:
    """Return all runs in parts of about equal work, each part with few groups.

    Args:
        sizes: how many messages each group has.
        numbers: the numbers of the scenarios that are run on each.
        into: how many parts there should be.
    """
    runs = [(group, at) for group in range(len(sizes)) for at in numbers]
    whole = sum(max(1, size) for size in sizes) * len(numbers)
    parts: list[dict[int, list[int]]] = [{} for _ in range(max(1, min(into, len(runs))))]
    done = 0
    for group, at in runs:
        size = max(1, sizes[group])
        part = min(len(parts) - 1, (done + size // 2) * len(parts) // whole)
        parts[part].setdefault(group, []).append(at)
        done += size
    return [[RunTask(group, listed) for group, listed in part.items()] for part in parts if part]
