"""What is played: parts of a recording as the kernel sees them, the queues they come to, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairlead.core.ledger import PRIORITIES, Aftermath, Queue
from fairlead.core.schedule import Line
from fairlead.scheduler.item import Item
from fairlead.spark.whatif.recording import Recording

LATER: Final = 1 << 62
STEP: Final = 1 << 20
"""How far apart the places in line of two parts are that came one after the other: room for those that come back."""


class Part(Item):
    """A message's stay in a queue, as the kernel sees it; ``weight`` and ``after`` are what key policies look at."""

    __slots__ = ("after", "line", "number", "place", "weight")

    def __init__(self, recording: Recording, number: int) -> None:
        # Not through Item.__init__: what comes from a journal has been checked before it was written there.
        self.key = recording.key[number]
        self.cost = recording.cost[number]
        self.priority = PRIORITIES[recording.priority[number]]
        self.throttles = recording.throttles[number]
        self.due_ms = recording.due_ms[number]
        self.deadline_ms = recording.deadline_ms[number]
        self.plain = self._is_plain()
        self.lane = self.next = self.previous = self.held = None
        self.sequence = 0
        self.number = number
        self.place = recording.queue[number]
        self.weight = recording.weight[number]
        self.line = number * STEP
        self.after: Aftermath | None = None
        if recording.cap[number] is not None:
            self.after = Aftermath()
            self.after.cap = recording.cap[number]


@dataclass(slots=True)
class Played:
    """What became of each part: -1 for what never happened.

    Attributes:
        leased_ms: when it was first leased.
        throttled_ms, capped_ms: for how long it was held up before that, where it was.
        contended: the parts that were handed out while others had to wait for a consumer.
        missed: the parts whose deadlines passed.
        removed: the parts that somebody took out.
    """

    leased_ms: list[int]
    throttled_ms: dict[int, int]
    capped_ms: dict[int, int]
    contended: list[int]
    missed: list[int]
    removed: list[int]


class Place:
    """One queue of the recording, while it is played."""

    __slots__ = ("changes_at", "free", "held", "is_there", "line", "queue", "slots", "wake_ms")

    def __init__(self, queue: Queue, line: Line, slots: list[tuple[int, int]]) -> None:
        self.queue = queue
        self.line = line
        self.slots = slots[::-1]
        self.held = 0
        self.free = 0
        self.wake_ms = LATER
        self.changes_at = 0
        self.is_there = False
        self.pass_time(0)

    def pass_time(self, now_ms: int) -> None:
        """Let as many slots be there as at this instant."""
        while self.slots and self.slots[-1][0] <= now_ms:
            self.free += self.slots[-1][1] - (self.free + self.held)
            self.slots.pop()
        self.changes_at = self.slots[-1][0] if self.slots else LATER


def items_of(recording: Recording) -> list[Part]:
    """Return what the kernel handles, to be used for one run after the other."""
    return [Part(recording, number) for number in range(len(recording.key))]
