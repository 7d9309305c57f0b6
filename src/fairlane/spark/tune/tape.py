"""A tape: the last window of a journal, small enough to be replayed while the next window passes.

What-if replays a journal from its beginning, and a live broker's journal is long. So everything before the window is
folded into what matters at its beginning: the settings in force, and the messages that were open. They are put before
the window's events as if they had happened an instant earlier. The messages among them wait no longer than they did
from there on, and are not measured, since they came before the window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from fairlane.journal.arrow import batch_of_rows
from fairlane.journal.segments import file_name
from fairlane.model.policy import QueuePolicy

Row: TypeAlias = Mapping[str, Any]
EVENTS_MAX: Final = 500_000
"""The most events of a window. A busier window is shortened to its latest events, so that it fits into memory."""


class Tape:
    """The events of a window, and what was before it.

    Attributes:
        first_ms: when the journal begins, as far as it was read; None before anything was.
        last_ms: when its latest event happened.
        since_ms: from when on events are kept one by one.
    """

    def __init__(self, *, events_max: int = EVENTS_MAX) -> None:
        self._events_max = events_max
        self._rows: deque[Row] = deque()
        self._settings: dict[tuple[object, ...], Row] = {}
        self._open: dict[str, list[Row]] = {}
        self.first_ms: int | None = None
        self.last_ms = 0
        self.since_ms = 0

    def add(self, events: Iterable[Row], *, keep_ms: int) -> None:
        """Append events, and fold away those that are more than ``keep_ms`` older than the latest."""
        for row in events:
            if self.first_ms is None:
                self.first_ms = row["at_ms"]
            self.last_ms = max(self.last_ms, row["at_ms"])
            self._rows.append(row)
        self.forget_before(self.last_ms - keep_ms)
        while len(self._rows) > self._events_max:
            self.forget_before(self._rows[0]["at_ms"] + 1)

    def forget_before(self, at_ms: int) -> None:
        """Fold events before an instant into what matters at that instant."""
        self.since_ms = max(self.since_ms, at_ms)
        while self._rows and self._rows[0]["at_ms"] < self.since_ms:
            row = self._rows.popleft()
            fold = _FOLDS.get(row["kind"])
            if fold is not None:
                fold(self, row)

    def changes_of(self, name: str) -> list[Row]:
        """Return the changes of a config value within the window, in order."""
        return [row for row in self._rows if row["kind"] == "config_set" and row["name"] == name]

    def assume(self, policies: Mapping[str, QueuePolicy], config: Mapping[str, str]) -> None:
        """Assume settings that the journal does not tell, because it was trimmed."""
        told = {_setting_of(row) for row in self._rows} | set(self._settings)
        for at, (queue, policy) in enumerate(policies.items()):
            row = _told_row("queue_set", at) | {"queue": queue, "policy_json": msgspec.json.encode(policy).decode()}
            if _setting_of(row) not in told:
                self._settings[_setting_of(row)] = row
        for at, (name, value) in enumerate(config.items(), len(policies)):
            row = _told_row("config_set", at) | {"name": name, "value": value}
            if _setting_of(row) not in told:
                self._settings[_setting_of(row)] = row

    def rows(self) -> list[Row]:
        """Return the events of the window, and before them what was in force and open when it begins."""
        carried = [*self._settings.values(), *(row for rows in self._open.values() for row in rows)]
        before = [{**row, "at_ms": self.since_ms - 1} for row in carried]
        return [*sorted(before, key=lambda row: row["sequence"]), *self._rows]

    def write(self, folder: Path, *, journal_id: str) -> None:
        """Write the window to a folder, as an exported journal that what-if reads."""
        rows = self.rows()
        if rows:
            name = file_name(journal_id, (rows[0]["sequence"], rows[-1]["sequence"]))
            pq.write_table(pa.Table.from_batches([batch_of_rows(rows, journal_id=journal_id)]), folder / name)

    # -------------------------------------------------------------------------------------------------------- folding

    def _set(self, row: Row) -> None:
        self._settings[_setting_of(row)] = row

    def _pause(self, row: Row) -> None:
        if row["is_paused"]:
            self._set(row)
        else:
            self._settings.pop(_setting_of(row), None)

    def _configure(self, row: Row) -> None:
        if row.get("value") is not None:
            self._set(row)
        else:
            self._settings.pop(_setting_of(row), None)

    def _remove_queue(self, row: Row) -> None:
        queue = row["queue"]
        self._settings = {at: one for at, one in self._settings.items() if one.get("queue") != queue}
        gone = [number for number, rows in self._open.items() if queue_of_message(rows[0]) == queue]
        for number in gone:
            del self._open[number]

    def _begin(self, row: Row) -> None:
        self._open[row["message_id"]] = [row]

    def _lease(self, row: Row) -> None:
        known = self._open.get(row["message_id"])
        if known is not None:
            known[1:] = [{**row, "value": None}]  # how lanes moved meanwhile is of no use without those moves

    def _return(self, row: Row) -> None:
        known = self._open.get(row["message_id"])
        if known is not None:
            known[:] = [{**known[0], "due_ms": row.get("due_ms")}]

    def _end(self, row: Row) -> None:
        self._open.pop(row["message_id"], None)


def queue_of_message(row: Row) -> object:
    """Return the queue in which an event puts a message."""
    return row["target"] if row["kind"] == "redriven" else row["queue"]


def _told_row(kind: str, at: int) -> dict[str, Any]:
    return {"kind": kind, "sequence": at, "record": at, "at_ms": 0}


def _setting_of(row: Row) -> tuple[object, ...]:
    """Return which setting an event is about: the latest event about it counts."""
    return (row["kind"], row.get("queue"), row.get("name"), tuple(row.get("fairness_key") or ()))


_FOLDS: Final[Mapping[str, Callable[[Tape, Row], None]]] = {
    "queue_set": Tape._set,
    "queue_removed": Tape._remove_queue,
    "queue_paused": Tape._pause,
    "config_set": Tape._configure,
    "enqueued": Tape._begin,
    "published": Tape._begin,
    "redriven": Tape._begin,
    "leased": Tape._lease,
    "returned": Tape._return,
    "acked": Tape._end,
    "removed": Tape._end,
    "dead": Tape._end,
}
"""How an event before the window changes what matters at its beginning."""
