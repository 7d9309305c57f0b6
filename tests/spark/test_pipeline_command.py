"""The commands of the pipeline, as far as they need no Spark to run; and which segments are new."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairlane.cli.main import cli
from fairlane.errors import StoreCorrupt
from fairlane.journal.segments import joined, without
from fairlane.spark.pipeline.journals import Covered, JournalCoverage
from fairlane.spark.pipeline.manifest import MANIFEST, Manifest, Swap, read_manifest, write_manifest
from fairlane.spark.pipeline.source import new_segments

JOURNAL = "00000000000000aa"


def test_status_tells_how_far_the_tables_are(tmp_path: Path) -> None:
    """Events, days and gaps are shown to people, and all there is to programs."""
    known = Manifest(
        run=2,
        days=(date(2026, 1, 1), date(2026, 1, 3)),
        horizon_ms=1_767_400_000_000,
        events=80,
        swap=Swap(run=2, first_day=date(2026, 1, 1)),
    ).with_journals([JournalCoverage(journal_id=JOURNAL, covered=(Covered(1, 40), Covered(51, 90)))])
    write_manifest(tmp_path, known)
    result = CliRunner().invoke(cli, ["pipeline", "status", "--tables", str(tmp_path)])
    assert result.exit_code == 0, result.output
    for words in ("80", "2026-01-01 to 2026-01-03", JOURNAL, "41 to 50", "run it again"):
        assert words in result.stdout
    told = CliRunner().invoke(cli, ["-o", "json", "pipeline", "status", "--tables", str(tmp_path)])
    (journal,) = json.loads(told.stdout)["journals"]
    assert (journal["journal_id"], [span[:2] for span in journal["covered"]]) == (JOURNAL, [[1, 40], [51, 90]])


def test_commands_say_what_is_wrong(tmp_path: Path) -> None:
    """Without tables, and for a broker that only this process could open, there is a clear refusal."""
    absent = CliRunner().invoke(cli, ["pipeline", "status", "--tables", str(tmp_path / "none")])
    assert (absent.exit_code, "no tables" in absent.stderr) == (1, True)
    embedded = CliRunner().invoke(cli, ["--data", str(tmp_path), "pipeline", "run", "--tables", str(tmp_path)])
    assert (embedded.exit_code, "fairlane serve" in embedded.stderr) == (1, True)
    folders = ["--journal", str(tmp_path), "--tables", str(tmp_path)]
    both = CliRunner().invoke(cli, ["pipeline", "run", "--queue", "orders", *folders])
    assert (both.exit_code, "cannot be combined" in both.stderr) == (2, True)


def test_a_manifest_that_can_not_be_read_is_refused(tmp_path: Path) -> None:
    """Neither a damaged manifest nor one of another version is taken for tables without events."""
    assert read_manifest(tmp_path) is None
    for text in ('{"version": 9}', '{"version": '):
        (tmp_path / MANIFEST).write_text(text)
        with pytest.raises(StoreCorrupt):
            read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("stretch", "covered", "parts"),
    [
        ((1, 10), [], [(1, 10)]),
        ((1, 10), [(1, 10)], []),
        ((5, 10), [(1, 6), (9, 20)], [(7, 8)]),
        ((1, 10), [(3, 4), (6, 7)], [(1, 2), (5, 5), (8, 10)]),
        ((1, 10), [(20, 30)], [(1, 10)]),
    ],
)
def test_what_is_covered_is_not_wanted(
    stretch: tuple[int, int], covered: list[tuple[int, int]], parts: list[tuple[int, int]]
) -> None:
    """Of a stretch those parts are wanted that nothing else covers."""
    assert without(stretch, covered) == parts


def test_stretches_that_touch_are_one() -> None:
    """Neighbours and overlaps are joined, gaps stay."""
    assert joined([(5, 9), (1, 4), (8, 12), (20, 21)]) == ((1, 12), (20, 21))


def test_no_sequence_of_two_segments_is_wanted_twice(tmp_path: Path) -> None:
    """Overlapping files share out what they cover; other files are none of ours."""
    for name in (
        f"journal-{JOURNAL}-{1:020}-{10:020}.parquet",
        f"journal-{JOURNAL}-{6:020}-{20:020}.parquet",
        ".journal-1.new",
        "x.parquet",
    ):
        (tmp_path / name).touch()
    known = JournalCoverage(journal_id=JOURNAL, covered=(Covered(3, 4),))
    wanted = [segment.wanted for segment in new_segments(tmp_path, {JOURNAL: known})]
    assert wanted == [((1, 2), (5, 10)), ((11, 20),)]
