"""A recording played again under another policy: the broker's own scheduler, on virtual time, with modelled consumers.

Messages come when they came. Whoever is next is decided by the kernel, key policies and throttles of the broker, made
by the broker's own code. Consumers hold as many leases at once as the recording's slots say, and take the next message
at once; a message is held for as long as it was held in the journal, attempt by attempt, and ends as it ended there.
Who let a lease run out was gone, and another in its place: such a lease takes no slot.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from typing import Any

import msgspec

from fairlead.core.ledger import Queue
from fairlead.core.schedule import Line
from fairlead.core.throttling import set_throttle, throttle_names
from fairlead.model.message import Key
from fairlead.model.policy import QueuePolicy, policy_from
from fairlead.scheduler.buckets import Throttles
from fairlead.spark.whatif.attempts import ACKED, EXPIRED, RETURNED
from fairlead.spark.whatif.places import LATER, STEP, Part, Place, Played
from fairlead.spark.whatif.recording import Change, Recording
from fairlead.spark.whatif.rows import NEVER
from fairlead.spark.whatif.scenario import Scenario

_BITS = 26
_MASK = (1 << _BITS) - 1
"""What runs is held as one number: the instant at which it ends, and below that the number of the lease."""


class Player:
    """Plays a recording under one scenario."""

    def __init__(self, recording: Recording, scenario: Scenario, items: list[Part]) -> None:
        self._recording = recording
        self._scenario = scenario
        self._items = items
        self._config = {key: value for key, value in scenario.config.items() if value is not None}
        self._throttles = Throttles()
        for name in throttle_names(self._config):
            set_throttle(self._throttles, self._config, name, now_ms=0)
        self._places = [self._place(name, slots) for name, slots in zip(recording.queues, recording.slots, strict=True)]
        self._by_name = {place.queue.name: place for place in self._places}
        self._running: list[int] = []
        self._leases: list[Part] = []
        self._attempt = dict[int, int]()
        self._returned = 0
        self._come = 0
        self._moved_ms = -1
        self.played = Played([NEVER] * len(items), {}, {}, [], [], [])

    def _place(self, name: str, slots: list[tuple[int, int]]) -> Place:
        queue = Queue(name, self._policy(name, QueuePolicy()), 0)
        queue.paused_keys = self._paused(name)
        return Place(queue, Line(queue, self._throttles, self._config), slots)

    def _policy(self, queue: str, told: QueuePolicy) -> QueuePolicy:
        fields = self._scenario.fields.get(queue)
        return policy_from(dict(fields), base=told) if fields else told

    # -------------------------------------------------------------------------------------------------------- the loop

    def play(self) -> Played:
        """Play all of it, until nothing more can happen."""
        recording, places = self._recording, self._places
        arrivals, running = recording.at_ms, self._running
        changes, change = recording.changes, 0
        count = len(arrivals)
        only = places[0] if len(places) == 1 else None
        while True:
            now_ms = running[0] >> _BITS if running else LATER
            if self._come < count and arrivals[self._come] < now_ms:
                now_ms = arrivals[self._come]
            if change < len(changes) and changes[change].at_ms < now_ms:
                now_ms = changes[change].at_ms
            for place in places:
                if place.wake_ms < now_ms:
                    now_ms = place.wake_ms
                if place.changes_at < now_ms and len(place.line.kernel):
                    now_ms = place.changes_at
            if now_ms == LATER:
                break
            while change < len(changes) and changes[change].at_ms <= now_ms:
                self._arrive(changes[change].before, now_ms)
                self._change(changes[change], now_ms)
                change += 1
            self._arrive(count, now_ms)
            if running and running[0] >> _BITS <= now_ms:
                self._finish(now_ms)
            if only is not None:
                self._serve(only, now_ms)
            else:
                for place in places:
                    self._serve(place, now_ms)
        self._tidy()
        return self.played

    def _arrive(self, until: int, now_ms: int) -> None:
        """Let parts come that come until now, at most up to a number."""
        at, arrivals = self._come, self._recording.at_ms
        end = at
        while end < until and arrivals[end] <= now_ms:
            end += 1
        if end == at:
            return
        self._come = end
        parts = self._items[at:end]
        if len(self._places) == 1:
            self._moved_ms = now_ms
            self._offer(self._places[0], parts, now_ms)
            return
        for number, place in enumerate(self._places):
            here = [part for part in parts if part.place == number]
            if here:
                self._offer(place, here, now_ms)

    def _offer(self, place: Place, parts: list[Part], now_ms: int) -> None:
        line = place.line
        if self._recording.tells:
            for key in line.policies.learn(parts):  # type: ignore[arg-type] # they have what it looks at
                line.kernel.refresh_policy(key)
        line.kernel.offer_many(parts, now_ms)  # type: ignore[arg-type] # a kernel takes any items

    def _serve(self, place: Place, now_ms: int) -> None:
        """Let idle consumers take what they can."""
        if place.changes_at <= now_ms:
            place.pass_time(now_ms)
        kernel = place.line.kernel
        if not len(kernel):
            place.wake_ms = LATER
            return
        if place.free > 0 and not place.queue.is_paused:
            taken: list[Part] = []
            while place.free > 0 and (more := kernel.take(place.free, now_ms)):
                self._lease(place, more, now_ms)  # type: ignore[arg-type] # what was offered
                taken += more  # type: ignore[arg-type] # see above
            if taken and place.free <= 0 and kernel.has_ready():
                self.played.contended.extend([part.number for part in taken])
        elif place.wake_ms <= now_ms:
            self.played.missed.extend(departure.item.number for departure in kernel.reap(now_ms))
        if self._recording.is_timed:
            wake_ms = kernel.next_event_at()
            place.wake_ms = LATER if wake_ms is None else max(wake_ms, now_ms + 1)

    def _lease(self, place: Place, taken: list[Part], now_ms: int) -> None:
        leased_ms, recording = self.played.leased_ms, self._recording
        hold_ms, first, ends = recording.hold_ms, recording.first, recording.end
        running, leases, attempts = self._running, self._leases, self._attempt
        held = len(taken)
        for part in taken:
            number = part.number
            at = first[number]
            if leased_ms[number] < 0:
                leased_ms[number] = now_ms
            elif number in attempts:
                at += attempts[number]
            if ends[at] >= EXPIRED:
                held -= 1
            heappush(running, (now_ms + hold_ms[at]) << _BITS | len(leases))
            leases.append(part)
        place.held += held
        place.free -= held
        holdups = place.line.kernel.holdups()
        if holdups:
            self._note_holdups(holdups)

    def _note_holdups(self, held: Any) -> None:  # noqa: ANN401 - a mapping of parts, which the kernel calls messages
        for part, holdup in held.items():
            if part.number not in self._attempt:
                self.played.throttled_ms[part.number] = holdup.throttled_ms
                self.played.capped_ms[part.number] = holdup.capped_ms

    def _finish(self, now_ms: int) -> None:
        """End the attempts that end now."""
        running, recording, leases, attempts = self._running, self._recording, self._leases, self._attempt
        firsts, ends, settles = recording.first, recording.end, recording.settle
        places = self._places
        if self._moved_ms < now_ms:
            for place in places:
                place.line.kernel.offer_many((), now_ms)  # time passes first, as in the broker
        limit = (now_ms + 1) << _BITS
        while running and running[0] < limit:
            part = leases[heappop(running) & _MASK]
            place = places[part.place]
            kernel = place.line.kernel
            kernel.release(part.key)
            at = firsts[part.number]
            if attempts:
                at += attempts.get(part.number, 0)
            end = ends[at]
            if end < EXPIRED:
                place.held -= 1
                place.free += 1
            if end == ACKED:
                if settles[at]:
                    kernel.settle(part.key, settles[at], part.priority)
            elif end in (RETURNED, EXPIRED):
                self._return(place, part, recording.delay_ms[at], now_ms)

    def _return(self, place: Place, part: Part, delay_ms: int, now_ms: int) -> None:
        """Let a message wait again, at the back of its line."""
        self._attempt[part.number] = self._attempt.get(part.number, 0) + 1
        self._returned += 1
        part.line = (self._come - 1) * STEP + 1 + self._returned % (STEP - 1)
        part.reschedule(due_ms=now_ms + delay_ms if delay_ms else None, deadline_ms=part.deadline_ms)
        place.line.kernel.offer(part, now_ms)  # type: ignore[arg-type] # a kernel takes any items

    def _tidy(self) -> None:
        """Note whose deadlines have passed, and let all items be as they were for the next run."""
        recording = self._recording
        for place in self._places:
            kernel = place.line.kernel
            self.played.missed.extend(departure.item.number for departure in kernel.reap())
            for left in kernel.waiting_items():
                left.lane = left.next = left.previous = left.held = None
        for number in self._attempt:
            part = self._items[number]
            part.line = number * STEP
            part.reschedule(due_ms=recording.due_ms[number], deadline_ms=recording.deadline_ms[number])

    # ----------------------------------------------------------------------------------------------- what else happens

    def _change(self, change: Change, now_ms: int) -> None:
        facts = change.facts
        if change.kind == "config_set":
            self._set_config(facts["name"], facts.get("value"), now_ms)
        elif change.kind == "opened":
            self._reopen(now_ms)
        elif change.kind == "removed":
            self._remove(self._items[change.part])
        elif facts.get("queue") in self._by_name:
            place = self._by_name[facts["queue"]]
            if change.kind == "queue_set":
                self._set_queue(place, facts["policy_json"], now_ms)
            elif change.kind == "queue_paused":
                self._pause(place, facts)
            elif change.kind == "queue_removed":
                self._empty(place, now_ms)

    def _set_config(self, name: str, value: str | None, now_ms: int) -> None:
        if name in self._scenario.config:
            return
        if value is None:
            self._config.pop(name, None)
        else:
            self._config[name] = value
        for throttle in throttle_names((name,)):
            set_throttle(self._throttles, self._config, throttle, now_ms=now_ms)
        parts = name.split(":", 2)
        if parts[0] in ("weight", "cap") and len(parts) == 3 and parts[1] in self._by_name:  # noqa: PLR2004 - see KeyPolicies
            kernel = self._by_name[parts[1]].line.kernel
            path = tuple(parts[2].split("/"))
            if all(path):
                kernel.refresh_policy(path)
            if len(path) > 1:
                kernel.refresh_policy(parts[2])

    def _set_queue(self, place: Place, policy_json: str, now_ms: int) -> None:
        queue = place.queue
        queue.set_policy(self._policy(queue.name, msgspec.json.decode(policy_json, type=QueuePolicy)))
        if place.line.is_made_for(queue):
            place.line.kernel.set_policy_provider(place.line.policies.of)
        else:
            self._rebuild(place, place.line.kernel.waiting_items(), now_ms)

    def _pause(self, place: Place, facts: dict[str, Any]) -> None:
        queue, path = place.queue, facts.get("fairness_key")
        if path is None:
            queue.is_paused = facts["is_paused"]
            return
        key = path[0] if len(path) == 1 else tuple(path)
        if "/".join(path) in self._scenario.paused.get(queue.name, {}):
            return
        (queue.paused_keys.add if facts["is_paused"] else queue.paused_keys.discard)(key)
        (place.line.kernel.pause if facts["is_paused"] else place.line.kernel.resume)(key)

    def _empty(self, place: Place, now_ms: int) -> None:
        """Let a queue be gone with all that waits there; one that is made under its name later begins anew."""
        for part in place.line.kernel.waiting_items():
            self._remove(part)  # type: ignore[arg-type] # what was offered
        place.queue.is_paused = False
        place.queue.paused_keys = self._paused(place.queue.name)
        self._rebuild(place, [], now_ms)

    def _paused(self, queue: str) -> set[Key]:
        return {_key(key) for key, is_paused in self._scenario.paused.get(queue, {}).items() if is_paused}

    def _remove(self, part: Part) -> None:
        if part.lane is not None:
            self._places[part.place].line.kernel.cancel(part)  # type: ignore[arg-type] # a kernel takes any items
            self.played.removed.append(part.number)

    def _reopen(self, now_ms: int) -> None:
        """Let the broker begin anew: buckets are empty, and turns begin again. Before any message it means nothing."""
        if not self._come:
            return
        self._throttles = Throttles()
        for name in throttle_names(self._config):
            set_throttle(self._throttles, self._config, name, now_ms=now_ms, tokens=0)
        for place in self._places:
            self._rebuild(place, place.line.kernel.waiting_items(), now_ms)

    def _rebuild(self, place: Place, waiting: Any, now_ms: int) -> None:  # noqa: ANN401 - parts, which the kernel calls messages
        """Make the line of a queue anew, as the broker does when it opens or a policy asks for another kernel."""
        kernel = place.line.kernel
        self.played.missed.extend(departure.item.number for departure in kernel.reap())
        for part in waiting:
            kernel.cancel(part)
            part.lane = part.next = part.previous = part.held = None
        number = self._places.index(place)
        leased = [self._leases[entry & _MASK] for entry in sorted(self._running)]
        leased = [part for part in leased if part.place == number]
        line = place.line = Line(place.queue, self._throttles, self._config)
        everything: list[Any] = [*leased, *waiting]
        line.policies.learn(sorted(everything, key=lambda part: part.number))
        for key, count in Counter(part.key for part in leased).items():
            line.kernel.occupy(key, count)
        line.kernel.offer_many(sorted(waiting, key=lambda part: part.line), now_ms)


def _key(text: str) -> Key:
    path = tuple(text.split("/"))
    return path[0] if len(path) == 1 else path


def play(recording: Recording, scenario: Scenario, items: list[Part]) -> Played:
    """Play a recording under a scenario, with items that no other run uses meanwhile."""
    return Player(recording, scenario, items).play()
