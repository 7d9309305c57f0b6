"""Messages that limits kept out, collected for a second and then recorded in the journal.

A producer that is refused costs the broker nothing durable, and should not: a flood against a full queue would become
a flood of commits. But operators must see it, live and in the tables. So refusals are summed up by queue, error code
and fairness key, and once a second the sums become records. Metrics, the live feed and the pipeline then read them like
everything else, from the journal.

The price is that a crash loses the refusals of the last second. Keys beyond ``KEYS_MAX`` are summed up without a name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from fairlane.broker.cycle import Cycle, Executor
from fairlane.core.commands import RecordRefusals
from fairlane.errors import FullError
from fairlane.model.message import NEVER_MS, Key

RECORDED_EVERY_MS: Final = 1_000
KEYS_MAX: Final = 100
"""The keys of one queue that a record names."""

_Sums: TypeAlias = dict[Key | None, list[int]]
"""Messages and cost by key."""


class CollectedRefusals:
    """The refusals that are not recorded yet.

    Attributes:
        due_ms: when to record them; far in the future if there are none.
    """

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], _Sums] = {}
        self.due_ms = NEVER_MS

    def note(self, queue: str, results: Iterable[object], now_ms: int) -> None:
        """Count those of a producer's results that are refusals by a limit."""
        for result in results:
            if isinstance(result, FullError):
                self._add(self._sums.setdefault((queue, result.code), {}), result)
                self.due_ms = min(self.due_ms, now_ms + RECORDED_EVERY_MS)

    def _add(self, sums: _Sums, refusal: FullError) -> None:
        key = refusal.key if refusal.key in sums or len(sums) < KEYS_MAX else None
        amounts = sums.setdefault(key, [0, 0])
        amounts[0] += 1
        amounts[1] += refusal.cost

    def record(self, executor: Executor, cycle: Cycle, *, is_disk_short: bool) -> None:
        """Record the refusals that were collected; later if the disk is short, since they can wait."""
        if is_disk_short:
            self.due_ms = cycle.now_ms + RECORDED_EVERY_MS
            return
        collected, self._sums = self._sums, {}
        self.due_ms = NEVER_MS
        for (queue, code), sums in collected.items():
            messages, costs = map(list, zip(*sums.values(), strict=True))
            command = RecordRefusals(queue=queue, code=code, keys=list(sums), messages=messages, costs=costs)
            executor.execute(command, cycle)
