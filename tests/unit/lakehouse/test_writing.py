"""Rows become files: one for each partition, in row groups of some size, with statistics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from fairlane.lakehouse import Lakehouse, parse_address, writing
from fairlane.lakehouse.files import DataFile
from fairlane.lakehouse.writing import TableWriter
from tests.kit.lakehouse import SCHEMA, SHAPES, row

if TYPE_CHECKING:
    import pytest

ATTEMPT = "t"


def write(folder: Path, rows: list[dict[str, object]], *, batch: int, apart: tuple[str, ...] = ()) -> list[DataFile]:
    """Write rows that come in batches."""
    lakehouse = Lakehouse(parse_address(f"delta:{folder}"), token=ATTEMPT)
    shape = SHAPES["numbers"]
    writer = TableWriter(lakehouse.storage, lakehouse.place(shape), lakehouse.attempt(), shape.partitions, apart)
    return writer.write(pa.Table.from_pylist(rows, SCHEMA).to_batches(max_chunksize=batch), "7")


def test_each_partition_has_a_file(tmp_path: Path) -> None:
    """Rows of three partitions in any order make three files, each with its rows, named after run, attempt and task."""
    rows = [row(number, of_day=1 + number % 2, is_open=number > 8) for number in range(10)]
    files = write(tmp_path, rows, batch=3)
    assert [(file.path.rpartition("/")[0], file.rows) for file in files] == [
        ("numbers/is_open=false/day=2026-01-01", 5),
        ("numbers/is_open=false/day=2026-01-02", 4),
        ("numbers/is_open=true/day=2026-01-02", 1),
    ]
    assert {file.path.rpartition("/")[2] for file in files} == {f"000001-t-7{end}.parquet" for end in ("", "-1", "-2")}
    found = pq.read_table(tmp_path / files[1].path, partitioning=None)
    assert found.column("number").to_pylist() == [1, 3, 5, 7]
    assert found.column_names == ["number", "at", "names"]
    assert files[1].size_bytes == (tmp_path / files[1].path).stat().st_size


def test_statistics_have_bounds_of_numbers_and_instants(tmp_path: Path) -> None:
    """The lowest and highest number and instant, and how many nulls there are, in the form of Delta."""
    rows = [row(5), row(3) | {"at": None}]
    (file,) = write(tmp_path, rows, batch=1)
    assert json.loads(file.stats) == {
        "numRecords": 2,
        "minValues": {"number": 3, "at": "2026-01-01T12:00:00.000Z"},
        "maxValues": {"number": 5, "at": "2026-01-01T12:00:00.000Z"},
        "nullCount": {"number": 0, "at": 1},
    }


def test_small_batches_make_large_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are gathered up to the size of a row group, and a file that is long enough is followed by another."""
    monkeypatch.setattr(writing, "GROUP_ROWS", 20)
    monkeypatch.setattr(writing, "FILE_ROWS_MAX", 50)
    files = write(tmp_path, [row(number) for number in range(120)], batch=5)
    assert [file.rows for file in files] == [50, 50, 20]
    groups = pq.read_metadata(tmp_path / files[0].path)
    assert [groups.row_group(at).num_rows for at in range(groups.num_row_groups)] == [20, 20, 10]


def test_memory_is_bounded_over_all_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With more partitions than fit, the largest one is written first; no row is lost."""
    monkeypatch.setattr(writing, "GATHERED_BYTES_MAX", 500)
    files = write(tmp_path, [row(number, of_day=1 + number % 20) for number in range(400)], batch=40)
    assert sum(file.rows for file in files) == 400
    assert len(files) == 20


def test_values_that_stay_apart_have_files_of_their_own(tmp_path: Path) -> None:
    """Rows of one partition are split by a further column that is no folder."""
    rows = [row(number) | {"names": None} for number in (1, 2, 1, 2)]
    files = write(tmp_path, rows, batch=4, apart=("number",))
    assert [(file.rows, json.loads(file.stats)["minValues"]["number"]) for file in files] == [(2, 1), (2, 2)]
    assert {file.path.rpartition("/")[0] for file in files} == {"numbers/is_open=false/day=2026-01-01"}
