"""The hand-outs of a journal, decided again over arrays; the twin of ``whatif/reproduction.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fairlane.spark.whatif.rows import ACK, DEATH, LEASE, NEVER, START, Ints
from fairlane.spark.whatif.twin.compiler import compiled, entry
from fairlane.spark.whatif.twin.steps import JournalSteps
from fairlane.spark.whatif.twin.turns import Turns, move_to, offer, release, settle, take

EXACT: Final = -1


@dataclass(frozen=True, slots=True)
class TwinCheck:
    """What came of deciding the hand-outs of a journal again.

    Attributes:
        hand_outs: how many messages were handed out.
        differs_at: the sequence of the first hand-out that came out otherwise; -1 for none.
    """

    hand_outs: int
    differs_at: int

    @property
    def is_exact(self) -> bool:
        """Whether every hand-out came out as the journal has it."""
        return self.differs_at == EXACT


def check(turns: Turns, steps: JournalSteps) -> TwinCheck:
    """Decide every hand-out of a journal again, up to the first that comes out otherwise."""
    found = replay(turns, steps, np.empty(steps.part.size, np.int32), np.zeros(turns.share.size, np.int64))
    hand_outs = int((steps.code == LEASE).sum())
    return TwinCheck(hand_outs, EXACT if found == EXACT else int(steps.sequence[found]))


@entry
def replay(turns: Turns, steps: JournalSteps, out: NDArray[np.int32], counts: Ints) -> int:
    """Do what the journal says, and return the place of the first hand-out that comes out otherwise, or -1.

    Args:
        turns: the keys, and the messages that wait.
        steps: the events.
        out: space for what is handed out.
        counts: a zero for each key.
    """
    begin = 0
    while begin < steps.code.size:
        end = begin + 1
        while end < steps.code.size and steps.record[end] == steps.record[begin]:
            end += 1
        if steps.code[begin] == LEASE:
            if not _is_same(turns, steps, out, begin, end):
                return begin
        else:
            move_to(turns, steps.at_ms[begin])
            if steps.code[begin] != START:
                _release(turns, steps, counts, begin, end)
            _follow(turns, steps, begin, end)
        begin = end
    return EXACT


@compiled
def _is_same(turns: Turns, steps: JournalSteps, out: NDArray[np.int32], begin: int, end: int) -> bool:
    """Hand out as often as the broker did, and return whether these are the messages that it leased."""
    move_to(turns, steps.at_ms[begin])
    count, taken = end - begin, 0
    asked = steps.asked[begin] or count
    for _ in range(-(-count // asked)):
        taken += take(turns, asked, out, taken)
    if taken != count:
        return False
    same = 0
    while same < count and out[same] == steps.part[begin + same]:
        same += 1
    return same == count


@compiled
def _release(turns: Turns, steps: JournalSteps, counts: Ints, begin: int, end: int) -> None:
    """End the leases of messages, those of a key at once."""
    for at in range(begin, end):
        counts[turns.key[steps.part[at]]] += 1
    for at in range(begin, end):
        key = turns.key[steps.part[at]]
        if counts[key]:
            release(turns, key, counts[key])
            counts[key] = 0


@compiled
def _follow(turns: Turns, steps: JournalSteps, begin: int, end: int) -> None:
    """Offer messages, or settle their costs."""
    for at in range(begin, end):
        message, value = steps.part[at], steps.value[at]
        if steps.code[at] == ACK:
            if value != NEVER and value != turns.cost[message]:
                settle(turns, turns.key[message], value - turns.cost[message])
        elif steps.code[at] != DEATH:
            offer(turns, message, value)
