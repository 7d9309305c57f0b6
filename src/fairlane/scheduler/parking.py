"""Holding lanes back while their throttles have no token, and letting them go when they do."""

from __future__ import annotations

from fairlane.scheduler.buckets import Bucket
from fairlane.scheduler.gates import Gate
from fairlane.scheduler.holdups import StopWatch
from fairlane.scheduler.keys import Keys
from fairlane.scheduler.lanes import Lane
from fairlane.scheduler.timers import Timers
from fairlane.scheduler.tree import KeyNode

_NEVER_MS = 1 << 62


class Parking:
    """The gates of one kernel, each with the instant at which its bucket has a token again.

    Attributes:
        timers: when each gate opens next.
        openings: how many gates have been opened because their time had come.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._gates: dict[Bucket, Gate] = {}
        self.timers: Timers[Gate] = Timers(lambda at_ms, gate: gate.armed_ms == at_ms)
        self._stocked: dict[Gate, None] = {}
        self.openings = 0

    def first_open_lane(self, leaf: KeyNode, now_ms: int) -> Lane | None:
        """Return the lane of a leaf to serve next, parking on the way those whose buckets are empty."""
        if leaf.extra is None:
            return leaf if leaf.head is not None else None  # its one lane has no buckets
        while (lane := leaf.first_lane()) is not None:
            for bucket in lane.buckets:
                if not bucket.has_token(now_ms):
                    break
            else:
                return lane
            empty = [bucket for bucket in lane.buckets if not bucket.has_token(now_ms)]
            self._park(lane, max(empty, key=lambda bucket: _or_never(bucket.token_at(now_ms))), now_ms)
        return None

    def open_due(self, now_ms: int) -> None:
        """Wake as many lanes as there are tokens at the gates whose time has come."""
        for gate in self.timers.pop_due(now_ms):
            self._open(gate, now_ms)
            self.openings += 1

    def open_stocked(self, now_ms: int) -> bool:
        """Wake lanes at the gates that may have tokens left over. Returns whether any woke.

        A lane that was woken may be held back by something else, and leave its token to the others that wait there, and
        those passed over may go once their key may. Whoever finds nothing to serve and asks until the answer is False
        leaves no lane behind that could go.
        """
        stocked, self._stocked = self._stocked, {}
        return sum(self._open(gate, now_ms) for gate in stocked) > 0

    @property
    def is_stocked(self) -> bool:
        """Whether a gate may have tokens left over for those who wait there."""
        return bool(self._stocked)

    def throttles(self) -> list[str]:
        """Return the throttles that hold something back."""
        return [bucket.name for bucket in self._gates]

    def throttle_changed(self, bucket: Bucket, now_ms: int) -> None:
        """Let go, or hold on to, what waits for a bucket whose rate has changed. Called by the table of throttles."""
        self._open(self._gates[bucket], now_ms)

    def _open(self, gate: Gate, now_ms: int) -> bool:
        bucket = gate.bucket
        tokens = bucket.tokens(now_ms) if bucket.is_limited else _NEVER_MS
        has_woken = False
        while tokens > 0 and (lane := self._wake(gate)) is not None:
            has_woken = True
            if lane.parked is not None:
                lane.parked.note(now_ms, is_so=False)
            lane.node.list_lane(lane)
            self._keys.refresh(lane.node)
            tokens -= 1
        self._stocked.pop(gate, None)
        if not any(gate in root.waits for root in self._keys.roots):
            self._arm(gate, None)
            bucket.watchers.pop(self, None)
            del self._gates[bucket]
        elif tokens > 0:
            # All that wait are under keys that are paused or at their caps: they are asked again when that changes.
            self._stocked[gate] = None
            self._arm(gate, None)
        elif has_woken:
            # Should the woken lanes never come to their turns, the others are not to wait for them for ever.
            self._stocked[gate] = None
            self._arm(gate, bucket.another_token_at(now_ms))
        else:
            self._arm(gate, bucket.token_at(now_ms))
        return has_woken

    def _park(self, lane: Lane, bucket: Bucket, now_ms: int) -> None:
        gate = self._gates.get(bucket)
        if gate is None:
            gate = self._gates[bucket] = Gate(bucket)
            bucket.watchers[self] = None
        gate.park(lane)
        bucket.held_back += 1
        if lane.parked is None:
            lane.parked = StopWatch()
            self._keys.has_clocks = True
        lane.parked.note(now_ms, is_so=True)
        self._arm(gate, bucket.token_at(now_ms))

    def _arm(self, gate: Gate, at_ms: int | None) -> None:
        if at_ms != gate.armed_ms:
            gate.armed_ms = at_ms
            if at_ms is not None:
                self.timers.push(at_ms, gate)

    def _wake(self, gate: Gate) -> Lane | None:
        for root in self._keys.roots:
            lane = gate.wake(root)
            if lane is not None:
                return lane
        return None


def _or_never(at_ms: int | None) -> int:
    return _NEVER_MS if at_ms is None else at_ms
