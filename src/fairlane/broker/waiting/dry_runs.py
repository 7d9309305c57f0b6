"""Dry runs of redrives: count the dead letters that would move, a part with each cycle if there are very many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from fairlane.core.dead_letters import admits, dead_before
from fairlane.core.decide.dead_letters import source_of
from fairlane.core.ledger import Ledger
from fairlane.errors import FairlaneError
from fairlane.model.names import REDRIVE_AT
from fairlane.model.views import RedriveView
from fairlane.verbs.dead_letters import Redrive

SCAN: Final = 2_000
"""How many dead letters a cycle looks at."""
_COUNT: Final = 50_000
_KEPT: Final = 100


@dataclass(slots=True, eq=False)
class _DryRun:
    id: str
    request: Redrive
    numbers: list[int]
    before: int
    started_ms: int
    by: str | None
    scanned: int = 0
    matched: int = 0
    status: Literal["running", "done", "stopped", "failed"] = "running"
    ended_ms: int | None = None
    error: str | None = None

    def end(self, status: Literal["done", "stopped", "failed"], now_ms: int, error: str | None = None) -> None:
        self.status, self.ended_ms, self.error = status, now_ms, error

    def view(self) -> RedriveView:
        return RedriveView(
            id=self.id,
            queue=self.request.queue,
            status=self.status,
            is_dry_run=True,
            total=len(self.numbers),
            scanned=self.scanned,
            matched=self.matched,
            moved=0,
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
            error=self.error,
            target=self.request.target,
            rate=self.request.rate,
            by=self.by,
        )


class DryRuns:
    """The dry runs that count, and the last of those that are over."""

    def __init__(self) -> None:
        self._known: dict[str, _DryRun] = {}
        self._started = 0
        self.running = 0
        """How many still count."""

    def start(self, ledger: Ledger, request: Redrive, now_ms: int, by: str | None) -> RedriveView:
        """Count what a redrive would move, at once unless there is so much that others would wait for it.

        Raises:
            QueueNotFound, NotADlq, InvalidArgument: the redrive could not be started either.
        """
        dlq = source_of(ledger, request)
        if isinstance(dlq, FairlaneError):
            raise dlq
        self._started += 1
        numbers = dead_before(request.wanted, dlq, ledger.next_sequence)
        run = _DryRun(
            f"dry-run-{self._started}{REDRIVE_AT}{request.queue}", request, numbers, ledger.next_sequence, now_ms, by
        )
        self._known[run.id] = run
        while run.status == "running" and run.scanned < _COUNT:
            _count(run, ledger, now_ms)
        self.running += run.status == "running"
        for old in [known for known in self._known.values() if known.status != "running"][:-_KEPT]:
            del self._known[old.id]
        return run.view()

    def step(self, ledger: Ledger, now_ms: int) -> None:
        """Go on with those that still count."""
        if self.running:
            for run in self._known.values():
                _count(run, ledger, now_ms)
            self._recount()

    def stop(self, run_id: str, now_ms: int) -> None:
        """Stop one, if it still counts."""
        run = self._known.get(run_id)
        if run is not None and run.status == "running":
            run.end("stopped", now_ms)
            self._recount()

    def _recount(self) -> None:
        self.running = sum(run.status == "running" for run in self._known.values())

    def view(self, run_id: str) -> RedriveView | None:
        """Return how far a dry run is; None if there is none of this id."""
        run = self._known.get(run_id)
        return None if run is None else run.view()

    def views(self) -> list[tuple[int, RedriveView]]:
        """Return all that are known, the latest last, each with the sequence that came next when it was started."""
        return [(run.before, run.view()) for run in self._known.values()]


def _count(run: _DryRun, ledger: Ledger, now_ms: int) -> None:
    """Look at the next dead letters."""
    if run.status != "running":
        return
    dlq, most = ledger.queues.get(run.request.queue), run.request.count
    if dlq is None:
        run.end("failed", now_ms, f"Queue {run.request.queue!r} was deleted.")
        return
    for number in run.numbers[run.scanned : run.scanned + SCAN]:
        if most is not None and run.matched >= most:
            break
        message = dlq.messages.get(number)
        run.scanned += 1
        if message is not None and not message.token and admits(run.request.wanted, message, run.started_ms):
            run.matched += 1
    if run.scanned >= len(run.numbers) or (most is not None and run.matched >= most):
        run.end("done", now_ms)
