"""The forecast of queues: expected arrivals, when targets break with today's consumers, and how many are needed when.

Two models are involved, and each has an error that was measured: that of arrivals on held-out days, and that of the
consumers on recent traffic. If one of them is too large, or there is too little history, nothing is advised, and the
reason is told instead; what is expected to come is still shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import numpy as np

from fairlane.errors import CandidateInvalid, JournalIncomplete, ModelInaccurate
from fairlane.lakehouse import Lakehouse, TablesAddress, open_tables
from fairlane.spark.forecast.backtest import ArrivalsError, choose, require_history, require_small_error
from fairlane.spark.forecast.history import DAY_HOURS, HOUR_MS, Floats, History, read_histories
from fairlane.spark.forecast.recent import read_recent
from fairlane.spark.forecast.staffing import Simulator, StaffingPlan, Values, is_met
from fairlane.spark.forecast.traffic import ExpectedTraffic, TrafficPattern, whole_numbers
from fairlane.spark.whatif.accuracy import ModelError, model_errors, require_accuracy
from fairlane.spark.whatif.fleet import play
from fairlane.spark.whatif.measures import MeasuredPeriod, Yardstick
from fairlane.spark.whatif.messages import messages_of
from fairlane.spark.whatif.recording import Recording
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.sweeps import CONSUMERS_MAX
from fairlane.spark.whatif.targets import Target

HORIZON_HOURS_MAX: Final = 28 * DAY_HOURS
MESSAGES_MAX: Final = 3_000_000
"""The most messages that are played for a queue."""
MOST_TIMES: Final = 64
"""The search for consumers goes up to this multiple of today's."""
PAST_SHOWN_HOURS: Final = 7 * DAY_HOURS

Progress: TypeAlias = Callable[[int, int], None]


class ForecastHour(msgspec.Struct, frozen=True, kw_only=True):
    """One hour of a forecast.

    Attributes:
        at_ms: when it begins.
        at: the same in UTC, as text.
        arrivals: how many messages are expected.
        low, high: between these the number should be in four of five hours.
        values: of each target, what its measure is with today's consumers; empty if nothing is advised.
        consumers: how many consumers meet the targets; None if no number that was tried does.
        consumers_high: how many do if as many messages come as ``high`` says.
    """

    at_ms: int
    at: str
    arrivals: float
    low: float
    high: float
    values: list[float] = []
    consumers: int | None = None
    consumers_high: int | None = None


class TargetBreak(msgspec.Struct, frozen=True, kw_only=True):
    """A target that breaks with today's consumers.

    Attributes:
        at_ms: the first hour in which it breaks.
        at: the same in UTC, as text.
        value: what its measure is in that hour.
        hours: in how many hours it breaks.
    """

    target: str
    at_ms: int
    at: str
    value: float
    hours: int


class TenantForecast(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant is expected to send, and what it sent in as many hours before."""

    tenant: str
    arrivals: float
    before: float


class QueueForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The forecast of one queue.

    Attributes:
        targets: what is wanted.
        declined: why nothing is advised; empty if something is.
        consumers_now: how many consumers there are today; None if nothing is advised.
        consumers: how many are needed at most; None if no number that was tried is enough, or nothing is advised.
        breaks: the targets that break with today's consumers, the first to break first.
        arrivals_error: the error of the model of arrivals; None if there is too little history.
        model_error: the error of the simulation on recent traffic.
        hours: the hours of the forecast, in order.
        tenants: the tenants, those with the most expected messages first.
        past: pairs of an hour and how many messages came in it, recently; null for an hour that is incomplete.
    """

    queue: str
    targets: list[str]
    declined: str = ""
    consumers_now: int | None = None
    consumers: int | None = None
    breaks: list[TargetBreak] = []
    arrivals_error: ArrivalsError | None = None
    model_error: ModelError | None = None
    hours: list[ForecastHour] = []
    tenants: list[TenantForecast] = []
    past: list[tuple[int, float | None]] = []

    @property
    def is_met(self) -> bool:
        """Whether it is known how many consumers meet the targets."""
        return not self.declined and self.consumers is not None


def forecast(
    tables: str | Path | TablesAddress,
    targets: Sequence[Target],
    *,
    horizon_hours: int,
    queues: Sequence[str] = (),
    consumers: int | None = None,
    most: int | None = None,
    progress: Progress | None = None,
) -> list[QueueForecast]:
    """Forecast queues from the end of the tables on.

    Args:
        tables: the address of the tables.
        targets: what is wanted of waits.
        horizon_hours: how many hours to forecast.
        queues: which queues; none for all.
        consumers: how many consumers each queue has today; None for as many as the newest days show.
        most: the most consumers to try; by default many times as many.
        progress: called with how many hours have been planned, and how many there are.

    Raises:
        CandidateInvalid: there is no target, or a target is not about waits, or the horizon is too long.
        InvalidArgument: there are no tables, or they are empty.
        QueueNotFound: the tables have no such queue.
    """
    if not targets or not all(target.is_wait for target in targets):
        raise CandidateInvalid("A forecast needs at least one target about waits, such as wait_p99:*<=1s.")
    if not 1 <= horizon_hours <= HORIZON_HOURS_MAX:
        raise CandidateInvalid(f"The horizon of a forecast is 1 hour to {HORIZON_HOURS_MAX // DAY_HOURS} days.")
    lakehouse = open_tables(tables)
    histories = read_histories(lakehouse, queues)
    steps = _Steps(progress, 2 * horizon_hours * len(histories))
    return [
        _QueueForecast(lakehouse, history, targets, horizon_hours).run(consumers, most, steps) for history in histories
    ]


class _Steps:
    """Counts the hours that have been planned."""

    def __init__(self, progress: Progress | None, whole: int) -> None:
        self._progress, self._whole, self._done = progress, whole, 0

    def done(self, count: int = 1) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._whole)


class _QueueForecast:
    """Makes the forecast of one queue."""

    def __init__(self, tables: Lakehouse, history: History, targets: Sequence[Target], hours: int) -> None:
        self._tables, self._history, self._targets, self._hours = tables, history, targets, hours
        self._first = history.end_hour

    def run(self, consumers: int | None, most: int | None, steps: _Steps) -> QueueForecast:
        history = self._history
        found = QueueForecast(
            queue=history.queue, targets=[target.text for target in self._targets], past=_past(history)
        )
        try:
            require_history(history)
            model, error = choose(history, days=-(-self._hours // DAY_HOURS))
            expected = model.predict(self._first, self._hours)
            hours, tenants = _hours(self._first, expected.sum(axis=0), error), _tenants(history, expected)
            found = msgspec.structs.replace(found, arrivals_error=error, hours=hours, tenants=tenants)
            require_small_error(error)
            recorded = self._recorded(expected * error.high)
            found = msgspec.structs.replace(found, model_error=_model_error(recorded))
            return self._staffed(found, recorded, expected, error.high, (consumers, most), steps)
        except (JournalIncomplete, ModelInaccurate) as declined:
            steps.done(2 * self._hours)
            return msgspec.structs.replace(found, declined=declined.cause)

    def _recorded(self, expected: Floats) -> Recording:
        if expected.sum() > MESSAGES_MAX:
            raise ModelInaccurate(
                f"Up to {expected.sum():,.0f} messages are expected; at most {MESSAGES_MAX:,} can be played. "
                "Choose a shorter horizon."
            )
        return read_recent(self._tables, self._history)

    def _staffed(
        self,
        found: QueueForecast,
        recorded: Recording,
        expected: Floats,
        high: float,
        given: tuple[int | None, int | None],
        steps: _Steps,
    ) -> QueueForecast:
        if found.model_error is not None:
            require_accuracy([found.model_error], [], [])
        now = given[0] or sum(kind.most for kind in recorded.consumers[0])
        if not now:
            raise JournalIncomplete("No consumer leased messages on the newest complete days.")
        plan = _Planned(recorded, self._history, self._targets, self._first)
        most = given[1] or min(CONSUMERS_MAX, now * MOST_TIMES)
        normal, raised = (plan.find(expected * times, now, most, steps) for times in (1.0, high))
        return _advised(found, self._targets, plan.values(expected, now), (normal, raised), now)


class _Planned:
    """Plays expected arrivals, and finds the consumers for them."""

    def __init__(self, recorded: Recording, history: History, targets: Sequence[Target], first_hour: int) -> None:
        self._pattern = TrafficPattern(recorded, history.tenants)
        self._simulator = Simulator(self._pattern, recorded, targets)
        self._tenants, self._first = history.tenants, first_hour

    def _traffic(self, expected: Floats) -> ExpectedTraffic:
        return self._pattern.traffic(whole_numbers(expected, self._tenants), self._first)

    def values(self, expected: Floats, consumers: int) -> list[Values]:
        """Return what targets measure in each hour with a number of consumers."""
        return self._simulator.play(self._traffic(expected), self._first, [consumers] * expected.shape[1])

    def find(self, expected: Floats, consumers: int, most: int, steps: _Steps) -> list[int | None]:
        """Return how many consumers each hour needs."""
        plan = StaffingPlan(self._simulator, self._traffic(expected), self._first, most=most, done=steps.done)
        return plan.find(consumers)


def _model_error(recorded: Recording) -> ModelError:
    """Return how far modelled consumers are from the recorded waits."""
    played = play(recorded, Scenario(name=ORIGINAL), messages_of(recorded))
    return model_errors(Yardstick(recorded, MeasuredPeriod()).check(played), recorded.queues)[0]


def _advised(
    found: QueueForecast,
    targets: Sequence[Target],
    values: list[Values],
    numbers: tuple[list[int | None], list[int | None]],
    now: int,
) -> QueueForecast:
    hours = [
        msgspec.structs.replace(hour, values=here, consumers=normal, consumers_high=_at_least(normal, high))
        for hour, here, normal, high in zip(found.hours, values, *numbers, strict=True)
    ]
    needed = [hour.consumers for hour in hours]
    return msgspec.structs.replace(
        found,
        hours=hours,
        consumers_now=now,
        consumers=None if None in needed else max((number or 0 for number in needed), default=0),
        breaks=_breaks(targets, hours),
    )


def _at_least(normal: int | None, high: int | None) -> int | None:
    """Return the number for more arrivals: those that are repeated may come at better instants, which is luck."""
    return None if normal is None or high is None else max(normal, high)


def _breaks(targets: Sequence[Target], hours: Sequence[ForecastHour]) -> list[TargetBreak]:
    found = []
    for place, target in enumerate(targets):
        broken = [hour for hour in hours if not is_met(target, hour.values[place])]
        if broken:
            first = broken[0]
            value = first.values[place]
            one = TargetBreak(target=target.text, at_ms=first.at_ms, at=first.at, value=value, hours=len(broken))
            found.append(one)
    return sorted(found, key=lambda one: one.at_ms)


def _hours(first: int, total: Floats, error: ArrivalsError) -> list[ForecastHour]:
    return [
        ForecastHour(
            at_ms=(first + at) * HOUR_MS,
            at=hour_text((first + at) * HOUR_MS),
            arrivals=round(number, 1),
            low=round(number * error.low, 1),
            high=round(number * error.high, 1),
        )
        for at, number in enumerate(total.tolist())
    ]


def hour_text(at_ms: int) -> str:
    """Return an hour in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")


def _tenants(history: History, expected: Floats) -> list[TenantForecast]:
    before = np.where(history.is_known, history.counts, 0)[:, -expected.shape[1] :].sum(axis=1).tolist()
    sums = expected.sum(axis=1).tolist()
    order = sorted(range(len(sums)), key=lambda at: (-sums[at], history.tenants[at]))
    return [TenantForecast(tenant=history.tenants[at], arrivals=round(sums[at], 1), before=before[at]) for at in order]


def _past(history: History) -> list[tuple[int, float | None]]:
    total, known = history.counts.sum(axis=0).tolist(), history.is_known.tolist()
    hours = range(max(0, len(known) - PAST_SHOWN_HOURS), len(known))
    return [((history.first_hour + at) * HOUR_MS, total[at] if known[at] else None) for at in hours]
