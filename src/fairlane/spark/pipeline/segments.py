"""Which exported segments are new, and which part of each: by the sequences they cover, never by what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlane.errors import InvalidArgument
from fairlane.journal.segments import Range, joined, segments_in, without


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the journal in one place, and what of it is to be taken.

    Attributes:
        path: the file; None for one that a server has.
        covers: the sequences in it.
        wanted: the stretches of them that nothing else covers.
    """

    path: Path | None
    covers: Range
    wanted: tuple[Range, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all of it is wanted."""
        return self.wanted == (self.covers,)


def new_segments(folder: Path, covered: Sequence[Range]) -> list[Segment]:
    """Return the segments in a folder that have something that is not covered; no sequence is wanted twice.

    Raises:
        InvalidArgument: there is no such folder.
    """
    if not folder.is_dir():
        raise InvalidArgument(f"There is no folder {folder} with exported segments of a journal.")
    found: list[Segment] = []
    reached = tuple(covered)
    for covers, name in segments_in(path.name for path in folder.iterdir()):
        if wanted := tuple(without(covers, reached)):
            found.append(Segment(folder / name, covers, wanted))
            reached = joined([*reached, covers])
    return found
