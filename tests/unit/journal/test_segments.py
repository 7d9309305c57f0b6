"""Names and ranges of exported segments."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.files import unfinished_name
from fairlane.journal.segments import (
    Range,
    file_name,
    gaps,
    is_unfinished,
    joined,
    segment_named,
    segments_in,
    without,
)

JOURNAL = "00000000000000aa"
RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda at: (at[0], at[0] + at[1])), max_size=8)


def sequences(ranges: list[Range] | tuple[Range, ...]) -> set[int]:
    """Return all sequences in ranges."""
    return {sequence for first, last in ranges for sequence in range(first, last + 1)}


def test_a_name_tells_its_journal_and_its_range() -> None:
    """A name has the journal and both sequences in twenty digits, and reads back as the same."""
    name = file_name(JOURNAL, (1, 4096))
    assert name == "journal-00000000000000aa-00000000000000000001-00000000000000004096.parquet"
    assert segment_named(name) == (JOURNAL, (1, 4096), name)
    unfinished = unfinished_name(Path(name)).name
    assert is_unfinished(unfinished)
    assert segment_named(unfinished) is None


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "journal-1-9.parquet",
        "x" + file_name(JOURNAL, (1, 9)),
        file_name(JOURNAL, (1, 9)) + "~",
        file_name("no-journal", (1, 9)),
    ],
)
def test_other_files_are_no_segments(name: str) -> None:
    """Only a name of exactly this form is one of a segment."""
    assert (segment_named(name), is_unfinished(name)) == (None, False)


def test_segments_come_in_the_order_of_the_journal() -> None:
    """Other files are left out, and the rest is sorted by journal and sequence."""
    later, earlier, other = file_name(JOURNAL, (10, 19)), file_name(JOURNAL, (1, 9)), file_name("f" * 16, (5, 6))
    assert segments_in([other, later, "manifest.json", earlier]) == [
        (JOURNAL, (1, 9), earlier),
        (JOURNAL, (10, 19), later),
        ("f" * 16, (5, 6), other),
    ]


@given(RANGES)
def test_joined_ranges_and_gaps_cover_everything_once(ranges: list[Range]) -> None:
    """Joining keeps every sequence, and gaps are exactly what lies between the joined ranges."""
    covered, missing = sequences(ranges), sequences(gaps(ranges))
    assert sequences(joined(ranges)) == covered
    assert missing == (set(range(min(covered), max(covered) + 1)) - covered if covered else set())


@given(st.tuples(st.integers(0, 60), st.integers(0, 20)), RANGES)
def test_without_is_the_difference_of_sets(wanted: tuple[int, int], covered: list[Range]) -> None:
    """What is left of a range are its sequences that nothing covers."""
    whole = (wanted[0], sum(wanted))
    assert sequences(without(whole, joined(covered))) == sequences([whole]) - sequences(covered)
