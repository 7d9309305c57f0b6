"""What-if's array twin: messages a second on one core from files to measures, bytes a message, and many keys.

    python -m benchmarks.spark_whatif_twin [--quick] [--check]

The journal is that of a real broker on a fake clock, with keys, costs and consumers that lease in batches. It is
repeated until it has a million messages. Each run has a process of its own, so that its memory can be measured; it
needs numba. Times are CPU times.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from benchmarks.report import Report, parse_options
from benchmarks.spark_tables import repeat
from fairlane.assembly import export_journal
from fairlane.broker.frontends.threads import Broker
from fairlane.broker.settings import Settings
from fairlane.model.limits import TIMESPAN_MS_MAX
from fairlane.spark.whatif.comparison import Journal
from fairlane.spark.whatif.files import CHANGE_KINDS
from fairlane.spark.whatif.measures import MeasuredPeriod, Yardstick
from fairlane.spark.whatif.recording import record_with_steps
from fairlane.spark.whatif.scenario import ORIGINAL, Scenario
from fairlane.spark.whatif.twin.choice import PlayerChoice, Players, steps_from
from fairlane.testing.stepped import SteppedBroker
from fairlane.testing.traffic import Traffic
from fairlane.testing.traffic_drive import drive

T = TypeVar("T")
_PHASES = ("read", "check", "play", "measure")
STRETCH = 100_000
LENGTH_MS = 600_000


def main() -> None:
    if len(sys.argv) > 1 and sys.argv[1] in _WORK:
        print(json.dumps(_WORK[sys.argv[1]](Path(sys.argv[2]), player="twin" if sys.argv[3] == "twin" else "kernel")))
        return
    options = parse_options(__doc__ or "")
    report = Report(options)
    times = 2 if options.quick else 10
    with tempfile.TemporaryDirectory() as folder:
        for keys in (100, STRETCH):
            make(Path(folder) / str(keys), keys=keys, times=times)
        found = {
            (keys, player): _in_processes(Path(folder) / str(keys), player)
            for keys in (100, STRETCH)
            for player in ("kernel", "twin")
        }
    report_to(report, found, times * STRETCH)
    report.finish()


def report_to(report: Report, found: dict[tuple[int, str], dict[str, Any]], messages: int) -> None:
    report.heading(f"What-if: {messages:,} messages, CPU microseconds a message on one core", repeats=1)
    columns = ["keys", "player", *_PHASES, "messages/s, first", "next", "bytes a message"]
    rows = []
    for (keys, _), one in found.items():
        spans = [one[name] / messages * 1e6 for name in _PHASES]
        rates = [1e6 / sum(spans), 1e6 / (spans[2] + spans[3]), one["bytes"] / messages]
        rows.append(
            [f"{keys:,}", one["player"], *(f"{span:.2f}" for span in spans), *(f"{rate:,.0f}" for rate in rates)]
        )
    report.table(columns, rows)


def make(folder: Path, *, keys: int, times: int) -> None:
    """Make a journal of stretches after each of which nothing is left, so that each is like the first."""
    traffic = Traffic(
        messages=STRETCH, span_ms=LENGTH_MS // 2, tenants=keys, zipf=0.5, consumers=32, load=0.9, failing_part=0.0,
        poison_part=0.0, vanishing_part=0.0, delayed_part=0.0, size_bytes=0,
    )  # fmt: skip
    settings = Settings(segment_events=250_000, journal_retention_ms=TIMESPAN_MS_MAX, journal_bytes_max=1 << 40)
    broker = SteppedBroker(settings=settings)
    broker.create_queue("work")
    arrivals = [replace(arrival, true_cost=arrival.cost) for arrival in traffic.arrivals()]
    drive(broker, arrivals, queue="work", consumers=traffic.consumers, batch=4)
    broker.clock.advance(settings.segment_ms)
    broker.step()
    with tempfile.TemporaryDirectory() as stretch:
        export_journal(cast("Broker", broker), stretch)
        table = ds.dataset(stretch).to_table().sort_by("sequence").combine_chunks()
    is_change = pc.is_in(table["kind"], pa.array(CHANGE_KINDS))
    repeat(table, folder, times=1, length_ms=LENGTH_MS)
    repeat(table.filter(pc.invert(is_change)), folder, times=times - 1, begin=1, length_ms=LENGTH_MS)


def measured(folder: Path, *, player: PlayerChoice) -> dict[str, Any]:
    """Play a journal twice, the second time with the code compiled and all caches warm, and return the CPU times."""
    scenario, files = Scenario(name=ORIGINAL), Journal(folder).files
    spans: dict[str, float] = {}
    recording, steps = _timed(spans, "read", lambda: record_with_steps(files, ("work",), steps_from=steps_from(player)))
    players = Players(recording, steps, player)
    players.play(scenario)
    _timed(spans, "check", lambda: Players(recording, steps, player))
    steps = None
    yardstick = Yardstick(recording, MeasuredPeriod())
    played, name = _timed(spans, "play", lambda: players.play(scenario))
    _timed(spans, "measure", lambda: yardstick.measure(0, played))
    return {**spans, "player": name}


def _timed(spans: dict[str, float], name: str, work: Callable[[], T]) -> T:
    begun = time.process_time()
    found = work()
    spans[name] = time.process_time() - begun
    return found


def held(folder: Path, *, player: PlayerChoice) -> dict[str, Any]:
    """Return the bytes that the recording, its player and its measures hold between two scenarios.

    Those of Python and NumPy are counted. What the process holds besides, such as freed memory, depends on the system.
    """
    files = Journal(folder).files
    tracemalloc.start()
    recording, steps = record_with_steps(files, ("work",), steps_from=steps_from(player))
    players, steps = Players(recording, steps, player), None
    yardstick = Yardstick(recording, MeasuredPeriod())
    yardstick.measure(0, players.play(Scenario(name=ORIGINAL))[0])
    gc.collect()
    return {"bytes": tracemalloc.get_traced_memory()[0]}


_WORK: dict[str, Callable[..., dict[str, Any]]] = {"times": measured, "bytes": held}


def _in_processes(folder: Path, player: str) -> dict[str, Any]:
    """Return times and bytes, each measured in a process of its own."""
    found: dict[str, Any] = {}
    for work in _WORK:
        command = [sys.executable, "-m", "benchmarks.spark_whatif_twin", work, str(folder), player]
        found |= json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return found


if __name__ == "__main__":
    main()
