"""Staffing: the waits of expected traffic with a number of consumers, and the number that each hour needs.

With a fixed number of consumers all hours are played in one run, because the backlog of an hour burdens the next. The
number that an hour needs is searched on that hour by itself, beginning with that of the hour before; then all hours are
played in one run with the numbers found, and where the backlog of the hour before still breaks a target, the number is
raised. So the answer holds for the hours in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from fairlane.spark.forecast.history import HOUR_MS
from fairlane.spark.forecast.traffic import ExpectedTraffic, TrafficPattern
from fairlane.spark.whatif.consumers import ConsumerKind
from fairlane.spark.whatif.fleet import play
from fairlane.spark.whatif.load import Load, staffed
from fairlane.spark.whatif.measures import KeyMeasures, MeasuredPeriod, Yardstick
from fairlane.spark.whatif.messages import Played, messages_of
from fairlane.spark.whatif.presence import Counts
from fairlane.spark.whatif.recording import Recording
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.targets import EVERY_KEY, Target

Values = list[float]
"""Of each target, what its measure is in an hour."""
_ROUNDS: Final = 8
_RAISE: Final = 0.1


class Simulator:
    """Plays expected traffic with numbers of consumers, and measures targets by hour."""

    def __init__(self, pattern: TrafficPattern, recorded: Recording, targets: Sequence[Target]) -> None:
        self._pattern = pattern
        self._kinds = recorded.consumers[0]
        self._last_ms = recorded.last_ms
        self._targets = targets

    def kinds(self, number: int) -> list[ConsumerKind]:
        """Return a number of consumers, of the kinds that there were."""
        return staffed(self._kinds, Load(consumers=number), self._last_ms)

    def play(self, traffic: ExpectedTraffic, first_hour: int, numbers: Sequence[int]) -> list[Values]:
        """Play hours in one run with a number of consumers for each, and return the values of each hour."""
        recording = self._pattern.recording(traffic, self._by_hour(numbers), first_hour)
        played = play(recording, Scenario(name=ORIGINAL), messages_of(recording))
        return [self._values(recording, played, traffic.begin[at : at + 2].tolist()) for at in range(len(numbers))]

    def _by_hour(self, numbers: Sequence[int]) -> list[ConsumerKind]:
        kinds = [self.kinds(number) for number in numbers]
        counts: list[Counts] = [
            [(at * HOUR_MS, hour[place].most) for at, hour in enumerate(kinds)] for place in range(len(self._kinds))
        ]
        return [
            ConsumerKind(
                holds=kind.holds,
                asks=kind.asks,
                refills=kind.refills,
                works=kind.works,
                rests_ms=kind.rests_ms,
                counts=[each for at, each in enumerate(of_kind) if not at or each[1] != of_kind[at - 1][1]],
            )
            for kind, of_kind in zip(self._kinds, counts, strict=True)
        ]

    def _values(self, recording: Recording, played: Played, span: list[int]) -> Values:
        keys = _measures(recording, played, *span)
        return [
            target.value(keys) if target.key == EVERY_KEY or target.key in keys else 0.0 for target in self._targets
        ]

    def meets(self, values: Values) -> bool:
        """Return whether values meet all targets."""
        return all(is_met(target, value) for target, value in zip(self._targets, values, strict=True))


def is_met(target: Target, value: float) -> bool:
    """Return whether a value meets a target."""
    return value <= target.bound if target.is_most else value >= target.bound


def _measures(recording: Recording, played: Played, first: int, last: int) -> dict[str, KeyMeasures]:
    """Measure the messages of one hour, whenever they were leased."""
    hour = replace(
        recording,
        **{name: getattr(recording, name)[first:last] for name in ("queue", "at_ms", "key", "cost", "due_ms")},
    )
    of_hour = Played(
        leased_ms=played.leased_ms[first:last],
        throttled_ms={},
        capped_ms={},
        paused_ms={},
        contended=[],
        missed=[],
        removed=[],
    )
    return {one.key: one for one in Yardstick(hour, MeasuredPeriod()).measure(0, of_hour)}


class StaffingPlan:
    """Finds how many consumers each hour needs."""

    def __init__(
        self, simulator: Simulator, traffic: ExpectedTraffic, first_hour: int, *, most: int, done: Callable[[], None]
    ) -> None:
        """Prepare the search.

        Args:
            simulator: plays hours.
            traffic: the messages of all hours.
            first_hour: the number of the first hour.
            most: the most consumers to try.
            done: called after each hour.
        """
        self._simulator, self._traffic, self._first_hour = simulator, traffic, first_hour
        self._most, self._done = most, done
        self._hours = traffic.begin.size - 1

    def find(self, begin: int) -> list[int | None]:
        """Return the fewest consumers for each hour; None for an hour in which the most don't meet the targets."""
        found: list[int | None] = []
        guess = begin
        for at in range(self._hours):
            fewest = self._fewest(at, max(1, min(guess, self._most)))
            guess = fewest or guess
            found.append(fewest)
            self._done()
        return self._in_a_row(found)

    def _fewest(self, at: int, guess: int) -> int | None:
        """Return the fewest consumers of one hour, searched from a guess on in growing steps, then by bisection."""
        hour = self._traffic.hour(at)
        if not hour.source.size:
            return 1  # a few messages may come all the same

        def is_enough(number: int) -> bool:
            return self._simulator.meets(self._simulator.play(hour, self._first_hour + at, [number])[0])

        low, high, step = 0, guess, 1
        while not is_enough(high):
            if high >= self._most:
                return None
            low, high = high, min(2 * high, self._most)
        while high - step > low:
            if not is_enough(high - step):
                low = high - step
                break
            high, step = high - step, 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if is_enough(middle) else (middle, high)
        return high

    def _in_a_row(self, found: list[int | None]) -> list[int | None]:
        """Return numbers with which all hours in a row meet the targets."""
        numbers = [self._most if number is None else number for number in found]
        for _ in range(_ROUNDS):
            values = self._simulator.play(self._traffic, self._first_hour, numbers)
            broken = [at for at in range(self._hours) if found[at] and not self._simulator.meets(values[at])]
            # An hour that is met by itself breaks by what the hour before left, or because fewer consumers follow.
            raised = {*broken, *(at + 1 for at in broken if at + 1 < self._hours and numbers[at + 1] < numbers[at])}
            if not broken:
                break
            for at in raised:
                numbers[at] = min(self._most, numbers[at] + max(1, round(numbers[at] * _RAISE)))
        return [None if was is None else number for was, number in zip(found, numbers, strict=True)]
