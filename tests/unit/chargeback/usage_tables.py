"""The table ``tenant_usage`` as the pipeline writes it, a few rows a day, made by hand."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fairlane.chargeback import DaySelection, Issue, issue_statement
from fairlane.lakehouse import Lakehouse, parse_address
from fairlane.lakehouse.files import shape_of
from fairlane.lakehouse.state import TableChange, TablesState
from fairlane.lakehouse.writing import TableWriter

NOW_MS = 1_772_500_000_000
PRICES = """\
currency = "EUR"

[[prices]]
cost_unit = 0.002
gigabyte = 0.09
service_second = 0.0004
message = 0.000001
"""
_USAGE = pa.schema(
    [
        *((name, pa.string()) for name in ("queue", "key", "top_key")),
        *((name, pa.int64()) for name in ("hour_ms", "cost_true", "acked_bytes", "service_ms", "acked")),
        ("is_complete", pa.bool_()),
        ("day", pa.date32()),
    ]
)


def usage(tenant: str | None, queue: str = "orders", **quantities: Any) -> dict[str, Any]:
    """Return a row: usage of a tenant in a queue in one hour."""
    nothing = dict.fromkeys(("hour_ms", "cost_true", "acked_bytes", "service_ms", "acked"), 0)
    return {"queue": queue, "key": tenant, "top_key": tenant, **nothing, "is_complete": True, **quantities}


def write_usage(folder: Path, days: dict[str, Sequence[dict[str, Any]]]) -> None:
    """Write days of the table and commit them; they replace what these days had before."""
    lakehouse = Lakehouse(parse_address(folder))
    state = lakehouse.load(TablesState) or TablesState()
    rows = [dict(row) | {"day": date.fromisoformat(day)} for day, of_day in days.items() for row in of_day]
    found = pa.Table.from_pylist(rows, schema=_USAGE)
    shape = shape_of("tenant_usage", "", _USAGE, ("day",))
    writer = TableWriter(lakehouse.storage, lakehouse.place(shape), lakehouse.attempt(), shape.partitions)
    change = TableChange(
        adds=tuple(writer.write(found.to_batches(), "0")), replaces=tuple({"day": day} for day in days)
    )
    lakehouse.commit(state, {"tenant_usage": shape}, {"tenant_usage": change})


class Books:
    """A folder with tables, a price book and statements."""

    def __init__(self, folder: Path) -> None:
        self.tables = folder / "tables"
        self.prices = folder / "prices.toml"
        self.statements = folder / "statements"
        self.prices.write_text(PRICES)

    def issue(self, **days: Any) -> Issue:
        """Issue a statement."""
        return issue_statement(
            self.tables, self.statements, prices=self.prices, now_ms=NOW_MS, days=DaySelection(**days)
        )

    def csv_lines(self, number: int) -> list[dict[str, str]]:
        """Return the lines of a statement, as its CSV file has them."""
        with (self.statements / f"statement-{number:06}" / "lines.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    def lines(self, number: int) -> list[dict[str, Any]]:
        """Return the lines of a statement, as its Parquet file has them."""
        found: list[dict[str, Any]] = pq.read_table(
            self.statements / f"statement-{number:06}" / "lines.parquet"
        ).to_pylist()
        return found

    def files(self) -> dict[str, bytes]:
        """Return all visible files of the statements."""
        return {
            str(path.relative_to(self.statements)): path.read_bytes()
            for path in self.statements.rglob("*")
            if path.is_file() and not path.relative_to(self.statements).parts[0].startswith(".")
        }
