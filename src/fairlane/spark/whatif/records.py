"""Converts events back into records, as far as a replay needs them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import msgspec
import pyarrow as pa

from fairlane.journal.records import (
    Acked,
    AnyRecord,
    ConfigSet,
    Dead,
    Enqueued,
    Leased,
    Opened,
    Picking,
    Published,
    QueuePaused,
    QueueRemoved,
    QueueSet,
    Redriven,
    Removed,
    Returned,
    Staged,
    Terms,
)
from fairlane.model.message import PRIORITY_NAMES, Key
from fairlane.model.policy import QueuePolicy

Row = dict[str, Any]
_BATCH = 10_000


def records_of(events: pa.Table) -> Iterator[tuple[int, AnyRecord]]:
    """Yield the records of events in order, each with its instant.

    They contain only what influences the order of leases: not bodies, dedup ids, owners and ends of leases.
    """
    rows = (row for batch in events.to_batches(max_chunksize=_BATCH) for row in batch.to_pylist())
    for _, together in groupby(rows, key=lambda row: row["record"]):
        found = list(together)
        yield found[0]["at_ms"], _MAKERS[found[0]["kind"]](found)


def _numbers(rows: list[Row]) -> list[int]:
    return [int(row["message_id"], 16) for row in rows]


def _terms(rows: list[Row]) -> Terms:
    return Terms(
        [_key(row["fairness_key"]) for row in rows],
        [row["weight"] or 0 for row in rows],
        [row["cost"] for row in rows],
        [PRIORITY_NAMES.index(row["priority"]) for row in rows],
        [row["throttles"] for row in rows],
        [row["due_ms"] for row in rows],
        [row["deadline_ms"] for row in rows],
        [row["cap"] for row in rows],
    )


def _key(path: list[str]) -> Key:
    return path[0] if len(path) == 1 else tuple(path)


def _enqueued(rows: list[Row]) -> Enqueued:
    return Enqueued(rows[0]["sequence"], rows[0]["queue"], [0] * len(rows), [0], _terms(rows))


def _staged(rows: list[Row]) -> Staged:
    first = rows[0]
    sink, batch, part = first["name"], first["position"], first["value"]
    return Staged(first["sequence"], first["queue"], [0] * len(rows), [0], _terms(rows), sink, batch, part)


def _published(rows: list[Row]) -> Published:
    first = rows[0]
    sink, batch, sizes = first["name"], first["position"], [0] * len(rows)
    return Published(first["sequence"], first["queue"], _numbers(rows), sink, batch, sizes, _terms(rows))


def _leased(rows: list[Row]) -> Leased:
    told = rows[0]["value"]
    moves = [(move[0], move[1], move[2], move[3]) for move in json.loads(told)] if told else None
    picking = Picking(rows[0]["asked"] or len(rows), moves=moves)
    return Leased(rows[0]["sequence"], rows[0]["queue"], _numbers(rows), 0, None, picking)


def _acked(rows: list[Row]) -> Acked:
    return Acked(rows[0]["sequence"], rows[0]["queue"], _numbers(rows), [row["cost"] for row in rows])


def _returned(rows: list[Row]) -> Returned:
    due_ms = [row["due_ms"] or 0 for row in rows]
    return Returned(rows[0]["sequence"], rows[0]["queue"], _numbers(rows), rows[0]["reason"], due_ms)


def _dead(rows: list[Row]) -> Dead:
    return Dead(rows[0]["sequence"], rows[0]["queue"], _numbers(rows), rows[0]["reason"], rows[0]["ended"])


def _removed(rows: list[Row]) -> Removed:
    return Removed(rows[0]["sequence"], rows[0]["queue"], _numbers(rows), rows[0]["reason"])


def _redriven(rows: list[Row]) -> Redriven:
    return Redriven(rows[0]["sequence"], rows[0]["queue"], _numbers(rows), rows[0]["target"], _terms(rows))


def _queue_set(rows: list[Row]) -> QueueSet:
    policy = msgspec.json.decode(rows[0]["policy_json"], type=QueuePolicy)
    return QueueSet(rows[0]["sequence"], rows[0]["queue"], policy)


def _queue_removed(rows: list[Row]) -> QueueRemoved:
    return QueueRemoved(rows[0]["sequence"], rows[0]["queue"])


def _queue_paused(rows: list[Row]) -> QueuePaused:
    path = rows[0]["fairness_key"]
    key = None if path is None else _key(path)
    return QueuePaused(rows[0]["sequence"], rows[0]["queue"], rows[0]["is_paused"], key)


def _config_set(rows: list[Row]) -> ConfigSet:
    return ConfigSet(rows[0]["sequence"], rows[0]["name"], rows[0]["value"])


def _opened(rows: list[Row]) -> Opened:
    told = rows[0]["value"]
    return Opened(rows[0]["sequence"], json.loads(told)["built_ms"] if told else rows[0]["at_ms"])


_MAKERS: dict[str, Callable[[list[Row]], AnyRecord]] = {
    "enqueued": _enqueued,
    "staged": _staged,
    "published": _published,
    "leased": _leased,
    "acked": _acked,
    "returned": _returned,
    "dead": _dead,
    "removed": _removed,
    "redriven": _redriven,
    "queue_set": _queue_set,
    "queue_removed": _queue_removed,
    "queue_paused": _queue_paused,
    "config_set": _config_set,
    "opened": _opened,
}
