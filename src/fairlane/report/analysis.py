"""From the tables to the sections of a report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc

from fairlane.report.changes import settings
from fairlane.report.gaps import warning_of
from fairlane.report.noise import deprived, noisy
from fairlane.report.rollups import by_step, grouped, histograms, latest_weights, longest, weighted_means
from fairlane.report.sections import Cell, Heading, Report, Section
from fairlane.report.tables import Tables

QUEUE, KEY = Heading("queue", "Queue", "text"), Heading("key", "Tenant", "text")
WAITS = ("turn_ms", "throttled_ms", "capped_ms", "paused_ms", "backoff_ms", "delayed_ms")
"""Why messages wait, as columns of ``messages``: first the reasons that an operator can change."""

EPISODES_MAX = 10_000
"""The number of episodes of starvation in a report."""
_MINUTE_MS = 60_000

Row = dict[str, Any]

Cells = tuple[Cell, ...]
Compute = Callable[[Tables], list[Cells]]
_SECTIONS: list[Callable[[Tables], Section]] = []


def report_of(tables: Tables) -> Report:
    """Compute all sections of a report."""
    days = [day.isoformat() for day in tables.days()] or ["", ""]
    sections = tuple(compute(tables) for compute in _SECTIONS)
    return Report(
        title="Waits and their causes",
        first_day=days[0],
        last_day=days[-1],
        sections=sections,
        warning=warning_of(tables),
    )


def section(title: str, meaning: str, *headings: Heading, by: int | None) -> Callable[[Compute], Compute]:
    """Return a decorator that adds a section to the report, named after the function that computes its rows.

    With ``by``, the rows with the largest value in that column come first.
    """

    def decorate(compute: Compute) -> Compute:
        def made(tables: Tables) -> Section:
            rows = compute(tables)
            ordered = rows if by is None else _by(rows, by)
            return Section(name=compute.__name__, title=title, meaning=meaning, headings=headings, rows=ordered)

        _SECTIONS.append(made)
        return compute

    return decorate


@section(
    "Queues",
    "Messages, waits and fairness of each queue. A Jain index of 1: service followed the weights exactly.",
    QUEUE,
    Heading("enqueued", "Enqueued"),
    Heading("acked", "Acked"),
    Heading("failed", "Failed attempts"),
    Heading("dead", "Dead"),
    Heading("removed", "Removed"),
    Heading("wait_p50_ms", "Wait p50", "ms"),
    Heading("wait_p99_ms", "Wait p99", "ms"),
    Heading("jain", "Jain index"),
    by=-2,
)
def queues(tables: Tables) -> list[Cells]:
    """Return one row for each queue."""
    counted = _summed(tables, "tenant_usage", ("queue",), ("enqueued", "acked", "failed", "dead", "removed"))
    waited = histograms(tables, ("queue",))
    jain = weighted_means(tables, "fairness", "jain", by="queue", weight="served_cost")
    return [
        (*who, *sums, waited[who].percentile(0.5), waited[who].percentile(0.99), jain.get(who[0]))
        for who, sums in counted.items()
    ]


@section(
    "Shares",
    "What each tenant was served in a queue, by cost, and its entitled share: by weight among the tenants "
    "that had work at the same time, and at most the work it had. Paused tenants have no work.",
    QUEUE,
    KEY,
    Heading("weight", "Weight"),
    Heading("served_cost", "Served"),
    Heading("share", "Share", "part"),
    Heading("entitled_share", "Entitled", "part"),
    Heading("waited_ms", "Waited for its turn", "ms"),
    Heading("starved_ms", "Starved", "ms"),
    by=3,
)
def shares(tables: Tables) -> list[Cells]:
    """Return what each tenant was served in a queue, next to its entitled share."""
    sums = ("served_cost", "entitled_cost", "waited_ms", "starved_ms")
    totals = grouped(tables, "fairness_keys", ("queue", "top_key"), dict.fromkeys(sums, "sum"))
    weights = latest_weights(tables)
    whole: dict[str, int] = defaultdict(int)
    for (queue, _), (served, *_) in totals.items():
        whole[queue] += served
    return [
        (*who, weights[who], served, _part(served, whole[who[0]]), _part(entitled, whole[who[0]]), waited, starved)
        for who, (served, entitled, waited, starved) in totals.items()
    ]


@section(
    "Waits",
    "How long messages waited once they were due, and their total wait by reason, summed over messages.",
    QUEUE,
    KEY,
    Heading("handed_out", "Leases"),
    Heading("wait_p50_ms", "p50", "ms"),
    Heading("wait_p99_ms", "p99", "ms"),
    Heading("wait_max_ms", "Longest", "ms"),
    Heading("turn_ms", "Waiting for its turn", "ms"),
    Heading("throttled_ms", "Throttled", "ms"),
    Heading("capped_ms", "At its cap", "ms"),
    Heading("paused_ms", "Paused", "ms"),
    Heading("backoff_ms", "Backing off", "ms"),
    Heading("delayed_ms", "Delayed on request", "ms"),
    by=4,
)
def waits(tables: Tables) -> list[Cells]:
    """Return how long each tenant's messages waited, by reason."""
    waited = histograms(tables, ("queue", "top_key"))
    reasons = _summed(tables, "messages", ("queue", "top_key"), WAITS)
    nothing = (0,) * len(WAITS)
    return [
        (*who, found.count, found.percentile(0.5), found.percentile(0.99), found.most, *reasons.get(who, nothing))
        for who, found in waited.items()
    ]


_HOURS = (Heading("hours", "Hours"), Heading("worst_ms", "Worst hour from", "instant"))

section(
    "Noisy tenants",
    "Tenants that in some hour wanted at least twice their share, at least a tenth of the capacity beyond it, and "
    "twice what is usual among the others, with their worst hour. Refused messages count as wanted; a backlog that was "
    "served within the next hour does not.",
    QUEUE,
    KEY,
    *_HOURS,
    Heading("wanted_part", "Of all work", "part"),
    Heading("times", "Times its share"),
    Heading("share", "Share", "part"),
    Heading("entitled_share", "Entitled", "part"),
    Heading("refused_cost", "Refused"),
    by=5,
)(noisy)

section(
    "Victims",
    "Tenants that in some hour were served less than their entitled share while another tenant was served more than "
    "its own, each by more than a tenth of that share and of the service, with their worst hour.",
    QUEUE,
    KEY,
    *_HOURS,
    Heading("share", "Share", "part"),
    Heading("entitled_share", "Entitled", "part"),
    by=5,
)(deprived)


@section(
    "Served meanwhile",
    "Which tenants were served while another tenant waited for its turn, "
    "and how much of that waiting is attributed to each. To be served is no fault: see Noisy tenants.",
    QUEUE,
    Heading("victim", "Tenant that waited", "text"),
    Heading("neighbour", "Tenant served meanwhile", "text"),
    Heading("delay_ms", "Delay", "ms"),
    Heading("part", "Part of all its waiting", "part"),
    Heading("neighbour_leases", "Leases meanwhile"),
    by=3,
)
def neighbours(tables: Tables) -> list[Cells]:
    """Return which tenants were served while others waited."""
    sums = ("delay_ms", "neighbour_leases")
    delays = grouped(tables, "noisy_neighbours", ("queue", "victim", "neighbour"), dict.fromkeys(sums, "sum"))
    # The table has the worst pairs of each hour only. What a victim waited in all is the sum over its runs.
    waited = grouped(tables, "fairness_keys", ("queue", "top_key"), {"waited_ms": "sum"})
    return [
        (queue, victim, neighbour, delay_ms, _part(delay_ms, waited.get((queue, victim), (0,))[0]), leases)
        for (queue, victim, neighbour), (delay_ms, leases) in delays.items()
        if victim != neighbour
    ]


@section(
    "Starvation",
    "Tenants that had work, were not paused, and got nothing for more than a minute while others were served; "
    f"the {EPISODES_MAX:,} longest episodes.",
    QUEUE,
    KEY,
    Heading("from_ms", "From", "instant"),
    Heading("until_ms", "Until", "instant"),
    Heading("lasted_ms", "Lasted", "ms"),
    Heading("served_meanwhile", "Leases of others"),
    by=4,
)
def starvation(tables: Tables) -> list[Cells]:
    """Return the episodes in which a tenant had work and got nothing, while others were served."""
    columns = ("queue", "top_key", "from_ms", "until_ms", "lasted_ms", "served_meanwhile")
    starved = pc.field("served_meanwhile") > 0
    found = longest(tables, "starvation", columns, by="lasted_ms", where=starved, rows_max=EPISODES_MAX)
    return list(zip(*[found[name].to_pylist() for name in columns], strict=True))


@section(
    "Without consumers",
    "Queues in which work waited for more than a minute while nothing was leased at all. Check that consumers run.",
    QUEUE,
    Heading("tenants", "Tenants"),
    Heading("from_ms", "From", "instant"),
    Heading("longest_ms", "Longest", "ms"),
    by=3,
)
def idle(tables: Tables) -> list[Cells]:
    """Return the queues in which work waited and no consumer was there."""
    nothing = pc.field("served_meanwhile") == 0
    waits = grouped(tables, "starvation", ("queue", "top_key"), {"from_ms": "min", "lasted_ms": "max"}, where=nothing)
    by_queue: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for (queue, _), values in waits.items():
        by_queue[queue].append(values)
    return [
        (queue, len(rows), min(first for first, _ in rows), max(lasted for _, lasted in rows))
        for queue, rows in by_queue.items()
    ]


@section(
    "Usage",
    "What each tenant used in all queues. Cost is the true cost where consumers reported it.",
    KEY,
    Heading("cost_true", "Cost"),
    Heading("acked", "Acknowledged"),
    Heading("acked_bytes", "Payloads", "bytes"),
    Heading("service_ms", "Processing time", "ms"),
    Heading("enqueued", "Enqueued"),
    Heading("failed", "Failed attempts"),
    Heading("dead", "Dead"),
    by=1,
)
def usage(tables: Tables) -> list[Cells]:
    """Return what each tenant used, for chargeback."""
    sums = ("cost_true", "acked", "acked_bytes", "service_ms", "enqueued", "failed", "dead")
    found = _summed(tables, "tenant_usage", ("top_key",), sums)
    return [(*who, *values) for who, values in found.items()]


@section(
    "Throttles",
    "How long messages waited for a throttle's token. A message with several throttles counts for each.",
    QUEUE,
    Heading("throttle", "Throttle", "text"),
    KEY,
    Heading("handed_out", "Leases"),
    Heading("waited", "Had to wait"),
    Heading("throttled_ms", "Waited", "ms"),
    by=5,
)
def throttles(tables: Tables) -> list[Cells]:
    """Return how long messages waited for throttles."""
    found = _summed(
        tables, "throttle_waits", ("queue", "throttle", "top_key"), ("handed_out", "waited", "throttled_ms")
    )
    return [(*who, *values) for who, values in found.items()]


@section(
    "Dead letters",
    "Dead letters, grouped by errors that differ only in numbers, names and paths.",
    QUEUE,
    Heading("reason", "Reason", "text"),
    Heading("signature", "Error", "text"),
    Heading("count", "Dead letters"),
    Heading("redriven", "Redriven"),
    Heading("keys", "Tenants", "text"),
    Heading("first_seen_ms", "First seen", "instant"),
    Heading("last_seen_ms", "Last seen", "instant"),
    Heading("sample_message_id", "Example", "text"),
    by=3,
)
def dead_letters(tables: Tables) -> list[Cells]:
    """Return dead letters by kind of error."""
    columns = (
        *("queue", "reason", "signature", "signature_id", "count", "first_seen_ms", "last_seen_ms", "keys"),
        *("sample_error", "sample_message_ids", "redriven"),
    )
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in tables.rows("dead_letters", columns):
        kinds[row["signature_id"]].append(row)
    return [_death(rows) for rows in kinds.values()]


def _death(rows: list[Row]) -> Cells:
    first = min(rows, key=lambda row: row["first_seen_ms"])
    keys = sorted({key for row in rows for key in row["keys"] or ()})
    return (
        first["queue"],
        first["reason"],
        first["signature"],
        sum(row["count"] for row in rows),
        sum(row["redriven"] for row in rows),
        ", ".join(keys),
        first["first_seen_ms"],
        max(row["last_seen_ms"] for row in rows),
        (first["sample_message_ids"] or [None])[0],
    )


@section(
    "Deadlines",
    "Messages with a deadline: acknowledged in time, acknowledged late, or dropped because it passed.",
    QUEUE,
    KEY,
    Heading("with_deadline", "With a deadline"),
    Heading("met", "Met"),
    Heading("late", "Late"),
    Heading("missed", "Missed"),
    Heading("part", "Late or missed", "part"),
    by=6,
)
def deadlines(tables: Tables) -> list[Cells]:
    """Return the outcome of messages with a deadline."""
    found = _summed(tables, "sla", ("queue", "top_key"), ("with_deadline", "met", "late", "missed"))
    return [(*who, *values, _part(values[2] + values[3], values[0])) for who, values in found.items()]


@section(
    "Fairness over time",
    "Fairness of each queue, the cost that was served, and the cost that was waiting: by minute for one day, and by "
    "longer steps for several. A row without service covers all the time in which nothing changed.",
    QUEUE,
    Heading("from_ms", "From", "instant"),
    Heading("until_ms", "Until", "instant"),
    Heading("jain", "Jain index"),
    Heading("served_cost", "Served"),
    Heading("waiting_cost", "Work waiting"),
    Heading("keys", "Tenants with work"),
    Heading("lag_max_key", "Most behind", "text"),
    Heading("lag_max_cost", "By"),
    by=None,
)
def timeline(tables: Tables) -> list[Cells]:
    """Return the fairness of each queue over time."""
    found = by_step(tables, step_ms=_MINUTE_MS * max(1, len(tables.days())))
    columns = (
        *("queue", "from_ms", "until_ms", "jain", "served_cost", "waiting_cost"),
        *("keys", "lag_max_key", "lag_max_cost"),
    )
    return list(zip(*[found[name].to_pylist() for name in columns], strict=True))


section(
    "Changes of settings",
    "Config values that were set or removed: by whom and why, until when, and what became of the change.",
    Heading("at_ms", "When", "instant"),
    Heading("setting", "Setting", "text"),
    Heading("value", "Value", "text"),
    Heading("owner", "Owner", "text"),
    Heading("reason", "Reason", "text"),
    Heading("expires_ms", "Expires", "instant"),
    Heading("outcome", "Outcome", "text"),
    by=None,
)(settings)


# -------------------------------------------------------------------------------------------------------- adding up


def _summed(
    tables: Tables, table: str, by: tuple[str, ...], columns: tuple[str, ...]
) -> dict[tuple[str, ...], tuple[int, ...]]:
    return grouped(tables, table, by, dict.fromkeys(columns, "sum"))


def _part(value: float, whole: float) -> float | None:
    return value / whole if whole else None


def _by(rows: list[Cells], column: int) -> list[Cells]:
    """Return rows with the largest value first, and equal ones by name, so that a report is reproducible."""
    return sorted(rows, key=lambda row: (-float(row[column] or 0), str(row)))
