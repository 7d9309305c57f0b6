"""Days of the tables are computed again, by command or because another release computed them differently."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from fairlane.cli.main import cli
from fairlane.errors import InvalidArgument
from fairlane.spark.pipeline import JournalFolder, read_manifest, rebuild_tables, run_pipeline
from fairlane.spark.tables import TABLES
from tests.spark.test_pipeline import Tables, a_story, contents, write_segment


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tables]:
    """Tables of three days, and what is in them; the journal they were made from is gone."""
    folder = tmp_path_factory.mktemp("made")
    segment = write_segment(folder / "journal", a_story())
    run_pipeline(spark, JournalFolder(folder / "journal"), folder / "tables")
    segment.unlink()
    return folder, contents(spark, folder / "tables")


@pytest.fixture
def place(made: tuple[Path, Tables], tmp_path: Path) -> tuple[Path, Tables]:
    """The tables again, for a test to change."""
    shutil.copytree(made[0], tmp_path, dirs_exist_ok=True)
    return tmp_path / "tables", made[1]


def files(tables: Path) -> set[str]:
    """Return the names of all files of tables."""
    return {str(path.relative_to(tables)) for path in tables.rglob("*.parquet") if not path.name.startswith(".")}


def lose(tables: Path, day: str) -> None:
    """Delete the files of a day in two tables."""
    for name in ("tenant_usage", "messages"):
        for path in (tables / name).rglob(f"day={day}/*.parquet"):
            path.unlink()


def test_days_are_rebuilt_from_the_events(spark: SparkSession, place: tuple[Path, Tables]) -> None:
    """What was wrong on one day is right again, and no file of another day is touched."""
    tables, whole = place
    before = files(tables)
    lose(tables, "2026-01-02")
    with pytest.raises(AnalysisException, match="does not exist"):
        contents(spark, tables)
    command = ["pipeline", "rebuild", "--tables", str(tables), "--from", "2026-01-02", "--to", "2026-01-02"]
    result = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert contents(spark, tables) == whole
    assert {name for name in before ^ files(tables) if "day=2026-01-02" not in name} == set()


@pytest.mark.long
def test_all_days_from_one_on_are_rebuilt(spark: SparkSession, place: tuple[Path, Tables]) -> None:
    """Without a last day everything from the first on is computed again, open messages too."""
    tables, whole = place
    for day in ("2026-01-02", "2026-01-03"):
        lose(tables, day)
    report = rebuild_tables(spark, tables, first_day=date(2026, 1, 2))
    assert (report.run, report.events, str(report.first_day)) == (2, 0, "2026-01-02")
    assert contents(spark, tables) == whole


@pytest.mark.long
def test_a_table_of_another_version_is_rebuilt(spark: SparkSession, place: tuple[Path, Tables]) -> None:
    """A run finds that a table was computed by another release, rebuilds all days, and does so once."""
    tables, whole = place
    path = tables / "manifest.json"
    known = json.loads(path.read_text())
    assert set(known["versions"]) == set(TABLES)
    known["versions"]["tenant_usage"] = 0
    path.write_text(json.dumps(known))
    lose(tables, "2026-01-01")
    told: list[str] = []
    source = JournalFolder(tables.parent / "journal")
    report = run_pipeline(spark, source, tables, tell=told.append)
    assert (report.run, str(report.first_day)) == (2, "2026-01-01")
    assert "another version of tenant_usage" in told[0]
    assert contents(spark, tables) == whole
    manifest = read_manifest(tables)
    assert manifest is not None
    assert manifest.versions == {name: table.version for name, table in TABLES.items()}
    assert run_pipeline(spark, source, tables).run == 2


def test_days_that_are_not_there_are_refused(spark: SparkSession, place: tuple[Path, Tables], tmp_path: Path) -> None:
    """There must be tables, and days to rebuild."""
    with pytest.raises(InvalidArgument, match="no day from 2027"):
        rebuild_tables(spark, place[0], first_day=date(2027, 1, 1))
    with pytest.raises(InvalidArgument, match="no tables"):
        rebuild_tables(spark, tmp_path / "none", first_day=date(2026, 1, 1))
