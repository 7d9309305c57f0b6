"""How kernels that share a throttle divide its tokens.

Theory of operation
-------------------
Each kernel has a *portion* of each throttle that its items name. While only one kernel uses a throttle, its portion is
the whole bucket, and nothing below happens. A throttle that several kernels use has a *division*. Its members are the
portions whose kernels have items for the throttle at the moment.

Tokens are *dealt* to members as they are earned, and a member takes first what was dealt to it. The order is that of
start-time fair queueing: each member has a tag, each token advances the tag of its member by ``1 / weight``, and the
member with the lowest tag is next. So any two members that take their tokens have got, by weight, the same number,
plus or minus one each: ``|T_i/w_i - T_j/w_j| <= 1/w_i + 1/w_j``. That holds for kernels that ask whenever a token is
earned, as those do that wait for one. Those that ask more rarely find full parts of the burst, which are whole tokens:
with a burst of few tokens for each member, their shares are only as exact as that.

A throttle does not know whether a kernel has consumers. A member whose consumers are busy does not take its tokens.
They stay in the bucket for it, up to its part of the burst, and then it is passed over. It has what a throttle of its
own would have saved up for it, and all else goes to the others. A member without consumers thus costs the others a part
of the burst and nothing of the rate, and a member whose items are gone gives back what it has. Kernels that wait for a
token have armed their timers for the next one that is earned, so they are told of those that are given back.

One token of the burst is never dealt, or members without consumers could fill the bucket and stop it from earning. It
is *free*: the first to ask takes it, and its tag pays for it. With a burst below 2 all tokens are free. Callers that
have several kernels to serve should therefore begin with the one whose ``standing`` is lowest. What a member has been
passed over for is remembered up to one burst.

All of this is a function of the instants at which members join, leave and take, and of nothing else: it does not matter
how often a bucket is read in between. That, and tags in whole numbers, make a replay exact.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, TypeAlias
from weakref import ref

if TYPE_CHECKING:
    from fairlane.scheduler.compiled import Life
    from fairlane.scheduler.token_bucket import Bucket

TOKEN = 1_000_000_000
HELD_MAX = 64
"""The most tokens that wait for one member, so that a member that comes and goes does not cost time."""
_SWEEP_FROM = 16
_UNIT = 1_000_000_000_000  # what a token of a member with weight 1 adds to its tag


class Portion:
    """What one kernel has of one throttle.

    Attributes:
        name: the kernel.
        number: tells portions apart whose kernels have the same name.
        owner: the kernel, which a table of throttles does not keep alive.
        weight: its part, relative to those of other kernels.
        lanes: lanes of the kernel that name the throttle.
        busy: those of them that have items.
        held: tokens that were dealt to it and that it has not taken.
        tag: when its next token is due, in units of tokens by weight.
        listed: the tag of its valid entry in the order of the division; None while it can hold no more.
    """

    __slots__ = ("bucket", "busy", "held", "lanes", "listed", "name", "number", "owner", "tag", "weight")

    def __init__(self, bucket: Bucket, name: str, number: int, owner: ref[Life], weight: int) -> None:
        self.bucket = bucket
        self.name = name
        self.number = number
        self.owner = owner
        self.weight = weight
        self.lanes = self.busy = 0
        self.reset()

    def reset(self) -> None:
        """Forget what the division that it was a member of has dealt to it."""
        self.held = self.tag = 0
        self.listed: int | None = None

    def need(self, cost: int) -> int:
        """Return how many tokens there must be for the kernel before an item of it may pass.

        A queue has no more than its part of the burst for certain, so an item that costs more goes when that is full.
        """
        bucket = self.bucket
        if not bucket.charges_cost:
            return 1
        return bucket.need(cost) if bucket.division is None else min(cost, bucket.division.part(self))

    def has_token(self, now_ms: int, cost: int = 1) -> bool:
        """Return whether an item of the kernel may pass now."""
        bucket = self.bucket
        if not bucket.is_limited:
            return True
        bucket.refill(now_ms)
        if bucket.charges_cost:
            return self.ready() >= self.need(cost)
        division = bucket.division
        if division is None:
            return bucket.level >= TOKEN
        return self.held > 0 or bucket.level // TOKEN > division.held

    def ready(self) -> int:
        """Return how many tokens of a limited throttle the kernel may take, as of the last refill."""
        bucket = self.bucket
        tokens = bucket.level // TOKEN
        return tokens if bucket.division is None else tokens - bucket.division.held + self.held

    def take(self, count: int, cost: int = 0) -> None:
        """Spend the tokens of items that cost ``cost`` together. The caller has checked that they are there."""
        bucket = self.bucket
        tokens = bucket.take(count, cost)
        if bucket.division is not None and tokens:
            bucket.division.take(self, tokens)

    def token_at(self, now_ms: int, cost: int = 1) -> int | None:
        """Return the first instant at which an item of the kernel may pass, as far as is known; None for never.

        Of a divided throttle it is the instant of the next tokens, which may turn out to be dealt to another kernel.
        """
        if self.has_token(now_ms, cost):
            return now_ms
        division = self.bucket.division
        others = 0 if division is None else division.held - self.held
        return self.bucket.reaches_at(self.need(cost) + others)

    def lane_filled(self, now_ms: int) -> None:
        """Record that a lane has got its first item."""
        self.busy += 1
        if self.busy == 1 and self.bucket.division is not None:
            self.bucket.refill(now_ms)
            self.bucket.division.join(self)

    def lane_emptied(self, now_ms: int) -> bool:
        """Record that a lane has lost its last item. Return whether other kernels have got tokens by that."""
        self.busy -= 1
        if self.busy or self.bucket.division is None:
            return False
        self.bucket.refill(now_ms)
        has_held = self.held > 0
        self.bucket.division.leave(self)
        return has_held

    def set_weight(self, weight: int, now_ms: int) -> None:
        """Change the weight; tokens that are earned from now on are dealt by it."""
        self.bucket.refill(now_ms)
        division = self.bucket.division
        if division is not None and self in division.members:
            division.reweigh(self, weight)
        self.weight = weight
        if division is not None:
            division.parts_changed()

    def share(self) -> float | None:
        """Return which part of the throttle the kernel gets; None while no other has items for it."""
        division = self.bucket.division
        if division is None or len(division.members) < 2 or self not in division.members:  # noqa: PLR2004 - itself and another
            return None
        return self.weight / division.weight

    def standing(self) -> int:
        """Return how far the kernel is ahead of what it is entitled to; the one with the lowest is served first."""
        division = self.bucket.division
        return 0 if division is None else self.tag - division.clock


_Entry: TypeAlias = tuple[int, str, int, Portion]


class Division:
    """The members of a bucket that several kernels use, and the order in which they get tokens.

    Attributes:
        members: the portions whose kernels have items.
        weight: the sum of their weights.
        held: the tokens that wait for them.
        clock: the latest tag at which a token was dealt or taken.
    """

    __slots__ = ("_bucket", "_order", "clock", "held", "members", "weight")

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self.members: dict[Portion, None] = {}
        self.weight = 0
        self.held = 0
        self.clock = 0
        self._order: list[_Entry] = []

    def join(self, portion: Portion) -> None:
        """Add a member. It begins level with the others: what it missed before is not owed to it."""
        self.members[portion] = None
        self.weight += portion.weight
        portion.tag = max(portion.tag, self.clock)
        self._list(portion)
        self._settle_parts()

    def _settle_parts(self) -> None:
        """Deal after parts have become smaller.

        Members that hold more than their parts may keep it, as long as one token is enough for each of the others. An
        item that costs more than that would wait for ever if they have no consumers, so all is dealt again.
        """
        if self._bucket.charges_cost:
            self.restart()
        else:
            self.deal()

    def leave(self, portion: Portion) -> None:
        """Remove a member, and give what it holds to the others."""
        del self.members[portion]
        self.weight -= portion.weight
        gives = portion.held > 0
        self._give_back(portion)
        portion.listed = None
        if len(self.members) == 1:
            self.restart()  # a single member needs no order
            return
        if gives and self._bucket.burst_steps // TOKEN > len(self.members):
            self._list_again()
        self.deal()

    def _list_again(self) -> None:
        """Give members that could hold no more a place in the order: of fewer members each may hold more.

        They begin level with the others. Otherwise what was given back would be free, and the first to ask would take
        all of it.
        """
        for portion in self.members:
            if portion.listed is None and self._need(portion):
                portion.tag = max(portion.tag, self.clock)
                self._list(portion)

    def reweigh(self, portion: Portion, weight: int) -> None:
        """Charge what a member holds by its new weight, by which it would be given back."""
        portion.tag += portion.held * (_UNIT // weight - _UNIT // portion.weight)
        self.weight += weight - portion.weight
        if portion.listed is not None:
            self._list(portion)

    def parts_changed(self) -> None:
        """Deal by the weights that members have now."""
        if self._bucket.charges_cost:
            self.restart()

    def take(self, portion: Portion, count: int) -> None:
        """Record that a member has taken tokens: those dealt to it, then free ones."""
        portion.tag = max(portion.tag, self.clock - self._owed(portion))
        own = min(portion.held, count)
        portion.held -= own
        self.held -= own
        if count > own:
            self._charge(portion, count - own)
        if self._bucket.level // TOKEN < self.held:
            self.restart()  # a costly item has taken what was dealt to others: what is earned goes to them first
            return
        self._list(portion)
        self.deal()

    def _owed(self, portion: Portion) -> int:
        """Return how much of what others took a member can be owed.

        One that could not be dealt tokens, because no more may be held, is owed up to a burst. One that could hold no
        more has its credit in tokens, except for what is lost by rounding: parts of the burst are whole tokens, and the
        few that are left over are free. A member is owed its part of these, at most one for each member and one more.
        """
        burst = max(1, self._bucket.burst_steps // TOKEN)
        return (burst if portion.listed is not None else min(burst, len(self.members) + 1)) * _UNIT

    def deal(self) -> None:
        """Deal the tokens in the bucket that may be held and are not yet."""
        bucket = self._bucket
        if len(self.members) <= 1 or not bucket.is_limited or not bucket.rate_steps:
            return
        count = min(bucket.level, bucket.burst_steps - TOKEN) // TOKEN - self.held
        if count <= 0:
            return
        if count >= len(self.members):
            hungry = [(portion, self._need(portion)) for portion in self.members if portion.listed is not None]
            if sum(need for _, need in hungry) <= count:  # enough for all, so the order does not matter
                for portion, need in hungry:
                    self._deal_to(portion, need)
                return
        while count > 0 and (next_one := self._next()) is not None:
            count -= self._deal_to(next_one, min(1, self._need(next_one)))

    def restart(self) -> None:
        """Take back what was dealt, and deal it again; the rate, the burst or the members have changed."""
        for portion in self.members:
            self._give_back(portion)
            self._list(portion)
        self.deal()

    def _need(self, portion: Portion) -> int:
        """Return how many more tokens a member can hold."""
        return max(0, self.part(portion) - portion.held)

    def part(self, portion: Portion) -> int:
        """Return how many tokens wait for a member: its part of the burst, at least one."""
        part = self._bucket.burst_steps // TOKEN * portion.weight // max(1, self.weight)
        return max(1, min(HELD_MAX, part))

    def _deal_to(self, portion: Portion, count: int) -> int:
        portion.listed = None
        if count > 0:
            portion.held += count
            self.held += count
            self._charge(portion, count)
            if self._need(portion):
                self._list(portion)
        return count

    def _charge(self, portion: Portion, count: int) -> None:
        stride = _UNIT // portion.weight
        self.clock = max(self.clock, portion.tag + (count - 1) * stride)
        portion.tag += count * stride

    def _give_back(self, portion: Portion) -> None:
        portion.tag -= portion.held * (_UNIT // portion.weight)
        self.held -= portion.held
        portion.held = 0

    def _list(self, portion: Portion) -> None:
        """Give a member its place in the order. An entry of another tag that it may have is stale from now on."""
        if portion.listed != portion.tag:
            portion.listed = portion.tag
            if len(self._order) > _SWEEP_FROM + 2 * len(self.members):
                self._order = [entry for entry in self._order if self._is_valid(entry)]
                heapify(self._order)
            heappush(self._order, (portion.tag, portion.name, portion.number, portion))

    def _is_valid(self, entry: _Entry) -> bool:
        return entry[3].listed == entry[0] and entry[3] in self.members

    def _next(self) -> Portion | None:
        while self._order:
            entry = heappop(self._order)
            if self._is_valid(entry):
                return entry[3]
        return None
