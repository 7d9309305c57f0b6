"""Many scenarios on one journal: planned once, run in this process or in Spark, and merged."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fairlane.errors import JournalIncomplete
from fairlane.model.policy import QueuePolicy
from fairlane.spark.whatif.accuracy import ModelError, model_errors
from fairlane.spark.whatif.consumers import ConsumerKind
from fairlane.spark.whatif.files import QueueFacts, chosen, groups, journal_files, latest_config, survey
from fairlane.spark.whatif.measures import KeyCheck, KeyMeasures, MeasuredPeriod
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.spark_runs import Progress, run_in_spark
from fairlane.spark.whatif.tasks import Notes, RunOutcome, RunPlan, RunTask, run_tasks
from fairlane.spark.whatif.twin.choice import PlayerChoice, PlayerName, TwinVerdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOURNAL = -1


class ScenarioPlayer(msgspec.Struct, frozen=True):
    """What played a scenario: the scheduler's kernel or its array twin. Both give the same results."""

    scenario: int
    queues: list[str]
    player: PlayerName


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All scenarios, measured. The first is the original policy, simulated like the others.

    Attributes:
        errors: how far the model is from the journal, for each queue.
        checks: the same for each key.
        players: what played each scenario, for each group of queues that are replayed together.
    """

    scenarios: list[Scenario]
    queues: list[str]
    measures: list[KeyMeasures]
    notes: list[Notes]
    errors: list[ModelError]
    checks: list[KeyCheck]
    players: list[ScenarioPlayer] = []

    def of(self, scenario: int, queue: str) -> dict[str, KeyMeasures]:
        """Return the keys of a queue under a scenario; ``JOURNAL`` is what the journal itself tells."""
        # They are in order, so that one of many scenarios is found without a look at all the others.
        first, last = (
            find(self.measures, (scenario, queue), key=lambda one: (one.scenario, one.queue))
            for find in (bisect_left, bisect_right)
        )
        return {one.key: one for one in self.measures[first:last]}

    def kinds_of(self, queue: str) -> list[ConsumerKind]:
        """Return the consumers of a queue in the journal."""
        return [kind for notes in self.notes for kind in notes.consumers.get(queue, [])]

    def played_by(self, queue: str) -> str:
        """Return what played the scenarios of a queue, in words."""
        players = [one.player for one in self.players if queue in one.queues]
        verdict = next((notes.twin for notes in self.notes if queue in notes.consumers), TwinVerdict())
        if "twin" not in players:
            return f"the scheduler's kernel ({verdict.obstacle})" if verdict.obstacle else "the scheduler's kernel"
        told = f"the array twin, which decided all {verdict.hand_outs:,} hand-outs of the journal as the broker did"
        rest = players.count("kernel")
        return f"{told}; {rest} of {len(players)} scenarios by the scheduler's kernel" if rest else told


class Journal:
    """An exported journal, and the queues to replay.

    Attributes:
        queues: the queues to replay.
        groups: the groups in which they are replayed, with others that share a throttle with them.
        policies: the latest policy of each queue of a group.
        rates: the rates of the throttles that they use, in the end.
    """

    def __init__(self, folder: Path | str, *, queues: Sequence[str] = ()) -> None:
        """Read the summary of a journal.

        Raises:
            JournalIncomplete: there is no journal, it has a gap, or it begins too late.
            QueueNotFound: the journal has no such queue.
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
        raise JournalIncomplete(f"Could not read the policy of queue {name!r} in the journal: {error}.") from error


def compare(
    journal: Journal,
    scenarios: Sequence[Scenario],
    *,
    span: MeasuredPeriod | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
    known: Comparison | None = None,
    player: PlayerChoice = "auto",
) -> Comparison:
    """Run scenarios, and the original before them, on a journal.

    The same journal and scenarios give the same comparison, wherever they are run.

    Args:
        journal: what to run them on.
        scenarios: what to run.
        span: which messages to measure. All are replayed, since those before decide about those after.
        spark: where to run; None for this process.
        progress: called with how many runs are done, and how many there are.
        known: what has been run before on the same journal and span. It is not run again, and is part of the result.
        player: the array twin where it is exact and faster, or only the kernel, or the twin wherever it is exact.
    """
    before = [Scenario(name=ORIGINAL)] if known is None else known.scenarios
    everything = [*before, *scenarios]
    files, begin = [str(path) for path in journal.files], 0 if known is None else len(before)
    work = RunPlan(files=files, groups=journal.groups, scenarios=everything, span=span, begin=begin, player=player)
    outcomes = _run(journal, work, spark, progress)
    found = [one for outcome in outcomes for one in outcome.measures if one.queue in journal.queues]
    unique = {(one.scenario, one.queue, one.key): one for one in found}
    measures, players = [unique[at] for at in sorted(unique)], _players(journal, outcomes)
    if known is not None:
        measures, players = [*known.measures, *measures], [*known.players, *players]
        return msgspec.structs.replace(known, scenarios=everything, measures=measures, players=players)
    notes = {outcome.group: outcome.notes for outcome in outcomes}
    checks = [check for outcome in outcomes for check in outcome.checks if check.queue in journal.queues]
    return Comparison(
        scenarios=everything,
        queues=journal.queues,
        measures=measures,
        notes=[notes[group] for group in sorted(notes)],
        errors=model_errors(checks, journal.queues),
        checks=sorted(checks, key=lambda check: (check.queue, check.key)),
        players=players,
    )


def _players(journal: Journal, outcomes: Sequence[RunOutcome]) -> list[ScenarioPlayer]:
    found = sorted((at, outcome.group, player) for outcome in outcomes for at, player in outcome.players.items())
    return [ScenarioPlayer(at, list(journal.groups[group]), player) for at, group, player in found]


def _run(journal: Journal, work: RunPlan, spark: SparkSession | None, progress: Progress | None) -> list[RunOutcome]:
    if not work.numbers:
        return []
    if spark is not None:
        return run_in_spark(spark, work, sizes=journal.sizes, progress=progress)
    tasks = [RunTask(group, [at]) for group in range(len(work.groups)) for at in work.numbers]
    outcomes = []
    for outcome in run_tasks(work, tasks):
        outcomes.append(outcome)
        if progress is not None:
            progress(len(outcomes), len(tasks))
    return outcomes
