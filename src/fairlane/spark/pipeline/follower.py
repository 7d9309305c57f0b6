"""The follower: runs the pipeline at every interval, through restarts of the broker and failures of Spark jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from fairlane.errors import FairlaneError, StoreLocked
from fairlane.spark.pace import Pace
from fairlane.spark.pipeline.metrics import PipelineMetrics
from fairlane.spark.pipeline.run import RunReport
from fairlane.spark.source.server_address import is_of_the_moment

FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0
_DOUBLINGS_MAX: Final = 10
SPARK_FAILED: Final = "spark_failed"
"""The error code of a failed Spark job in logs and metrics."""
_CAUSE_LENGTH: Final = 300


def follow(
    run: Callable[[], RunReport],
    *,
    interval_s: float,
    pace: Pace,
    metrics: PipelineMetrics,
    tell: Callable[[str], None],
) -> Iterator[RunReport]:
    """Run the pipeline at every interval, without an end, and yield the report of each run that changed the tables.

    A run that fails for a reason that may pass is repeated, after a wait that doubles each time up to a minute. These
    are a server that does not answer, another process that updates the tables, and a failed Spark job. The tables are
    as they were then, so nothing has to be undone. Other errors are raised: a retry would not help.
    """
    idle_since: int | None = None
    while True:
        metrics.begin()
        try:
            report = run()
        except (FairlaneError, PySparkException, Py4JJavaError) as error:
            if isinstance(error, FairlaneError) and not may_pass(error):
                raise
            failures = metrics.fail(code_of(error))
            wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** min(failures - 1, _DOUBLINGS_MAX))
            tell(f"Attempt {failures} failed; retrying in {wait_s:g} s. {_cause_of(error)}")
            pace.wait(wait_s)
            continue
        if failures := metrics.succeed(report):
            tell(f"A run succeeded after {failures} failed attempt{'' if failures == 1 else 's'}.")
        if not report.is_idle:
            yield report
        elif idle_since != report.run:
            tell(f"The tables are up to date with run {report.run}. Looking for new events every {interval_s:g} s.")
            idle_since = report.run
        pace.wait(interval_s)


def may_pass(error: FairlaneError) -> bool:
    """Return whether a later run may succeed."""
    return is_of_the_moment(error) or isinstance(error, StoreLocked)


def code_of(error: Exception) -> str:
    """Return the code of an error for metrics."""
    return error.code if isinstance(error, FairlaneError) else SPARK_FAILED


def _cause_of(error: Exception) -> str:
    if isinstance(error, FairlaneError):
        return error.cause
    lines = str(error).strip().splitlines()
    return f"A Spark job failed: {lines[0] if lines else type(error).__name__:.{_CAUSE_LENGTH}}"
