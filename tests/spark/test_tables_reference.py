"""The schemas of the journal, of Arrow, of Spark, of what-if and of the reference pages are one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fairlane.journal.arrow import SCHEMA
from fairlane.journal.schema import EVENTS_VERSION, NAMES
from fairlane.spark.source.message_columns import spark_schema
from fairlane.spark.tables.schemas import EVENTS
from fairlane.spark.tables.table import TIME
from fairlane.spark.whatif.files import COLUMNS_READ, COLUMNS_UNUSED

ROOT = Path(__file__).parents[2]


def test_the_reference_pages_list_the_columns_of_the_schemas() -> None:
    """Each page has exactly the tables of columns that the tool makes; run tools/sync_tables.py if not."""
    command = [sys.executable, str(ROOT / "tools" / "sync_tables.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_arrow_has_the_columns_of_the_schema() -> None:
    """The Arrow schema has the same columns, in order, and carries the version of the newest."""
    assert tuple(SCHEMA.names) == NAMES
    assert SCHEMA.metadata[b"fairlane.events.version"] == str(EVENTS_VERSION).encode()


def test_spark_has_the_columns_of_the_schema() -> None:
    """The table ``events`` has the columns and types of Arrow, instants also as TIMESTAMPs, the group and the day."""
    told = [(field.name, field.dataType) for field in EVENTS.schema if field.dataType != TIME]
    twins = {field.name for field in EVENTS.schema if field.dataType == TIME}
    assert twins == {"at", "due_at", "deadline_at", "expires_at"}
    arrow = [(field.name, field.dataType) for field in spark_schema(SCHEMA)]
    assert told[:-2] == arrow
    assert [name for name, _ in told[-2:]] == ["group", "day"]


def test_what_if_reads_all_columns_but_those_it_names() -> None:
    """A new column is read unless somebody says that it does not matter."""
    assert {*COLUMNS_READ, *COLUMNS_UNUSED} == set(NAMES)
    assert not set(COLUMNS_READ) & COLUMNS_UNUSED
