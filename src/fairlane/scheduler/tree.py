"""The tree of fairness keys, and the ring in which the children of one node take turns.

Theory of operation
-------------------
Every fairness key is a node. A flat key is a child of the root; a path such as ``("acme", "mobile")`` is a node
``mobile`` under a node ``acme``. Each node with children has a *ring*, and each ring runs deficit round robin over its
children, knowing nothing of the rings above and below. So a share is split level by level, and a key gains nothing by
having many sub-keys.

A child's *turn* adds ``share = weight * quantum`` to its deficit. It is served while its deficit covers the cost of the
next item. Then its turn ends, it keeps the rest, and it goes to the back. A child without work loses what it has left
(a debt, from costs settled after the fact, it keeps). A child that wakes goes to the back of the ring and is served at
its first turn.

Turns are grouped in *rounds*: a boundary goes round with the children, and each time it comes to the front a round
ends. Rounds give three things:

- A child whose next item costs more than a few shares is put to sleep until the round in which it can pay. Nobody
  spins, and when all sleep the round number jumps.
- A child that was *parked* (throttled, at its cap, paused) kept its deficit and its rights. If its turn was cut short
  it goes on with that turn as soon as it can; if a round went by without it, it has a turn at once. Both wait in
  ``resumed``, which goes before the ring and before the rest of a turn that is under way. It never gets more than one
  turn a round, so it takes nothing from the others, and it reaches the rate of its throttle with the smallest burst.
- Two children that always have work have had, at any time, the same number of turns give or take one. Hence the bound
  ``|S_i/w_i - S_j/w_j| <= quantum + C/w_i + C/w_j`` on the costs S they were served, C being the largest cost.

Entries of ``order`` and ``resumed`` are never removed from the middle. A child that stops being ready leaves its entry
behind, and takes the same place up again if it is ready before the entry comes up.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from fairlane.scheduler.item import Key, Priority
from fairlane.scheduler.lanes import Lane
from fairlane.scheduler.timers import Timers

if TYPE_CHECKING:
    from fairlane.scheduler.gates import Gate, WaitQueue
    from fairlane.scheduler.holdups import StopWatch
    from fairlane.scheduler.policy import Backpressure


PATIENCE = 8
"""For how many rounds a child that can't pay goes round with the others, which costs less than putting it to sleep."""

_SWEEP_FROM = 64

# Most keys have one lane and no throttle, and there may be a million of them: they share what stays empty. So do rings.
_NO_CHOICES: list[tuple[int, int, Lane]] = []
_NO_WAITS: dict[Gate, WaitQueue] = {}


class _Account(Lane):
    """What serving and offering plain items touches.

    It is a class of its own because slots are laid out class by class: with very many keys, few cache lines count.
    """

    __slots__ = ("deficit", "in_use", "is_plain", "is_simple", "share", "waiting")


class KeyNode(_Account):
    """A fairness key. Without a ring it is a leaf, and is itself the lane of its plain items.

    Attributes:
        share: what a turn adds to the deficit.
        is_ready: whether something under it can be handed out now.
        is_simple: a flat leaf whose lane takes any plain item: the short way through ``offer_many``.
        is_plain: a flat leaf, ready, with items in its own lane alone and no cap: the short way through ``take``.
        is_idle: has no items, or only such as are not due.
        is_open: its turn has begun and not ended.
        turns: turns opened so far, to tell one turn from the next.
        round: the round of the parent's ring in which its last turn opened; kept up for parked nodes only.
        waiting: items under it, the delayed ones included.
        delayed: items under it that are not due yet.
        in_use: items handed out and not released, if the kernel counts them.
        capped: the clock that runs while it is at its cap; None if it never was.
    """

    __slots__ = (
        "backpressure",
        "cap",
        "capped",
        "choices",
        "delayed",
        "extra",
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
        self.is_queued = self.is_resuming = self.is_forgettable = False
        self.is_idle = True
        self.turns = self.round = self.slept_round = self.wake_round = 0
        self.waiting = self.delayed = self.in_use = 0
        self.cap: int | None = None
        self.capped: StopWatch | None = None
        self.waiting_max: int | None = None
        self.backpressure: Backpressure | None = None
        self.waits = _NO_WAITS

    def detach(self) -> None:
        """Forget everything about the ring it stood in, as if it had just been made."""
        self.is_ready = self.is_open = self.is_queued = self.is_resuming = False
        self.is_idle = True
        self.deficit = self.turns = self.round = self.wake_round = self.in_use = 0
        self.is_paused = False

    def lanes(self) -> list[Lane]:
        """Return the lanes of a leaf."""
        return [self, *(self.extra or {}).values()]

    def first_lane(self) -> Lane | None:
        """Return the lane of a leaf to serve next: by priority, then longest waiting. Parked lanes are left out."""
        if self.extra is None:
            return self if self.head is not None else None
        choices = self.choices
        while choices:
            _, sequence, lane = choices[0]
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
        """Tell whether all items of a leaf that is ready are in its own lane. May say no until emptied ones came up."""
        choices = self.choices
        return self.extra is None or (len(choices) == 1 and choices[0][2] is self and not self.waits)

    def list_lane(self, lane: Lane) -> None:
        """Let a lane with items take part in the choice, unless it is parked or already does."""
        if self.extra is None or lane.is_listed or lane.gate is not None or lane.head is None:
            return
        if len(self.choices) > _SWEEP_FROM + 2 * len(self.extra):
            self._sweep_choices()
        lane.is_listed = True
        heappush(self.choices, (lane.priority, lane.head.sequence, lane))

    def _sweep_choices(self) -> None:
        """Take out the entries of lanes that can't be chosen, which pile up while a better lane is not served."""
        kept: list[tuple[int, int, Lane]] = []
        for *_, lane in self.choices:
            lane.is_listed = False
            if lane.head is not None and lane.gate is None:
                lane.is_listed = True
                kept.append((lane.priority, lane.head.sequence, lane))
        heapify(kept)
        self.choices = kept

    def begin_lanes(self) -> dict[tuple[Priority, tuple[str, ...]], Lane]:
        """Make the leaf one with several lanes, to choose from."""
        self.extra = {}
        self.choices = []
        self.list_lane(self)
        return self.extra

    def wait_at(self, gate: Gate, queue: WaitQueue) -> None:
        """Note that members of the node wait at a gate where none did."""
        if self.waits is _NO_WAITS:
            self.waits = {}
        self.waits[gate] = queue

    def root(self) -> KeyNode:
        """Return the root of the tree it stands in."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def is_blocked(self) -> bool:
        """Tell whether it is held back as a whole, whatever it has waiting."""
        return self.is_paused or (self.cap is not None and self.in_use >= self.cap)

    def capped_ms(self, now_ms: int) -> int:
        """Return for how long it, or a key above it, has been at its cap."""
        total_ms = 0
        node: KeyNode | None = self
        while node is not None:
            if node.capped is not None:
                total_ms += node.capped.read(now_ms)
            node = node.parent
        return total_ms

    def can_serve(self) -> bool:
        """Tell whether the node should be ready."""
        if self.is_blocked():
            return False
        if self.ring is not None:
            return self.ring.ready > 0
        return self.first_lane() is not None


BOUNDARY = KeyNode("", None, None)
"""Stands in every ring between the children still to be served in this round and those of the next. Never ready."""

_NO_RESUMED: deque[KeyNode] = deque()


def _is_asleep(wake_round: int, node: KeyNode) -> bool:
    return node.wake_round == wake_round


class Ring:
    """The children of a node, taking turns."""

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
        """Give a place to a child that has become ready."""
        self.ready += 1
        was_idle, node.is_idle = node.is_idle, False
        if node.is_queued:
            return
        if node.is_open or (not was_idle and node.round < self.round):
            self._resume(node)
            if self.serving is not None:
                # Whoever could not go until now goes before one that can go at any time: its token would be lost.
                self._resume(self.serving)
                self.serving = None
        else:
            node.is_queued = True
            self.order.append(node)

    def leave(self, node: KeyNode) -> None:
        """Note that a child is no longer ready. An entry it has stays, to be taken up again or passed over."""
        self.ready -= 1
        if self.serving is node:
            self.serving = None
        elif node.wake_round:
            self._rouse(node)
            node.round = self.round
        if node.waiting == node.delayed:
            self.empty(node)

    def empty(self, node: KeyNode) -> None:
        """Note that a child has run out of items: its turn is over and what is left of its deficit is lost."""
        node.is_idle = True
        node.is_open = False
        if node.deficit > 0:
            node.deficit = 0
        if node.is_queued:
            self._left_behind += 1
            if self._left_behind > _SWEEP_FROM and 2 * self._left_behind > len(self.order):
                self._sweep()

    def next_turn(self) -> KeyNode | None:
        """Return the child whose turn it is, opening its turn if it has just begun."""
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
                    node.round = self.round - 1
                    continue
            self.serving = node
            if not node.is_open:
                self._open(node)
        return self.serving

    def is_plain_next(self) -> bool:
        """Tell whether the next turn is that of a plain child, or a round is over."""
        first = self.order[0]
        return self.serving is None and not self.resumed and (first.is_plain or first is BOUNDARY)

    def next_round(self) -> bool:
        """Send the boundary, just met, to the back, and begin the next round in which anybody has a turn.

        Returns False when nobody is left.
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
        """End the turn of the child being served, which can't pay for its next item."""
        if node.round < self.round:
            # Rounds went by while it was parked in the middle of this turn: its next one is due already.
            self._open(node)
            if node.deficit >= cost:
                return
        self.serving = None
        node.is_open = False
        self.requeue(node, cost)

    def settle_turn(self, node: KeyNode, cost: int) -> None:
        """Decide how it goes on with a child from the ring that has been served and has some deficit left."""
        node.is_queued = False
        if cost > node.deficit:
            self.requeue(node, cost)
            return
        self.serving = node
        node.is_open = True
        node.turns += 1
        node.round = self.round

    def requeue(self, node: KeyNode, cost: int) -> None:
        """Send a child to the back, or to sleep for as many rounds as it needs to pay for its next item."""
        rounds = -((node.deficit - cost) // node.share)
        if rounds <= PATIENCE:
            node.is_queued = True
            self.order.append(node)
        else:
            node.slept_round = self.round
            node.wake_round = self.round + rounds
            self.sleepers.push(node.wake_round, node)

    def turns_before(self, node: KeyNode, own_turns: int) -> int:
        """Count the turns of others before a ready child's turn of this number, if nobody comes and all costs are 1."""
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
        """Wake a sleeping child whose next item, share or deficit has changed, to work out its rounds anew."""
        if node.wake_round:
            self._rouse(node)
            node.is_queued = True
            self.order.append(node)

    def replace(self, old: KeyNode, new: KeyNode) -> None:
        """Let a new child take the place of an old one in every respect."""
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
        """Take the entries of idle children out, which pile up when items are withdrawn and none are taken."""
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
