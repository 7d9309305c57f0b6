"""Capacity: the fewest consumers with which targets would have been met, found by playing the journal.

More consumers meet what fewer meet. So the search doubles the number until targets are met, then narrows the interval
between too few and enough. In Spark it tries several numbers at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from fairlane.spark.whatif.accuracy import ModelError, require_accuracy
from fairlane.spark.whatif.comparison import Comparison, Journal, compare
from fairlane.spark.whatif.measures import ALL_KEYS, MeasuredPeriod
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.spark_runs import Progress, parallelism_of
from fairlane.spark.whatif.sweeps import CONSUMERS_MAX, assumed, setting_of
from fairlane.spark.whatif.targets import Target, only_queue, require_keys
from fairlane.spark.whatif.tasks import ORIGINAL_AT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_TIMES = 64
"""The search goes up to this multiple of the consumers in the journal, unless told otherwise."""


class CapacityTried(msgspec.Struct, frozen=True, kw_only=True):
    """One number of consumers, and what came of it.

    Attributes:
        values: of each target, what its measure was.
        left: how many messages were never handed out.
    """

    consumers: int
    values: list[float]
    is_met: bool
    left: int


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The fewest consumers that meet targets, and all numbers that were tried, the lowest first.

    Attributes:
        assumed: the loads and settings that were assumed.
        consumers_now: how many consumers there were at most.
        consumers: the fewest that meet the targets; None if no number that was tried does.
        waiting_per_consumer: how many waiting messages one consumer can work off within the bound of the tightest wait
            target: what an autoscaler that goes by the backlog should aim at. None without such a target.
        error: how far the model is from the journal.
    """

    queue: str
    targets: list[str]
    assumed: list[str]
    consumers_now: int
    consumers: int | None
    waiting_per_consumer: int | None
    tried: list[CapacityTried]
    error: ModelError


def find_capacity(
    journal: Journal,
    targets: Sequence[Target],
    *,
    assume: Sequence[str] = (),
    most: int | None = None,
    span: MeasuredPeriod | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> Capacity:
    """Return the fewest consumers with which targets would have been met.

    Args:
        journal: what to play; one queue of it is looked at.
        targets: what is wanted.
        assume: loads and settings that hold meanwhile, such as ``arrivals=x2``.
        most: the most consumers to try; by default many times as many as there were.
        span: which messages to measure.
        spark: where to run; None for this process.
        progress: called with how many numbers have been tried, and how many the search may take.

    Raises:
        CandidateInvalid: there is no target, a key is unknown, or an assumption can't be understood.
        ModelInaccurate: the model is too far from the journal.
    """
    queue = only_queue(journal, targets)
    base = assumed(assume, journal.queues, journal.policies)
    known = compare(journal, [], span=span, spark=spark)
    require_keys(targets, known.of(ORIGINAL_AT, queue), queue)
    require_accuracy(known.errors, known.checks, [target.key for target in targets])
    now = sum(kind.most for kind in known.kinds_of(queue))
    limit = most or min(CONSUMERS_MAX, max(1, now) * MOST_TIMES)
    search = _Search(journal, known, targets, base=base, span=span, spark=spark, progress=progress)
    fewest = search.run(max(1, now), limit)
    return Capacity(
        queue=queue,
        targets=[target.text for target in targets],
        assumed=list(assume),
        consumers_now=now,
        consumers=fewest,
        waiting_per_consumer=_waiting_per_consumer(search.known, queue, targets),
        tried=[search.tried[number] for number in sorted(search.tried)],
        error=known.errors[0],
    )


class _Search:
    """Tries numbers of consumers, and remembers what came of each."""

    def __init__(
        self,
        journal: Journal,
        known: Comparison,
        targets: Sequence[Target],
        *,
        base: Scenario,
        span: MeasuredPeriod | None,
        spark: SparkSession | None,
        progress: Progress | None,
    ) -> None:
        self._journal, self._targets, self._base = journal, targets, base
        self._span, self._spark, self._progress = span, spark, progress
        self._width = 1 if spark is None else parallelism_of(spark)
        self._expected = 1
        self.known = known
        self.tried: dict[int, CapacityTried] = {}

    def run(self, first: int, limit: int) -> int | None:
        """Return the fewest consumers that meet the targets, at most ``limit``; None if none do."""
        low, high = 0, min(first, limit)  # too few, and possibly enough
        self._expected = 1 + math.ceil(math.log2(limit + 1))
        while not self._try([high])[0]:
            if high == limit:
                return None
            low, high = high, min(2 * high, limit)
        while high - low > 1:
            numbers = sorted({low + (high - low) * at // (self._width + 1) for at in range(1, self._width + 1)} - {low})
            for number, is_met in zip(numbers or [low + 1], self._try(numbers or [low + 1]), strict=True):
                if is_met:
                    high = min(high, number)
                elif number < high:
                    low = max(low, number)
        return high

    def _try(self, numbers: Sequence[int]) -> list[bool]:
        queue = self._journal.queues[0]
        at = len(self.known.scenarios)
        steps = [setting_of("consumers", str(number), [queue]) for number in numbers]
        scenarios = [self._base.with_others(step, _named(self._base, step)) for step in steps]
        self.known = compare(self._journal, scenarios, span=self._span, spark=self._spark, known=self.known)
        for place, number in enumerate(numbers, at):
            keys = self.known.of(place, queue)
            is_met = all(target.lack(keys) == 0 for target in self._targets)
            values = [target.value(keys) for target in self._targets]
            self.tried[number] = CapacityTried(consumers=number, values=values, is_met=is_met, left=keys[ALL_KEYS].left)
        if self._progress is not None:
            self._progress(len(self.tried), max(self._expected, len(self.tried)))
        return [self.tried[number].is_met for number in numbers]


def _named(base: Scenario, step: Scenario) -> str:
    return step.name if base.name == ORIGINAL else f"{base.name}, {step.name}"


def _waiting_per_consumer(found: Comparison, queue: str, targets: Sequence[Target]) -> int | None:
    """Return how many messages one consumer takes from the queue within the tightest bound on waits."""
    bounds = [target.bound for target in targets if target.is_wait and target.is_most]
    rates = [notes.rate_per_consumer[queue] for notes in found.notes if queue in notes.rate_per_consumer]
    if not bounds or not rates or not rates[0]:
        return None
    return max(1, int(min(bounds) / 1000 * rates[0]))
