"""Metrics of a pipeline that follows a journal: how fresh its tables are, and what went wrong last."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from fairlane import __version__
from fairlane.errors import InvalidArgument
from fairlane.spark.pipeline.run import RunReport

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OUTCOMES: Final = ("updated", "idle", "failed")
_PREFIX: Final = "fairlane_pipeline"


class PipelineMetrics:
    """What is known about the runs of this process. Any thread may read it."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """Start counting; ``now_ms`` returns UTC in milliseconds."""
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._runs: Counter[str] = Counter()
        self._events = self._failures = 0
        self._began_s = self._run_s = 0.0
        self._fresh_s: float | None = None
        self._last_error: tuple[str, float] | None = None
        self._report: RunReport | None = None

    def begin(self) -> None:
        """Note that a run looks for new events."""
        self._began_s = self._now_s()

    def succeed(self, report: RunReport) -> int:
        """Note that the tables have all events from before the run began; return how many runs had failed before it."""
        with self._lock:
            failures, self._failures = self._failures, 0
            self._runs["idle" if report.is_idle else "updated"] += 1
            self._events += report.events
            self._fresh_s, self._report = self._began_s, report
            if not report.is_idle:
                self._run_s = self._now_s() - self._began_s
        return failures

    def fail(self, code: str) -> int:
        """Note that a run failed, and return how many have failed in a row."""
        with self._lock:
            self._runs["failed"] += 1
            self._failures += 1
            self._last_error = (code, self._now_s())
            return self._failures

    def _now_s(self) -> float:
        return self._now_ms() / 1000

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        with self._lock:
            return "".join(self._families())

    def _families(self) -> Iterator[str]:
        yield _family("info", "gauge", "Version of the pipeline; always 1.", {f'version="{__version__}"': 1})
        runs = {f'outcome="{outcome}"': self._runs[outcome] for outcome in OUTCOMES}
        yield _family("runs_total", "counter", "Runs since the start of this process, by outcome.", runs)
        yield _family("events_total", "counter", "Events added to the tables since the start.", {"": self._events})
        yield _family("failures", "gauge", "Failed runs since the last successful one.", {"": self._failures})
        yield _family("run_seconds", "gauge", "Duration of the last run that changed the tables.", {"": self._run_s})
        if self._last_error is not None:
            code, at_s = self._last_error
            meaning = "Time of the last failure, with its error code."
            yield _family("last_error_timestamp_seconds", "gauge", meaning, {f'code="{code}"': at_s})
        if self._fresh_s is not None:
            meaning = "Time up to which the tables have all events."
            yield _family("fresh_timestamp_seconds", "gauge", meaning, {"": self._fresh_s})
        if (report := self._report) is not None:
            meaning = "Time of the newest event in the tables."
            yield _family("event_timestamp_seconds", "gauge", meaning, {"": report.horizon_ms / 1000})
            reached = {f'group="{each.group}"': each.reached for each in report.journals if not each.is_ended}
            yield _family("sequence", "gauge", "Sequence of a group's newest event in the tables.", reached)
            yield _family("gaps", "gauge", "Ranges of the journal that the tables lack.", {"": len(report.gaps)})


def _family(name: str, kind: str, meaning: str, samples: Mapping[str, float]) -> str:
    name = f"{_PREFIX}_{name}"
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{f'{{{labels}}}' if labels else ''} {value}" for labels, value in samples.items()]
    return "\n".join([*lines, ""])


@contextmanager
def served(metrics: PipelineMetrics, host: str, port: int) -> Iterator[int]:
    """Serve metrics at ``/metrics`` while the context lasts, and yield the port; port 0 takes a free one.

    Raises:
        InvalidArgument: the address cannot be listened on.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer with the metrics."""
            is_known = self.path.partition("?")[0] == "/metrics"
            body = metrics.text().encode() if is_known else b"Use /metrics.\n"
            self.send_response(200 if is_known else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, *_: object) -> None:
            """Write nothing: a scrape is no event."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise InvalidArgument(f"Cannot listen on {host}:{port} for metrics: {error}.") from error
    thread = threading.Thread(target=server.serve_forever, name="fairlane-metrics", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
