"""What is new: which events the tables did not have before a run.

A run that goes on where the last one ended is given new events, and all events of messages that were open by then. It
computes the attempts of these messages from their beginning, but what the tables have already must not count again:
sums take only the instants of an attempt whose events are new, and tables of rows only what a new event has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F


@dataclass(frozen=True, slots=True)
class Reached:
    """How far journals are in the tables.

    Attributes:
        sequences: the last sequence of each journal that they have. All events of other journals are new.
    """

    sequences: Mapping[str, int] = field(default_factory=dict)

    def is_new(self, sequence: Column) -> Column:
        """Return whether the event with a sequence is new; the column ``journal_id`` has its journal."""
        if not self.sequences:
            return F.lit(col=True)
        known = [F.lit(value) for pair in self.sequences.items() for value in pair]
        last = F.coalesce(F.try_element_at(F.create_map(*known), F.col("journal_id")), F.lit(-1))
        return F.coalesce(sequence > last, F.lit(col=False))


ALL_NEW = Reached()
"""The tables have nothing yet, or what they have is computed again."""
