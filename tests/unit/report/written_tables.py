"""Tables as the pipeline writes them, a few rows each, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

from fairlane.lakehouse import Lakehouse, parse_address
from fairlane.lakehouse.files import shape_of
from fairlane.lakehouse.state import TableChange, TablesState
from fairlane.lakehouse.writing import TableWriter

FIRST, SECOND = "2026-03-01", "2026-03-02"
HOSTILE = '<script>alert("x")</script>'


def histogram(*values: int) -> list[dict[str, int]]:
    """Return the histogram of values below 64, each of which has a bucket of its own."""
    return [{"bucket": value, "count": values.count(value)} for value in sorted(set(values))]


def write(
    folder: Path, table: str, day: str, rows: Sequence[Mapping[str, Any]], *, is_open: bool | None = None
) -> None:
    """Write the rows of one day of a table, and commit them."""
    values: dict[str, Any] = ({} if is_open is None else {"is_open": is_open}) | {"day": date.fromisoformat(day)}
    write_table(folder, table, pa.Table.from_pylist([dict(row) | values for row in rows]), tuple(values))


def write_table(folder: Path, table: str, found: pa.Table, partitions: tuple[str, ...]) -> None:
    """Write rows of a table, and commit them."""
    lakehouse = Lakehouse(parse_address(folder))
    shape = shape_of(table, "", found.schema, partitions)
    state = lakehouse.load(TablesState) or TablesState()
    writer = TableWriter(lakehouse.storage, lakehouse.place(shape), lakehouse.attempt(), shape.partitions)
    files = tuple(writer.write(found.to_batches(), "0"))
    lakehouse.commit(state, {table: shape}, {table: TableChange(adds=files)})


def usage(queue: str, key: str, **counts: int) -> dict[str, Any]:
    """Return a row of ``tenant_usage``."""
    names = (
        *("enqueued", "enqueued_bytes", "enqueued_cost", "leased", "acked", "acked_bytes", "cost_estimated"),
        *("cost_true", "service_ms", "failed", "dead", "removed", "redriven", "refused", "refused_cost"),
    )
    return {"queue": queue, "key": key, "top_key": key, "hour_ms": 0, **dict.fromkeys(names, 0), **counts}


def latency(queue: str, key: str, *waits: int) -> dict[str, Any]:
    """Return a row of ``latency``, as far as a report reads it."""
    return {"queue": queue, "top_key": key, "wait_histogram": histogram(*waits), "wait_max_ms": max(waits)}


def share(queue: str, key: str, start: int, served: int, entitled: float, **more: int) -> dict[str, Any]:
    """Return a row of ``fairness_keys``, as far as a report reads it: of one minute, unless it says more."""
    told = {"queue": queue, "top_key": key, "from_ms": start, "served_cost": served, "entitled_cost": entitled}
    return told | {"until_ms": start + 60_000, "waited_ms": 0, "starved_ms": 0, "weight": 1} | more


def death(signature: str, *, count: int, first: int, keys: list[str], day_id: str = "s1") -> dict[str, Any]:
    """Return a row of ``dead_letters``."""
    return {
        "queue": "orders",
        "reason": "max_attempts",
        "signature": signature,
        "signature_id": day_id,
        "count": count,
        "first_seen_ms": first,
        "last_seen_ms": first + 10,
        "keys": keys,
        "sample_error": signature,
        "sample_message_ids": [f"{first:016x}"],
        "redriven": 1,
    }


def write_all(folder: Path) -> None:
    """Write two days of every table that a report reads: of acme, and of one whose name would be a script."""
    write(
        folder,
        "tenant_usage",
        FIRST,
        [usage("orders", "acme", enqueued=90, acked=80, cost_true=160), usage("orders", HOSTILE, enqueued=10, acked=9)],
    )
    write(folder, "tenant_usage", SECOND, [usage("orders", "acme", enqueued=5, acked=5, cost_true=40, dead=1)])
    write(folder, "latency", FIRST, [latency("orders", "acme", 1, 2, 3, 60), latency("orders", HOSTILE, 5, 50)])
    write(folder, "latency", SECOND, [latency("orders", "acme", 1, 1)])
    write(
        folder,
        "fairness_keys",
        FIRST,
        [
            share("orders", "acme", 0, 30, 20.0, waited_ms=400),
            share("orders", HOSTILE, 0, 10, 20.0, waited_ms=1_000),
            share("orders", "acme", 60_000, 60, 60.0, weight=3),
            share("orders", HOSTILE, 120_000, 0, 0.0, waited_ms=200),
        ],
    )
    fairness = {"queue": "orders", "waiting_cost": 50, "keys": 2, "lag_max_key": HOSTILE, "lag_max_cost": 10.0}
    write(
        folder,
        "fairness",
        FIRST,
        [
            fairness | {"from_ms": 0, "until_ms": 60_000, "jain": 0.5, "served_cost": 40},
            fairness | {"from_ms": 60_000, "until_ms": 120_000, "jain": 1.0, "served_cost": 60},
            fairness | {"from_ms": 120_000, "until_ms": 900_000, "jain": None, "served_cost": 0},
        ],
    )
    waits = {"turn_ms": 7, "throttled_ms": 3, "capped_ms": 0, "paused_ms": 0, "backoff_ms": 0, "delayed_ms": 1}
    message = {"queue": "orders", "top_key": "acme"} | waits
    write(folder, "messages", FIRST, [message, message], is_open=False)
    write(folder, "messages", SECOND, [message], is_open=True)
    pair = {"queue": "orders", "victim": HOSTILE, "hour_ms": 0, "victim_waited_ms": 400, "neighbour_leases": 150}
    write(
        folder,
        "noisy_neighbours",
        FIRST,
        [
            pair | {"neighbour": "acme", "delay_ms": 300},
            pair | {"neighbour": HOSTILE, "delay_ms": 100},
        ],
    )
    write(folder, "dead_letters", FIRST, [death("no <n>", count=3, first=100, keys=["b", "a"])])
    write(folder, "dead_letters", SECOND, [death("no <n>", count=2, first=90_000_000, keys=["c"])])
