"""The pure fair scheduler: it decides which item goes next and whether it may go now.

The kernel owns no clock, thread, lock or I/O. Every call passes in the present instant, and the answer depends only on
earlier calls. The front ends for threads and asyncio, the broker, what-if, and simulations on virtual time all drive
this class.

Instants are integer milliseconds from any fixed origin. They should not run backwards; if they do, the kernel stays at
the latest instant it has seen.

Theory of operation
-------------------
The kernel itself holds little: counts, timers, and the order in which parts are called. ``tree`` decides turns,
``keys`` knows the tree, ``gates`` and ``parking`` hold throttled lanes back, ``admission`` enforces limits, ``turns``
hands out, and ``order`` keeps the items of a group one after the other. An item is in exactly one place: in a lane of
its leaf, in the lane ``_not_due`` until it is due, in its group behind others, or outside. The attribute ``Item.lane``
says which, so that ``cancel``, timers and deadlines need no lookup, and an entry left behind in a heap of timers is
recognised as stale by looking at the item alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Generic, cast

from fairlane.scheduler.admission import Admission
from fairlane.scheduler.buckets import Throttles
from fairlane.scheduler.explanation import Explanation, WaitReason, explain
from fairlane.scheduler.item import Item, Key, Priority, canonical_key
from fairlane.scheduler.keys import Keys, PolicyProvider
from fairlane.scheduler.lanes import NOT_HELD, Holdup, Lane, LaneRows, MakeItems
from fairlane.scheduler.order import OrderedGroup, OrderedGroups
from fairlane.scheduler.parking import Parking
from fairlane.scheduler.policy import (
    Backpressure,
    Departure,
    DepartureReason,
    I,
    KeyPolicy,
    Refusal,
    RefusalReason,
    StrictOrder,
    require_whole,
)
from fairlane.scheduler.survey import Survey, survey
from fairlane.scheduler.timers import Timers
from fairlane.scheduler.tree import KeyNode
from fairlane.scheduler.turns import serve_plain, serve_runs

IDLE_KEYS_MAX = 1024
"""How many keys without items are remembered by default."""
_LONG_AGO_MS = -(1 << 62)


class Kernel(Generic[I]):
    """Deficit round robin over fairness keys, with throttles, caps, priorities, delays, deadlines and limits.

    The order is fair between keys, by weight, level by level. Within a key, higher priority goes first, then first in
    first out among items with the same throttles. Nothing is durable. Not thread-safe.

    Attributes:
        now_ms: the latest instant that a call has passed in.
        departures: what ``reap`` returns next.
        remembered_keys: the keys that have items or are remembered; with strict priority those of normal priority.
    """

    def __init__(
        self,
        *,
        quantum: int = 1,
        waiting_max: int | None = None,
        key_waiting_max: int | None = None,
        backpressure: Backpressure = Backpressure.REJECT,
        strict_priority: bool = False,
        counts_use: bool = False,
        idle_keys_max: int = IDLE_KEYS_MAX,
        throttles: Throttles | None = None,
        name: str = "",
        order: StrictOrder[I] | None = None,
    ) -> None:
        """Create an empty kernel.

        Args:
            quantum: the deficit that one turn adds to a key of weight 1.
            waiting_max: the limit on waiting items in total; None for no limit.
            key_waiting_max: the limit on waiting items of one key, unless its policy sets another.
            backpressure: what happens when a limit is reached.
            strict_priority: serve higher priority first across all keys, not only within one.
            counts_use: count items as in use from hand-out to ``release``. Caps need it, and it requires that every
                item handed out is released.
            idle_keys_max: how many keys without items are remembered, with their debts, before the oldest is forgotten.
            throttles: a table of throttles to share with other kernels.
            name: what weights in shared throttles call this kernel.
            order: what is kept in strict order, which requires that every item handed out is finished; None for
                nothing.

        Raises:
            ValueError: a number is out of range.
        """
        require_whole("quantum", quantum, least=1)
        require_whole("idle_keys_max", idle_keys_max, least=0)
        for what, limit in (("waiting_max", waiting_max), ("key_waiting_max", key_waiting_max)):
            if limit is not None:
                require_whole(what, limit, least=1)
        self.throttles = throttles if throttles is not None else Throttles()
        self._keys = Keys(
            self.throttles,
            quantum=quantum,
            key_waiting_max=key_waiting_max,
            is_strict=strict_priority,
            counts_use=counts_use,
            idle_keys_max=idle_keys_max,
            name=name,
            is_timed=order is not None,  # waiting behind others is reported like waiting at a cap
        )
        self._admission = Admission(
            self._keys, waiting_max=waiting_max, backpressure=Backpressure(backpressure), drop=self._drop
        )
        self._counts_use = counts_use
        self.remembered_keys: Sized = self._keys.leaves[self._keys.normal_band]
        self._parking = Parking(self._keys)
        self._due: Timers[Item] = Timers(lambda at_ms, item: item.lane is self._not_due and item.due_ms == at_ms)
        self._deadlines: Timers[Item] = Timers(
            lambda at_ms, item: item.lane is not None and item.deadline_ms == at_ms - 1
        )
        self._not_due = KeyNode("", None, None)
        self._groups: OrderedGroups | None = None
        if order is not None:
            self._groups = OrderedGroups(cast("StrictOrder[Item]", order), self._not_due, self)
        self.departures: list[Departure[I]] = []
        self._dues = 0
        self._holdups: dict[Item, Holdup] = {}
        self._waiting = 0
        self._timely = 0  # items in lanes with a deadline
        self._sequence = 0
        self.now_ms = _LONG_AGO_MS

    # ------------------------------------------------------------------------------------------------ in and out

    def offer(self, item: I, now_ms: int) -> Refusal | None:
        """Add an item to the waiting items. Return None, or a refusal if it is not accepted, with nothing changed."""
        refusals = self.offer_many((item,), now_ms)
        return refusals[0] if refusals else None

    def offer_many(self, items: Iterable[I], now_ms: int) -> list[Refusal]:
        """Add items in this order. Return the refusals; all other items are accepted.

        If a policy provider raises, the items before the failing one are accepted and the rest are not.
        """
        self._move_to(now_ms)
        batch = items if isinstance(items, (list, tuple)) else list(items)
        try:
            most = self._admission.waiting_max
            is_free = not self._admission.longest and self._groups is None
            if is_free and (most is None or self._waiting + len(batch) <= most):
                return self._offer_quickly(batch)
            offers = (self._offer(item) for item in batch)
            return [refusal for refusal in offers if refusal is not None]
        except BaseException:
            # The caller's code raised, such as its policy provider. The items before it are accepted, and the fast path
            # has not counted them yet, so count again.
            self._waiting = self._keys.count_waiting()
            raise

    def _offer_quickly(self, items: list[I] | tuple[I, ...]) -> list[Refusal]:
        """Offer items when there is capacity for all; plain items of simple keys take the fast path.

        The fast path skips admission, timers and lanes, because none of them can matter to a plain item of a flat key
        without limits. It also shares one sequence number among its items: sequences only order heads of different
        lanes of one key, and within a lane the links keep the order.
        """
        refusals: list[Refusal] = []
        leaves = self._keys.leaves[self._keys.normal_band]
        unknown = self._not_due
        sequence = self._sequence
        slow = 0
        for item in items:
            try:
                leaf = leaves[item.key]
            except KeyError:
                leaf = unknown
            if leaf.is_simple and item.plain and item.lane is None:
                tail = leaf.tail
                if tail is not None:
                    item.sequence = sequence
                    item.lane = leaf
                    item.key = tail.key  # all items of a key share one string: less memory, faster lookups
                    leaf.waiting += 1
                    if leaf.behind is None:
                        item.previous = tail
                        tail.next = leaf.tail = item
                    else:
                        leaf.behind.append(item)
                else:
                    item.sequence = sequence
                    item.lane = leaf
                    item.key = leaf.key
                    leaf.head = leaf.tail = item
                    leaf.waiting += 1
                    leaf.list_lane(leaf)
                    self._keys.refresh(leaf)
                continue
            if self._join(leaf, item):
                sequence = self._sequence
                continue
            slow += 1
            refusal = self._offer(item)
            sequence = self._sequence
            if refusal is not None:
                refusals.append(refusal)
        self._waiting += len(items) - slow
        return refusals

    def _join(self, leaf: KeyNode, item: Item) -> bool:
        """Append an item to a lane that has items, which changes nothing about turns. Return False if it can't.

        What is left out of ``_offer`` is admission, timers and ``refresh``, because none of them can matter.
        """
        keys = self._keys
        if item.lane is not None or keys.has_limits or item.due_ms is not None or item.deadline_ms is not None:
            return False
        lane: Lane | None = leaf
        if not item.plain:
            lane = None if leaf.extra is None or keys.is_strict else leaf.extra.get((item.priority, item.throttles))
        if lane is None or lane.head is None:
            return False
        item.key = leaf.key
        item.sequence = self._sequence + 1
        self._sequence += 2
        lane.append(item)
        if keys.has_clocks:
            item.held = self._shown(lane)
        node = leaf
        while (parent := node.parent) is not None:
            node.waiting += 1
            node = parent
        return True

    def offer_rows(self, keys: Sequence[Key], numbers: Sequence[int], now_ms: int, make: MakeItems) -> None:
        """Add plain items of cost 1 by their numbers, which must grow; see ``lanes``.

        Raises:
            ValueError: the kernel has a limit on waiting items or a strict order.
        """
        self._move_to(now_ms)
        if self._groups is not None or self._admission.waiting_max is not None:
            raise ValueError("A kernel with a limit on waiting items or a strict order takes no rows. Offer items.")
        sequence, made = self._sequence, []
        for leaf, number in zip(map(self._keys.leaves[self._keys.normal_band].get, keys), numbers, strict=True):
            if leaf is None or leaf.tail is None or not leaf.is_simple:
                made.append(number)
                continue
            rows = leaf.behind
            if rows is None:
                rows = leaf.behind = LaneRows(make, sequence)
            elif rows.rest is not None:
                made.append(number)
                continue
            if rows.sequence != sequence:
                rows.set_sequence(sequence)
            rows.numbers.append(number)
            leaf.waiting += 1
        self._waiting += len(numbers) - len(made)
        if made:  # after rows of other keys, which changes nothing: no key has both, and those have their turns already
            self._offer_quickly(cast("list[I]", make(made)))
        if self._admission.longest:
            self._admission.note_rows(keys)

    def cancel_row(self, key: Key, number: int, now_ms: int) -> bool:
        """Remove a waiting row. Return False if there is none of that number."""
        leaf = self._keys.leaves[self._keys.normal_band].get(key)
        if leaf is None or leaf.behind is None or not leaf.behind.cancel(leaf, number):
            return False
        self._note_instant(now_ms)
        self._waiting -= 1
        self._count(leaf, waiting=-1, delayed=0)
        return True

    def _offer(self, item: Item) -> Refusal | None:
        if item.lane is not None:
            return Refusal(item, RefusalReason.ALREADY_WAITING)
        leaf = self._keys.leaf_of(item)
        departed = len(self.departures)
        refusal = self._admission.admit(leaf, item, self._waiting)
        if refusal is not None:
            self._keys.note_idle(leaf)
            return refusal
        if len(self.departures) > departed:
            leaf = self._keys.leaf_of(item)  # dropping the victim may have made its key idle and forgotten
        item.key = leaf.key
        # Two steps: items on the fast path share the latest number, and no item of another lane may have it too.
        item.sequence = self._sequence + 1
        self._sequence += 2
        self._waiting += 1
        is_due = item.due_ms is None or item.due_ms <= self.now_ms
        self._count(leaf, waiting=1, delayed=0 if is_due and self._groups is None else 1)
        if item.deadline_ms is not None:
            self._deadlines.push(item.deadline_ms + 1, item)
        if self._groups is not None:
            self._groups.offer(item)
        elif is_due:
            self._enter_lane(leaf, item)
        else:
            self._wait_until_due(item)
        # An item offered after its deadline is accepted and expires at once, so that the caller hears of it through
        # the same channel as of any other expiry.
        if item.deadline_ms is not None and item.deadline_ms < self.now_ms:
            self._expire()
        return None

    def take(self, count: int, now_ms: int, *, is_single: bool = False, is_part: bool = False) -> list[I]:
        """Hand out up to ``count`` items, in the order of their turns.

        Fewer are returned only if nothing else may go now. The hand-out itself takes tokens, charges deficits and, if
        the kernel counts use, fills caps.

        With strict order, ``is_single`` hands out at most one item of each group, and ``is_part`` says that other calls
        hand out to the same consumer: ``end_take`` follows.
        """
        self._move_to(now_ms)
        self._holdups.clear()
        out: list[Item] = []
        is_limited = self._keys.capacity.most is not None
        if is_limited:
            self._keys.admit(count)
        noted = 0
        while True:
            for root in self._keys.roots:
                self._serve(root, out, count)
            may_follow = False
            if self._groups is not None:
                may_follow = self._groups.note_taken(out[noted:], is_single=is_single)
                noted = len(out)
            # A lane that was woken for a token may not have used it (another throttle is empty, its key is at its cap).
            # Offer such tokens to the other lanes until no lane wakes, so that a short answer means that really nothing
            # can go.
            if len(out) >= count or not (may_follow or self._wake_more(is_limited=is_limited)):
                break
        self._waiting -= len(out)
        if self._timely:
            self._timely -= sum(1 for item in out if item.deadline_ms is not None)
        if self._groups is not None and not is_part:
            self._groups.end_take()
        return cast("list[I]", out)

    def end_take(self) -> None:
        """End a hand-out of several parts: with strict order, what is left of a group waits for what was taken."""
        if self._groups is not None:
            self._groups.end_take()

    def holdups(self) -> Mapping[I, Holdup]:
        """Return how long each item of the last ``take`` was held up; items that were not are left out.

        Counted from when the item was offered or became due. Valid until the next ``take``.
        """
        return cast("Mapping[I, Holdup]", self._holdups)

    def cancel(self, item: I, now_ms: int | None = None) -> bool:
        """Remove a waiting item; its space is free at once. Return False if it does not wait here.

        The instant matters to throttles that other kernels share: from then on they have what the item leaves to them.
        Otherwise no time passes.
        """
        if not self._holds(item):
            return False
        self._note_instant(now_ms)
        self._withdraw(item)
        return True

    def retire(self, now_ms: int) -> None:
        """Remove all items for good, and leave the throttles to the kernels that share them. Do not use it again."""
        for leaf in self._keys.all_leaves():
            if leaf.behind is not None:
                leaf.behind.drop(leaf)
        for item in self.waiting_items():
            self.cancel(item, now_ms)
        self._parking.close()
        self._keys.leave_throttles()

    def victim(self, item: I, policy: Backpressure, *, key: Key | None = None) -> I | None:
        """Return the item that would be dropped for another: one of ``key``, or with None one of the longest key.

        Nothing is dropped. Return None if every item that waits there has a higher priority.
        """
        return cast("I | None", self._admission.victim_for(item, policy, key))

    def has_departures(self) -> bool:
        """Return whether ``reap`` would return something without time passing."""
        return bool(self.departures)

    def reap(self, now_ms: int | None = None) -> list[Departure[I]]:
        """Return the items that expired or were dropped since the last call. Call it when ``next_event_at`` has come.

        Without an instant no time passes.
        """
        if now_ms is not None:
            self._move_to(now_ms)
        departures, self.departures = self.departures, []
        return departures

    # ------------------------------------------------------------------------------------------- after hand-out

    def release(self, key: Key, count: int = 1) -> None:
        """Mark items of a key as no longer in use. Every item handed out must be released once.

        Raises:
            ValueError: more are released than are in use, or the kernel does not count use.
        """
        require_whole("count", count, least=1)
        if not self._counts_use or not self._keys.release(key, count):
            raise ValueError(f"Fewer than {count} items of {key!r} are in use. Release each item handed out once.")
        if self._parking.stocked:
            self._parking.open_stocked(self.now_ms)

    def release_many(self, counts: Mapping[Key, int], now_ms: int) -> None:
        """Release ``counts`` items of each key, in this order, at an instant.

        Raises:
            ValueError: see ``release``; the keys before it are released.
        """
        self._move_to(now_ms)
        release, parking = self._keys.release, self._parking
        for key, count in counts.items():
            if count < 1 or not self._counts_use or not release(key, count):
                raise ValueError(f"Fewer than {count} items of {key!r} are in use. Release each item handed out once.")
            if parking.stocked:
                parking.open_stocked(self.now_ms)

    def occupy(self, key: Key, count: int = 1) -> None:
        """Mark items of a key as in use that this kernel never handed out, such as those of a kernel it replaces.

        Raises:
            ValueError: the kernel does not count use.
        """
        require_whole("count", count, least=1)
        if not self._counts_use:
            raise ValueError("This kernel does not count items in use. Create it with counts_use=True.")
        leaf = node = self._keys.leaf_for(key, Priority.NORMAL)
        while node.parent is not None:
            self._keys.use(node, count)
            node = node.parent
        self._keys.capacity.in_use += count
        self._keys.note_idle(leaf)

    def finish(self, items: Iterable[I], now_ms: int) -> None:
        """Record that items which were handed out are done, or wait again: with strict order, the next may go.

        Every item handed out must be finished once. Offer an item that is to wait again before you finish it.
        """
        if self._groups is not None:
            self._move_to(now_ms)
            self._groups.finish(items)

    def resume_order(self, items: Iterable[I]) -> None:
        """Record that items are out that this kernel never handed out: with strict order, others wait for them."""
        if self._groups is not None:
            for item in items:
                self._groups.occupy(item)

    def settle(self, key: Key, difference: int, priority: Priority = Priority.NORMAL) -> None:
        """Correct the cost of an item after the fact. ``difference`` is the true cost minus the cost at hand-out.

        The priority matters only with strict priority, where a key has one deficit per priority.

        A debt is worked off in later turns and outlasts an empty queue, as long as the key is remembered. A refund to a
        key that has nothing waiting is lost, like any deficit.
        """
        leaf = node = self._keys.leaf_for(key, priority if type(priority) is Priority else Priority(priority))
        while node.parent is not None and node.parent.ring is not None:
            node.deficit -= difference
            if node.is_idle and node.deficit > 0:
                node.deficit = 0
            node.parent.ring.reconsider(node)
            node = node.parent
        self._keys.note_idle(leaf)

    # ------------------------------------------------------------------------------------------------- policies

    def set_policy(self, key: Key, policy: KeyPolicy, now_ms: int | None = None) -> None:
        """Set the policy of a key. It acts on the backlog at once and lasts until it is cleared.

        The instant matters to a rate that changes: tokens are earned at the new one from then on.

        Raises:
            ValueError: the policy has a cap and the kernel does not count use.
        """
        self._note_instant(now_ms)
        self._keys.set_policy(key, policy)
        self._parking.open_stocked(self.now_ms)

    def clear_policy(self, key: Key) -> None:
        """Return a key to the provider's policy, or the default."""
        self._keys.set_policy(key, None)
        self._parking.open_stocked(self.now_ms)

    def set_policy_provider(self, provider: PolicyProvider | None, now_ms: int | None = None) -> None:
        """Set a function that returns the policy of each key without an explicit one.

        It is called now for all known keys, when a key is first seen, and again by ``refresh_policy``.
        """
        self._note_instant(now_ms)
        self._keys.set_provider(provider)
        self._parking.open_stocked(self.now_ms)

    def refresh_policy(self, key: Key, now_ms: int | None = None) -> None:
        """Call the provider again for one key."""
        self._note_instant(now_ms)
        self._keys.refresh_policy(key)
        self._parking.open_stocked(self.now_ms)

    def set_in_use_max(self, most: int | None) -> None:
        """Limit how many items may be in use in total; None for no limit. A key below its floor may exceed it.

        Raises:
            ValueError: the limit is negative, or the kernel does not count use.
        """
        if most is not None:
            require_whole("in_use_max", most, least=0)
            if not self._counts_use:
                raise ValueError("in_use_max needs counts_use=True, which counts items from hand-out to release.")
        self._keys.set_in_use_max(most)
        self._parking.open_stocked(self.now_ms)

    def pause(self, key: Key) -> None:
        """Stop handing out items of a key, and of the keys below it, until it is resumed. Offers are still accepted."""
        self._keys.set_paused(key, is_paused=True)

    def resume(self, key: Key) -> None:
        """Undo ``pause``. The key continues where it stopped."""
        self._keys.set_paused(key, is_paused=False)
        self._parking.open_stocked(self.now_ms)

    # --------------------------------------------------------------------------------------------------- reading

    def __len__(self) -> int:
        """Return how many items wait, including delayed ones."""
        return self._waiting

    def throttles_in_force(self) -> list[str]:
        """Return the names of the throttles that hold back waiting items."""
        return self._parking.throttles()

    def waiting_items(self) -> list[I]:
        """Return all waiting items, key by key, in O(items)."""
        items = [item for leaf in self._keys.all_leaves() for lane in leaf.lanes() for item in lane]
        return cast("list[I]", items + list(self._due) + list(self._groups or ()))

    def waiting(self, key: Key) -> int:
        """Return how many items of a key, including the keys below it, wait."""
        return sum(node.waiting for node in self._keys.find(key))

    def in_use(self, key: Key) -> int:
        """Return how many items of a key, including the keys below it, are in use."""
        return max((node.in_use for node in self._keys.find(key)), default=0)

    def deficit(self, key: Key) -> int:
        """Return what a key may still spend in its turn or, if negative, owes."""
        return max((node.deficit for node in self._keys.find(key)), default=0, key=abs)

    def known_keys(self) -> int:
        """Return how many keys are remembered, including idle ones."""
        return sum(len(leaves) for leaves in self._keys.leaves)

    def has_ready(self) -> bool:
        """Return whether a ``take`` is likely to find an item; it may still turn out to be throttled."""
        capacity = self._keys.capacity
        if capacity.most is not None and capacity.has_room():
            return True
        return bool(self._parking.stocked) or any(
            root.ring is not None and root.ring.ready for root in self._keys.roots
        )

    def has_prompt(self, now_ms: int) -> bool:
        """Return whether a ``take`` may find a *prompt* item: with a deadline or throttle, or of a key with a limit.

        Such an item should start as soon as it is taken: if it waited elsewhere, a deadline or a rate would mean
        nothing, and a cap would be used up without any work. With strict order all items are prompt, since others wait
        for them. May be falsely positive; a ``take`` at the instant of the last call finds none after False.
        """
        is_limited = bool(self._keys.limited) or self._keys.capacity.most is not None or self._groups is not None
        return is_limited or bool(self._timely) or self._parking.may_open(now_ms)

    def time_releases(self) -> int:
        """Return how often the passing of time has freed throttled or delayed items; it grows when it happens again."""
        return self._parking.openings + self._dues

    def standing(self) -> int | None:
        """Return how far this kernel is ahead of its part of shared throttles whose token has come just now.

        Return None if it has not been waiting for one. A caller that serves several kernels begins with the one whose
        standing is lowest; see ``portions``.
        """
        return self._parking.standing(self.now_ms)

    def next_event_at(self) -> int | None:
        """Return when something will change by itself: a token, a due item, a deadline. None for never.

        After a ``take`` that returned fewer items than requested, nothing more can be taken before this instant or the
        next call that changes something, so callers never poll.
        """
        earliest: int | None = None
        for timers in (self._parking.timers, self._parking.shut, self._due, self._deadlines):
            # Most kernels have no timers at all, and are asked after every change.
            at_ms = timers.next_at() if timers.entries else None
            if at_ms is not None and (earliest is None or at_ms < earliest):
                earliest = at_ms
        return earliest

    def survey(self, count: int, now_ms: int, *, wanted: Callable[[Key], bool] | None = None) -> Survey:
        """Return the ``count`` keys with the most items and what holds them back, in O(keys)."""
        return survey(self._keys, count, now_ms, wanted=wanted)

    def explain_row(self, item: I, number: int, now_ms: int) -> Explanation:
        """Return why a row waits, of which this item has been made."""
        self._move_to(now_ms)
        leaf = self._keys.leaves[self._keys.normal_band].get(item.key)
        if leaf is None or leaf.behind is None or number not in leaf.behind:
            return Explanation(reason=WaitReason.NOT_WAITING)
        is_full = self._keys.capacity.allowance(leaf.outermost()) == 0
        return explain(item, self.now_ms, is_due=True, leaf=leaf, is_full=is_full, row=number)

    def explain(self, item: I, now_ms: int) -> Explanation:
        """Return why an item waits."""
        was_waiting = self._holds(item)
        self._move_to(now_ms)
        if not was_waiting:
            return Explanation(reason=WaitReason.NOT_WAITING)
        if not item.is_waiting:
            return Explanation(reason=WaitReason.EXPIRED)
        if self._groups is not None and isinstance(item.lane, OrderedGroup):
            return Explanation(reason=WaitReason.BEHIND, first=self._groups.first_of(item))
        leaf = self._leaf(item.key)
        is_full = leaf is not None and self._keys.capacity.allowance(leaf.outermost()) == 0
        return explain(item, self.now_ms, is_due=item.lane is not self._not_due, leaf=leaf, is_full=is_full)

    # ---------------------------------------------------------------------------------------------------- inside

    def _wake_more(self, *, is_limited: bool) -> bool:
        """Return whether lanes or keys that were held back may go now."""
        return self._parking.open_stocked(self.now_ms) or (is_limited and self._keys.admit())

    def _serve(self, root: KeyNode, out: list[Item], count: int) -> None:
        ring = root.ring
        if ring is None:
            return
        while ring.ready and len(out) < count:
            if ring.serving is None and ring.is_plain_next():
                serve_plain(ring, out, count, self._keys, counts_use=self._counts_use)
            else:
                serve_runs(root, out, count, self._keys, self._parking.first_open_lane, self._note_holdups)

    def _note_instant(self, now_ms: int | None) -> None:
        """Take note of the instant of a change, without time passing."""
        if now_ms is not None and now_ms > self._keys.now_ms:
            self._keys.now_ms = now_ms

    def _move_to(self, now_ms: int) -> None:
        """Advance time: remove expired items, add due items to their lanes, open the gates that have tokens.

        The order matters. Expiry comes first, so that an item whose due time and deadline have both passed never enters
        a lane. Gates open last, so that no token is spent on a lane that expiry has just emptied.
        """
        if now_ms <= self.now_ms:
            return
        self.now_ms = self._keys.now_ms = now_ms
        if self._deadlines.entries:
            self._expire()
        if self._due.entries:
            for item in self._due.pop_due(now_ms):
                self._dues += 1
                leaf = self._keys.leaf_of(item)
                self._count(leaf, waiting=0, delayed=-1)
                self._enter_lane(leaf, item)
        if self._parking.timers.entries or self._parking.shut.entries:
            self._parking.open_due(now_ms)

    def _holds(self, item: Item) -> bool:
        lane = item.lane
        return lane is not None and (lane.node is self._not_due or lane.node.root() in self._keys.roots)

    def _expire(self) -> None:
        for item in self._deadlines.pop_due(self.now_ms):
            self._withdraw(item)
            self.departures.append(Departure(cast("I", item), DepartureReason.EXPIRED))

    def _drop(self, item: Item) -> None:
        self._withdraw(item)
        self.departures.append(Departure(cast("I", item), DepartureReason.DROPPED))

    def _withdraw(self, item: Item) -> None:
        lane = item.lane
        leaf = self._keys.leaf_of(item)
        self._waiting -= 1
        if lane is self._not_due:
            item.lane = None
            self._count(leaf, waiting=-1, delayed=-1)
        elif lane is not None and lane.node is self._not_due:
            lane.remove(item)
            self._count(leaf, waiting=-1, delayed=-1)
        elif lane is not None:
            self._leave_lane(lane, leaf, item, delayed=0)
        if self._groups is not None:
            self._groups.note_gone(item)
        self._keys.note_idle(leaf)

    def _leave_lane(self, lane: Lane, leaf: KeyNode, item: Item, *, delayed: int) -> None:
        """Remove an item from its lane, and count it out, or as one that does not go for now."""
        was_head = lane.head is item
        if was_head:
            self._parking.reconsider(lane)
        lane.remove(item)
        if item.deadline_ms is not None:
            self._timely -= 1
        self._count(leaf, waiting=delayed - 1, delayed=delayed)
        if lane.head is None:
            self._keys.lane_emptied(lane)
        if was_head:
            self._keys.refresh(leaf)

    def bring_forward(self, item: Item) -> None:
        """Add the first item of a group, which waited behind others, to its key. Called by its group only."""
        if item.due_ms is not None and item.due_ms > self.now_ms:
            self._wait_until_due(item)
            return
        leaf = self._keys.leaf_of(item)
        self._count(leaf, waiting=0, delayed=-1)
        self._enter_lane(leaf, item)
        if self._groups is not None and item.lane is not None:
            shown, behind_ms = self._shown(item.lane) or NOT_HELD, self.now_ms - self._groups.rules.ready_of(item)
            item.held = Holdup(shown.throttled_ms, shown.capped_ms - max(0, behind_ms))

    def send_back(self, item: Item) -> None:
        """Remove an item from its key that is to wait behind others. Called by its group only."""
        if item.lane is self._not_due:
            item.lane = None
        elif item.lane is not None:
            self._leave_lane(item.lane, self._keys.leaf_of(item), item, delayed=1)

    def _wait_until_due(self, item: Item) -> None:
        item.lane = self._not_due
        self._due.push(cast("int", item.due_ms), item)

    def _enter_lane(self, leaf: KeyNode, item: Item) -> None:
        lane = self._keys.lane_of(leaf, item)
        was_empty = lane.head is None
        lane.append(item)
        if item.deadline_ms is not None:
            self._timely += 1
        if self._keys.has_clocks:
            item.held = self._shown(lane)
        if was_empty:
            for portion in lane.portions:
                portion.lane_filled(self.now_ms)
            if lane.portions:
                self._keys.open_lanes[lane] = None
            leaf.list_lane(lane)
            self._parking.reconsider(lane)
            self._keys.refresh(leaf)

    def _shown(self, lane: Lane) -> Holdup | None:
        """Return what the stopwatches of a lane and of the keys above it show; None if they have never run."""
        now_ms = self.now_ms
        parked, capped_ms = lane.parked, lane.node.capped_ms(now_ms)
        throttled_ms = lane.node.shut_ms(now_ms) if self._keys.has_rates else 0
        if parked is not None:
            throttled_ms += parked.read(now_ms)
        return Holdup(throttled_ms, capped_ms) if parked or capped_ms or throttled_ms else None

    def _note_holdups(self, lane: Lane, items: list[Item]) -> None:
        if lane.portions:
            self._parking.note_served(lane, sum([item.cost for item in items]))
        shown = self._shown(lane)
        if shown is None:
            if self._groups is None:
                return
            shown = NOT_HELD
        for item in items:
            before, item.held = item.held or NOT_HELD, None
            held = Holdup(shown.throttled_ms - before.throttled_ms, shown.capped_ms - before.capped_ms)
            if held != NOT_HELD:
                self._holdups[item] = held

    def _count(self, leaf: KeyNode, *, waiting: int, delayed: int) -> None:
        node = leaf
        while node.parent is not None:
            node.waiting += waiting
            node.delayed += delayed
            node = node.parent

    def _leaf(self, key: Key) -> KeyNode | None:
        key = canonical_key(key)
        return next((leaves[key] for leaves in self._keys.leaves if key in leaves), None)
