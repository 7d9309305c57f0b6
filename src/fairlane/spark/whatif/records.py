"""Converts events back into records, as far as a replay needs them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import msgspec
import pyarrow as pa

from fairlane.journal import records
from fairlane.journal.records import AnyRecord
from fairlane.model.message import PRIORITY_NAMES, Key, key_of
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
        yield found[0]["at_ms"], _MAKERS[found[0]["kind"]](found[0]["sequence"], found[0]["queue"], found)


def _numbers(rows: list[Row]) -> list[int]:
    return [int(row["message_id"], 16) for row in rows]


def _terms(rows: list[Row]) -> records.Terms:
    return records.Terms(
        [key_of(row["fairness_key"]) for row in rows],
        [row["weight"] or 0 for row in rows],
        [row["cost"] for row in rows],
        [PRIORITY_NAMES.index(row["priority"]) for row in rows],
        [row["throttles"] for row in rows],
        [row["due_ms"] for row in rows],
        [row["deadline_ms"] for row in rows],
        [row["cap"] for row in rows],
        order_keys=[row["order_key"] for row in rows],
    )


def _leased(sequence: int, queue: str, rows: list[Row]) -> records.Leased:
    told = rows[0]["value"]
    moves = [(move[0], move[1], move[2], move[3]) for move in json.loads(told)] if told else None
    is_single = bool(rows[0]["is_single"])
    picking = records.Picking(rows[0]["asked"] or len(rows), moves=moves, is_single=is_single)
    return records.Leased(sequence, queue, _numbers(rows), 0, None, picking)


def _opened(sequence: int, _queue: str, rows: list[Row]) -> records.Opened:
    told = rows[0]["value"]
    return records.Opened(sequence, (json.loads(told).get("built_ms") if told else 0) or rows[0]["at_ms"])


def _policy(rows: list[Row]) -> QueuePolicy:
    return msgspec.json.decode(rows[0]["policy_json"], type=QueuePolicy)


def _paused_key(rows: list[Row]) -> Key | None:
    path = rows[0]["fairness_key"]
    return None if path is None else key_of(path)


def _batch(rows: list[Row]) -> tuple[str, int]:
    return rows[0]["name"], rows[0]["position"]


_MAKERS: dict[str, Callable[[int, str, list[Row]], AnyRecord]] = {
    "enqueued": lambda at, queue, rows: records.Enqueued(at, queue, [0] * len(rows), [0], _terms(rows)),
    "staged": lambda at, queue, rows: records.Staged(
        at, queue, [0] * len(rows), [0], _terms(rows), *_batch(rows), rows[0]["value"]
    ),
    "published": lambda at, queue, rows: records.Published(
        at, queue, _numbers(rows), *_batch(rows), [0] * len(rows), _terms(rows)
    ),
    "leased": _leased,
    "acked": lambda at, queue, rows: records.Acked(
        at, queue, _numbers(rows), [row["cost"] for row in rows], is_late=rows[0]["reason"] == "late"
    ),
    "returned": lambda at, queue, rows: records.Returned(
        at, queue, _numbers(rows), rows[0]["reason"], [row["due_ms"] or 0 for row in rows]
    ),
    "dead": lambda at, queue, rows: records.Dead(
        at, queue, _numbers(rows), rows[0]["reason"], rows[0]["ended"], target=rows[0]["target"]
    ),
    "removed": lambda at, queue, rows: records.Removed(at, queue, _numbers(rows), rows[0]["reason"]),
    "redriven": lambda at, queue, rows: records.Redriven(at, queue, _numbers(rows), rows[0]["target"], _terms(rows)),
    "queue_set": lambda at, queue, rows: records.QueueSet(at, queue, _policy(rows)),
    "queue_removed": lambda at, queue, _rows: records.QueueRemoved(at, queue),
    "queue_paused": lambda at, queue, rows: records.QueuePaused(at, queue, rows[0]["is_paused"], _paused_key(rows)),
    "config_set": lambda at, _queue, rows: records.ConfigSet(at, rows[0]["name"], rows[0]["value"]),
    "opened": _opened,
}
