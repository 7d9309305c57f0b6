"""What the array twin can play: recordings and settings without anything that holds messages back or takes them out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fairlane.journal.records import Opened
from fairlane.model.message import PRIORITY_NAMES, Key
from fairlane.scheduler.policy import KeyPolicy
from fairlane.spark.whatif.queues import ReplayedQueue, ReplayedQueues
from fairlane.spark.whatif.recording import Recording
from fairlane.spark.whatif.rows import Ints
from fairlane.spark.whatif.scenario import Scenario

_NORMAL = PRIORITY_NAMES.index("normal")


def obstacle_in(recording: Recording) -> str:
    """Return what of a recording only the kernel plays; empty for nothing."""
    last_ms = recording.at_ms[0] if recording.at_ms else 0
    obstacles = {
        "several queues that share a throttle": len(recording.queues) != 1,
        "throttles": any(recording.throttles),
        "priorities": any(priority != _NORMAL for priority in recording.priority),
        "deadlines": any(at_ms is not None for at_ms in recording.deadline_ms),
        "weights or caps in messages": recording.tells,
        "keys with sub-keys": any(type(key) is not str for key in recording.key),
        "messages from before the journal begins": any(recording.unknown),
        "changes or removed messages after the first message": any(
            change.before or change.record is None or change.at_ms > last_ms for change in recording.changes
        ),
    }
    return next((name for name, is_there in obstacles.items() if is_there), "")


def shares_of(recording: Recording, scenario: Scenario, keys: Sequence[Key]) -> Ints | None:
    """Return what a turn of each key adds to its deficit under a scenario; None for settings that need the kernel.

    The settings are those of a queue that the broker's own code has set up.
    """
    replayed = ReplayedQueues(recording.sequence, scenario, list)
    (name,) = recording.queues
    replayed.add(name, [(0, 0)])
    for change in recording.changes:
        if change.record is not None and not isinstance(change.record, Opened):
            replayed.change(change.record, change.at_ms)
    queue = replayed.get(name)
    if queue is None or len(replayed.all) != 1 or _holds_back(queue):
        return None
    policies = [queue.schedule.policies.of(key) or KeyPolicy() for key in keys]
    if not all(policy == KeyPolicy(weight=policy.weight) for policy in set(policies)):
        return None
    weights = np.array([policy.weight for policy in policies], dtype=np.int64)
    return weights * queue.queue.policy.quantum


def _holds_back(place: ReplayedQueue) -> bool:
    """Return whether a queue has settings that hold messages back, or an order besides that of turns."""
    queue, policy = place.queue, place.queue.policy
    is_ordered = place.is_strict or policy.strict_priority
    return is_ordered or policy.in_flight_max is not None or queue.is_paused or bool(queue.paused_keys)
