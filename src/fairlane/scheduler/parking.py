"""Parks lanes while their throttles have no token, and wakes them when there is one.

Theory of operation
-------------------
A lane is parked lazily: only when its turn has come and a bucket turns out to be empty. It is parked at the gate of the
bucket that takes longest, since it can't go before that one anyway. From then on it costs nothing: it is in no ring,
and one timer per gate, not per lane, fires when the bucket has its next token.

A token wakes one lane, but a woken lane may not use it: another of its buckets may be empty by then, or its key at its
cap. A gate whose token may be left over is *stocked*. Stocked gates are asked again whenever ``take`` finds nothing
else, and when a key may go again (a release, a resume, a policy). So is a gate whose bucket has tokens that another
kernel gave back, since no timer was armed for them. That rule makes parking lossless: when ``take`` comes
back short, no lane is left that could go.
"""

from __future__ import annotations

from fairlane.scheduler.compiled import Watch
from fairlane.scheduler.gates import Gate
from fairlane.scheduler.key_limits import NEVER_MS, KeyRate
from fairlane.scheduler.keys import Keys
from fairlane.scheduler.lanes import Lane, StopWatch
from fairlane.scheduler.portions import TOKEN, Portion
from fairlane.scheduler.timers import Timers
from fairlane.scheduler.token_bucket import Bucket
from fairlane.scheduler.tree import KeyNode

_LANES_READ = 16


class Parking:
    """The gates of one kernel, each with the instant at which its bucket has a token again.

    Attributes:
        timers: when each gate opens next.
        shut: when each key whose rate is used up opens next.
        stocked: the gates that may have tokens left over for the lanes that wait there.
        openings: how many gates and keys a timer has opened.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._watch = Watch(self)
        self._gates: dict[Bucket, Gate] = {}
        self.timers: Timers[Gate] = Timers(lambda at_ms, gate: gate.armed_ms == at_ms)
        self.shut: Timers[KeyRate] = Timers(lambda at_ms, rate: rate.shut_ms == at_ms)
        self.stocked: dict[Gate, None] = {}
        self.openings = 0
        self._opened: list[Portion] = []
        self._opened_ms: int | None = None

    def standing(self, now_ms: int) -> int | None:
        """Return how far the kernel is ahead of its part of shared throttles that have a token at this instant.

        Return None if it has not been waiting for one of them.
        """
        return min([portion.standing() for portion in self._opened]) if self._opened_ms == now_ms else None

    def first_open_lane(self, leaf: KeyNode, now_ms: int) -> Lane | None:
        """Return the lane of a leaf to serve next, parking those whose buckets are empty.

        Return None if there is none, or if the leaf or a key above it has used up its rate, which shuts that key.
        """
        if self._keys.capacity.most is not None and self._keys.crowd_out(leaf):
            self._keys.has_clocks = True
            return None
        if self._keys.has_rates:
            for rate in leaf.rates():
                if not rate.bucket.charges_cost and not rate.bucket.has_token(now_ms):
                    self._shut(rate, now_ms)
                    return None
        lane = leaf if leaf.extra is None else self._first_with_tokens(leaf, now_ms)  # its one lane has no buckets
        if lane is None or lane.head is None or (self._keys.has_charges and self._save_tokens(lane, now_ms)):
            return None
        return lane

    def _first_with_tokens(self, leaf: KeyNode, now_ms: int) -> Lane | None:
        """Return the first of several lanes whose throttles have tokens, parking those before it."""
        while (lane := leaf.first_lane()) is not None:
            cost = 1 if lane.head is None else lane.head.cost
            for portion in lane.portions:
                bucket = portion.bucket
                if not bucket.is_limited:
                    continue
                if not portion.has_token(now_ms, cost) or (bucket.charges_cost and self._has_rival(lane, portion)):
                    break
            else:
                return lane
            empty = [portion for portion in lane.portions if not portion.has_token(now_ms, cost)] or [portion]
            self._park(lane, max(empty, key=lambda each: _or_never(each.token_at(now_ms, cost))), now_ms)
        return None

    def _save_tokens(self, lane: Lane, now_ms: int) -> bool:
        """Shut a key whose rate charges by cost and has too few tokens for the next item of a lane.

        Return whether there is one. An item that the deficits don't pay for yet needs no tokens.
        """
        leaf, cost = lane.node, 1 if lane.head is None else lane.head.cost
        for rate in leaf.rates():
            if rate.bucket.charges_cost and not rate.bucket.has_token(now_ms, cost) and leaf.can_pay(cost):
                for twin in self._keys.twins(rate.node):  # items of lower priority would take what it saves
                    if twin.rate is not None:
                        self._shut(twin.rate, now_ms, cost)
                    self._keys.refresh(twin)
                return True
        return False

    def reconsider(self, lane: Lane) -> None:
        """Save no tokens any more for the item that was the next of a lane, because another one is, or none."""
        for rate in lane.node.rates() if self._keys.has_charges else ():
            if rate.is_saving:
                rate.open(self._keys.now_ms)
                self._keys.refresh(rate.node)
        if lane.gate is not None and lane.gate.bucket.charges_cost:
            self.stocked[lane.gate] = None

    def _has_rival(self, lane: Lane, portion: Portion) -> bool:
        """Return whether others have waited longer for a bucket that charges by cost, which saves tokens for them."""
        gate = self._gates.get(portion.bucket)
        if gate is None or gate.woken.get(lane, False):
            return False
        return any(gate in root.waits for root in self._keys.roots)

    def note_served(self, lane: Lane, cost: int) -> None:
        """Record what the items of a lane cost that were handed out, where throttles charge by cost."""
        for portion in lane.portions:
            gate = self._gates.get(portion.bucket) if portion.bucket.charges_cost else None
            if gate is not None:
                gate.charge(lane, cost)

    def open_due(self, now_ms: int) -> None:
        """Open the keys that have a token again, and wake as many lanes as there are tokens at the gates."""
        for rate in self.shut.pop_due(now_ms):
            rate.open(now_ms)
            self._keys.refresh(rate.node)
            self.openings += 1
        for gate in self.timers.pop_due(now_ms):
            self._open(gate, now_ms)
            self.openings += 1

    def open_stocked(self, now_ms: int) -> bool:
        """Wake lanes at the gates that may have tokens left over. Return whether any lane woke.

        A caller that finds nothing to serve and repeats this until it returns False leaves no lane behind that could
        go.
        """
        stocked, self.stocked = self.stocked, {}
        return sum(self._open(gate, now_ms) for gate in stocked) > 0

    def may_open(self, now_ms: int) -> bool:
        """Return whether a lane with throttles may go now: one that is not parked yet, or waits at a stocked gate.

        Of many lanes it is assumed. Nothing changes: lanes are parked when their turn comes, and a bucket may be read
        any number of times.
        """
        lanes = self._keys.open_lanes
        return (
            len(lanes) > _LANES_READ
            or any(all(portion.has_token(now_ms) for portion in lane.portions) for lane in lanes)
            or any(gate.parked and gate.portion.has_token(now_ms) for gate in self.stocked)
        )

    def throttles(self) -> list[str]:
        """Return the names of the throttles that hold lanes back."""
        return [bucket.name for bucket in self._gates]

    def throttle_changed(self, bucket: Bucket, now_ms: int) -> None:
        """Re-evaluate the lanes that wait for a bucket whose rate has changed. Called by the table of throttles."""
        self._open(self._gates[bucket], now_ms)

    def tokens_returned(self, bucket: Bucket) -> str:
        """Ask the lanes that wait for a bucket again with the next ``take``. Called by the table of throttles."""
        gate = self._gates[bucket]
        self.stocked[gate] = None
        return gate.portion.name

    def close(self) -> None:
        """Watch no bucket any more, because the kernel has no items and gets none."""
        for bucket in self._gates:
            bucket.unwatch(self._watch)
        self._gates = {}

    def _open(self, gate: Gate, now_ms: int) -> bool:
        bucket, portion = gate.bucket, gate.portion
        tokens = 0
        if portion.has_token(now_ms):
            tokens = portion.ready() if bucket.is_limited else NEVER_MS
            self._note_opened(portion, now_ms)
        has_woken = False
        gate.begin()
        while tokens > 0 and (lane := self._wake(gate, tokens)) is not None:
            has_woken = True
            self._keys.open_lanes[lane] = None
            if bucket.charges_cost:
                gate.woken[lane] = True
            if lane.parked is not None:
                lane.parked.note(now_ms, is_so=False)
            lane.node.list_lane(lane)
            self._keys.refresh(lane.node)
            tokens -= gate.need(lane)
        self.stocked.pop(gate, None)
        if not any(gate in root.waits for root in self._keys.roots):
            self._arm(gate, None)
            bucket.unwatch(self._watch)
            del self._gates[bucket]
        elif gate.lacking and not has_woken:
            self._arm(gate, portion.bucket.reaches_at(gate.lacking + bucket.level // TOKEN - portion.ready()))
        elif tokens > 0 and not gate.lacking and not gate.is_held:
            # All waiting lanes are under keys that are paused or at their caps. No timer helps; they are asked again
            # when a release, a resume or a policy changes that.
            self.stocked[gate] = None
            self._arm(gate, None)
        elif has_woken or gate.is_held:
            # A woken lane may never come to its turn, if its key is paused right now. The others must not wait for it
            # for ever, so look again when the bucket has earned one token more, whether or not the woken lanes took
            # theirs.
            self.stocked[gate] = None
            self._arm(gate, bucket.another_token_at(now_ms))
        else:
            self._arm(gate, portion.token_at(now_ms))
        return has_woken

    def _shut(self, rate: KeyRate, now_ms: int, cost: int = 1) -> None:
        self._keys.has_clocks = True
        at_ms = rate.shut(now_ms, cost)
        if at_ms != NEVER_MS:
            self.shut.push(at_ms, rate)

    def _park(self, lane: Lane, portion: Portion, now_ms: int) -> None:
        bucket = portion.bucket
        gate = self._gates.get(bucket)
        if gate is None:
            gate = self._gates[bucket] = Gate(portion, self._keys.quantum)
            bucket.watch(self._watch)
        gate.portion = portion  # a gate may outlast the lanes of its portion, and so the portion
        gate.park(lane)
        del self._keys.open_lanes[lane]
        bucket.held_back += 1
        if lane.parked is None:
            lane.parked = StopWatch()
            self._keys.has_clocks = True
        lane.parked.note(now_ms, is_so=True)
        at_ms = portion.token_at(now_ms, 1 if lane.head is None else lane.head.cost)
        if at_ms == now_ms:
            self.stocked[gate] = None  # the tokens are there, and other lanes are next
        elif not bucket.charges_cost or gate.armed_ms is None:  # otherwise it is armed for the lane that is next
            self._arm(gate, at_ms)

    def _note_opened(self, portion: Portion, now_ms: int) -> None:
        if portion.bucket.division is not None:
            if self._opened_ms != now_ms:
                self._opened_ms = now_ms
                self._opened.clear()
            self._opened.append(portion)

    def _arm(self, gate: Gate, at_ms: int | None) -> None:
        if at_ms != gate.armed_ms:
            gate.armed_ms = at_ms
            if at_ms is not None:
                self.timers.push(at_ms, gate)

    def _wake(self, gate: Gate, tokens: int) -> Lane | None:
        for root in self._keys.roots:
            lane = gate.wake(root, tokens)
            if lane is not None or gate.lacking or gate.is_held:
                return lane
        return None


def _or_never(at_ms: int | None) -> int:
    return NEVER_MS if at_ms is None else at_ms
