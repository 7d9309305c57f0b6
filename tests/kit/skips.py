"""The end of a test run says loudly what was not tested, and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_PREFIX = "Skipped: "


def lines_of(skipped: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Return a line for each reason, the most frequent first, from the file and the reason of each skipped test."""
    counts: Counter[str] = Counter()
    files: defaultdict[str, set[str]] = defaultdict(set)
    for file, reason in skipped:
        counts[reason] += 1
        files[reason].add(file)
    for reason, count in counts.most_common():
        yield f"{count} {'test' if count == 1 else 'tests'} in {', '.join(sorted(files[reason]))}: {reason}"


def _skipped(reports: Iterable[pytest.TestReport | pytest.CollectReport]) -> Iterator[tuple[str, str]]:
    for report in reports:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        yield report.nodeid.partition("::")[0], reason.removeprefix(_PREFIX)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was skipped as the last section of a run."""
    lines = list(lines_of(_skipped(terminalreporter.stats.get("skipped", ()))))
    if lines:
        terminalreporter.section("NOT TESTED", sep="!", red=True, bold=True)
        for line in lines:
            terminalreporter.write_line(line, red=True)
