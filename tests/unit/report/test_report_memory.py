"""A report of long tables: sums are computed in Arrow, batch by batch."""

from __future__ import annotations

import tracemalloc
from datetime import date
from pathlib import Path

import pyarrow as pa

from fairlane.report import make_report
from tests.unit.report.written_tables import FIRST, share, write_table

TENANTS = 20


def tables_of(folder: Path, *, rows: int) -> Path:
    """Write shares of a few tenants in many windows, as they are after a day on which much changed."""
    start = [share("orders", f"tenant-{at}", 0, 1, 1.0) for at in range(TENANTS)]
    table = pa.concat_tables([pa.Table.from_pylist(start)] * (rows // TENANTS)).combine_chunks()
    windows = pa.array([60_000 * (at // TENANTS) for at in range(table.num_rows)])
    at = table.schema.get_field_index("from_ms")
    days = pa.array([date.fromisoformat(FIRST)] * table.num_rows)
    write_table(folder, "fairness_keys", table.set_column(at, "from_ms", windows).append_column("day", days), ("day",))
    return folder


def peak_bytes(tables: Path, report: Path) -> int:
    """Return the most memory that objects of Python take while a report is made."""
    tracemalloc.start()
    make_report(tables, report, formats=("json",))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_grows_with_tenants_and_not_with_rows(tmp_path: Path) -> None:
    """Fifty times the rows of the same tenants take less than twice the memory in Python."""
    few = tables_of(tmp_path / "few", rows=2_000)
    many = tables_of(tmp_path / "many", rows=100_000)
    peak_bytes(few, tmp_path / "first")  # imports and caches
    assert peak_bytes(many, tmp_path / "report") < 2 * peak_bytes(few, tmp_path / "report")
