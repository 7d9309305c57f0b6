"""What a broker measures of itself, as metrics: commits, recoveries, leases that ended, throttles, hooks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from fairlane.broker.measurements import BrokerMetrics
from fairlane.server.metrics.families import Family, Kind, Sample, Sums, labelled, of_histogram, single
from fairlane.server.metrics.fold import OTHERS

_LABELS_MAX: Final = 200


def of_broker(measured: BrokerMetrics) -> Iterator[Family]:
    """Return what a broker has measured of itself."""
    meters = measured.meters
    yield Family("fairlane_commits_total", "counter", "Commits of the store.", single(meters.commit_s.count))
    for name, told, found in (
        ("fairlane_commit_events", "Events in a commit.", meters.commit_events),
        ("fairlane_commit_bytes", "Bytes in a commit.", meters.commit_bytes),
        ("fairlane_commit_seconds", "How long a commit took to be written and synced.", meters.commit_s),
        ("fairlane_lease_expiry_lateness_seconds", "How late ended leases were taken back.", meters.expiry_late_s),
    ):
        yield Family(name, "histogram", told, list(of_histogram(found)))
    yield Family(
        "fairlane_recoveries_total", "counter", "Times the journal was folded anew.", single(meters.recoveries)
    )
    yield Family("fairlane_recovery_seconds", "gauge", "How long the last recovery took.", single(meters.recovery_s))
    yield Family("fairlane_turn_failures_total", "counter", "Commits that failed.", single(meters.failures))
    yield Family("fairlane_journal_sequence", "gauge", "The next sequence.", single(measured.next_sequence))
    behind = measured.next_sequence - measured.recovery_from
    yield Family("fairlane_recovery_events", "gauge", "Events that a recovery would read.", single(behind))
    yield from _of_throttles(measured)
    yield from _of_hooks(measured)


def _of_throttles(measured: BrokerMetrics) -> Iterator[Family]:
    passed: Sums = defaultdict(float)
    tokens: Sums = defaultdict(float)
    ranked = sorted(measured.throttles, key=lambda each: -each.passed)
    for at, each in enumerate(ranked):
        name = each.name if at < _LABELS_MAX else OTHERS
        passed[name, "passed"] += each.passed
        passed[name, "held_back"] += each.held_back
        tokens[(name,)] += each.tokens
    yield Family(
        "fairlane_throttle_decisions_total",
        "counter",
        "Messages that a throttle let pass, and times it held back a lane.",
        labelled(("throttle", "decision"), passed),
    )
    yield Family("fairlane_throttle_tokens", "gauge", "Tokens to be had.", labelled(("throttle",), tokens))


def _of_hooks(measured: BrokerMetrics) -> Iterator[Family]:
    sums: dict[str, Sums] = {name: defaultdict(float) for name, *_ in _HOOKS}
    timings: list[Sample] = []
    for at, (queue, (found, timing)) in enumerate(sorted(measured.hooks.items())):
        label = queue if at < _LABELS_MAX else OTHERS
        for name, field, *_ in _HOOKS:
            sums[name][(label,)] += getattr(found, field)
        if at < _LABELS_MAX:
            timings += of_histogram(timing, (("queue", queue),))
    yield Family("fairlane_hook_seconds", "histogram", "How long scripts took for a message.", timings)
    for name, _, kind, told in _HOOKS:
        yield Family(name, kind, told, labelled(("queue",), sums[name]))


_HOOKS: Final[tuple[tuple[str, str, Kind, str], ...]] = (
    ("fairlane_hook_calls_total", "calls", "counter", "Messages that scripts were asked about."),
    ("fairlane_hook_faults_total", "faults", "counter", "Calls that failed."),
    ("fairlane_hook_bypassed_total", "bypassed", "counter", "Calls not made because the breaker was open."),
    ("fairlane_hook_breaker_trips_total", "trips", "counter", "Times the breaker opened."),
    ("fairlane_hook_breaker_open", "is_open", "gauge", "Whether the breaker is open."),
)
