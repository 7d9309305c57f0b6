"""Fan-outs: messages that are enqueued together, and one more, the continuation, that waits until all have ended.

The continuation is staged in the commit that enqueues the members: it has its id, its terms and its place within the
limits, and is in no line yet. The records that end messages say which members have ended, so the state of a fan-out is
a fold like everything else. Once no member is open, the engine publishes the continuation, in the same cycle and so in
the same commit as the end of the last member. So it enters its queue once, whatever fails: there is no moment at which
one is durable without the other.

What a member forwards when it is acknowledged takes its place, so members may be chains of messages.

The name under which a producer has asked is known for the dedup window of the queue after the end, so a request that is
repeated changes nothing. Like a dedup id it belongs to a tenant, which is that of the key of the continuation. The
record of a fan-out has the name alone, because the record before it has the key; from then on the two are one text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fairlane.core.dedup_ids import remembered_name
from fairlane.journal.records import FannedOut, FanOutImage, Runs
from fairlane.model.message import Key


@dataclass(slots=True, eq=False)
class FanOutState:
    """One fan-out.

    Attributes:
        order: the record that began it, with the name as ``core.dedup_ids`` has it.
        open: the members that have not ended, each with its queue.
        done: how many members were acknowledged, and ``failed`` how many have ended otherwise.
        until_ms: when its name is free; 0 while it has not ended.
    """

    order: FannedOut
    open: dict[int, str] = field(default_factory=dict)
    done: int = 0
    failed: int = 0
    until_ms: int = 0

    @property
    def total(self) -> int:
        """How many members it has, those that have taken the place of others included."""
        return len(self.open) + self.done + self.failed

    def image(self) -> FanOutImage:
        """Return it as a record has it."""
        return FanOutImage(self.order, runs_of(self.open), self.done, self.failed, self.until_ms)


class FanOuts:
    """All fan-outs that have not ended, and those whose names are known still.

    Attributes:
        by_name: by the queue of the continuation, and the name with its tenant.
        by_number: by the number of the continuation.
        members: the open members, each with its fan-out.
        complete: those without an open member, whose continuation is still to be published.
        left: the members that the latest acknowledgement has ended: what they forward comes next in the journal.
    """

    def __init__(self) -> None:
        self.by_name: dict[tuple[str, str], FanOutState] = {}
        self.by_number: dict[int, FanOutState] = {}
        self.members: dict[int, FanOutState] = {}
        self.complete: dict[int, FanOutState] = {}
        self.left: dict[int, FanOutState] = {}
        self._ended: deque[FanOutState] = deque()

    def add(self, image: FanOutImage) -> None:
        """Add a fan-out."""
        order = image.order
        found = FanOutState(order, {}, image.done, image.failed, image.until_ms)
        before = self.by_name.get((order.queue, order.name))
        if before is not None:  # its window is over, but not that of one that ended earlier
            self._ended.remove(before)
            self._forget(before)
        self.by_name[order.queue, order.name] = self.by_number[order.number] = found
        if image.until_ms:
            self._ended.append(found)
        else:
            self.join(found, image.open)

    def named(self, queue: str, key: Key, name: str, now_ms: int) -> FanOutState | None:
        """Return the fan-out that a tenant knows by a name, the tenant being that of a fairness key."""
        found = self.by_name.get((queue, remembered_name(key, name)))
        return None if found is None or 0 < found.until_ms <= now_ms else found

    def join(self, fan_out: FanOutState, members: Mapping[str, Runs]) -> None:
        """Add open members to a fan-out."""
        for queue, numbers in members.items():
            for first, count in numbers:
                for number in range(first, first + count):
                    fan_out.open[number] = queue
                    self.members[number] = fan_out
        if fan_out.open:
            self.complete.pop(fan_out.order.number, None)
        else:
            self.complete[fan_out.order.number] = fan_out

    def settle(self, numbers: Iterable[int], *, is_done: bool) -> None:
        """Note that messages have ended, as far as they are members."""
        left = {number: fan_out for number in numbers if (fan_out := self.members.pop(number, None)) is not None}
        for number, fan_out in left.items():
            del fan_out.open[number]
            fan_out.done += is_done
            fan_out.failed += not is_done
            if not fan_out.open:
                self.complete[fan_out.order.number] = fan_out
        self.left = left if is_done else {}

    def end(self, number: int, at_ms: int) -> None:
        """Note that a continuation is published. The name of its fan-out is known for a while."""
        fan_out = self.by_number.get(number)
        if fan_out is None:
            return
        self.complete.pop(number, None)
        for member in fan_out.open:
            del self.members[member]
        fan_out.open.clear()
        fan_out.until_ms = at_ms + fan_out.order.window_ms
        self._ended.append(fan_out)
        while self._ended and self._ended[0].until_ms <= at_ms:
            self._forget(self._ended.popleft())

    def remove_queue(self, queue: str) -> None:
        """Forget the fan-outs whose continuation is in a queue that is removed, and end the members that are in it."""
        for fan_out in [found for found in self.by_number.values() if found.order.queue == queue]:
            for member in fan_out.open:
                del self.members[member]
            self.complete.pop(fan_out.order.number, None)
            self._forget(fan_out)
        self._ended = deque(found for found in self._ended if found.order.queue != queue)
        self.settle([number for number, found in self.members.items() if found.open[number] == queue], is_done=False)

    def _forget(self, fan_out: FanOutState) -> None:
        order = fan_out.order
        del self.by_number[order.number]
        del self.by_name[order.queue, order.name]

    def images(self) -> list[FanOutImage]:
        """Return all of them as a record has them; those that have ended come in the order of their ends."""
        waiting = [found for found in self.by_number.values() if not found.until_ms]
        return [found.image() for found in (*waiting, *self._ended)]


def runs_of(members: Mapping[int, str]) -> dict[str, Runs]:
    """Return messages by queue, as runs of consecutive numbers."""
    found: dict[str, Runs] = {}
    for number in sorted(members):
        runs = found.setdefault(members[number], [])
        if runs and sum(runs[-1]) == number:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((number, 1))
    return found
