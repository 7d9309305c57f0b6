"""Writes a statement. One process at a time does so in a folder; ``statements`` tells what a killed one leaves."""

from __future__ import annotations

import csv
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from fairlane.chargeback.charges import sum_of
from fairlane.chargeback.focus import COLUMNS, SCHEMA, csv_cells, row_of
from fairlane.chargeback.lines import Line
from fairlane.chargeback.price_book import PriceBook
from fairlane.chargeback.statements import CSV, FACTS, PARQUET, PRICES, StatementFacts, StatementFolder, checksum_of
from fairlane.errors import StoreFailed, StoreLocked
from fairlane.files import sync_folder

_LOCK: Final = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[StatementFolder]:
    """Keep other writers out of a folder, which is created if missing. The lock ends with the process.

    Raises:
        StoreCorrupt: a statement in it cannot be read.
        StoreFailed: the folder cannot be written.
        StoreLocked: another process issues a statement.
    """
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / _LOCK).open("w")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreLocked(f"Another process issues a statement in {folder}.") from error
        with _writing(folder):
            for left in folder.glob(".statement-*.new"):
                shutil.rmtree(left)
        yield StatementFolder(folder)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreFailed(f"Cannot write statements to {folder}: {error}.") from error


class StatementWriter:
    """Writes the next statement of a folder, one day after the other. Use it inside ``locked``.

    Every method may raise StoreFailed.
    """

    def __init__(self, folder: StatementFolder, book: PriceBook, *, source: bytes) -> None:
        """Begin a statement; ``source`` is the price book as it was read."""
        self.folder = folder
        self.book = book
        self.lines = 0
        self._source = source
        self._number = len(folder.statements) + 1
        self._corrections = 0
        self._billed = Decimal(0)
        self._days: list[date] = []
        self._target = folder.path(self._number)
        self._hidden = self._target.with_name(f".{self._target.name}.new")
        with _writing(folder.folder):
            self._hidden.mkdir()
            self._parquet = pq.ParquetWriter(self._hidden / PARQUET, SCHEMA)
            self._csv_file = (self._hidden / CSV).open("w", encoding="utf-8", newline="")
            self._csv = csv.writer(self._csv_file, lineterminator="\n")
            self._csv.writerow([column.name for column in COLUMNS])

    def line_id(self, at: int) -> str:
        """Return the name of the line that is ``at`` lines after those that are written."""
        return f"{self._number:06}-{self.lines + at + 1:08}"

    def write(self, day: date, lines: list[Line]) -> None:
        """Write the lines of a day. In the Parquet file they are a row group, so that a reader finds a day."""
        rows = [row_of(line, self.book) for line in lines]
        with _writing(self.folder.folder):
            self._parquet.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))
            self._csv.writerows(csv_cells(row) for row in rows)
        self.lines += len(lines)
        self._corrections += sum(line.is_correction for line in lines)
        self._billed = sum_of([self._billed, *(line.amount for line in lines)])
        self._days.append(day)

    def commit(self, issued_ms: int) -> StatementFacts:
        """Make the statement durable, then visible by one rename."""
        with _writing(self.folder.folder):
            self._parquet.close()
            self._csv_file.close()
            (self._hidden / PRICES).write_bytes(self._source)
            facts = self._facts(issued_ms)
            (self._hidden / FACTS).write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=1) + b"\n")
            for path in self._hidden.iterdir():
                _sync(path)
            sync_folder(self._hidden)
            self._hidden.rename(self._target)
            sync_folder(self.folder.folder)
        return facts

    def _facts(self, issued_ms: int) -> StatementFacts:
        return StatementFacts(
            number=self._number,
            issued_ms=issued_ms,
            currency=self.book.currency,
            days=tuple(self._days),
            lines=self.lines,
            corrections=self._corrections,
            billed=self._billed,
            sha256={name: checksum_of(self._hidden / name) for name in (PARQUET, CSV, PRICES)},
        )

    def discard(self) -> None:
        """Delete what was written, unless it is committed. What cannot be deleted now, the next process deletes."""
        for file in (self._parquet, self._csv_file):
            with suppress(OSError):  # of a full disk, which the first error has told already
                file.close()
        shutil.rmtree(self._hidden, ignore_errors=True)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
