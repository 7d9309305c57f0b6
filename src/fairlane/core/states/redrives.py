"""Redrives as the ledger knows them: what was ordered, how many dead letters have moved, and how it ended.

A redrive is about the dead letters that were in its queue when it was ordered. Which these are need not be written
down: they are those that died before the redrive's own number. One that has moved is gone from the queue, and if it
dies again it died later. So each of them is moved at most once, whatever happens between two moves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fairlane.journal.records import RedriveEnd, RedriveImage, RedriveStarted
from fairlane.model.names import REDRIVE_AT
from fairlane.model.views import RedriveView

ENDED_KEPT = 100
"""How many redrives that are over are still known."""
_ID = re.compile(r"redrive-([0-9]{1,16})", re.ASCII)


def redrive_id(number: int, queue: str) -> str:
    """Return the id by which callers know a redrive. It names the queue, so that a cluster finds the redrive's node."""
    return f"redrive-{number}{REDRIVE_AT}{queue}"


def redrive_number(redrive_id: str) -> int | None:
    """Return the number of the redrive that an id may name, or None if it can't name one."""
    found = _ID.fullmatch(redrive_id.partition(REDRIVE_AT)[0])
    return None if found is None else int(found[1])


@dataclass(slots=True, eq=False)
class RedriveState:
    """A redrive that runs, or has ended.

    Attributes:
        order: the record that started it; its sequence is the redrive's number.
        moved: how many dead letters it has moved.
        end: how it ended; None while it runs.
    """

    order: RedriveStarted
    started_ms: int
    moved: int = 0
    end: RedriveEnd | None = None

    @property
    def number(self) -> int:
        """The redrive's number, the sequence at which it was ordered."""
        return self.order.sequence

    def image(self) -> RedriveImage:
        """Return everything that is known of it, for the journal."""
        return RedriveImage(self.order, self.started_ms, self.moved, self.end)

    def view(self, *, scanned: int | None = None, matched: int | None = None) -> RedriveView:
        """Return it as callers see it, with the progress of one that runs."""
        order, end = self.order, self.end
        if end is not None:
            scanned, matched = end.scanned, end.matched
        return RedriveView(
            id=redrive_id(self.number, order.queue),
            queue=order.queue,
            status="running" if end is None else end.status,
            is_dry_run=False,
            total=order.total,
            scanned=self.moved if scanned is None else scanned,
            matched=self.moved if matched is None else matched,
            moved=self.moved,
            started_ms=self.started_ms,
            ended_ms=None if end is None else end.ended_ms,
            error=None if end is None else end.error,
            target=order.target,
            rate=order.rate,
            by=order.by,
        )
