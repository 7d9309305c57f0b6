"""Writes the column tables of the reference pages, and the dbt sources, from the schemas in the source.

``docs/reference/journal.md`` gets the columns of events, ``docs/reference/tables.md`` those of the pipeline's tables,
and ``examples/dbt/models/fairlane.yml`` the tables as sources for dbt.
With ``--check`` nothing is written, and the exit code is 1 if a page differs from the schemas.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fairlane.journal.schema import COLUMNS
from fairlane.spark.tables import TABLES
from fairlane.spark.tables.table import DATE, FLAG, HISTOGRAM, INT, LONG, REAL, TEXT, TEXTS, TIME, TWIN_OF

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
DBT = ROOT / "examples" / "dbt" / "models" / "fairlane.yml"
DBT_HEAD = """\
# The pipeline's tables as sources for dbt, written by tools/sync_tables.py. dbt-duckdb reads them where they are, here
# in the folder tables/; with another adapter remove the location, and set the database and the schema of the tables.
version: 2
sources:
  - name: fairlane
    meta:
      external_location: "read_parquet('tables/{name}/**/*.parquet', hive_partitioning = true)"
    tables:
"""
HEAD = "| column | type | meaning |\n|---|---|---|\n"
TYPE_NAMES: list[tuple[DataType, str]] = [
    *((TEXT, "string"), (LONG, "int64"), (INT, "int32"), (REAL, "float64"), (FLAG, "bool"), (DATE, "date")),
    (TIME, "timestamp"),
    *((TEXTS, "list of strings"), (HISTOGRAM, "histogram")),
]


def journal_columns() -> str:
    """Return the columns of events as a Markdown table."""
    rows = [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in COLUMNS]
    return HEAD + "\n".join(rows)


def table_columns(name: str) -> str:
    """Return the columns of one of the pipeline's tables as a Markdown table."""
    rows = [
        f"| `{field.name}` | {_type_name(field.dataType)} | {field.metadata['comment']} |"
        for field in TABLES[name].schema
        if name != "events" or field.name in ("group", "day") or TWIN_OF in field.metadata
    ]
    kept = ["| all columns of the [journal](journal.md#columns) | | as there |"] if name == "events" else []
    return HEAD + "\n".join([*kept, *rows])


def dbt_sources() -> str:
    """Return the pipeline's tables as sources for dbt."""
    parts = [DBT_HEAD]
    for table in TABLES.values():
        parts.append(
            f"      - name: {table.name}\n        description: {json.dumps(table.meaning)}\n        columns:\n"
        )
        parts += [
            f"          - name: {field.name}\n            description: {json.dumps(field.metadata['comment'])}\n"
            for field in table.schema
        ]
    return "".join(parts)


def _type_name(kind: DataType) -> str:
    return next(name for known, name in TYPE_NAMES if known == kind)


def synced(page: str, heading: str, table: str) -> str:
    """Return a page whose first table below a heading is another one.

    Raises:
        ValueError: the page has no such heading, or no table below it.
    """
    before, found, after = page.partition(f"\n## {heading}\n")
    section, rule, rest = after.partition("\n## ")
    changed, count = re.subn(r"\| column \|[^\n]*\n(?:\|[^\n]*\n)+", lambda _: table + "\n", section, count=1)
    if not found or not count:
        raise ValueError(f"There is no table of columns below the heading {heading!r}.")
    return before + found + changed + rule + rest


def pages() -> dict[Path, str]:
    """Return the reference pages as they should be."""
    journal, tables = REFERENCE / "journal.md", REFERENCE / "tables.md"
    page = tables.read_text()
    for name in TABLES:
        page = synced(page, f"`{name}`", table_columns(name))
    columns = synced(journal.read_text(), "Columns", journal_columns())
    return {journal: columns, tables: page, DBT: dbt_sources()}


def main() -> int:
    """Write or check the pages."""
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text() != text]
    if "--check" not in sys.argv:
        for path, text in pages().items():
            path.write_text(text)
        return 0
    for path in stale:
        print(f"{path.name} differs from the schemas: run tools/sync_tables.py.")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
