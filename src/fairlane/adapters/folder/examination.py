"""What an examination of the folder of a store finds, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass

from fairlane.adapters.folder.high_water import HighWater


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What was found in the folder of a store, without changing anything.

    Attributes:
        high_water: the high-water mark; None if there is none that can be read.
        expected_end: where the journal should end, as far as anything tells.
        is_damaged: whether the data itself is damaged, and not only the marks beside it.
        faults: what is wrong, one sentence each; a store with any must not be opened.
    """

    high_water: HighWater | None
    expected_end: int
    is_damaged: bool
    faults: tuple[str, ...]
