"""What a run has to do: which tables are stale, whether new events continue the last run, which days change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from fairlane.spark.pipeline.build import WAITS
from fairlane.spark.pipeline.intake import Intake
from fairlane.spark.pipeline.journals import Covered, JournalCoverage, changed_gaps
from fairlane.spark.pipeline.manifest import Manifest
from fairlane.spark.pipeline.source import Segment
from fairlane.spark.tables import TABLES, partials
from fairlane.spark.tables.schemas import EVENTS


def stale(manifest: Manifest) -> list[str]:
    """Return the tables that another release computed differently. The events are the journal's, whatever computes."""
    if not manifest.days:
        return []
    versions = {name: table.version for name, table in TABLES.items() if name != EVENTS.name}
    return [name for name, version in versions.items() if manifest.versions.get(name) != version]


def with_segments(journals: Sequence[JournalCoverage], segments: Sequence[Segment]) -> list[JournalCoverage]:
    """Return journals as they will be covered when segments are in the tables."""
    return [
        journal.plus(
            Covered(*stretch)
            for segment in segments
            if segment.journal_id == journal.journal_id
            for stretch in segment.wanted
        )
        for journal in journals
    ]


def continues(before: Manifest, after: Manifest, intake: Intake) -> bool:
    """Return whether new events go on where the last run ended, in every journal, on the newest day or later.

    Then what the last run left (``.carried`` and the partials) is all that is needed of earlier events.
    """
    if before.versions.get(WAITS) != partials.VERSION or intake.days[0] < before.days[-1]:
        return False
    known = {each.journal_id: each for each in before.journals}
    is_later = all(
        covered.first > known[journal_id].reached
        for journal_id, found in intake.covered.items()
        if journal_id in known
        for covered in found
    )
    return is_later and {each.journal_id for each in after.journals if each.is_ended} == {
        each.journal_id for each in before.journals if each.is_ended
    }


def regapped(before: Manifest, after: Manifest) -> list[date]:
    """Return the days whose completeness changes, because a gap appeared, shrank or disappeared."""
    return [day for gap in changed_gaps(before.gaps, after.gaps) if (day := gap.day) is not None]


def reach(before: Manifest, touched: Sequence[date]) -> tuple[date, date | None]:
    """Return the first day to rebuild, and the day before it whose end is known, if any.

    The newest day so far is always rebuilt: only now it is known to be complete.
    """
    first = min([*touched, *before.days[-1:]])
    earlier = [day for day in before.days if day < first]
    if not earlier:
        return first, None
    known = [day for day in before.carried if day < first]
    if not known:
        return before.days[0], None
    return min(first, *[day for day in before.days if day > known[-1]]), known[-1]
