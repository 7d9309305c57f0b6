"""Drivers that are killed at random steps of a run, in a folder and on an object store: nothing is lost or doubled."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fairlane.lakehouse import open_tables
from tests.kit.lakehouse import PLACES, STORES, address_at
from tests.spark.table_rows import DAY, Event, enqueued, event, of
from tests.spark.test_pipeline import write_segment
from tests.system.server_process import ROOT

STEPS = 60
"""About how many steps a run has; a driver that has fewer is not killed."""


def drive(journal: Path, tables: str, *, fatal: int | None = None) -> bool:
    """Run a driver in a process group of its own; return whether it was killed."""
    command = [sys.executable, "-m", "tests.spark.lake_driver", str(journal), tables]
    command += [] if fatal is None else [str(fatal)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, start_new_session=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-3_000:]
    return done.returncode != 0


def batch(number: int) -> list[Event]:
    """Return the events of a segment, half a day after the one before: two messages, one of them acknowledged."""
    first, at = 5 * number, number * DAY // 2
    return [
        event("queue_set", first + 1, at, queue="mail", policy_json="{}"),
        enqueued(first + 2, at + 10, "acme"),
        enqueued(first + 3, at + 20, "beta"),
        of("leased", first + 4, at + 500, first + 2),
        of("acked", first + 5, at + 900, first + 2, cost=3),
    ]


def rampage(journal: Path, tables: str, *, kills: int, seed: int) -> None:
    """Start drivers while the journal grows, until so many were killed, let the last one finish, and compare."""
    chance = random.Random(seed)
    killed = begun = 0
    while killed < kills:
        write_segment(journal, batch(begun))
        begun += 1
        killed += drive(journal, tables, fatal=chance.randint(1, STEPS))
        print(f"{tables}: killed {killed} of {begun} drivers", file=sys.stderr)
    assert not drive(journal, tables)
    check(tables, batches=begun)


def check(tables: str, *, batches: int) -> None:
    """Check that every event and every message of the batches is there once."""
    rows = [row for number in range(batches) for row in batch(number)]
    found = open_tables(tables)
    assert sorted(found.dataset("events").to_table()["sequence"].to_pylist()) == [row["sequence"] for row in rows]
    usage = found.dataset("tenant_usage").to_table(columns=["top_key", "enqueued", "acked", "cost_true"]).to_pylist()
    for tenant, acked in (("acme", batches), ("beta", 0)):
        sums = [sum(row[name] for row in usage if row["top_key"] == tenant) for name in ("enqueued", "acked")]
        assert sums == [batches, acked]
    assert sum(row["cost_true"] or 0 for row in usage) == 3 * batches
    messages = found.dataset("messages").to_table(columns=["message_id", "is_open"]).to_pylist()
    assert len({row["message_id"] for row in messages}) == len(messages) == 2 * batches
    assert sum(row["is_open"] for row in messages) == batches


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("place", [PLACES[0], *STORES])
def test_twenty_killed_drivers_lose_and_double_nothing(
    place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Drivers run into a random end until twenty have died, the next one finishes, and every event is there once."""
    rampage(tmp_path / "journal", address_at(place, tmp_path, request), kills=20, seed=1)
