"""Throttles that span groups: each group has a share, and the shares never add up to more than the throttle has.

A share is what the engine of a group has in its own config, so it is exact there, through crashes too. On the board is
what was *granted* to each group, and what is *wanted* for it. What keeps the sum is the order of steps:

- The *steward*, any node, raises what is granted only while the sum fits, and otherwise only says what is wanted.
- The *owner* of a group raises its engine only to what is granted. Where less is wanted, it lowers its engine first,
  and only when that is committed gives back what was granted.

So an owner that stops anywhere has granted at least what its engine uses. The owner that comes after it begins with
what the journal says. An owner that was taken over from without knowing it can do no harm: each opening of a group has
a number that grows, which it writes to its journal first, and only the opening with the highest number on the board
changes what is granted to the group. An engine is raised only by an opening that is on the board.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import msgspec

from fairlane.cluster.entries import Budget, Share
from fairlane.core.throttling import throttle_names

OPENING_KEY: Final = "cluster:opening"
"""Where a group's own config has the number of its opening."""
NOTHING: Final = Share(0, 0)
_MILLIONTHS: Final = 1_000_000
_IDLE_PART: Final = 20
"""Groups that want nothing keep a twentieth of the rate together: a first message need not wait for a share."""
_STEADY_PART: Final = 10
"""Shares stay as they are while none would change by more than a tenth of the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the owner of a group does next about a throttle; nothing if both are None.

    Attributes:
        apply: the share that its engine has to have, durably, before anything else.
        put: what goes to the board then.
    """

    apply: Share | None = None
    put: Budget | None = None


# ------------------------------------------------------------------------------------------------------------- spelling


def totals(config: Mapping[str, str]) -> dict[str, Share]:
    """Return all throttles of a config, each with all it has: what is set for the whole cluster."""
    found = {name: share_in(config, name) for name in throttle_names(config)}
    return {name: share for name, share in found.items() if share is not None}


def share_in(config: Mapping[str, str], throttle: str) -> Share | None:
    """Return what a config says of a throttle; None if it has no rate, and then limits nothing."""
    rate, burst = config.get(f"throttle:{throttle}:rate"), config.get(f"throttle:{throttle}:burst")
    if rate is None:
        return None
    saved = max(Decimal(1), Decimal(rate)) if burst is None else Decimal(burst)
    return Share(rate=int(Decimal(rate) * _MILLIONTHS), burst=int(saved))


def config_of(throttle: str, share: Share) -> dict[str, str]:
    """Return what a group's own config says for a share. A share of no tokens closes the throttle."""
    whole, rest = divmod(share.rate, _MILLIONTHS)
    rate = f"{whole}.{rest:06}".rstrip("0").rstrip(".")
    return {f"throttle:{throttle}:burst": str(share.burst), f"throttle:{throttle}:rate": rate}


# -------------------------------------------------------------------------------------------------------------- wishing


def split(amount: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Split a whole number by weights into whole numbers that add up to it; nothing without any weight."""
    total = sum(weights.values())
    if total <= 0:
        return dict.fromkeys(weights, 0)
    parts = {name: amount * weight // total for name, weight in weights.items()}
    left = amount - sum(parts.values())
    for name in sorted(weights, key=lambda name: (-(amount * weights[name] % total), name))[:left]:
        parts[name] += 1
    return parts


def aim(total: Share, groups: Collection[str], demand: Mapping[str, int], *, turn: int = 0) -> dict[str, Share]:
    """Return what each group should have.

    Groups that want something share nearly all: a quarter of it evenly, so that a short queue is not starved by a long
    one, and the rest by how much they want. Where there are fewer tokens to save up than groups, they take turns.

    Args:
        total: what there is.
        groups: all groups.
        demand: how much waits for the throttle in each.
        turn: grows by one about as often as groups shall take turns.
    """
    asking = sorted(group for group in groups if demand.get(group, 0) > 0)
    idle = sorted(group for group in groups if demand.get(group, 0) <= 0)
    if not asking:
        return _shared(total, dict.fromkeys(idle, 1), turn=0)
    shares = dict.fromkeys(idle, NOTHING)
    if idle and total.burst // 4 >= len(idle):
        kept = Share(rate=total.rate // _IDLE_PART, burst=len(idle))
        shares = _shared(kept, dict.fromkeys(idle, 1), turn=0)
        total = Share(rate=total.rate - kept.rate, burst=total.burst - kept.burst)
    wanted = sum(demand[group] for group in asking)
    return shares | _shared(total, {group: wanted + 3 * len(asking) * demand[group] for group in asking}, turn=turn)


def _shared(total: Share, weights: Mapping[str, int], *, turn: int) -> dict[str, Share]:
    """Split all there is by weights, a token to save up for each first; those that get none get no rate either."""
    names = sorted(weights)
    begin = turn % len(names) if total.burst < len(names) else 0
    chosen = [names[(begin + at) % len(names)] for at in range(min(total.burst, len(names)))]
    parts = {name: weights[name] for name in chosen}
    rates, bursts = split(total.rate, parts), split(total.burst - len(chosen), parts)
    return dict.fromkeys(names, NOTHING) | {name: Share(rate=rates[name], burst=1 + bursts[name]) for name in chosen}


# ------------------------------------------------------------------------------------------------------------- stepping


def steward_step(
    budget: Budget | None,
    total: Share,
    *,
    groups: Collection[str],
    demand: Mapping[str, int],
    open_groups: Collection[str] = (),
    turn: int = 0,
) -> Budget | None:
    """Return what the steward puts on the board for a throttle, or None if that is there already.

    Args:
        budget: what is there; None for nothing.
        total: what the throttle has for all.
        groups: all groups on the board.
        demand: how much waits for the throttle in each.
        open_groups: the groups that a living node says it has open: one that is gone from the board keeps what it was
            granted until it is closed.
        turn: grows by one about as often as groups shall take turns.
    """
    granted, openings = ({}, {}) if budget is None else (dict(budget.granted), dict(budget.openings))
    for group in granted.keys() | openings.keys():
        if group not in groups and group not in open_groups:
            granted.pop(group, None)
            openings.pop(group, None)
    wanted = aim(total, groups, demand, turn=turn)
    if budget is not None and _is_near(budget.wanted, wanted, total):
        wanted = budget.wanted
    _raise(granted, wanted, total)
    fresh = Budget(rate=total.rate, burst=total.burst, granted=granted, wanted=wanted, openings=openings)
    return None if fresh == budget else fresh


def _is_near(before: Mapping[str, Share], after: Mapping[str, Share], total: Share) -> bool:
    """Tell whether shares would change so little that they are better left alone."""
    if before.keys() != after.keys() or not _fits(list(before.values()), total):
        return False
    pairs = [(before[group], after[group]) for group in after]
    return all(
        abs(old.rate - new.rate) * _STEADY_PART <= total.rate
        and abs(old.burst - new.burst) * _STEADY_PART <= total.burst
        and (old == NOTHING) == (new == NOTHING)
        for old, new in pairs
    )


def _fits(shares: Sequence[Share], total: Share) -> bool:
    return sum(share.rate for share in shares) <= total.rate and sum(share.burst for share in shares) <= total.burst


def _raise(granted: dict[str, Share], wanted: Mapping[str, Share], total: Share) -> None:
    """Grant what is wanted, as far as there is room."""
    rate = total.rate - sum(share.rate for share in granted.values())
    burst = total.burst - sum(share.burst for share in granted.values())
    for group in sorted(wanted):
        has, wants = granted.get(group, NOTHING), wanted[group]
        more = Share(rate=max(0, min(wants.rate - has.rate, rate)), burst=max(0, min(wants.burst - has.burst, burst)))
        if more != NOTHING:
            granted[group] = Share(rate=has.rate + more.rate, burst=has.burst + more.burst)
            rate, burst = rate - more.rate, burst - more.burst


def owner_step(budget: Budget | None, group: str, *, opening: int, applied: Share | None) -> Step:
    """Return what the owner of a group does next about a throttle that is set for the cluster.

    The budget has to be read after this owner's last ``put`` was answered, and ``applied`` to be what the engine itself
    answers, never what was sent to it.

    Args:
        budget: what is on the board; None for nothing yet, and then the throttle is closed.
        group: whose owner asks.
        opening: the number of this opening, which its journal has: one more than that of the one before.
        applied: what the engine has; None if it does not know the throttle, which then limits nothing.
    """
    if budget is None:
        return Step() if applied == NOTHING else Step(apply=NOTHING)
    latest = budget.openings.get(group, 0)
    granted = budget.granted.get(group, NOTHING)
    due = _least(granted, budget.wanted.get(group, NOTHING))
    if latest != opening:
        due = _least(due, NOTHING if applied is None else applied)
    if applied != due:
        return Step(apply=due)
    if latest < opening:
        return Step(put=msgspec.structs.replace(budget, openings=budget.openings | {group: opening}))
    if latest == opening and granted != due:
        return Step(put=msgspec.structs.replace(budget, granted=budget.granted | {group: due}))
    return Step()


def _least(one: Share, other: Share) -> Share:
    return Share(rate=min(one.rate, other.rate), burst=min(one.burst, other.burst))
