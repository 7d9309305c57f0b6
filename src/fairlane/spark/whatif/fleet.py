"""Modelled consumers that hold several leases, work on some of them at a time, and request more when they can.

``FleetPlayer`` is a simulation with such consumers. Where every consumer is one lease, ``Player`` does the same with a
number instead of consumers, and faster.
"""

from __future__ import annotations

from collections import deque
from heapq import heappush
from itertools import count, cycle

from fairlane.spark.whatif.attempts import EXPIRED
from fairlane.spark.whatif.consumers import ConsumerKind
from fairlane.spark.whatif.messages import BITS, FORSAKEN, Played, ReplayedMessage
from fairlane.spark.whatif.queues import LATER, ReplayedQueue
from fairlane.spark.whatif.recording import Recording
from fairlane.spark.whatif.scenario import Scenario
from fairlane.spark.whatif.simulation import Player


class ModelledConsumer:
    """One consumer of a queue.

    Attributes:
        kind: how it requests and works.
        held: how many messages it holds.
        working: how many of them it works on.
        backlog: the others, in order: the number of the lease, and the message; or instead of a message whose lease
            will expire, how long the work on it takes.
        is_listed: whether it stands in the line, or will soon.
        is_leaving: whether it requests nothing any more.
    """

    __slots__ = ("_rests", "backlog", "held", "is_leaving", "is_listed", "kind", "working")

    def __init__(self, kind: ConsumerKind, number: int) -> None:
        self.kind = kind
        self.held = self.working = 0
        self.backlog: deque[tuple[int, ReplayedMessage | int]] = deque()
        self.is_listed = self.is_leaving = False
        rests_ms = kind.rests_ms or [0]
        first = number % len(rests_ms)  # not all consumers begin with the same one
        self._rests = cycle([*rests_ms[first:], *rests_ms[:first]])

    @property
    def wants(self) -> int:
        """How many messages it would request now; 0 for one that requests nothing."""
        if self.is_leaving or self.held > self.kind.refills:
            return 0
        return min(self.kind.asks, self.kind.holds - self.held)

    def rest_ms(self) -> int:
        """Return how long it takes to request more this time."""
        return next(self._rests)


class Fleet:
    """The consumers of one queue.

    Attributes:
        line: those that request messages, in the order in which they are served.
    """

    def __init__(self, kinds: list[ConsumerKind]) -> None:
        self.line: deque[ModelledConsumer] = deque()
        self._there: list[list[ModelledConsumer]] = [[] for _ in kinds]
        self._changes = sorted(
            ((at_ms, place, kind, number) for place, kind in enumerate(kinds) for at_ms, number in kind.counts),
            key=lambda change: change[:2],
            reverse=True,
        )
        self._numbers = count()

    @property
    def changes_at(self) -> int:
        """When consumers come or go next."""
        return self._changes[-1][0] if self._changes else LATER

    def consumers(self) -> list[ModelledConsumer]:
        """Return those that are there."""
        return [consumer for there in self._there for consumer in there]

    def pass_time(self, now_ms: int) -> None:
        """Add and remove consumers up to an instant. One that leaves finishes what it holds."""
        while self._changes and self._changes[-1][0] <= now_ms:
            _, place, kind, number = self._changes.pop()
            there = self._there[place]
            while len(there) < number:
                consumer = ModelledConsumer(kind, next(self._numbers))
                consumer.is_listed = True
                there.append(consumer)
                self.line.append(consumer)
            there.sort(key=lambda consumer: -consumer.held)  # those that hold least go first
            while len(there) > number:
                there.pop().is_leaving = True


class FleetPlayer(Player):
    """Plays a recording with consumers that hold several leases."""

    def __init__(self, recording: Recording, scenario: Scenario, items: list[ReplayedMessage]) -> None:
        super().__init__(recording, scenario, items)
        self._fleets = [Fleet(kinds) for kinds in recording.consumers]
        self._holder: dict[int, ModelledConsumer] = {}
        self._resting: dict[int, tuple[int, ModelledConsumer]] = {}
        self._rested = count(1)

    def _leased(self) -> list[ReplayedMessage]:
        waiting = [part for consumer in dict.fromkeys(self._holder.values()) for _, part in consumer.backlog]
        return [*super()._leased(), *(part for part in waiting if not isinstance(part, int))]

    def _serve(self, place: ReplayedQueue, now_ms: int) -> None:
        fleet, kernel = self._fleets[place.number], place.kernel
        if fleet.changes_at <= now_ms:
            fleet.pass_time(now_ms)
            place.changes_at = fleet.changes_at
        wake_ms, place.wake_ms = place.wake_ms, LATER
        if not len(kernel):
            return
        line, served = fleet.line, 0
        while line and not place.queue.is_paused:
            consumer = line[0]
            wanted = consumer.wants
            taken = place.take(wanted, now_ms) if wanted else []
            if wanted and not taken:
                break
            line.popleft()
            consumer.is_listed = False
            if taken:
                served += len(taken)
                self._hand_over(place, consumer, taken, now_ms)
                self._list(place.number, consumer, now_ms, rests=False)
        if served and not line and kernel.has_ready():
            self._contended.append((len(self._leases) - served, len(self._leases)))
        elif not served and wake_ms <= now_ms:
            self._queues.reap(place, now_ms)

    def _hand_over(
        self, place: ReplayedQueue, consumer: ModelledConsumer, taken: list[ReplayedMessage], now_ms: int
    ) -> None:
        """Lease messages to a consumer, which begins with as many as it can."""
        number = len(self._leases)
        self._note_lease(place, taken, now_ms)
        for lease, part in enumerate(taken, number):
            consumer.held += 1
            self._holder[part.number] = consumer
            work: ReplayedMessage | int = part
            if part.course == FORSAKEN:  # its lease ends when it expires, whenever the work on it begins
                heappush(self._running, (now_ms << BITS | lease) + part.hold)
                work = self._recording.busy_ms[part.at]
            if consumer.working < consumer.kind.works:
                self._begin(place.number, consumer, (lease, work), now_ms)
            else:
                consumer.backlog.append((lease, work))

    def _begin(
        self, place: int, consumer: ModelledConsumer, entry: tuple[int, ReplayedMessage | int], now_ms: int
    ) -> None:
        """Begin to work on a message."""
        lease, work = entry
        consumer.working += 1
        if isinstance(work, int):
            self._wake(consumer, place, now_ms + work, is_done=True)
        else:
            heappush(self._running, (now_ms << BITS | lease) + work.hold)

    def _finish(self, place: ReplayedQueue, part: ReplayedMessage, now_ms: int) -> None:
        consumer = self._holder.pop(part.number)
        if self._recording.end[part.at] < EXPIRED:
            self._done(consumer, place.number, now_ms)
        super()._finish(place, part, now_ms)

    def _done(self, consumer: ModelledConsumer, place: int, now_ms: int) -> None:
        """End the work of a consumer on one message."""
        consumer.held -= 1
        consumer.working -= 1
        if consumer.backlog:
            self._begin(place, consumer, consumer.backlog.popleft(), now_ms)
        self._list(place, consumer, now_ms, rests=True)

    def _list(self, place: int, consumer: ModelledConsumer, now_ms: int, *, rests: bool) -> None:
        """Put a consumer in the line if it can take more: now, or after its rest."""
        if consumer.is_listed or not consumer.wants:
            return
        consumer.is_listed = True
        rest_ms = consumer.rest_ms() if rests else 0
        if rest_ms:
            self._wake(consumer, place, now_ms + rest_ms, is_done=False)
        else:
            self._fleets[place].line.append(consumer)

    def _wake(self, consumer: ModelledConsumer, place: int, at_ms: int, *, is_done: bool) -> None:
        """Come back to a consumer later: when it has worked under a lease that expires, or has rested."""
        number = next(self._rested)
        self._resting[number] = (place if is_done else ~place, consumer)
        heappush(self._gone, (at_ms, number))

    def _back(self, number: int, now_ms: int) -> None:
        place, consumer = self._resting.pop(number)
        if place >= 0:
            self._done(consumer, place, now_ms)
        else:
            self._fleets[~place].line.append(consumer)


def play(recording: Recording, scenario: Scenario, items: list[ReplayedMessage]) -> Played:
    """Play a recording under a scenario, with items that no other run uses meanwhile."""
    player = Player if recording.is_plain else FleetPlayer
    return player(recording, scenario, items).play()
