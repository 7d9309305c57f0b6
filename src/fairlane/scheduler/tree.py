"""The tree of fairness keys, and the ring in which the children of one node take turns.

Theory of operation
-------------------
Every fairness key is a node. A flat key is a child of the root; a path such as ``("acme", "mobile")`` is a node
``mobile`` under a node ``acme``. Each node with children has a *ring*, and each ring runs deficit round robin over its
children, independently of the rings above and below. So a share is split level by level, and a key gains nothing by
having many sub-keys.

A child's *turn* adds ``share = weight * quantum`` to its deficit. It is served while its deficit covers the cost of the
next item. Then its turn ends, it keeps the rest, and it goes to the back. A child without work loses the deficit it has
left, but keeps a debt from costs settled after the fact. A child that wakes goes to the back of the ring and is served
at its first turn.

Turns are grouped in *rounds*: a boundary marker goes round with the children, and each time it comes to the front a
round ends. Rounds give three things:

- A child whose next item costs more than a few shares sleeps until the round in which it can pay. Nothing spins, and
  when all children sleep the round number jumps.
- A child that was *parked* (throttled, at its cap, paused) keeps its deficit and its rights. If its turn was cut short
  it continues that turn as soon as it can; if a round went by without it, it has a turn at once. Both wait in
  ``resumed``, which goes before the ring and before the rest of a turn that is under way. It never gets more than one
  turn per round, so it takes nothing from the others, and it reaches the rate of its throttle with the smallest burst.
- Two children that always have work have had, at any time, the same number of turns, plus or minus one. Hence the bound
  ``|S_i/w_i - S_j/w_j| <= quantum + C/w_i + C/w_j`` on the costs S they were served, C being the largest cost.

Entries of ``order`` and ``resumed`` are never removed from the middle. A child that stops being ready leaves its entry
behind, and uses the same entry again if it becomes ready before the entry comes up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from fairlane.scheduler.item import Key, Priority
from fairlane.scheduler.lanes import Lane
from fairlane.scheduler.timers import Timers

if TYPE_CHECKING:
    from fairlane.scheduler.gates import Gate, WaitQueue
    from fairlane.scheduler.key_limits import KeyRate
    from fairlane.scheduler.lanes import StopWatch
    from fairlane.scheduler.policy import Backpressure


PATIENCE = 8
"""A child that can pay within this many rounds stays in the ring, which is cheaper than putting it to sleep."""

_SWEEP_FROM = 64

# Most keys have one lane and no throttle, and there may be a million of them: they share these empty objects, and
# replace them with their own when they need one. Rings do the same.
_NO_CHOICES: list[tuple[int, int, Lane]] = []
_NO_WAITS: dict[Gate, WaitQueue] = {}


class _Account(Lane):
    """The attributes that serving and offering plain items touches.

    It is a class of its own because slots are laid out class by class: with very many keys, touching few cache lines
    counts.
    """

    __slots__ = ("deficit", "in_use", "is_plain", "is_simple", "share", "waiting")


class KeyNode(_Account):
    """A fairness key. Without a ring it is a leaf, and itself the lane of its plain items.

    Attributes:
        share: what a turn adds to the deficit.
        is_ready: whether something under it can be handed out now.
        is_simple: a flat leaf whose lane takes any plain item: it may use the fast path through ``offer_many``.
        is_plain: a flat leaf, ready, with items only in its own lane and no cap: it may use the fast path of ``take``.
        is_idle: has no items, or only items that are not due.
        is_open: its turn has begun and not ended.
        turns: turns opened so far, to tell one turn from the next.
        round: the round of the parent's ring in which its last turn opened; maintained for parked nodes only.
        waiting: items under it, including delayed ones.
        delayed: items under it that are not due yet.
        in_use: items handed out and not released, if the kernel counts them.
        capped: the stopwatch that runs while it is at its cap; None if it never was.
        rate: its rate; None for none.
        floor: how many of its items may be in use even if no more may be in all.
        is_crowded: whether it waits for others to release items, because no more may be in use in all.
    """

    __slots__ = (
        "backpressure",
        "cap",
        "capped",
        "choices",
        "delayed",
        "extra",
        "floor",
        "is_crowded",
        "is_forgettable",
        "is_idle",
        "is_open",
        "is_paused",
        "is_queued",
        "is_ready",
        "is_resuming",
        "key",
        "name",
        "parent",
        "rate",
        "ring",
        "round",
        "slept_round",
        "turns",
        "waiting_max",
        "waits",
        "wake_round",
    )

    def __init__(self, key: Key, name: str | None, parent: KeyNode | None) -> None:
        Lane.__init__(self, self, Priority.NORMAL, ())
        self.key = key
        self.name = name
        self.parent = parent
        self.ring: Ring | None = None
        self.extra: dict[tuple[Priority, tuple[str, ...]], Lane] | None = None
        self.choices = _NO_CHOICES
        self.share = 1
        self.deficit = 0
        self.is_ready = self.is_simple = self.is_plain = self.is_open = self.is_paused = False
        self.is_queued = self.is_resuming = self.is_forgettable = self.is_crowded = False
        self.is_idle = True
        self.floor = 0
        self.turns = self.round = self.slept_round = self.wake_round = 0
        self.waiting = self.delayed = self.in_use = 0
        self.cap: int | None = None
        self.capped: StopWatch | None = None
        self.rate: KeyRate | None = None
        self.waiting_max: int | None = None
        self.backpressure: Backpressure | None = None
        self.waits = _NO_WAITS

    def detach(self) -> None:
        """Reset everything about the ring it was in, as if it had just been created."""
        self.is_ready = self.is_open = self.is_queued = self.is_resuming = False
        self.is_idle = True
        self.deficit = self.turns = self.round = self.wake_round = self.in_use = 0
        self.is_paused = False

    def lanes(self) -> list[Lane]:
        """Return the lanes of a leaf."""
        return [self, *(self.extra or {}).values()]

    def first_lane(self) -> Lane | None:
        """Return the lane of a leaf to serve next: highest priority, then longest waiting. Parked lanes are skipped."""
        if self.extra is None:
            return self if self.head is not None else None
        choices = self.choices
        while choices:
            _, sequence, lane = choices[0]
            # Entries are corrected when they come up, not when a head changes: serving from a lane stays O(1), and only
            # the lane that is about to be chosen pays for the heap.
            head = lane.head
            if head is None or lane.gate is not None:
                lane.is_listed = False
                heappop(choices)
            elif head.sequence != sequence:
                heapreplace(choices, (lane.priority, head.sequence, lane))
            else:
                return lane
        return None

    def has_one_lane(self) -> bool:
        """Return whether all items of a ready leaf are in its own lane. May be falsely negative while stale entries
        remain.
        """
        choices = self.choices
        return self.extra is None or (len(choices) == 1 and choices[0][2] is self and not self.waits)

    def list_lane(self, lane: Lane) -> None:
        """Add a lane with items to the choice of lanes, unless it is parked or already listed."""
        if self.extra is None or lane.is_listed or lane.gate is not None or lane.head is None:
            return
        if len(self.choices) > _SWEEP_FROM + 2 * len(self.extra):
            self._sweep_choices()
        lane.is_listed = True
        heappush(self.choices, (lane.priority, lane.head.sequence, lane))

    def _sweep_choices(self) -> None:
        """Remove the entries of lanes that can't be chosen, which pile up while a higher-ranking lane is not served."""
        kept: list[tuple[int, int, Lane]] = []
        for *_, lane in self.choices:
            lane.is_listed = False
            if lane.head is not None and lane.gate is None:
                lane.is_listed = True
                kept.append((lane.priority, lane.head.sequence, lane))
        heapify(kept)
        self.choices = kept

    def begin_lanes(self) -> dict[tuple[Priority, tuple[str, ...]], Lane]:
        """Prepare the leaf for several lanes."""
        self.extra = {}
        self.choices = []
        self.list_lane(self)
        return self.extra

    def wait_at(self, gate: Gate, queue: WaitQueue) -> None:
        """Record that members of the node wait at a gate where none did before."""
        if self.waits is _NO_WAITS:
            self.waits = {}
        self.waits[gate] = queue

    def outermost(self) -> KeyNode:
        """Return the outermost key that it belongs to."""
        node = self
        while node.parent is not None and node.parent.parent is not None:
            node = node.parent
        return node

    def root(self) -> KeyNode:
        """Return the root of its tree."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def is_blocked(self) -> bool:
        """Return whether it is held back as a whole: paused, at its cap, crowded out, or shut by its rate."""
        if self.is_paused or self.is_crowded or (self.cap is not None and self.in_use >= self.cap):
            return True
        return self.rate is not None and self.rate.shut_ms is not None

    def capped_ms(self, now_ms: int) -> int:
        """Return for how long it and the keys above it have been at their caps, added up."""
        total_ms = 0
        node: KeyNode | None = self
        while node is not None:
            if node.capped is not None:
                total_ms += node.capped.read(now_ms)
            node = node.parent
        return total_ms

    def shut_ms(self, now_ms: int) -> int:
        """Return for how long it and the keys above it have been shut, added up."""
        return sum([rate.watch.read(now_ms) for rate in self.rates()])

    def rates(self) -> Iterator[KeyRate]:
        """Yield its rate and those of the keys above it."""
        node: KeyNode | None = self
        while node is not None:
            if node.rate is not None:
                yield node.rate
            node = node.parent

    def can_pay(self, cost: int) -> bool:
        """Return whether its deficit, and those of the keys above it, pay for an item."""
        node = self
        while (parent := node.parent) is not None and parent.ring is not None:
            if node.deficit < cost:
                return False
            node = parent
        return True

    def can_serve(self) -> bool:
        """Return whether the node should be ready."""
        if self.is_blocked():
            return False
        if self.ring is not None:
            return self.ring.ready > 0
        return self.first_lane() is not None


BOUNDARY = KeyNode("", None, None)
"""Marks in every ring the border between the children of this round and those of the next. Never ready."""

_NO_RESUMED: deque[KeyNode] = deque()


def _is_asleep(wake_round: int, node: KeyNode) -> bool:
    return node.wake_round == wake_round


class Ring:
    """The children of a node, which take turns."""

    __slots__ = ("_left_behind", "children", "order", "ready", "resumed", "round", "serving", "sleepers")

    def __init__(self) -> None:
        self.children: dict[str | None, KeyNode] = {}
        self.round = 1
        self.ready = 0
        self.serving: KeyNode | None = None
        self.order = deque((BOUNDARY,))
        self.resumed = _NO_RESUMED
        self.sleepers = Timers(_is_asleep)
        self._left_behind = 0

    def enter(self, node: KeyNode) -> None:
        """Add a child that has become ready."""
        self.ready += 1
        was_idle, node.is_idle = node.is_idle, False
        if node.is_queued:
            return  # its old entry is still ahead in the order: it takes that place up again, and no extra turn
        if node.is_open or (not was_idle and node.round < self.round):
            self._resume(node)
            if self.serving is not None:
                # A child that could not go until now interrupts one that can go at any time: its throttle's token would
                # otherwise stay in the bucket, and be lost once the bucket is full.
                self._resume(self.serving)
                self.serving = None
        else:
            node.is_queued = True
            self.order.append(node)

    def leave(self, node: KeyNode) -> None:
        """Record that a child is no longer ready. Its entry stays, to be used again or skipped."""
        self.ready -= 1
        if self.serving is node:
            self.serving = None
        elif node.wake_round:
            self._rouse(node)
            node.round = self.round
        if node.waiting == node.delayed:
            self.empty(node)

    def empty(self, node: KeyNode) -> None:
        """Record that a child has run out of items: its turn is over and the rest of its deficit is lost."""
        node.is_idle = True
        node.is_open = False
        if node.deficit > 0:
            node.deficit = 0
        if node.is_queued:
            self._left_behind += 1
            if self._left_behind > _SWEEP_FROM and 2 * self._left_behind > len(self.order):
                self._sweep()

    def next_turn(self) -> KeyNode | None:
        """Return the child whose turn it is, opening its turn if needed."""
        while self.serving is None:
            if self.resumed:
                node = self.resumed.popleft()
                node.is_resuming = False
                if not node.is_ready or node.is_queued:
                    continue
            else:
                node = self.order.popleft()
                if node is BOUNDARY:
                    if self.next_round():
                        continue
                    return None
                node.is_queued = False
                if not node.is_ready:
                    # Its place came up while it was parked, so it missed this round. Noting the round before as its
                    # last one is what entitles it to a turn at once when it is ready again.
                    node.round = self.round - 1
                    continue
            self.serving = node
            if not node.is_open:
                self._open(node)
        return self.serving

    def is_plain_next(self) -> bool:
        """Return whether the next turn is that of a plain child, or a round is over."""
        first = self.order[0]
        return self.serving is None and not self.resumed and (first.is_plain or first is BOUNDARY)

    def next_round(self) -> bool:
        """Move the boundary, just met, to the back, and begin the next round in which a child has a turn.

        Return False if no child is left.
        """
        order, sleepers = self.order, self.sleepers
        wake_round = sleepers.next_at()
        if order:
            self.round += 1
        elif wake_round is not None:
            self.round = wake_round
        order.append(BOUNDARY)
        woken = sleepers.pop_due(self.round)
        for node in woken:
            self._rouse(node)
            node.deficit -= node.share  # its turn, about to open, adds the last one
            node.is_queued = True
        order.extendleft(reversed(woken))
        return len(order) > 1

    def end_turn(self, node: KeyNode, cost: int) -> None:
        """End the turn of the child being served, because it can't pay for its next item."""
        if node.round < self.round:
            # Rounds went by while it was parked in the middle of this turn, so its next turn is due already.
            self._open(node)
            if node.deficit >= cost:
                return
        self.serving = None
        node.is_open = False
        self.requeue(node, cost)

    def settle_turn(self, node: KeyNode, cost: int) -> None:
        """Continue or end the turn of a child that ``serve_plain`` has served and that has deficit left."""
        node.is_queued = False
        if cost > node.deficit:
            self.requeue(node, cost)
            return
        self.serving = node
        node.is_open = True
        node.turns += 1
        node.round = self.round

    def requeue(self, node: KeyNode, cost: int) -> None:
        """Move a child to the back, or put it to sleep for the rounds it needs to pay for its next item."""
        rounds = -((node.deficit - cost) // node.share)
        if rounds <= PATIENCE:
            node.is_queued = True
            self.order.append(node)
        else:
            node.slept_round = self.round
            node.wake_round = self.round + rounds
            self.sleepers.push(node.wake_round, node)

    def turns_before(self, node: KeyNode, own_turns: int) -> int:
        """Count the turns of other children before a ready child's n-th turn, assuming no arrivals and costs of 1."""
        order = [self.serving] if self.serving is not None else []
        order += [other for other in (*self.resumed, *self.order) if other.is_ready]
        place = order.index(node) if node in order else len(order)
        turns = 0
        for at, other in enumerate(order):
            most = own_turns if at < place else own_turns - 1
            if other is not node:
                turns += min(most, -(-other.waiting // other.share))
        return turns

    def reconsider(self, node: KeyNode) -> None:
        """Wake a sleeping child whose next item, share or deficit has changed, so that its rounds are computed
        again.
        """
        if node.wake_round:
            self._rouse(node)
            node.is_queued = True
            self.order.append(node)

    def replace(self, old: KeyNode, new: KeyNode) -> None:
        """Replace a child by another, which takes over its places, turn and deficit."""
        for places in (self.order, self.resumed):
            for at, node in enumerate(places):
                if node is old:
                    places[at] = new
        if old.wake_round:
            self.sleepers.push(old.wake_round, new)
        if self.serving is old:
            self.serving = new
        for name in ("share", "deficit", "is_ready", "is_idle", "is_open", "is_queued", "is_resuming"):
            setattr(new, name, getattr(old, name))
        for name in ("turns", "round", "slept_round", "wake_round"):
            setattr(new, name, getattr(old, name))

    def _resume(self, node: KeyNode) -> None:
        if not node.is_resuming:
            node.is_resuming = True
            if self.resumed is _NO_RESUMED:
                self.resumed = deque()
            self.resumed.append(node)

    def _sweep(self) -> None:
        """Remove the entries of idle children, which pile up when items are cancelled and none are taken."""
        for _ in range(len(self.order)):
            node = self.order.popleft()
            if node.is_idle and node is not BOUNDARY:
                node.is_queued = False
            else:
                self.order.append(node)
        self._left_behind = 0

    def _rouse(self, node: KeyNode) -> None:
        node.deficit += (self.round - node.slept_round) * node.share
        node.wake_round = 0

    def _open(self, node: KeyNode) -> None:
        node.is_open = True
        node.turns += 1
        node.round = self.round
        node.deficit += node.share
