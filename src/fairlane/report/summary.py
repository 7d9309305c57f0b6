"""The summary of a report: its main findings in sentences, and the first rows of each section."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairlane.report.sections import Report, Section, shown, span

_NAMED_MAX = 5
_ROWS_MAX = 10
_REASONS = {
    "turn_ms": "waiting for its turn",
    "throttled_ms": "waiting for a throttle",
    "capped_ms": "at its cap",
    "paused_ms": "while paused",
    "backoff_ms": "backing off after failures",
    "delayed_ms": "delayed on request",
}


def findings_of(report: Report) -> list[str]:
    """Return the main findings, the most pressing first."""
    return [
        *_longest_wait(report),
        *_noisiest(report),
        *_starved(report),
        *_unfair(report),
        *_dead(report),
        *_missed(report),
    ]


def summary_of(report: Report) -> str:
    """Return a report as Markdown: its findings, and the first rows of each section."""
    findings = (
        "\n".join(f"- {_plain(finding)}" for finding in findings_of(report)) or "- Nothing happened in this period."
    )
    tables = "\n".join(_table(section) for section in report.sections if section.rows and section.name != "timeline")
    banner = f"> **{_plain(report.warning)}**\n\n" if report.warning else ""
    return f"# {report.title}, {report.period}\n\n{banner}{findings}\n\n{tables}"


def _longest_wait(report: Report) -> Iterator[str]:
    rows = report.section("waits").dicts()
    if not rows or not rows[0]["wait_p99_ms"]:
        return
    worst: dict[str, Any] = rows[0]
    name = max(_REASONS, key=lambda reason: worst[reason])
    reason = f", mostly {_REASONS[name]}" if worst[name] else ""
    yield (
        f"{worst['key']} waited longest in {worst['queue']}: p99 {span(worst['wait_p99_ms'])}, "
        f"p50 {span(worst['wait_p50_ms'] or 0)}{reason}."
    )


def _noisiest(report: Report) -> Iterator[str]:
    for row in report.section("noisy").dicts()[:_NAMED_MAX]:
        refused = f"; limits refused {row['refused_cost']:,}" if row["refused_cost"] else ""
        yield (
            f"{row['key']} was noisy in {row['queue']} {_in_hours(row)}: {shown(row['wanted_part'], 'part')} of all "
            f"work was its, {row['times']} times its share, and it received {shown(row['share'], 'part')} of the "
            f"service{refused}."
        )
    for row in report.section("deprived").dicts()[:_NAMED_MAX]:
        yield (
            f"{row['key']} received {shown(row['share'], 'part')} of the service of {row['queue']} {_in_hours(row)}, "
            f"less than the {shown(row['entitled_share'], 'part')} that it was entitled to, while another tenant "
            "received more."
        )


def _in_hours(row: dict[str, Any]) -> str:
    """Return which hour of a tenant its numbers are of."""
    hour = f"in the hour from {shown(row['worst_ms'], 'instant')} UTC"
    return hour if row["hours"] == 1 else f"{hour}, the worst of {row['hours']:,}"


def _starved(report: Report) -> Iterator[str]:
    rows: list[dict[str, Any]] = report.section("starvation").dicts()
    if rows:
        names = ", ".join(list(dict.fromkeys(str(row["key"]) for row in rows))[:_NAMED_MAX])
        yield (
            f"A tenant starved {_times(len(rows))} for over a minute while others were served ({names}); "
            f"the longest episode lasted {span(rows[0]['lasted_ms'])}, in {rows[0]['queue']}."
        )
    idle: list[dict[str, Any]] = report.section("idle").dicts()
    if idle:
        queues = ", ".join(str(row["queue"]) for row in idle[:_NAMED_MAX])
        yield (
            f"Work waited for over a minute while nothing was leased ({queues}), "
            f"at most {span(idle[0]['longest_ms'])}: check that consumers are running."
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _unfair(report: Report) -> Iterator[str]:
    for row in report.section("queues").dicts():
        jain = row["jain"]
        if isinstance(jain, float):
            yield f"{row['queue']} was served with a Jain index of {jain:.3f} (1 is exactly by weight)."


def _dead(report: Report) -> Iterator[str]:
    rows: list[dict[str, Any]] = report.section("dead_letters").dicts()
    if rows:
        deaths, worst = sum(row["count"] for row in rows), rows[0]
        error = worst["signature"] or worst["reason"]
        yield (
            f"{deaths:,} messages were dead-lettered with {len(rows)} kinds of error; "
            f"the most frequent, {worst['count']:,} times: {error}."
        )


def _missed(report: Report) -> Iterator[str]:
    rows: list[dict[str, Any]] = report.section("deadlines").dicts()
    with_deadline, missed = (sum(row[name] for row in rows) for name in ("with_deadline", "missed"))
    late = sum(row["late"] for row in rows)
    if with_deadline:
        yield f"Of {with_deadline:,} messages with a deadline, {missed:,} missed it and {late:,} were late."


def _table(section: Section) -> str:
    head = " | ".join(heading.title for heading in section.headings)
    rule = "|".join("---" if heading.unit == "text" else "---:" for heading in section.headings)
    body = "\n".join(
        "| "
        + " | ".join(_plain(shown(value, heading.unit)) for heading, value in zip(section.headings, row, strict=True))
        + " |"
        for row in section.rows[:_ROWS_MAX]
    )
    return f"## {section.title}\n\n{section.meaning}\n\n| {head} |\n|{rule}|\n{body}\n"


def _plain(text: str) -> str:
    """Return text without Markdown markup or line breaks."""
    return "".join(f"\\{char}" if char in "\\`*_{}[]<>#|" else char for char in " ".join(text.split()))
