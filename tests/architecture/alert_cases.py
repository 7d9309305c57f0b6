"""For each alert, series on which it fires and series on which it must not, as promtool takes them.

A value such as ``0+60x30`` is a counter that begins at 0 and grows by 60 in each minute of half an hour. Labels of the
scrape (``job`` and ``instance``) are added to every series.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

Series = Mapping[str, str]
HOURS: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertCase:
    """One alert: when it fires, with which labels and words, and when it does not."""

    alert: str
    fires: Series
    quiet: tuple[Series, ...]
    summary: str
    labels: Mapping[str, str] = field(default_factory=dict)
    at: str = "20m"


def histogram(name: str, *, fast: int, slow: int, limit: str, beyond: str, labels: str = "") -> Series:
    """Return the buckets of a histogram that grow by fast and slow observations in each minute."""
    between = f",{labels}" if labels else ""
    return {
        f'{name}_bucket{{le="{limit}"{between}}}': f"0+{fast}x{HOURS}",
        f'{name}_bucket{{le="{beyond}"{between}}}': f"0+{fast + slow}x{HOURS}",
        f'{name}_bucket{{le="+Inf"{between}}}': f"0+{fast + slow}x{HOURS}",
    }


def backlog(
    *, waiting: str, consumers: int = 0, waiters: int = 0, paused: int = 0, leased: str = f"0x{HOURS}"
) -> Series:
    """Return what the server says of a queue."""
    return {
        'fairlane_queue_waiting{queue="orders"}': waiting,
        'fairlane_queue_consumers{queue="orders"}': f"{consumers}x{HOURS}",
        'fairlane_queue_waiters{queue="orders"}': f"{waiters}x{HOURS}",
        'fairlane_queue_paused{queue="orders"}': f"{paused}x{HOURS}",
        'fairlane_messages_total{event="leased",queue="orders"}': leased,
    }


def key(*, share: float, entitled: float = 0.4, messages: int = 50, paused: int = 0) -> Series:
    """Return what the server says of a fairness key."""
    return {
        'fairlane_key_share_ratio{queue="orders",key="acme"}': f"{share}x{HOURS}",
        'fairlane_key_entitled_share_ratio{queue="orders",key="acme"}': f"{entitled}x{HOURS}",
        'fairlane_key_messages{queue="orders",key="acme"}': f"{messages}x{HOURS}",
        'fairlane_key_paused{queue="orders",key="acme"}': f"{paused}x{HOURS}",
    }


def waits(*, throttled: int, turn: int, waiting: int) -> Series:
    """Return what the messages of a queue waited for."""
    return {
        'fairlane_wait_seconds_total{queue="orders",reason="throttled"}': f"0+{throttled}x{HOURS}",
        'fairlane_wait_seconds_total{queue="orders",reason="turn"}': f"0+{turn}x{HOURS}",
        'fairlane_queue_waiting{queue="orders"}': f"{waiting}x{HOURS}",
    }


def attempts(leased: int, *, event: str, reason: str, count: int) -> Series:
    """Return how many deliveries there were, and how many ended in a certain way."""
    return {
        'fairlane_messages_total{event="leased",queue="orders"}': f"0+{leased}x{HOURS}",
        f'fairlane_messages_total{{event="{event}",reason="{reason}",queue="orders"}}': f"0+{count}x{HOURS}",
    }


QUEUE: Final = {"queue": "orders"}
FILLED: Final = f"20x{HOURS}"
CASES: Final = (
    AlertCase(
        alert="FairlaneDown",
        fires={"up": f"1 0x{HOURS}"},
        quiet=({"up": f"1x{HOURS}"}, {"up": f"1x18 0 0x{HOURS}"}),
        summary="a does not respond.",
    ),
    AlertCase(
        alert="FairlaneCommitFailures",
        fires={"fairlane_commit_failures_total": f"0x15 1x{HOURS}"},
        quiet=({"fairlane_commit_failures_total": f"3x{HOURS}"},),
        summary="a had failed commits and recovered from its store.",
    ),
    AlertCase(
        alert="FairlaneSlowCommits",
        fires=histogram("fairlane_commit_seconds", fast=50, slow=10, limit="0.25", beyond="0.5"),
        quiet=(histogram("fairlane_commit_seconds", fast=6_000, slow=10, limit="0.25", beyond="0.5"),),
        summary="Commits on a take 485ms (p99).",
    ),
    AlertCase(
        alert="FairlaneDiskFilling",
        fires={"fairlane_disk_free_bytes": f"1024x{HOURS}", "fairlane_disk_reserve_bytes": f"512x{HOURS}"},
        quiet=(
            {"fairlane_disk_free_bytes": f"2048x{HOURS}", "fairlane_disk_reserve_bytes": f"512x{HOURS}"},
            {"fairlane_disk_free_bytes": f"4096x17 1024x{HOURS}", "fairlane_disk_reserve_bytes": f"512x{HOURS}"},
        ),
        summary="The disk of a has 1kiB free.",
    ),
    AlertCase(
        alert="FairlaneLateLeaseExpiry",
        fires=histogram("fairlane_lease_expiry_lateness_seconds", fast=50, slow=10, limit="0.5", beyond="1"),
        quiet=(histogram("fairlane_lease_expiry_lateness_seconds", fast=6_000, slow=10, limit="0.5", beyond="1"),),
        summary="Leases on a expire 970ms late (p99).",
    ),
    AlertCase(
        alert="FairlaneInternalErrors",
        fires={'fairlane_errors_total{code="internal"}': f"0x15 1x{HOURS}"},
        quiet=(
            {'fairlane_errors_total{code="internal"}': f"2x{HOURS}"},
            {'fairlane_errors_total{code="queue_not_found"}': f"0+60x{HOURS}"},
        ),
        summary="a answered calls with internal errors.",
        labels={"code": "internal"},
    ),
    AlertCase(
        alert="FairlaneRefusedMessages",
        fires={'fairlane_refused_total{queue="orders",code="key_full"}': f"0+120x{HOURS}"},
        quiet=({'fairlane_refused_total{queue="orders",code="key_full"}': f"0+30x{HOURS}"},),
        summary="Queue orders refuses 2 messages per second: key_full.",
        labels=QUEUE | {"code": "key_full"},
    ),
    AlertCase(
        alert="FairlaneRejectedCalls",
        fires={'fairlane_errors_total{code="rate_limited"}': f"0+120x{HOURS}"},
        quiet=(
            {'fairlane_errors_total{code="rate_limited"}': f"0+30x{HOURS}"},
            {'fairlane_errors_total{code="invalid"}': f"0+120x{HOURS}"},
        ),
        summary="a rejects 2 calls per second: rate_limited.",
        labels={"code": "rate_limited"},
    ),
    AlertCase(
        alert="FairlaneFailedLogins",
        fires={"fairlane_auth_failures_total": f"0+120x{HOURS}"},
        quiet=({"fairlane_auth_failures_total": f"0+30x{HOURS}"},),
        summary="a refuses 2 requests per second without a valid API key.",
    ),
    AlertCase(
        alert="FairlaneLongRecovery",
        fires={"fairlane_recovery_events": f"30000000x{HOURS}"},
        quiet=({"fairlane_recovery_events": f"10000000x{HOURS}"},),
        summary="A restart of a would read 30M events.",
        at="40m",
    ),
    AlertCase(
        alert="FairlaneNoConsumers",
        fires=backlog(waiting=FILLED),
        quiet=(
            backlog(waiting=f"0x{HOURS}"),
            backlog(waiting=FILLED, consumers=1),
            backlog(waiting=FILLED, waiters=1),
            backlog(waiting=FILLED, paused=1),
            backlog(waiting=FILLED, leased=f"0+1x{HOURS}"),
            {name.replace("orders", "orders.dlq"): values for name, values in backlog(waiting=FILLED).items()},
        ),
        summary="20 messages wait in orders, which has no consumer.",
        labels=QUEUE,
    ),
    AlertCase(
        alert="FairlaneSlowDelivery",
        fires=histogram(
            "fairlane_delivery_wait_seconds", fast=50, slow=10, limit="300", beyond="600", labels='queue="orders"'
        ),
        quiet=(
            histogram(
                "fairlane_delivery_wait_seconds",
                fast=6_000,
                slow=10,
                limit="300",
                beyond="600",
                labels='queue="orders"',
            ),
        ),
        summary="Messages of orders wait 9m 42s (p99).",
        labels=QUEUE,
        at="30m",
    ),
    AlertCase(
        alert="FairlaneBacklogGrowing",
        fires={'fairlane_queue_waiting{queue="orders"}': f"20000+500x{HOURS}"},
        quiet=(
            {'fairlane_queue_waiting{queue="orders"}': f"20000x{HOURS}"},
            {'fairlane_queue_waiting{queue="orders"}': f"0+50x{HOURS}"},
            {'fairlane_queue_waiting{queue="orders.dlq"}': f"20000+500x{HOURS}"},
        ),
        summary="The backlog of orders grows by 30k messages per hour.",
        labels=QUEUE,
        at="90m",
    ),
    AlertCase(
        alert="FairlaneQueuePaused",
        fires={'fairlane_queue_paused{queue="orders"}': f"1x{HOURS}"},
        quiet=(
            {'fairlane_queue_paused{queue="orders"}': f"0x{HOURS}"},
            {'fairlane_queue_paused{queue="orders"}': f"0x60 1x{HOURS}"},
        ),
        summary="orders has been paused for an hour.",
        labels=QUEUE,
        at="90m",
    ),
    AlertCase(
        alert="FairlaneDeadLetters",
        fires={
            'fairlane_messages_total{event="dead",reason="max_attempts",queue="orders"}': f"0+1x{HOURS}",
            'fairlane_messages_total{event="dead",reason="deadline",queue="orders"}': f"0+1x{HOURS}",
        },
        quiet=({'fairlane_messages_total{event="dead",reason="deadline",queue="orders"}': f"0x15 0+1x{HOURS}"},),
        summary="30 messages of orders became dead letters within 15 minutes.",
        labels=QUEUE,
    ),
    AlertCase(
        alert="FairlaneFailedAttempts",
        fires=attempts(100, event="returned", reason="failure", count=30),
        quiet=(
            attempts(100, event="returned", reason="failure", count=10),
            attempts(100, event="returned", reason="defer", count=90),
        ),
        summary="30% of the deliveries of orders fail.",
        labels=QUEUE,
    ),
    AlertCase(
        alert="FairlaneExpiredLeases",
        fires=attempts(100, event="returned", reason="expiry", count=5),
        quiet=(
            attempts(100, event="returned", reason="expiry", count=1),
            attempts(100, event="returned", reason="failure", count=50),
        ),
        summary="5% of the leases of orders expire, or their consumers disconnect, before the message is settled.",
        labels=QUEUE,
    ),
    AlertCase(
        alert="FairlaneKeyStarved",
        fires=key(share=0.1),
        quiet=(
            key(share=0.3),
            key(share=0.0, entitled=0.01),
            key(share=0.1, messages=2),
            key(share=0.1, paused=1),
        ),
        summary="Key acme of orders receives less than half of its entitled share.",
        labels=QUEUE | {"key": "acme"},
    ),
    AlertCase(
        alert="FairlaneThrottled",
        fires=waits(throttled=900, turn=100, waiting=5_000),
        quiet=(waits(throttled=500, turn=500, waiting=5_000), waits(throttled=900, turn=100, waiting=500)),
        summary="Throttles cause most of the waiting time in orders.",
        labels=QUEUE,
        at="60m",
    ),
    AlertCase(
        alert="FairlaneHookBypassed",
        fires={
            'fairlane_hook_breaker_open{queue="orders"}': f"0x{HOURS}",
            'fairlane_hook_breaker_trips_total{queue="orders"}': f"0x15 1x{HOURS}",
        },
        quiet=(
            {
                'fairlane_hook_breaker_open{queue="orders"}': f"0x{HOURS}",
                'fairlane_hook_breaker_trips_total{queue="orders"}': f"4x{HOURS}",
            },
        ),
        summary="The hooks of orders fail repeatedly or take too much time, and are skipped.",
        labels=QUEUE,
    ),
    AlertCase(
        alert="FairlaneTablesStale",
        fires={"fairlane_pipeline_fresh_timestamp_seconds": f"0x{HOURS}"},
        quiet=({"fairlane_pipeline_fresh_timestamp_seconds": f"0+60x{HOURS}"},),
        summary="The tables that a updates lack the events of the last 15 minutes.",
        at="30m",
    ),
)
