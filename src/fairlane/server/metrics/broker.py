"""Metrics that a broker measures itself: commits, recoveries, expired leases, throttles, hooks and schedules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from fairlane.broker.measurements import BrokerMetrics
from fairlane.server.metrics.families import OTHERS, Family, Kind, Sample, Sums, by, histogram_samples, labelled, single

_LABELS_MAX: Final = 200
"""Throttles, and queues with hooks, that get a label of their own."""


def broker_families(measured: BrokerMetrics) -> Iterator[Family]:
    """Yield the metrics that a broker measured itself."""
    yield from _store_families(measured)
    yield from _throttle_families(measured)
    yield from _disk_families(measured)
    yield from _hook_families(measured)
    yield from _schedule_families(measured)


def _store_families(measured: BrokerMetrics) -> Iterator[Family]:
    engine = measured.engine
    for name, field, description in _HISTOGRAMS:
        yield Family(name, "histogram", description, list(histogram_samples(getattr(engine, field))))
    singles: tuple[tuple[str, Kind, str, float], ...] = (
        ("fairlane_commits_total", "counter", "Commits to the store.", engine.commit_s.count),
        ("fairlane_commit_failures_total", "counter", "Failed commits.", engine.failures),
        (
            "fairlane_internal_errors_total",
            "counter",
            "Requests refused because of a bug in the broker; each is logged.",
            engine.internal_errors,
        ),
        ("fairlane_recoveries_total", "counter", "Recoveries, including the one at startup.", engine.recoveries),
        ("fairlane_recovery_seconds", "gauge", "Duration of the last recovery.", engine.recovery_s),
        (
            "fairlane_recovery_events",
            "gauge",
            "Events that a recovery would read now.",
            measured.next_sequence - measured.recovery_from,
        ),
        ("fairlane_journal_sequence", "gauge", "Sequence number of the next event.", measured.next_sequence),
    )
    for name, kind, description, value in singles:
        yield Family(name, kind, description, single(value))


def _throttle_families(measured: BrokerMetrics) -> Iterator[Family]:
    decisions: Sums = defaultdict(float)
    tokens: dict[str, float] = defaultdict(float)
    ranked = sorted(measured.throttles, key=lambda each: -each.passed)
    for at, each in enumerate(ranked):
        name = each.name if at < _LABELS_MAX else OTHERS
        decisions[name, "passed"] += each.passed
        decisions[name, "held_back"] += each.held_back
        tokens[name] += each.tokens
    samples = labelled(("throttle", "decision"), decisions)
    description = "Messages that took a token (passed) and times a lane was parked without one (held_back)."
    yield Family("fairlane_throttle_decisions_total", "counter", description, samples)
    yield Family("fairlane_throttle_tokens", "gauge", "Whole tokens available.", by("throttle", tokens))


def _disk_families(measured: BrokerMetrics) -> Iterator[Family]:
    description = "Payloads and workflow states in the store."
    yield Family("fairlane_held_bytes", "gauge", description, single(measured.held_bytes))
    for limit, used in measured.used.items():
        description = f"Fraction used of {limit}, the limit on all queues together."
        yield Family(f"fairlane_{limit.removesuffix('_max')}_used_ratio", "gauge", description, single(used))
    if (disk := measured.disk) is not None:
        yield Family("fairlane_disk_bytes", "gauge", "Size of the disk of the store.", single(disk.total))
        yield Family("fairlane_disk_free_bytes", "gauge", "Free space of the disk of the store.", single(disk.free))
        description = "Space below which enqueues are refused."
        yield Family("fairlane_disk_reserve_bytes", "gauge", description, single(disk.reserve))


def _hook_families(measured: BrokerMetrics) -> Iterator[Family]:
    sums: dict[str, dict[str, float]] = {name: defaultdict(float) for name, *_ in _HOOKS}
    timings: list[Sample] = []
    for at, (queue, (found, timing)) in enumerate(sorted(measured.hooks.items())):
        label = queue if at < _LABELS_MAX else OTHERS
        for name, field, *_ in _HOOKS:
            sums[name][label] += getattr(found, field)
        if at < _LABELS_MAX:
            timings += histogram_samples(timing, (("queue", queue),))
    yield Family("fairlane_hook_seconds", "histogram", "Hook run time per message.", timings)
    for name, _, kind, description in _HOOKS:
        yield Family(name, kind, description, by("queue", sums[name]))


def _schedule_families(measured: BrokerMetrics) -> Iterator[Family]:
    states: Sums = defaultdict(float)
    upcoming: dict[str, float] = {}
    for at, (queue, found) in enumerate(sorted(measured.schedules.items())):
        label = queue if at < _LABELS_MAX else OTHERS
        for state in ("active", "paused", "delayed"):
            states[label, state] += getattr(found, state)
        if found.next_ms is not None:
            upcoming[label] = min(upcoming.get(label, found.next_ms / 1000), found.next_ms / 1000)
    description = "Schedules by state; those with a tick that is due and could not be enqueued yet are also delayed."
    yield Family("fairlane_schedules", "gauge", description, labelled(("queue", "state"), states))
    description = "When the next tick of a schedule of the queue is due, as a Unix time."
    yield Family("fairlane_schedule_next_timestamp_seconds", "gauge", description, by("queue", upcoming))


_HOOKS: Final[tuple[tuple[str, str, Kind, str], ...]] = (
    ("fairlane_hook_calls_total", "calls", "counter", "Messages that hooks were called for."),
    ("fairlane_hook_faults_total", "faults", "counter", "Hook calls that failed."),
    ("fairlane_hook_bypassed_total", "bypassed", "counter", "Hook calls skipped while the circuit breaker was open."),
    ("fairlane_hook_breaker_trips_total", "trips", "counter", "Times the circuit breaker opened."),
    ("fairlane_hook_breaker_open", "is_open", "gauge", "1 while the circuit breaker is open."),
)

_HISTOGRAMS: Final = (
    ("fairlane_commit_events", "commit_events", "Journal events per commit."),
    ("fairlane_commit_bytes", "commit_bytes", "Bytes per commit, including payloads."),
    ("fairlane_commit_seconds", "commit_s", "Time to write and sync a commit."),
    (
        "fairlane_lease_expiry_lateness_seconds",
        "expiry_late_s",
        "Time from the end of a visibility timeout to the return of the message.",
    ),
)
