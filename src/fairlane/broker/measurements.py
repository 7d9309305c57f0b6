"""What the engine measures of itself: commits, leases that ended, recoveries.

A commit is only noted in a list; the histograms are filled when they are read, or when the list is long. So measuring
costs a commit well under a microsecond.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple, Self

from fairlane.broker.disk_reserve import DiskSpace
from fairlane.core.ledger import Message
from fairlane.core.states.schedules import ScheduleState
from fairlane.model.histogram import Histogram
from fairlane.model.message import Key
from fairlane.model.views import HookStatistics

EVENTS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000)
BYTES: Final = tuple(4**power for power in range(4, 14))
COMMIT_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
LATE_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30)


COMMITS_KEPT: Final = 4_096
"""How many commits are noted before they are put into the histograms."""


@dataclass(slots=True)
class EngineMetrics:
    """Counts since the process began; a recovery does not reset them.

    Attributes:
        commits: events, bytes and seconds of commits that are not in the histograms yet; see ``fold``.
        recovery_s: how long the last recovery took.
        failures: cycles that failed, after which the engine had to recover.
        internal_errors: requests that were refused because of a bug in the broker; each is in the log.
        written: events and bytes of the commit that is yet to be synced, and how long it took to write.
    """

    commit_events: Histogram = field(default_factory=lambda: Histogram(EVENTS))
    commit_bytes: Histogram = field(default_factory=lambda: Histogram(BYTES))
    commit_s: Histogram = field(default_factory=lambda: Histogram(COMMIT_S))
    expiry_late_s: Histogram = field(default_factory=lambda: Histogram(LATE_S))
    recoveries: int = 0
    recovery_s: float = 0.0
    failures: int = 0
    internal_errors: int = 0
    written: tuple[int, int, float] = (0, 0, 0.0)
    commits: list[tuple[int, int, float]] = field(default_factory=list)

    def fold(self) -> None:
        """Put the commits that were noted into the histograms."""
        commits, self.commits = self.commits, []
        for events, size, seconds in commits:
            self.commit_events.note(events)
            self.commit_bytes.note(size)
            self.commit_s.note(seconds)

    def add(self, other: EngineMetrics) -> None:
        """Add what another engine has counted."""
        self.fold()
        other.fold()
        for mine, theirs in (
            (self.commit_events, other.commit_events),
            (self.commit_bytes, other.commit_bytes),
            (self.commit_s, other.commit_s),
            (self.expiry_late_s, other.expiry_late_s),
        ):
            mine.add(theirs)
        self.recoveries += other.recoveries
        self.recovery_s = max(self.recovery_s, other.recovery_s)
        self.failures += other.failures
        self.internal_errors += other.internal_errors

    def expired(self, messages: Iterable[Message], now_ms: int) -> None:
        """Count leases that have ended, and how late the engine noticed."""
        for message in messages:
            self.expiry_late_s.note((now_ms - message.expires_ms) / 1000)


class Waited(NamedTuple):
    """A message that was just handed out.

    Attributes:
        ready_ms: the instant from which on it could go.
        delayed_ms: how long its producer had delayed it before that.
    """

    key: Key
    cost: int
    ready_ms: int
    delayed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleCounts:
    """What a throttle did since the broker was opened: messages it let pass, and times it held back a lane."""

    name: str
    tokens: int
    passed: int
    held_back: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleCounts:
    """The schedules of a queue.

    Attributes:
        active: how many are not paused.
        paused: how many are.
        delayed: of those that are active, how many have a tick that is due and could not be enqueued yet.
        next_ms: when the broker looks at the first of them; None if none has a tick left.
    """

    active: int
    paused: int
    delayed: int
    next_ms: int | None

    @classmethod
    def of(cls, schedules: Collection[ScheduleState]) -> Self:
        """Return the counts of schedules."""
        paused = sum(each.is_paused for each in schedules)
        return cls(
            active=len(schedules) - paused,
            paused=paused,
            delayed=sum(each.delayed_by is not None for each in schedules),
            next_ms=min((each.due_ms for each in schedules if each.due_ms is not None), default=None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetrics:
    """What a broker has measured of itself."""

    engine: EngineMetrics
    next_sequence: int
    """The next sequence; of a partition of a queue, counted from where its journal begins."""
    recovery_from: int
    """The sequence from which a recovery would read, counted so too."""
    throttles: list[ThrottleCounts]
    hooks: dict[str, tuple[HookStatistics, Histogram]]
    """By queue, of those that have a script: counts, and the seconds that a message took."""
    schedules: dict[str, ScheduleCounts]
    """By queue, of those that have schedules."""
    held_bytes: int
    """Payloads and workflow states that are alive."""
    disk: DiskSpace | None = None
    """The disk of the store, if it is in a folder."""
    used: Mapping[str, float] = field(default_factory=dict)
    """Which part of each limit on all queues together is used, by its name; of several brokers the largest."""


def together(parts: Sequence[BrokerMetrics], *, before: EngineMetrics) -> BrokerMetrics:
    """Return what several brokers of one process have measured, beside what others had before them."""
    engine = EngineMetrics()
    for each in (before, *(part.engine for part in parts)):
        engine.add(each)
    throttles: dict[str, list[ThrottleCounts]] = {}
    for part in parts:
        for throttle in part.throttles:
            throttles.setdefault(throttle.name, []).append(throttle)
    return BrokerMetrics(
        engine=engine,
        next_sequence=sum(part.next_sequence for part in parts),
        recovery_from=sum(part.recovery_from for part in parts),
        throttles=[
            ThrottleCounts(
                name=name,
                tokens=sum(each.tokens for each in found),
                passed=sum(each.passed for each in found),
                held_back=sum(each.held_back for each in found),
            )
            for name, found in throttles.items()
        ],
        hooks={queue: found for part in parts for queue, found in part.hooks.items()},
        schedules={queue: found for part in parts for queue, found in part.schedules.items()},
        held_bytes=sum(part.held_bytes for part in parts),
        used=_largest([part.used for part in parts]),
    )


def _largest(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: max(part.get(name, 0) for part in parts) for name in dict.fromkeys(chain(*parts))}
