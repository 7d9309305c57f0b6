"""What people are told about the tables is what the tables are."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.journal.events import COLUMNS
from fairlane.spark.tables import TABLES
from fairlane.spark.tables.schemas import EVENT_COLUMNS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "tables.md").read_text()


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_in_the_reference(name: str) -> None:
    """The reference has a row for each column of a table, with the meaning that the schema has."""
    _, _, rest = PAGE.partition(f"\n## `{name}`\n")
    section = rest.partition("\n## ")[0]
    told = [field for field in TABLES[name].schema if name != "events"]
    missing = [field.name for field in told if f"| `{field.name}` |" not in section]
    changed = [field.name for field in told if f"| {field.metadata['comment']} |" not in section]
    assert (bool(section), missing, changed) == (True, [], [])


def test_every_column_of_the_journal_is_kept() -> None:
    """The table of events has all columns that the journal has."""
    assert set(COLUMNS) <= set(EVENT_COLUMNS)
