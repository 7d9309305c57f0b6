"""Events in Arrow are the events, under a schema that does not change unnoticed."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
from hypothesis import given, settings

from fairlane.journal.arrow import SCHEMA, to_batch
from fairlane.journal.codec import Page
from fairlane.journal.records import Acked, AnyRecord, Enqueued, QueuePaused, QueueRemoved, Terms
from tests.kit.waiting import PATIENCE_S
from tests.unit.journal.drawn_pages import Row, pages

LARGEST = 2**63 - 1
pa.array([0])  # with its first array pyarrow imports pandas, for longer than Hypothesis lets an example take


def test_the_schema_of_version_6_is_this() -> None:
    """Names, order, types and which columns are always filled are what readers rely on."""
    fields = [(field.name, str(field.type)) for field in SCHEMA if field.nullable]
    assert SCHEMA.metadata == {b"fairlane.events.version": b"6"}
    assert [(field.name, str(field.type)) for field in SCHEMA if not field.nullable] == [
        ("sequence", "int64"),
        ("at_ms", "int64"),
        ("kind", "string"),
        ("record", "int64"),
    ]
    assert SCHEMA.names[:4] == ["sequence", "at_ms", "kind", "record"]
    assert fields == [
        ("queue", "string"),
        ("message_id", "string"),
        ("fairness_key", "list<item: string>"),
        ("weight", "int64"),
        ("cost", "int64"),
        ("priority", "string"),
        ("throttles", "list<item: string>"),
        ("due_ms", "int64"),
        ("deadline_ms", "int64"),
        ("cap", "int64"),
        ("size_bytes", "int64"),
        ("dedup_id", "string"),
        ("correlation_id", "string"),
        ("cause_id", "string"),
        ("token", "int64"),
        ("expires_ms", "int64"),
        ("owner", "string"),
        ("reason", "string"),
        ("ended", "string"),
        ("error", "string"),
        ("target", "string"),
        ("name", "string"),
        ("value", "string"),
        ("position", "int64"),
        ("is_paused", "bool"),
        ("policy_json", "string"),
        ("by", "string"),
        ("throttled_ms", "int64"),
        ("capped_ms", "int64"),
        ("asked", "int64"),
        ("claim", "int64"),
        ("paused_ms", "int64"),
        ("journal_id", "string"),
        ("messages", "int64"),
        ("order_key", "string"),
        ("is_single", "bool"),
        ("unique_key", "string"),
    ]


@settings(deadline=None)  # the first batch of a process imports much
@given(pages())
def test_a_batch_holds_the_events(drawn: tuple[list[Page], list[Row]]) -> None:
    """Every event is a row, with null in each column that it does not speak of."""
    batch = to_batch(drawn[0])
    batch.validate(full=True)
    assert batch.schema.equals(SCHEMA, check_metadata=True)
    assert batch.to_pylist() == [{name: event.get(name) for name in SCHEMA.names} for event in drawn[1]]


def test_no_pages_make_an_empty_batch() -> None:
    """Nothing is a batch of no rows with the same columns."""
    batch = to_batch([])
    assert (batch.num_rows, batch.schema) == (0, SCHEMA)


def test_ids_and_truth_values_among_nulls() -> None:
    """The smallest and the largest id are sixteen digits, a cause is an id too, and where there is none it is null."""
    records: list[AnyRecord] = [
        Acked(5, "q", [1, LARGEST]),
        QueueRemoved(7, "q"),
        Enqueued(8, "q", [0], [0], Terms(["a"]), cause=26),
        QueuePaused(9, "q", is_paused=False),
    ]
    batch = to_batch([Page(1, 0, records)])
    assert batch["message_id"].to_pylist() == ["0000000000000001", "7fffffffffffffff", None, "0000000000000008", None]
    assert batch["cause_id"].to_pylist() == [None, None, None, "000000000000001a", None]
    assert batch["is_paused"].to_pylist() == [None, None, None, None, False]
    assert batch["fairness_key"].to_pylist() == [None, None, None, ["a"], None]
    assert batch["message_id"].null_count == 2


def test_batches_can_be_joined_and_sliced() -> None:
    """Arrays that were built from raw buffers behave like any other."""
    batch = to_batch([Page(1, 0, [Acked(5, "q", [1, 2, 3])])])
    table = pa.Table.from_batches([batch.slice(1, 1), batch.slice(2)])
    assert table["message_id"].combine_chunks().to_pylist() == ["0000000000000002", "0000000000000003"]


def run_without_pyarrow(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own in which pyarrow can't be imported."""
    code = f"import sys; sys.modules['pyarrow'] = None; {code}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_without_pyarrow_the_error_names_the_extra() -> None:
    """Without pyarrow, the schema and the export both name the extra to install."""
    for module in ("fairlane.journal.arrow", "fairlane.adapters.parquet_export"):
        result = run_without_pyarrow(f"import {module}")
        assert result.returncode != 0
        assert "install fairlane[arrow]" in result.stderr


def test_the_rest_of_the_journal_needs_no_pyarrow() -> None:
    """Records, codec, bodies and events are there for a broker without Arrow."""
    names = ", ".join(f"fairlane.journal.{name}" for name in ("records", "codec", "bodies", "events"))
    assert run_without_pyarrow(f"import {names}").returncode == 0
