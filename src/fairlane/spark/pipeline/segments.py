"""Which exported segments are new, and which parts of each, by the sequences they cover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairlane.errors import InvalidArgument
from fairlane.journal.segments import Range, joined, segments_in, without


@dataclass(frozen=True, slots=True)
class Segment:
    """A range of the journal in one file or on a server, and the parts of it that are needed.

    Attributes:
        path: the file; None for a range on a server.
        covers: the range.
        wanted: the parts of it that nothing else covers.
    """

    path: Path | None
    covers: Range
    wanted: tuple[Range, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all of it is needed."""
        return self.wanted == (self.covers,)


def new_segments(folder: Path, covered: Sequence[Range]) -> list[Segment]:
    """Return the segments in a folder that have something that is not covered; no sequence is wanted twice.

    Raises:
        InvalidArgument: the folder does not exist.
    """
    if not folder.is_dir():
        raise InvalidArgument(f"Folder {folder} does not exist. Export the journal there first.")
    found: list[Segment] = []
    reached = tuple(covered)
    for covers, name in segments_in(path.name for path in folder.iterdir()):
        if wanted := tuple(without(covers, reached)):
            found.append(Segment(folder / name, covers, wanted))
            reached = joined([*reached, covers])
    return found
