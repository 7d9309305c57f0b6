"""Which journals the tables are made from, how far each of them is in the tables, and what is missing.

Sequences identify events only within one journal, so everything here is kept by journal. Each *group* of queues has one
journal at a time; a server on its own is one group, with an empty name. If a group's journal has another id than the
one in the tables, its store was replaced or restored. Its events must not count as the continuation of the old journal,
so the run is refused, unless the user declares a new *epoch*: then the old journal ends, and what was open in it stays
undecided for ever.

A journal should be in the tables completely, from where it began, or where its epoch began, to the latest event. What
is not is a gap: the server trimmed it, or no exported file has it. A run that finds a new gap is refused, unless the
user accepts that. Accepted gaps stay in the manifest, and later runs go on without asking again.

All of this is pure: sources look, runs write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

import msgspec

from fairlane.errors import InvalidArgument, JournalMismatch, JournalTrimmed
from fairlane.journal.segments import Range, joined, without

_DAY: Final = timedelta(days=1)


class Covered(msgspec.Struct, frozen=True, array_like=True):
    """A range of a journal that is in the tables, and the instants of its first and last event, if it has events."""

    first: int
    last: int
    first_ms: int | None = None
    last_ms: int | None = None

    @property
    def range(self) -> Range:
        """Its first and last sequence."""
        return self.first, self.last


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A range of a journal that is missing in the tables.

    Attributes:
        journal_id: the journal.
        group: its group.
        from_sequence: the first sequence that is missing.
        until_sequence: the last.
        from_ms: when the last event before it happened; None if there is none.
        until_ms: when the first event after it happened; None if there is none.
    """

    journal_id: str
    group: str
    from_sequence: int
    until_sequence: int
    from_ms: int | None = None
    until_ms: int | None = None

    @property
    def day(self) -> date | None:
        """The first day that it may concern; None if no event of the journal is known."""
        at_ms = self.until_ms if self.from_ms is None else self.from_ms
        return None if at_ms is None else day_of(at_ms)

    def days(self) -> list[date]:
        """Return the days that it may concern."""
        first = self.day
        if first is None:
            return []
        last = first if self.until_ms is None else day_of(self.until_ms)
        return [first + count * _DAY for count in range((last - first).days + 1)]


class JournalCoverage(msgspec.Struct, frozen=True, kw_only=True):
    """How far a journal is in the tables.

    Attributes:
        journal_id: its id.
        group: the group of queues whose journal it is; empty for a server on its own.
        after: the tables should have everything after this position.
        covered: the ranges that they have, in order.
        is_ended: whether a new epoch took its place.
    """

    journal_id: str
    group: str = ""
    after: int = 0
    covered: tuple[Covered, ...] = ()
    is_ended: bool = False

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The sequences in the tables."""
        return tuple(each.range for each in self.covered)

    @property
    def reached(self) -> int:
        """The last sequence in the tables; where the journal should begin, if there is none."""
        return self.covered[-1].last if self.covered else self.after

    @property
    def last_ms(self) -> int | None:
        """The instant of the latest event in the tables."""
        return max((each.last_ms for each in self.covered if each.last_ms is not None), default=None)

    def gaps(self) -> list[Gap]:
        """Return what is missing before the last sequence in the tables."""
        return [self._gap(missing) for missing in without((self.after + 1, self.reached), self.ranges)]

    def _gap(self, missing: Range) -> Gap:
        before = [each.last_ms for each in self.covered if each.last < missing[0] and each.last_ms is not None]
        later = [each.first_ms for each in self.covered if each.first > missing[1] and each.first_ms is not None]
        return Gap(
            journal_id=self.journal_id,
            group=self.group,
            from_sequence=missing[0],
            until_sequence=missing[1],
            from_ms=before[-1] if before else None,
            until_ms=later[0] if later else None,
        )

    def plus(self, news: Iterable[Covered]) -> JournalCoverage:
        """Return the coverage with more ranges in it."""
        known = [*self.covered, *news]
        merged = [_merged(whole, known) for whole in joined(each.range for each in known)]
        return msgspec.structs.replace(self, covered=tuple(merged))


def _merged(whole: Range, parts: Iterable[Covered]) -> Covered:
    inside = [part for part in parts if whole[0] <= part.first <= whole[1]]
    return Covered(
        *whole,
        min((part.first_ms for part in inside if part.first_ms is not None), default=None),
        max((part.last_ms for part in inside if part.last_ms is not None), default=None),
    )


class JournalOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A journal that a source can read now.

    Attributes:
        journal_id: its id.
        group: the group of queues whose journal it is; empty for a server on its own.
        first: the position that it began after when it was new.
        since: the position from which on it has its id; see ``fairlane.journal.identity``.
        end: the position of its latest event; None for files, which come and go.
        began_ms: the instant of its first event that can be read, if that is known; it orders the epochs of a group.
        where: the place it was found at, for errors.
    """

    journal_id: str
    group: str = ""
    first: int = 0
    since: int = 0
    end: int | None = None
    began_ms: int = 0
    where: str = ""


def accepted(
    known: Sequence[JournalCoverage], offers: Sequence[JournalOffer], *, new_epoch: bool
) -> tuple[JournalCoverage, ...]:
    """Return the journals of the tables together with those that a source offers.

    Raises:
        JournalMismatch: a group has another journal than the one in the tables, or its journal was set back.
        InvalidArgument: a source offers several journals of a group, and new ones are not declared to be epochs.
    """
    journals = {each.journal_id: each for each in known}
    current = {each.group: each for each in known if not each.is_ended}
    offered = {offer.journal_id for offer in offers}
    for offer in sorted(offers, key=lambda offer: (offer.began_ms, offer.journal_id)):
        found = journals.get(offer.journal_id)
        rival = current.get(offer.group)
        if found is not None:
            _check_same(found, offer, rival, is_rival_there=rival is not None and rival.journal_id in offered)
            journals[found.journal_id] = msgspec.structs.replace(found, group=offer.group)
            continue
        if rival is not None and not new_epoch:
            raise _mismatch(rival, offer, is_known=any(each.journal_id == rival.journal_id for each in known))
        if rival is not None:
            journals[rival.journal_id] = msgspec.structs.replace(journals[rival.journal_id], is_ended=True)
        # The events up to ``since`` are in the tables already, as those of the journal before the restore.
        after = offer.first if rival is None else max(offer.first, offer.since)
        fresh = JournalCoverage(journal_id=offer.journal_id, group=offer.group, after=after)
        journals[offer.journal_id] = current[offer.group] = fresh
    return tuple(journals.values())


def _check_same(
    found: JournalCoverage, offer: JournalOffer, rival: JournalCoverage | None, *, is_rival_there: bool
) -> None:
    """Check a journal that is in the tables already."""
    if found.is_ended and rival is not None and not is_rival_there:  # a folder may well keep the files of old epochs
        raise JournalMismatch(
            f"The journal {offer.where} is {offer.journal_id}, which ended when {rival.journal_id} took its place."
        )
    if not found.is_ended and offer.end is not None and offer.end < found.reached:
        raise JournalMismatch(
            f"Journal {offer.journal_id} {offer.where} ends at {offer.end}, but the tables have it up to "
            f"{found.reached}. Its store was restored from a backup; `fairlane store restored` gives it a new id."
        )


def _mismatch(rival: JournalCoverage, offer: JournalOffer, *, is_known: bool) -> Exception:
    group = f" of group {offer.group}" if offer.group else ""
    if is_known:
        return JournalMismatch(
            f"The tables are made from journal {rival.journal_id}{group}, but the journal {offer.where} is "
            f"{offer.journal_id}."
        )
    return InvalidArgument(
        f"There are several journals{group} {offer.where}: {rival.journal_id} and {offer.journal_id}. "
        "Keep one of them there, or pass --new-epoch to take them one after another."
    )


def groups_by_id(journals: Iterable[JournalCoverage]) -> dict[str, str]:
    """Return the group of each journal, by its id."""
    return {each.journal_id: each.group for each in journals}


def check_gaps(before: Sequence[Gap], after: Sequence[Gap]) -> None:
    """Raise JournalTrimmed if there is a gap that was not there before."""
    for gap in after:
        known = joined((old.from_sequence, old.until_sequence) for old in before if old.journal_id == gap.journal_id)
        if missing := without((gap.from_sequence, gap.until_sequence), known):
            first, last = missing[0]
            raise JournalTrimmed(
                f"Events {first} to {last} of journal {gap.journal_id} are missing: "
                f"the journal can be read from position {last} on."
            )


def changed_gaps(before: Sequence[Gap], after: Sequence[Gap]) -> list[Gap]:
    """Return the gaps that appeared, shrank or disappeared."""
    return [gap for gap in (*before, *after) if (gap in before) != (gap in after)]


def day_of(at_ms: int) -> date:
    """Return the UTC day of an instant."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).date()
