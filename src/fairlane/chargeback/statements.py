"""Reads the folder of statements. Each statement is a folder in it that appears as a whole and never changes.

``statement-000001/`` has the lines as ``lines.parquet`` and ``lines.csv``, the price book they were made with, and
``statement.json``. It is written under a hidden name and then renamed, so a process that is killed leaves no statement
or a whole one; the next one deletes what it left. There is no other state: what was issued is what the folders say.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds

from fairlane.chargeback.focus import INSTANT, SCHEMA
from fairlane.chargeback.lines import midnight
from fairlane.errors import StoreCorrupt

VERSION: Final = 1
PARQUET, CSV, PRICES, FACTS = "lines.parquet", "lines.csv", "prices.toml", "statement.json"
_NAME = re.compile(r"statement-(\d{6,})", re.ASCII)


class StatementFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What ``statement.json`` says.

    Attributes:
        version: of this file.
        number: the number of the statement; the first is 1.
        issued_ms: when it was issued.
        currency: the currency of its amounts.
        days: the days that its lines are about, in order.
        lines: how many lines it has.
        corrections: how many of them are corrections.
        billed: the sum of their amounts.
        sha256: the checksums of its other files, by name.
    """

    version: int = VERSION
    number: int
    issued_ms: int
    currency: str
    days: tuple[date, ...]
    lines: int
    corrections: int
    billed: Decimal
    sha256: dict[str, str]


class StatementFolder:
    """A folder of statements."""

    def __init__(self, folder: Path) -> None:
        """Read what was issued.

        Raises:
            StoreCorrupt: a statement is missing, or cannot be read.
        """
        self.folder = folder
        self.statements = [_facts(folder / name) for name in _names(folder)]
        for at, statement in enumerate(self.statements, 1):
            if statement.number != at:
                raise StoreCorrupt(f"Statement {at} is missing in {folder}; the next one there is {statement.number}.")

    def days(self) -> set[date]:
        """Return the days that have lines."""
        return {day for statement in self.statements for day in statement.days}

    def path(self, number: int) -> Path:
        """Return the folder of a statement."""
        return self.folder / f"statement-{number:06}"

    def batches(self, day: date, columns: Iterable[str]) -> Iterator[pa.RecordBatch]:
        """Yield columns of the lines of a day, of all statements in order."""
        wanted = ds.field("ChargePeriodStart") == pa.scalar(midnight(day), INSTANT)
        for statement in self.statements:
            if day in statement.days:
                yield from self._lines(statement).to_batches(columns=list(columns), filter=wanted)

    def all_batches(self, columns: Iterable[str]) -> Iterator[pa.RecordBatch]:
        """Yield columns of all lines."""
        for statement in self.statements:
            yield from self._lines(statement).to_batches(columns=list(columns))

    def _lines(self, statement: StatementFacts) -> ds.Dataset:
        path = self.path(statement.number) / PARQUET
        if not path.is_file():
            raise StoreCorrupt(f"{path} is missing.")
        return ds.dataset(path, schema=SCHEMA)

    def damaged(self) -> list[str]:
        """Return the names of files that are missing or are not as they were issued."""
        return [
            str((self.path(statement.number) / name).relative_to(self.folder))
            for statement in self.statements
            for name, checksum in statement.sha256.items()
            if checksum_of(self.path(statement.number) / name) != checksum
        ]


def _names(folder: Path) -> list[str]:
    """Return the names of the statements in a folder, in order of their numbers."""
    names = [path.name for path in folder.iterdir() if _NAME.fullmatch(path.name)] if folder.is_dir() else []
    return sorted(names, key=_number)


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def _facts(folder: Path) -> StatementFacts:
    try:
        found = msgspec.json.decode((folder / FACTS).read_bytes(), type=StatementFacts)
    except (OSError, msgspec.DecodeError) as error:
        raise StoreCorrupt(f"{folder / FACTS} cannot be read: {error}.") from error
    if found.version != VERSION:
        raise StoreCorrupt(f"{folder / FACTS} has version {found.version}; this release reads version {VERSION}.")
    return found


def checksum_of(path: Path) -> str:
    """Return the checksum of a file; an empty text if it is missing."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
