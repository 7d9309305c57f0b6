"""Why an item waits, as fields and as a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fairlane.scheduler.item import Item, Key
from fairlane.scheduler.key_limits import NEVER_MS
from fairlane.scheduler.lanes import Lane
from fairlane.scheduler.token_bucket import Bucket
from fairlane.scheduler.tree import KeyNode


class WaitReason(Enum):
    """The first thing that keeps an item from being handed out."""

    ELIGIBLE = "eligible"
    THROTTLED = "throttled"
    CAPPED = "capped"
    PAUSED = "paused"
    BEHIND = "behind"
    NOT_DUE = "not_due"
    EXPIRED = "expired"
    NOT_WAITING = "not_waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The reason why an item waits.

    Attributes:
        reason: what holds it back, or ``ELIGIBLE`` if it only waits for its turn.
        turns: for an eligible item, how many turns of other keys come first if nothing is offered or changed
            meanwhile. An estimate when costs differ, or with several lanes or levels.
        until_ms: when the reason ends by itself, where that is known.
        wait_ms: the time from now until then.
        key: the key that is capped or paused.
        throttle: the throttle that has no token; if there are several, the one that takes longest. With a ``key``, it
            is the rate of that key.
        share: which part of that throttle's tokens this scheduler gets, if others have items for it, too.
        is_charged_by_cost: whether that throttle takes as many tokens as an item costs.
        first: with strict order, the first item of its group, which must be done before this one goes.
    """

    reason: WaitReason
    turns: int | None = None
    until_ms: int | None = None
    wait_ms: int | None = None
    key: Key | None = None
    throttle: str | None = None
    share: float | None = None
    is_charged_by_cost: bool = False
    first: Item | None = None

    def __str__(self) -> str:
        wait = "" if self.wait_ms is None else f" for {self.wait_ms} ms"
        match self.reason:
            case WaitReason.ELIGIBLE:
                return f"Waiting for its turn, after {self.turns} turn{'' if self.turns == 1 else 's'} of other keys."
            case WaitReason.THROTTLED:
                lack = "too few tokens" if self.is_charged_by_cost else "no token"
                if self.key is not None:
                    lack = "has too few tokens of" if self.is_charged_by_cost else "has used up"
                    return f"Key {self.key!r} {lack} its rate{wait or ', which is 0'}."
                shared = "" if self.share is None else f" Other queues share it; this one gets {self.share:.0%} of it."
                return f"Throttle {self.throttle!r} has {lack}{wait or ', and will never get more'}.{shared}"
            case WaitReason.CAPPED:
                if self.key is None:
                    return "The limit on messages in flight is reached, and its key is not below its floor."
                return f"Key {self.key!r} has reached its cap on items in use."
            case WaitReason.PAUSED:
                return f"Key {self.key!r} is paused."
            case WaitReason.BEHIND:
                return "Waiting for earlier items of its group, because their order is strict."
            case WaitReason.NOT_DUE:
                return f"Not due{wait}."
            case WaitReason.EXPIRED:
                return "Its deadline has passed; it will not be handed out."
            case WaitReason.NOT_WAITING:
                return "Not waiting here: never offered, or already handed out, cancelled, dropped or expired."


def explain(
    item: Item, now_ms: int, *, is_due: bool, leaf: KeyNode | None, is_full: bool, row: int | None = None
) -> Explanation:
    """Return why an item of a leaf waits. If it was made of a row there, ``row`` is its number."""
    lane = item.lane if row is None else leaf
    if lane is None or leaf is None:
        return Explanation(reason=WaitReason.NOT_WAITING)
    if not is_due and item.due_ms is not None and item.due_ms > now_ms:
        return Explanation(reason=WaitReason.NOT_DUE, until_ms=item.due_ms, wait_ms=item.due_ms - now_ms)
    node: KeyNode | None = lane.node if is_due else leaf
    while node is not None and node.parent is not None:
        if node.is_paused:
            return Explanation(reason=WaitReason.PAUSED, key=node.key)
        if node.cap is not None and node.in_use >= node.cap:
            return Explanation(reason=WaitReason.CAPPED, key=node.key)
        node = node.parent
    if is_full:
        return Explanation(reason=WaitReason.CAPPED)
    cost = item.cost if lane.head is None else lane.head.cost
    shut: list[tuple[Bucket, int | None, float | None]] = [
        (rate.bucket, rate.bucket.token_at(now_ms, cost), None) for rate in leaf.rates()
    ]
    shut += [(portion.bucket, portion.token_at(now_ms, cost), portion.share()) for portion in lane.portions]
    shut = [each for each in shut if each[1] != now_ms]
    if shut:
        return _throttled(*max(shut, key=lambda each: NEVER_MS if each[1] is None else each[1]), now_ms)
    return Explanation(reason=WaitReason.ELIGIBLE, turns=_turns_before(lane, _cost_up_to(lane, item, row)))


def _throttled(bucket: Bucket, until_ms: int | None, share: float | None, now_ms: int) -> Explanation:
    return Explanation(
        reason=WaitReason.THROTTLED,
        key=None if bucket.key is None else bucket.key[1],
        throttle=bucket.name,
        until_ms=until_ms,
        wait_ms=None if until_ms is None else until_ms - now_ms,
        share=share,
        is_charged_by_cost=bucket.charges_cost,
    )


def _turns_before(lane: Lane, cost: int) -> int:
    """Count the turns of other keys before an item's own, at every level of its path.

    ``cost`` is that of the items of its lane up to and including it.
    """
    before, node = cost, lane.node
    turns = 0
    while node is not None and node.parent is not None and node.parent.ring is not None:
        ring = node.parent.ring
        own_turns = -((node.deficit - before) // node.share)
        if own_turns > 0 or not node.is_open:
            turns += ring.turns_before(node, max(1, own_turns))
        node = node.parent
    return turns


def _cost_up_to(lane: Lane, item: Item, row: int | None) -> int:
    behind = lane.behind
    if row is not None and behind is not None:
        return _cost_from(lane.head) + behind.before(row) + 1
    cost, first = item.cost, item
    while first.previous is not None:
        first = first.previous
        cost += first.cost
    if behind is not None and behind.rest is first:
        return _cost_from(lane.head) + len(behind) + cost
    return cost


def _cost_from(item: Item | None) -> int:
    cost = 0
    while item is not None:
        cost += item.cost
        item = item.next
    return cost
