"""A simulation: a recording replayed under a scenario, on virtual time, with modelled consumers.

Messages arrive when they did. The replayed queues (``queues.py``), which are the broker's own scheduler, decide which
is next. Here each consumer has one lease at a time, and takes the next message immediately; ``fleet.py`` has consumers
that hold several. Each attempt takes a consumer as long as it did in the journal, and ends as it did there. The
consumer of an expired lease works for as long as the next attempt took; then another takes its place.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from fairlane.journal.records import Opened
from fairlane.spark.whatif.attempts import ACKED, EXPIRED, RETURNED
from fairlane.spark.whatif.messages import BITS, FORSAKEN, STEP, Played, ReplayedMessage
from fairlane.spark.whatif.presence import total_of
from fairlane.spark.whatif.queues import LATER, ReplayedQueue, ReplayedQueues
from fairlane.spark.whatif.recording import Recording
from fairlane.spark.whatif.rows import NEVER, Ints, column_of
from fairlane.spark.whatif.scenario import Scenario

_ONE_MS = 1 << BITS
_MASK = _ONE_MS - 1


class Player:
    """Plays a recording under one scenario.

    The results are computed at the end, from the leases in order: for each message the loop does only what cannot be
    done for all of them at once.
    """

    def __init__(self, recording: Recording, scenario: Scenario, items: list[ReplayedMessage]) -> None:
        self._recording = recording
        self._items = items
        self._running: list[int] = []
        self._gone: list[tuple[int, int]] = []
        self._leases: list[ReplayedMessage] = []
        self._hand_outs: list[tuple[int, int]] = []
        self._contended: list[tuple[int, int]] = []
        self._returned: list[ReplayedMessage] = []
        self._throttled_ms: dict[int, int] = {}
        self._capped_ms: dict[int, int] = {}
        self._paused_ms: dict[int, int] = {}
        self._come = 0
        self._changed = 0
        self._queues = ReplayedQueues(recording.sequence, scenario, self._leased)
        for name, kinds in zip(recording.queues, recording.consumers, strict=True):
            self._queues.add(name, total_of([kind.counts for kind in kinds]))

    def _leased(self) -> list[ReplayedMessage]:
        return [self._leases[entry & _MASK] for entry in sorted(self._running)]

    # -------------------------------------------------------------------------------------------------------- the loop

    def play(self) -> Played:  # noqa: C901, PLR0912, PLR0915 - in one piece, because calls dominate its time
        """Play the whole recording, until nothing more can happen."""
        items, arrivals, changes = self._items, self._recording.at_ms, self._recording.changes
        running, gone, leases, places = self._running, self._gone, self._leases, self._queues.all
        serve, is_alone = self._serve, len(places) == 1
        is_timed, tells, count = self._recording.is_timed, self._recording.tells, len(arrivals)
        coming_ms = arrivals[0] if arrivals else LATER
        change_ms = changes[0].at_ms if changes else LATER
        while True:
            now_ms = running[0] >> BITS if running else LATER
            if coming_ms < now_ms:
                now_ms = coming_ms
            if change_ms < now_ms:
                now_ms = change_ms
            if gone and gone[0][0] < now_ms:
                now_ms = gone[0][0]
            for place in places:
                if place.wake_ms < now_ms:
                    now_ms = place.wake_ms
                if place.changes_at < now_ms and len(place.kernel):
                    now_ms = place.changes_at
            if now_ms == LATER:
                return self._played()
            if change_ms <= now_ms:
                change_ms = self._change(now_ms)
                coming_ms = arrivals[self._come] if self._come < count else LATER
            moved_ms = NEVER
            if coming_ms <= now_ms:
                at = end = self._come
                while end < count and arrivals[end] <= now_ms:
                    end += 1
                self._come = end
                coming_ms = arrivals[end] if end < count else LATER
                if is_alone and not tells:
                    moved_ms = now_ms
                    places[0].offer_many(items[at:end], now_ms)
                else:
                    self._offer(items[at:end], now_ms)
            limit = (now_ms + 1) << BITS
            if running and running[0] < limit:
                if moved_ms != now_ms:
                    for place in places:
                        place.offer_many((), now_ms)  # time passes first, as in the broker
                while running and running[0] < limit:
                    part = leases[heappop(running) & _MASK]
                    place = places[part.queue]
                    place.release(part.key)
                    if part.course:
                        self._finish(place, part, now_ms)
                    else:
                        place.free += 1
                    if place.is_strict:
                        place.kernel.finish((part,), now_ms)
            while gone and gone[0][0] <= now_ms:
                self._back(heappop(gone)[1], now_ms)
            for place in places:
                serve(place, now_ms)
            # At a queue that is alone time passes with whatever comes or ends; within a millisecond nothing is earlier.
            if is_timed and not (is_alone and (coming_ms <= now_ms + 1 or (running and running[0] < limit + _ONE_MS))):
                self._watch(now_ms)

    def _change(self, now_ms: int) -> int:
        """Apply the changes that are due, and return the instant of the next one."""
        replayed, changes, items, arrivals = self._queues, self._recording.changes, self._items, self._recording.at_ms
        while self._changed < len(changes) and (change := changes[self._changed]).at_ms <= now_ms:
            at = end = self._come
            while end < change.before and arrivals[end] <= now_ms:
                end += 1
            self._come = end
            if end > at:
                self._offer(items[at:end], now_ms)
            if change.record is None:
                replayed.remove(items[change.part], now_ms)
            elif not isinstance(change.record, Opened):
                replayed.change(change.record, now_ms)
            elif self._come:  # before any message it means nothing
                replayed.reopen(now_ms)
            self._changed += 1
        return changes[self._changed].at_ms if self._changed < len(changes) else LATER

    def _offer(self, parts: list[ReplayedMessage], now_ms: int) -> None:
        for number, place in enumerate(self._queues.all):
            here = [part for part in parts if part.queue == number]
            if not here:
                continue
            if self._recording.tells:
                place.schedule.offer_new(here, now_ms)
            else:
                place.offer_many(here, now_ms)

    def _serve(self, place: ReplayedQueue, now_ms: int) -> None:
        """Lease messages to idle consumers."""
        if place.changes_at <= now_ms:
            place.pass_time(now_ms)
        kernel = place.kernel
        wake_ms, place.wake_ms = place.wake_ms, LATER
        if not len(kernel):
            return
        if place.free > 0 and not place.queue.is_paused:
            taken = place.take(place.free, now_ms)
            if taken:
                self._lease(place, taken, now_ms)
                if place.free <= 0 and kernel.has_ready():
                    self._contended.append((len(self._leases) - len(taken), len(self._leases)))
        elif wake_ms <= now_ms:
            self._queues.reap(place, now_ms)

    def _watch(self, now_ms: int) -> None:
        """Note when something happens by itself in each queue."""
        for place in self._queues.all:
            wake_ms = place.kernel.next_event_at() if len(place.kernel) else None
            place.wake_ms = LATER if wake_ms is None else max(wake_ms, now_ms + 1)

    def _back(self, number: int, _now_ms: int) -> None:
        """Replace a consumer that is gone."""
        self._queues.all[number].free += 1

    def _lease(self, place: ReplayedQueue, taken: list[ReplayedMessage], now_ms: int) -> None:
        """Start the attempts of leased messages."""
        running = self._running
        place.free -= len(taken)
        entry = now_ms << BITS | len(self._leases)
        for part in taken:
            if part.course == FORSAKEN:
                heappush(self._gone, (now_ms + self._recording.busy_ms[part.at], part.queue))
            heappush(running, entry + part.hold)
            entry += 1
        self._note_lease(place, taken, now_ms)

    def _note_lease(self, place: ReplayedQueue, taken: list[ReplayedMessage], now_ms: int) -> None:
        """Remember leases, and what held their messages up."""
        self._hand_outs.append((now_ms, len(taken)))
        self._leases += taken
        if place.queue.pauses:
            self._note_pauses(place, taken, now_ms)
        holdups = place.kernel.holdups()
        if holdups:
            first = self._recording.first
            for part, holdup in holdups.items():
                if part.at == first[part.number]:
                    self._throttled_ms[part.number] = holdup.throttled_ms
                    self._capped_ms[part.number] = holdup.capped_ms

    def _note_pauses(self, place: ReplayedQueue, taken: list[ReplayedMessage], now_ms: int) -> None:
        first, within = self._recording.first, place.queue.pauses.within
        for part in taken:
            if part.at == first[part.number] and (paused_ms := within(part.key, part.ready_ms, now_ms)):
                self._paused_ms[part.number] = paused_ms

    def _finish(self, place: ReplayedQueue, part: ReplayedMessage, now_ms: int) -> None:
        """End an attempt in another way than by a plain acknowledgement."""
        recording, at = self._recording, part.at
        end = recording.end[at]
        if end < EXPIRED:
            place.free += 1
        if end == ACKED:
            if recording.settle[at]:  # without a difference a broker leaves the key where it is
                place.kernel.settle(part.key, recording.settle[at], part.priority)
        elif end in (RETURNED, EXPIRED):
            self._return(place, part, recording.delay_ms[at], now_ms)

    def _return(self, place: ReplayedQueue, part: ReplayedMessage, delay_ms: int, now_ms: int) -> None:
        """Offer a message again, behind those that wait, or with strict order at its place."""
        self._returned.append(part)
        part.begin(self._recording, part.at + 1)
        if not place.is_strict:
            part.joined = (self._come - 1) * STEP + 1 + len(self._returned) % (STEP - 1)
        part.since_ms = now_ms
        part.reschedule(due_ms=now_ms + delay_ms if delay_ms else None, deadline_ms=part.deadline_ms)
        place.kernel.offer(part, now_ms)

    # -------------------------------------------------------------------------------------------------- what came of it

    def _played(self) -> Played:
        """Return the results, and restore the messages for the next run."""
        replayed, recording = self._queues, self._recording
        for place in replayed.all:
            replayed.reap(place)
            for left in place.kernel.waiting_items():
                left.lane = left.next = left.previous = left.held = None
        for part in self._returned:
            number = part.number
            part.joined, part.since_ms = number * STEP, recording.at_ms[number]
            part.begin(recording, recording.first[number])
            part.reschedule(due_ms=recording.due_ms[number], deadline_ms=recording.deadline_ms[number])
        numbers = np.fromiter((part.number for part in self._leases), dtype=np.int64, count=len(self._leases))
        contended = [numbers[began:ended] for began, ended in self._contended]
        return Played(
            leased_ms=column_of(self._first_leases(numbers)),
            throttled_ms=self._throttled_ms,
            capped_ms=self._capped_ms,
            paused_ms=self._paused_ms,
            contended=column_of(np.concatenate(contended) if contended else numbers[:0]),
            missed=replayed.missed,
            removed=replayed.removed,
        )

    def _first_leases(self, numbers: Ints) -> Ints:
        """Return when each message was first leased."""
        first: Ints = np.full(len(self._items), NEVER, dtype=np.int64)
        at_ms, counts = np.array(self._hand_outs, dtype=np.int64).reshape(-1, 2).T
        first[numbers[::-1]] = np.repeat(at_ms, counts)[::-1]  # of several the last assignment stays: that of the first
        return first
