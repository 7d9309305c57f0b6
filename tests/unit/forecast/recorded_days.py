"""Days of a queue as the pipeline writes them, played by hand: consumers take messages in the order of arrival."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from fairlane.journal.arrow import batch_of_rows
from fairlane.model.policy import QueuePolicy
from tests.unit.report.written_tables import usage, write_table

HOUR_MS = 3_600_000
FIRST_DAY = datetime(2026, 3, 2, tzinfo=UTC)
"""A Monday."""
JOURNAL = "j1"

Rate = Callable[[int, int], dict[str, int]]
"""Returns how many messages of each tenant come, by day and hour."""


@dataclass(frozen=True, slots=True)
class RecordedDays:
    """Days in which messages of a tenant come at even distances within each hour.

    Attributes:
        rate: how many messages come.
        days: how many days there are.
        consumers: how many consumers work.
        service_ms: how long the work on a message takes.
        queue: the queue.
    """

    rate: Rate
    days: int = 4
    consumers: int = 2
    service_ms: int = 60_000
    queue: str = "work"

    def arrivals(self) -> list[tuple[int, str]]:
        """Return when messages come, in milliseconds since the epoch, and whose they are."""
        return sorted(
            (begin_ms + at * HOUR_MS // count, tenant)
            for day in range(self.days)
            for hour in range(24)
            for begin_ms in [at_ms(day, hour)]
            for tenant, count in self.rate(day, hour).items()
            for at in range(count)
        )

    def write(
        self, folder: Path, *, skipped: Sequence[int] = (), incomplete: Sequence[int] = (), carries: bool = True
    ) -> Path:
        """Write the tables that a forecast reads, and return their folder.

        Args:
            folder: where they are.
            skipped: days that are in a gap of the journal, without rows.
            incomplete: days with rows that are marked as incomplete.
            carries: whether days carry the settings over to the next.
        """
        counted = Counter((came_ms // HOUR_MS, tenant) for came_ms, tenant in self.arrivals())
        left_out, marked = ({day_of(at_ms(day)) for day in days} for days in (skipped, incomplete))
        # The first row of the next hour tells that the last day is finished.
        counted[at_ms(self.days) // HOUR_MS, "end"] = 1
        rows = [
            usage(self.queue, tenant, enqueued=count) | {"hour_ms": hour * HOUR_MS, "is_complete": day not in marked}
            for (hour, tenant), count in sorted(counted.items())
            if (day := day_of(hour * HOUR_MS)) not in left_out
        ]
        _write(folder, "tenant_usage", pa.Table.from_pylist(rows), "hour_ms")
        if skipped:
            gaps = [{"from_ms": at_ms(day), "until_ms": at_ms(day) + 1} for day in skipped]
            _write(folder, "gaps", pa.Table.from_pylist(gaps), "from_ms")
        events = [row for row in self._events() if day_of(row["at_ms"]) not in left_out]
        _write(folder, "events", pa.Table.from_batches([batch_of_rows(events, journal_id=JOURNAL)]), "at_ms")
        if carries:
            carried = pa.Table.from_pylist([self._created() | {"end_ms": at_ms(day)} for day in range(self.days)])
            _write(folder, ".carried", carried, "end_ms")
        return folder

    def _events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of a broker whose consumers take one message at a time, in the order in which they came."""
        found: list[tuple[int, int, dict[str, Any]]] = []
        idle = [(0, f"worker-{at}") for at in range(self.consumers)]
        for number, (came_ms, tenant) in enumerate(self.arrivals()):
            free_ms, worker = heappop(idle)
            begin_ms = max(came_ms, free_ms)
            message = {"queue": self.queue, "message_id": f"{number + 1:016x}"}
            terms = {"fairness_key": [tenant], "cost": 1, "priority": "normal", "throttles": []}
            found += [
                (came_ms, 1, message | terms | {"kind": "enqueued"}),
                (begin_ms, 2, message | {"kind": "leased", "owner": worker, "asked": 1}),
                (begin_ms + self.service_ms, 0, message | {"kind": "acked"}),
            ]
            heappush(idle, (begin_ms + self.service_ms, worker))
        yield self._created()
        for sequence, (when_ms, _, row) in enumerate(sorted(found, key=lambda one: one[:2]), 2):
            yield _event(sequence, when_ms, row)

    def _created(self) -> dict[str, Any]:
        policy = msgspec.json.encode(QueuePolicy()).decode()
        return _event(1, at_ms(0), {"kind": "queue_set", "queue": self.queue, "policy_json": policy})


def _event(sequence: int, when_ms: int, row: dict[str, Any]) -> dict[str, Any]:
    return {"sequence": sequence, "record": sequence, "at_ms": when_ms} | row


def at_ms(day: int, hour: int = 0) -> int:
    """Return when an hour begins."""
    return int((FIRST_DAY + timedelta(days=day, hours=hour)).timestamp()) * 1000


def day_of(when_ms: int) -> date:
    """Return the UTC day of an instant."""
    return datetime.fromtimestamp(when_ms / 1000, UTC).date()


def _write(folder: Path, table: str, rows: pa.Table, instant: str) -> None:
    """Write rows to the days of one of their instants."""
    days = pa.array([day_of(when_ms) for when_ms in rows[instant].to_pylist()], pa.date32())
    write_table(folder, table, rows.replace_schema_metadata(None).append_column("day", days), ("day",))
