"""All tables of the pipeline from a large journal: how long it takes, and how that grows.

    python -m benchmarks.spark_tables [--quick]

The journal is made up with numpy: tenants of Zipf sizes, queues, retries, dead letters, throttles and deadlines in
proportions like those of a busy day.
"""

from __future__ import annotations

import argparse
import math
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped, unused-ignore] # it comes without types
import pyarrow.parquet as pq  # type: ignore[import-untyped, unused-ignore] # it comes without types
from pyspark.sql import SparkSession

from fairlead.journal.arrow import SCHEMA
from fairlead.spark import spark_session
from fairlead.spark.pipeline import CONF, JournalFolder, run_pipeline

SIZES = (500_000, 5_000_000)
QUICK_SIZES = (50_000, 500_000)
WARM_UP = 20_000
BUDGET_S = 90.0
MEMORY = "3g"
_START_MS = 1_767_225_600_000  # 2026-01-01
_DAY_MS = 86_400_000
_SEGMENT = 250_000
_KINDS = np.array(["enqueued", "leased", "returned", "acked", "dead"])
_QUEUES = np.array([f"queue-{number}" for number in range(8)])
_ERRORS = np.array([f"HTTP 50{number} from upstream 10.0.0.{number} after {number * 7} ms" for number in range(10)])


@dataclass(frozen=True, slots=True)
class Result:
    """How long all tables of a journal took."""

    events: int
    messages: int
    seconds: float


def make_journal(folder: Path, events: int, *, seed: int = 1, days: float = 1.0) -> int:
    """Write a journal of about so many events as sealed segments, and return how many messages it tells of."""
    chance = np.random.default_rng(seed)
    messages = int(events / 3.22)
    columns = _told(chance, messages, days)
    order = np.lexsort((columns["step"], columns["message"], columns["at_ms"]))
    columns = {name: values[order] for name, values in columns.items()}
    total = len(order)
    sequence = np.arange(1, total + 1)
    numbers = np.empty(messages, np.int64)
    is_new = columns["kind"] == 0
    numbers[columns["message"][is_new]] = sequence[is_new]
    folder.mkdir(parents=True, exist_ok=True)
    for begin in range(0, total, _SEGMENT):
        part = slice(begin, min(begin + _SEGMENT, total))
        table = _table({name: values[part] for name, values in columns.items()}, sequence[part], numbers)
        name = f"journal-{begin + 1:020}-{part.stop:020}.parquet"
        pq.write_table(table, folder / name, compression="zstd")
    return messages


def _told(chance: np.random.Generator, messages: int, days: float) -> dict[str, np.ndarray[Any, Any]]:
    """Return all events, unordered, of messages that are handed out up to three times."""
    begun = np.sort(chance.integers(0, int(days * _DAY_MS), messages))
    waits = chance.exponential(3_000, messages).astype(np.int64)
    serves = chance.exponential(400, messages).astype(np.int64) + 1
    fails = chance.random(messages)
    everyone = np.arange(messages)
    parts = [_part(everyone, 0, 0, begun), _part(everyone, 1, 1, at := begun + waits)]
    once, dies = fails < 0.1, fails < 0.01
    ended = at + serves
    parts += [_part(everyone[~once], 3, 2, ended[~once]), _part(everyone[once & ~dies], 2, 2, ended[once & ~dies])]
    parts.append(_part(everyone[dies], 4, 2, ended[dies]))
    again = everyone[once & ~dies]
    second = ended[again] + 1_000 + waits[again] // 2
    parts += [_part(again, 1, 3, second), _part(again, 3, 4, second + serves[again])]
    found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    tenants = (chance.zipf(1.3, messages) - 1) % 500
    found["tenant"] = tenants[found["message"]]
    found["queue"] = (tenants % len(_QUEUES))[found["message"]]
    found["draw"] = chance.integers(0, 100, messages)[found["message"]]
    found["wait"] = waits[found["message"]]
    return found


def _part(
    message: np.ndarray[Any, Any], kind: int, step: int, at_ms: np.ndarray[Any, Any]
) -> dict[str, np.ndarray[Any, Any]]:
    count = len(message)
    return {
        "message": message,
        "kind": np.full(count, kind, np.int8),
        "step": np.full(count, step, np.int8),
        "at_ms": at_ms + _START_MS,
    }


def _table(
    told: dict[str, np.ndarray[Any, Any]], sequence: np.ndarray[Any, Any], numbers: np.ndarray[Any, Any]
) -> pa.Table:
    kind, draw, at_ms = told["kind"], told["draw"], told["at_ms"]
    is_new, is_leased = kind == 0, kind == 1
    count = len(kind)
    queues = _QUEUES[told["queue"]]
    is_throttled = is_new & (draw < 10)
    columns: dict[str, pa.Array] = {
        "sequence": pa.array(sequence),
        "record": pa.array(sequence),
        "at_ms": pa.array(at_ms),
        "kind": pa.array(_KINDS[kind]),
        "queue": pa.array(queues),
        "message_id": _ids(numbers[told["message"]]),
        "fairness_key": _singles(np.array([f"tenant-{number}" for number in range(500)])[told["tenant"]], is_new),
        "weight": _only(is_new & (draw < 5), np.full(count, 3)),
        "cost": _only(is_new, draw % 7 + 1),
        "priority": _only(is_new, np.full(count, "normal")),
        "throttles": _singles(np.full(count, "smtp"), is_throttled, present=is_new),
        "deadline_ms": _only(is_new & (draw < 5), at_ms + 10_000),
        "size_bytes": _only(is_new, draw * 37),
        "token": _only(is_leased, sequence),
        "expires_ms": _only(is_leased, at_ms + 30_000),
        "owner": _only(is_leased, np.full(count, "worker-1")),
        "reason": pa.array(
            np.select([kind == 2, kind == 4], ["failure", "requested"], ""), mask=(kind != 2) & (kind != 4)
        ),
        "ended": _only(kind == 4, np.full(count, "failure")),
        "error": _only((kind == 2) | (kind == 4), _ERRORS[draw % 10]),
        "due_ms": _only(kind == 2, at_ms + 1_000),
        "target": _only(kind == 4, np.char.add(queues, ".dlq")),
        "throttled_ms": _only(is_leased & (draw < 10), told["wait"] // 3),
    }
    return pa.table(
        [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in SCHEMA],
        schema=SCHEMA,
    )


def _only(mask: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array(values, mask=~mask)


def _ids(numbers: np.ndarray[Any, Any]) -> pa.Array:
    digits = numbers.astype(">u8").tobytes().hex().encode()
    offsets = np.arange(0, (len(numbers) + 1) * 16, 16, dtype=np.int32)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets.tobytes()), pa.py_buffer(digits))


def _singles(
    values: np.ndarray[Any, Any], mask: np.ndarray[Any, Any], *, present: np.ndarray[Any, Any] | None = None
) -> pa.Array:
    """Return lists of one value where the mask is set; elsewhere empty ones where present, and null otherwise."""
    offsets = np.concatenate([[0], np.cumsum(mask)]).astype(np.int32)
    absent = np.append(~(mask if present is None else present), False)
    return pa.ListArray.from_arrays(pa.array(offsets, mask=absent), pa.array(values[mask]))


def measure(spark: SparkSession, sizes: Sequence[int], folder: Path, *, is_loud: bool = False) -> list[Result]:
    """Make all tables of journals of some sizes, after a small one to warm Spark up, and return how long each took."""
    found = []
    for events in (WARM_UP, *sizes):
        journal, tables = folder / f"journal-{events}", folder / f"tables-{events}"
        messages = make_journal(journal, events)
        began = time.perf_counter()
        done = run_pipeline(spark, JournalFolder(journal), tables, tell=print if is_loud else lambda _line: None)
        found.append(Result(done.events, messages, time.perf_counter() - began))
        shutil.rmtree(tables)
    return found[1:]


def exponent(results: Sequence[Result]) -> float:
    """Return how the time grows with the events: 1 is linear."""
    least, most = results[0], results[-1]
    return math.log(most.seconds / least.seconds) / math.log(most.events / least.events)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of it")
    parser.add_argument("--verbose", action="store_true", help="tell how long each table takes")
    parser.add_argument("--master", default="local[2]")
    chosen = parser.parse_args(arguments)
    spark = spark_session("fairlead-benchmark", master=chosen.master, conf={**CONF, "spark.driver.memory": MEMORY})
    folder = Path(tempfile.mkdtemp(prefix="fairlead-tables-"))
    try:
        sizes = QUICK_SIZES if chosen.quick else SIZES
        results = measure(spark, sizes, folder, is_loud=chosen.verbose)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        spark.stop()
    print(f"{'events':>12} {'messages':>12} {'seconds':>9} {'events/s':>12}")
    for each in results:
        print(f"{each.events:>12,} {each.messages:>12,} {each.seconds:>9.1f} {each.events / each.seconds:>12,.0f}")
    print(f"grows with exponent {exponent(results):.2f}")
    if not chosen.quick:
        print(f"at most {BUDGET_S:.0f} s for the largest: {'yes' if results[-1].seconds <= BUDGET_S else 'NO'}")


if __name__ == "__main__":
    main()
