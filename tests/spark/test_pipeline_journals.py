"""Which journals the tables accept, and what is missing of them. No Spark is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.errors import InvalidArgument, JournalMismatch, JournalTrimmed
from fairlane.spark.pipeline import JournalFolder
from fairlane.spark.pipeline.journals import (
    Covered,
    Gap,
    JournalCoverage,
    JournalOffer,
    accepted,
    changed_gaps,
    check_gaps,
)
from tests.spark.table_rows import enqueued, event
from tests.spark.test_pipeline import write_segment

OLD, NEW = "00000000000000aa", "00000000000000bb"
KNOWN = JournalCoverage(journal_id=OLD, covered=(Covered(1, 2_000, 0, 86_400_000),))
DAY_MS = 86_400_000


def offer(journal_id: str, **facts: Any) -> JournalOffer:
    """Return a journal that a source offers."""
    return JournalOffer(journal_id=journal_id, where="at http://broker", **facts)


def test_a_broker_that_began_again_is_refused() -> None:
    """The journal of a replaced broker counts from 1 as well, and is refused by its id, with both ids in the error."""
    with pytest.raises(JournalMismatch) as caught:
        accepted([KNOWN], [offer(NEW, end=500)], new_epoch=False)
    for words in (OLD, NEW, "http://broker", "--new-epoch"):
        assert words in str(caught.value)
    assert caught.value.code == "journal_mismatch"


def test_a_declared_epoch_begins_with_its_own_sequences() -> None:
    """With a new epoch the old journal ends as it is, and the new one is wanted from its first event on."""
    old, new = accepted([KNOWN], [offer(NEW, end=500)], new_epoch=True)
    assert (old.journal_id, old.is_ended, old.covered) == (OLD, True, KNOWN.covered)
    assert (new.journal_id, new.is_ended, new.after, new.covered) == (NEW, False, 0, ())
    assert accepted((old, new), [offer(NEW, end=900)], new_epoch=False) == (old, new)


def test_a_restored_backup_does_not_repeat_what_is_in_the_tables() -> None:
    """A restored journal is wanted from where it got its id; tables without the old journal want all of it."""
    _, new = accepted([KNOWN], [offer(NEW, since=1_500, end=2_500)], new_epoch=True)
    assert new.after == 1_500
    (alone,) = accepted((), [offer(NEW, since=1_500, end=2_500)], new_epoch=False)
    assert alone.after == 0


def test_a_journal_that_was_set_back_is_refused() -> None:
    """A backup that was restored without a new id is shorter than the tables, and is refused, epoch or not."""
    for new_epoch in (False, True):
        with pytest.raises(JournalMismatch, match="store restored"):
            accepted([KNOWN], [offer(OLD, end=1_999)], new_epoch=new_epoch)
    assert accepted([KNOWN], [offer(OLD, end=2_000)], new_epoch=False) == (KNOWN,)


def test_an_epoch_that_ended_does_not_come_back() -> None:
    """A server of the old epoch is refused; a folder that has the files of both epochs is fine."""
    journals = accepted([KNOWN], [offer(NEW)], new_epoch=True)
    with pytest.raises(JournalMismatch, match="took its place"):
        accepted(journals, [offer(OLD, end=3_000)], new_epoch=True)
    assert accepted(journals, [offer(OLD), offer(NEW)], new_epoch=False) == journals


def test_several_journals_in_one_folder_need_to_be_declared() -> None:
    """Two journals of one group are two epochs, in the order of their events, if the user says so."""
    both = [offer(OLD, began_ms=900), offer(NEW, began_ms=100)]
    with pytest.raises(InvalidArgument, match="several journals"):
        accepted((), both, new_epoch=False)
    first, second = accepted((), both, new_epoch=True)
    assert (first.journal_id, first.is_ended) == (NEW, True)
    assert (second.journal_id, second.is_ended) == (OLD, False)


def test_groups_have_a_journal_each() -> None:
    """A new group of a cluster is no new epoch, and a group whose journal was replaced is refused by name."""
    cluster = [offer(OLD, group="a"), offer(NEW, group="b")]
    journals = accepted([], cluster[:1], new_epoch=False)
    journals = accepted(journals, cluster, new_epoch=False)
    assert [(each.journal_id, each.group, each.is_ended) for each in journals] == [(OLD, "a", False), (NEW, "b", False)]
    with pytest.raises(JournalMismatch, match="of group b"):
        accepted(journals, [cluster[0], offer("0" * 16, group="b")], new_epoch=False)


def test_a_journal_that_begins_later_than_its_first_event_has_a_gap() -> None:
    """The first run on a trimmed journal misses the beginning, and says from where on it knows something."""
    (gap,) = JournalCoverage(journal_id=OLD).plus([Covered(500_108, 600_000, 7 * DAY_MS, 8 * DAY_MS)]).gaps()
    assert (gap.from_sequence, gap.until_sequence, gap.from_ms, gap.until_ms) == (1, 500_107, None, 7 * DAY_MS)
    assert [str(day) for day in gap.days()] == ["1970-01-08"]
    with pytest.raises(JournalTrimmed, match="1 to 500107"):
        check_gaps((), [gap])


def test_a_gap_tells_the_events_around_it() -> None:
    """A gap between two ranges lasts from the last event before it to the first after it, and marks all those days."""
    known = KNOWN.plus([Covered(2_101, 2_200, 3 * DAY_MS, 4 * DAY_MS)])
    (gap,) = known.gaps()
    assert (gap.from_sequence, gap.until_sequence, gap.from_ms, gap.until_ms) == (2_001, 2_100, DAY_MS, 3 * DAY_MS)
    assert [str(day) for day in gap.days()] == ["1970-01-02", "1970-01-03", "1970-01-04"]


def test_an_accepted_gap_is_not_refused_again() -> None:
    """Only what is newly missing is refused: not a known gap, nor what late segments leave of it."""

    def gap(first: int, last: int, journal_id: str = OLD) -> Gap:
        return Gap(journal_id=journal_id, group="", from_sequence=first, until_sequence=last)

    check_gaps([gap(10, 20)], [gap(10, 20)])
    check_gaps([gap(10, 20)], [gap(10, 12), gap(15, 20)])
    for missing in (gap(10, 21), gap(30, 40), gap(10, 20, NEW)):
        with pytest.raises(JournalTrimmed):
            check_gaps([gap(10, 20)], [missing])
    assert changed_gaps([gap(1, 2), gap(10, 20)], [gap(1, 2), gap(10, 12)]) == [gap(10, 20), gap(10, 12)]


RANGES = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 12)), min_size=1, max_size=8)


@given(RANGES, st.integers(0, 20))
def test_ranges_and_gaps_make_up_the_journal(ranges: list[tuple[int, int]], after: int) -> None:
    """However ranges arrive, what they cover and what is missing is each sequence once, from the beginning on."""
    coverage = JournalCoverage(journal_id=OLD, after=after)
    for first, length in ranges:
        coverage = coverage.plus([Covered(first, first + length, first, first + length)])
    covered = {number for first, length in ranges for number in range(first, first + length + 1)}
    missing = {number for gap in coverage.gaps() for number in range(gap.from_sequence, gap.until_sequence + 1)}
    assert missing == set(range(after + 1, max(covered) + 1)) - covered
    for gap in coverage.gaps():
        before = [number for number in covered if number < gap.from_sequence]
        assert gap.from_ms == (max(before) if before else None)
        assert gap.until_ms == min(number for number in covered if number > gap.until_sequence)


def test_a_journal_that_appears_during_a_look_is_left_to_the_next_run(tmp_path: Path) -> None:
    """A group's folder is exported between the two looks of a run: what was accepted is taken, the new one later."""
    rows = [event("queue_set", 1, 0, queue="mail", policy_json="{}"), enqueued(2, 0, "acme")]
    write_segment(tmp_path / "one", rows, journal_id=OLD)
    folder = JournalFolder(tmp_path)
    journals = accepted((), folder.journals(), new_epoch=False)
    write_segment(tmp_path / "two", rows, journal_id=NEW)
    assert [segment.journal_id for segment in folder.new(journals)] == [OLD]
    journals = accepted(journals, folder.journals(), new_epoch=False)
    assert [segment.journal_id for segment in folder.new(journals)] == [OLD, NEW]
