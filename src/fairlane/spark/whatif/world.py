"""The queues of a recording as they are while it is played, and what happens to them besides messages and leases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from fairlane.core.ledger import Queue
from fairlane.core.schedule import Line
from fairlane.core.throttling import set_throttle, throttle_names
from fairlane.model.message import Key
from fairlane.model.policy import QueuePolicy, policy_from
from fairlane.scheduler.buckets import Throttles
from fairlane.spark.whatif.places import Part, Place
from fairlane.spark.whatif.recording import Change, Recording
from fairlane.spark.whatif.scenario import Scenario


class World:
    """Queues, throttles and config under one scenario.

    Attributes:
        missed: the parts whose deadlines passed, as far as was noticed.
        removed: the parts that somebody took out.
    """

    def __init__(self, recording: Recording, scenario: Scenario, leased: Callable[[], list[Part]]) -> None:
        """Begin with what the scenario says; ``leased`` returns the leased parts, in the order in which they end."""
        self._scenario = scenario
        self._leased = leased
        self._config = {key: value for key, value in scenario.config.items() if value is not None}
        self._throttles = Throttles()
        for name in throttle_names(self._config):
            set_throttle(self._throttles, self._config, name, now_ms=0)
        self.places = [self._place(name, slots) for name, slots in zip(recording.queues, recording.slots, strict=True)]
        self._by_name = {place.queue.name: place for place in self.places}
        self.missed: list[int] = []
        self.removed: list[int] = []

    def _place(self, name: str, slots: list[tuple[int, int]]) -> Place:
        queue = Queue(name, self._policy(name, QueuePolicy()), 0)
        queue.paused_keys = self._paused(name)
        return Place(queue, Line(queue, self._throttles, self._config), slots)

    def _policy(self, queue: str, told: QueuePolicy) -> QueuePolicy:
        fields = self._scenario.fields.get(queue)
        return policy_from(dict(fields), base=told) if fields else told

    def change(self, change: Change, now_ms: int) -> None:
        """Let happen what operators, or the broker itself, did to queues and config."""
        facts = change.facts
        if change.kind == "config_set":
            self._set_config(facts["name"], facts.get("value"), now_ms)
        elif facts.get("queue") in self._by_name:
            place = self._by_name[facts["queue"]]
            if change.kind == "queue_set":
                self._set_queue(place, facts["policy_json"], now_ms)
            elif change.kind == "queue_paused":
                self._pause(place, facts)
            elif change.kind == "queue_removed":
                self._empty(place, now_ms)

    def remove(self, part: Part) -> None:
        """Take a part out, if it waits."""
        if part.lane is not None:
            self.places[part.place].kernel.cancel(part)
            self.removed.append(part.number)

    def reap(self, place: Place, now_ms: int | None = None) -> None:
        """Note whose deadlines have passed."""
        self.missed += [departure.item.number for departure in place.kernel.reap(now_ms)]

    def reopen(self, now_ms: int) -> None:
        """Let the broker begin anew: buckets are empty, and turns begin again."""
        self._throttles = Throttles()
        for name in throttle_names(self._config):
            set_throttle(self._throttles, self._config, name, now_ms=now_ms, tokens=0)
        for place in self.places:
            self._rebuild(place, place.kernel.waiting_items(), now_ms)

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
            kernel = self._by_name[parts[1]].kernel
            path = tuple(parts[2].split("/"))
            if all(path):
                kernel.refresh_policy(path)
            if len(path) > 1:
                kernel.refresh_policy(parts[2])

    def _set_queue(self, place: Place, policy_json: str, now_ms: int) -> None:
        queue = place.queue
        queue.set_policy(self._policy(queue.name, msgspec.json.decode(policy_json, type=QueuePolicy)))
        if place.line.is_made_for(queue):
            place.kernel.set_policy_provider(place.line.policies.of)
        else:
            self._rebuild(place, place.kernel.waiting_items(), now_ms)

    def _pause(self, place: Place, facts: dict[str, Any]) -> None:
        queue, path = place.queue, facts.get("fairness_key")
        if path is None:
            queue.is_paused = facts["is_paused"]
            return
        key = path[0] if len(path) == 1 else tuple(path)
        if "/".join(path) in self._scenario.paused.get(queue.name, {}):
            return
        (queue.paused_keys.add if facts["is_paused"] else queue.paused_keys.discard)(key)
        (place.kernel.pause if facts["is_paused"] else place.kernel.resume)(key)

    def _empty(self, place: Place, now_ms: int) -> None:
        """Let a queue be gone with all that waits there; one that is made under its name later begins anew."""
        for part in place.kernel.waiting_items():
            self.remove(part)
        place.queue.is_paused = False
        place.queue.paused_keys = self._paused(place.queue.name)
        self._rebuild(place, [], now_ms)

    def _paused(self, queue: str) -> set[Key]:
        return {_key(key) for key, is_paused in self._scenario.paused.get(queue, {}).items() if is_paused}

    def _rebuild(self, place: Place, waiting: list[Part], now_ms: int) -> None:
        """Make the line of a queue anew, as the broker does when it opens or a policy asks for another kernel."""
        self.reap(place)
        for part in waiting:
            place.kernel.cancel(part)
            part.lane = part.next = part.previous = part.held = None
        number = self.places.index(place)
        leased = [part for part in self._leased() if part.place == number]
        place.set_line(Line(place.queue, self._throttles, self._config))
        everything: list[Any] = [*leased, *waiting]
        place.line.policies.learn(sorted(everything, key=lambda part: part.number))
        for key, count in Counter(part.key for part in leased).items():
            place.kernel.occupy(key, count)
        place.offer_many(sorted(waiting, key=lambda part: part.line), now_ms)


def _key(text: str) -> Key:
    path = tuple(text.split("/"))
    return path[0] if len(path) == 1 else path
