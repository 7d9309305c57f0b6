"""Recent traffic: the newest complete days of a queue as a recording, from the table ``events``.

A forecast needs more than counts: how messages of an hour are spread over it, how long the work on each takes, how it
fails, which settings are in force, and what the consumers are like. All of that is in a recording, as what-if makes it
from an exported journal. The tables have the same events. Settings from before the first of these days come from what
the pipeline carries over from day to day.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairlane.errors import JournalIncomplete
from fairlane.lakehouse import Lakehouse
from fairlane.model.partitions import MARK
from fairlane.spark.forecast.history import DAY_HOURS, HOUR_MS, History, day_of_hour
from fairlane.spark.whatif.files import COLUMNS_READ, as_read, selected
from fairlane.spark.whatif.recording import Recording, recording_of

EVENTS_MAX: Final = 500_000
"""Days are added to the recent traffic as long as all events of them are about this many."""
DAYS_MAX: Final = 3
_EVENTS = "events"
_CARRIED = ".carried"
_SETTINGS = ("queue_set", "queue_removed", "queue_paused", "config_set")
_EPOCH = date(1970, 1, 1)


def read_recent(tables: Lakehouse, history: History) -> Recording:
    """Return the newest complete days of a queue as a recording.

    Raises:
        JournalIncomplete: there is no complete day with events, or the queue is split.
    """
    days = _days(tables, history)
    events = _events(tables, history.queue, ds.field("day").isin(days))
    begin_ms = (days[0] - _EPOCH).days * DAY_HOURS * HOUR_MS
    settings = _settings(tables, history.queue, days[0] - timedelta(days=1), begin_ms)
    table = pa.concat_tables([settings, _of_one_journal(events)]).unify_dictionaries().combine_chunks()
    if not pc.any(pc.equal(table["kind"], "queue_set")).as_py():
        raise JournalIncomplete("The tables begin after the queue was created, so its settings are unknown.")
    recording = recording_of(table, (history.queue,))
    if not recording.at_ms:
        raise JournalIncomplete("No messages came on the newest complete days.")
    return recording


def _days(tables: Lakehouse, history: History) -> list[date]:
    """Return the newest days in a row that are complete and finished, as many as are not too large."""
    rows: dict[date, int] = {}
    for file in tables.files(_EVENTS):
        day = date.fromisoformat(file.partition["day"])
        rows[day] = rows.get(day, 0) + file.rows
    found: list[date] = []
    day, events = day_of_hour(history.end_hour) - timedelta(days=1), 0
    while day in history.days_left_out:
        day -= timedelta(days=1)
    while day in rows and day not in history.days_left_out and len(found) < DAYS_MAX:
        events += rows[day]
        if found and events > EVENTS_MAX:
            break
        found.append(day)
        day -= timedelta(days=1)
    if not found:
        raise JournalIncomplete("The tables have no complete day with events.")
    return sorted(found)


def _events(tables: Lakehouse, queue: str, wanted: ds.Expression) -> pa.Table:
    """Return the events of a queue, with their journal in the last column."""
    dataset = tables.dataset(_EVENTS)
    split = dataset.head(1, columns=["queue"], filter=wanted & pc.starts_with(ds.field("queue"), f"{queue}{MARK}"))
    if split.num_rows:
        raise JournalIncomplete("The queue is split into partitions, each with consumers of its own.")
    ours = (ds.field("queue") == queue) | ds.field("queue").is_null() | (ds.field("target") == queue)
    columns = [name for name in (*COLUMNS_READ, "journal_id") if name in dataset.schema.names]
    return dataset.to_table(columns=columns, filter=wanted & ours)


def _of_one_journal(events: pa.Table) -> pa.Table:
    """Return the events of the journal that the queue is in at the end, in order: each journal counts by itself."""
    if "journal_id" in events.column_names and events.num_rows:
        of_queue = events.filter(pc.is_valid(events["queue"]))
        newest = of_queue.sort_by([("at_ms", "descending")])["journal_id"]
        if len(newest):
            events = events.filter(pc.equal(pc.fill_null(events["journal_id"], ""), newest[0].as_py() or ""))
    return selected(as_read(events.sort_by("sequence")), None)


def _settings(tables: Lakehouse, queue: str, day: date, begin_ms: int) -> pa.Table:
    """Return the settings in force at the end of a day, as events at the instant after it."""
    if not tables.files(_CARRIED):
        return as_read(pa.table({}))
    dataset = tables.dataset(_CARRIED)
    columns = [name for name in COLUMNS_READ if name in dataset.schema.names]
    ours = (ds.field("queue") == queue) | ds.field("queue").is_null()
    wanted = (ds.field("day") == day) & ds.field("kind").isin(_SETTINGS) & ours
    found = dataset.to_table(columns=columns, filter=wanted).sort_by("sequence")
    at_ms, record = pa.array([begin_ms] * found.num_rows, pa.int64()), found["sequence"]
    return as_read(_with(_with(found, "at_ms", at_ms), "record", record))


def _with(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    kept = table.drop_columns([name]) if name in table.column_names else table
    return kept.append_column(name, values)
