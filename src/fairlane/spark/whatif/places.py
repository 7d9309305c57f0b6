"""What is played: parts of a recording as the kernel sees them, the queues they come to, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fairlane.core.ledger import PRIORITIES, Aftermath, Queue
from fairlane.core.schedule import Line
from fairlane.scheduler.item import Item
from fairlane.scheduler.kernel import Kernel
from fairlane.spark.whatif.attempts import ACKED, EXPIRED
from fairlane.spark.whatif.recording import Recording

BITS: Final = 26
"""What runs is held as one number: the instant at which it ends, and in so many bits below the number of the lease."""
USUAL, OTHERWISE, FORSAKEN = range(3)
"""How an attempt goes: acked at the cost that was thought; otherwise; its lease runs out, with its consumer gone."""
LATER: Final = 1 << 62
STEP: Final = 1 << 20
"""How far apart the places in line of two parts are that came one after the other: room for those that come back."""


class Part(Item):
    """A message's stay in a queue, as the kernel sees it; ``weight`` and ``after`` are what key policies look at.

    Attributes:
        at: which attempt is next, or goes on.
        hold: how long that lasts, in milliseconds above ``BITS``.
        course: whether it goes as usual.
    """

    __slots__ = ("after", "at", "course", "hold", "line", "number", "place", "weight")

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
        self.begin(recording, recording.first[number])

    def begin(self, recording: Recording, at: int) -> None:
        """Let an attempt be the next."""
        self.at = at
        self.hold = recording.hold_ms[at] << BITS
        end = recording.end[at]
        is_usual = end == ACKED and not recording.settle[at]
        self.course = USUAL if is_usual else OTHERWISE if end < EXPIRED else FORSAKEN


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
    """One queue of the recording, while it is played.

    Attributes:
        free: how many more leases consumers would hold.
        wake_ms: when something happens there by itself.
        changes_at: when there are other consumers.
        kernel, offer_many, take, release: what the loop calls, at hand.
    """

    __slots__ = (
        "changes_at",
        "free",
        "kernel",
        "line",
        "offer_many",
        "queue",
        "release",
        "slots",
        "take",
        "there",
        "wake_ms",
    )

    def __init__(self, queue: Queue, line: Line, slots: list[tuple[int, int]]) -> None:
        self.queue = queue
        self.slots = slots[::-1]
        self.there = 0
        self.free = 0
        self.wake_ms = LATER
        self.changes_at = 0
        self.set_line(line)
        self.pass_time(0)

    def set_line(self, line: Line) -> None:
        """Let a line be the one that is played."""
        self.line = line
        kernel: Any = line.kernel  # which takes any items, though the broker's says that they are messages
        self.kernel: Kernel[Part] = kernel
        self.offer_many, self.take, self.release = self.kernel.offer_many, self.kernel.take, self.kernel.release

    def pass_time(self, now_ms: int) -> None:
        """Let as many slots be there as at this instant."""
        while self.slots and self.slots[-1][0] <= now_ms:
            _, there = self.slots.pop()
            self.free += there - self.there
            self.there = there
        self.changes_at = self.slots[-1][0] if self.slots else LATER


def items_of(recording: Recording) -> list[Part]:
    """Return what the kernel handles, to be used for one run after the other."""
    return [Part(recording, number) for number in range(len(recording.key))]
