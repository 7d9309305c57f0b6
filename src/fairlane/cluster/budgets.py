"""Throttles that several groups share: each group has a part, and the parts never add up to more than the throttle has.

The part of a group is in the config of its engine, so it is exact there, also after a crash. The board has what was
*granted* to each group, and what is *wanted* for it. The order of steps keeps the sum:

- The *steward*, any node, raises a grant only while the sum fits, and otherwise only says what is wanted.
- The *owner* of a group raises its engine only to what is granted. Where less is wanted, it lowers its engine first,
  and returns the rest of the grant only when that is committed.

So wherever an owner stops, its grant is at least what its engine uses. The next owner starts with what the journal
says. An owner that has been replaced without knowing it can do no harm: each opening of a group has a number that
grows, which it writes to its journal first, and only the opening with the highest number on the board changes the
grant of the group. An engine is raised only by an opening that is on the board.

A pattern of throttles is divided like one throttle: a group has the same part of every throttle that gets its rate from
the pattern. So the board has one entry for a pattern, however many names there are, and no name gets more than the
whole. A name that is used in one group only gets no more than the part of that group.

Groups are given parts by the weights of their queues that the throttle holds up, and each engine divides its part among
these queues by the same weights. So what a queue gets depends on its weight alone, wherever it is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import gcd
from typing import Final

import msgspec

from fairlane.cluster.entries import Budget, Share
from fairlane.core.config_patterns import THROTTLE_PREFIX, ConfigPatterns
from fairlane.core.throttling import throttle_names
from fairlane.verbs.keys import EVERY

OPENING_KEY: Final = "cluster:opening"
"""The config key under which a group keeps the number of its opening."""
NOTHING: Final = Share(0, 0)
_MILLIONTHS: Final = 1_000_000
_IDLE_PART: Final = 20
"""Groups without demand keep a twentieth of the rate together, so that a first message need not wait for a part."""
_STEADY_PART: Final = 10
"""Parts stay as they are while none would change by more than a tenth of itself."""
_TURN_S: Final = 2.0
"""The least time for which a group keeps a token when a throttle has fewer tokens than groups."""
_TURN_TOKENS: Final = 5
"""How often a token is earned again in a turn, at least. What is saved of the next one when the turn ends is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the owner of a group does next about a throttle; nothing if both are None.

    Attributes:
        apply: the part that its engine must have, durably, before anything else.
        put: the budget to put on the board.
    """

    apply: Share | None = None
    put: Budget | None = None


# -------------------------------------------------------------------------------------------------------- config values


def totals(config: Mapping[str, str]) -> dict[str, Share]:
    """Return the total of each throttle, and of each pattern of throttles, in a config.

    One that has only some settings under its own name has the others from patterns, see ``config_patterns``.
    """
    settings = {key: value for key, value in config.items() if key.startswith(THROTTLE_PREFIX)}
    patterns = ConfigPatterns(settings)
    found = {name: _total(settings, patterns, name) for name in throttle_names(settings)}
    return {name: share for name, share in found.items() if share is not None}


def _total(config: Mapping[str, str], patterns: ConfigPatterns, throttle: str) -> Share | None:
    def setting(name: str) -> str | None:
        pattern = patterns.throttle_pattern(throttle.removesuffix(EVERY), name)
        return config.get(f"{THROTTLE_PREFIX}{throttle}:{name}", None if pattern is None else pattern[1])

    return _share(setting("rate"), setting("burst"))


def share_in(config: Mapping[str, str], throttle: str) -> Share | None:
    """Return what a config says about a throttle by its own name; None if it has no rate there."""
    return _share(config.get(f"throttle:{throttle}:rate"), config.get(f"throttle:{throttle}:burst"))


def _share(rate: str | None, burst: str | None) -> Share | None:
    if rate is None:
        return None
    saved = max(Decimal(1), Decimal(rate)) if burst is None else Decimal(burst)
    return Share(rate=int(Decimal(rate) * _MILLIONTHS), burst=int(saved))


def config_of(throttle: str, share: Share) -> dict[str, str]:
    """Return the config values of a group for its part. A part without tokens closes the throttle."""
    whole, rest = divmod(share.rate, _MILLIONTHS)
    rate = f"{whole}.{rest:06}".rstrip("0").rstrip(".")
    return {f"throttle:{throttle}:burst": str(share.burst), f"throttle:{throttle}:rate": rate}


# --------------------------------------------------------------------------------------------------------- wanted parts


def split(amount: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Divide a whole number by weights into whole numbers that add up to it; zeros if there is no weight."""
    total = sum(weights.values())
    if total <= 0:
        return dict.fromkeys(weights, 0)
    parts = {name: amount * weight // total for name, weight in weights.items()}
    left = amount - sum(parts.values())  # rounding down left fewer units than there are names: largest remainders win
    for name in sorted(weights, key=lambda name: (-(amount * weights[name] % total), name))[:left]:
        parts[name] += 1
    return parts


def turn_at(total: Share, now_s: float) -> int:
    """Return the number of the turn at an instant, for a throttle with fewer tokens than groups."""
    return int(now_s / max(_TURN_S, _TURN_TOKENS * total.burst * _MILLIONTHS / max(1, total.rate)))


def aim(total: Share, groups: Collection[str], demand: Mapping[str, int], *, turn: int = 0) -> dict[str, Share]:
    """Return what each group should have.

    Groups with demand share nearly everything, in proportion to it. Where there are fewer tokens than groups, they take
    turns.

    Args:
        total: the total of the throttle.
        groups: all groups.
        demand: the weights of the queues of each group that the throttle holds up, added up.
        turn: the number of the turn.
    """
    asking = {group: demand[group] for group in groups if demand.get(group, 0) > 0}
    idle = dict.fromkeys((group for group in groups if group not in asking), 1)
    if not asking:
        return _shared(total, idle, turn=0)
    shares = dict.fromkeys(idle, NOTHING)
    if idle and total.burst // 4 >= len(idle):
        kept = Share(rate=total.rate // _IDLE_PART, burst=len(idle))
        shares = _shared(kept, idle, turn=0)
        total = Share(rate=total.rate - kept.rate, burst=total.burst - kept.burst)
    return shares | _shared(total, asking, turn=turn)


def _shared(total: Share, weights: Mapping[str, int], *, turn: int) -> dict[str, Share]:
    """Divide a total by weights, but at least one token for each group; they take turns if there are not enough."""
    # A rate without a token to save it up in would never let a message go, so tokens are handed out first.
    if total.burst < len(weights):
        tokens = _in_turns(total.burst, weights, turn)
        rates = split(total.rate, tokens)
    else:
        more = split(total.burst - len(weights), weights)
        tokens = {name: 1 + more[name] for name in weights}
        rates = split(total.rate, weights)
    return {name: Share(rate=rates[name], burst=tokens[name]) for name in weights}


def _in_turns(tokens: int, weights: Mapping[str, int], turn: int) -> dict[str, int]:
    """Divide tokens that are too few for all, so that each group has had its part exactly after some turns.

    Each group has a stretch of a line, as long as its weight. The tokens are points on the line, all equally far from
    each other, and the group whose stretch holds a point has the token. Each turn moves the points together. A step of
    about 0.618 of the distance between them, without a common divisor, brings each point everywhere in as many turns as
    the distance is long, and soon near to everywhere.
    """
    unit = gcd(*weights.values())
    distance = sum(weights.values()) // unit
    step = next(each for each in range(distance * 618 // 1_000 + 1, 2 * distance + 1) if gcd(each, distance) == 1)
    first = turn * step % distance
    found, end = dict[str, int](), 0
    for name in sorted(weights):
        begin, end = end, end + tokens * weights[name] // unit
        found[name] = (first - begin) // distance - (first - end) // distance
    return found


# ------------------------------------------------------------------------------------------------------------- steps


def steward_step(
    budget: Budget | None,
    total: Share,
    *,
    groups: Collection[str],
    demand: Mapping[str, int],
    open_groups: Collection[str] = (),
    turn: int = 0,
) -> Budget | None:
    """Return the budget that the steward puts on the board for a throttle, or None if it is there already.

    Args:
        budget: the budget on the board; None if there is none.
        total: the total of the throttle.
        groups: all groups on the board.
        demand: the weights of the queues of each group that the throttle holds up, added up.
        open_groups: the groups that a live node says it has open. A group that is no longer on the board keeps its
            grant until it is closed.
        turn: the number of the turn, see ``turn_at``.
    """
    granted, openings = ({}, {}) if budget is None else (dict(budget.granted), dict(budget.openings))
    for group in granted.keys() | openings.keys():
        if group not in groups and group not in open_groups:
            granted.pop(group, None)
            openings.pop(group, None)
    # Each change costs two commits for each group, so small ones are not worth it.
    wanted = aim(total, groups, demand, turn=turn)
    if budget is not None and _is_near(budget.wanted, wanted, total):
        wanted = budget.wanted
    _raise(granted, wanted, total)
    fresh = Budget(rate=total.rate, burst=total.burst, granted=granted, wanted=wanted, openings=openings)
    return None if fresh == budget else fresh


def _is_near(before: Mapping[str, Share], after: Mapping[str, Share], total: Share) -> bool:
    """Return whether parts would change so little that they are better left alone."""
    if before.keys() != after.keys() or not _fits(list(before.values()), total):
        return False
    pairs = [(before[group], after[group]) for group in after]
    return all(
        abs(old.rate - new.rate) * _STEADY_PART <= new.rate
        and abs(old.burst - new.burst) * _STEADY_PART <= new.burst
        and (old == NOTHING) == (new == NOTHING)
        for old, new in pairs
    )


def _fits(shares: Sequence[Share], total: Share) -> bool:
    return sum(share.rate for share in shares) <= total.rate and sum(share.burst for share in shares) <= total.burst


def _raise(granted: dict[str, Share], wanted: Mapping[str, Share], total: Share) -> None:
    """Raise grants to what is wanted, as far as the sum allows. Only owners lower them."""
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

    The budget must be read after this owner's last ``put`` was answered, and ``applied`` must be what the engine itself
    answers, never what was sent to it.

    Args:
        budget: the budget on the board; None if there is none yet, and then the throttle is closed.
        group: the group.
        opening: the number of this opening, which its journal has: one more than that of the previous one.
        applied: what the engine has; None if it does not know the throttle, and so is not limited by it.
    """
    if budget is None:
        return Step() if applied == NOTHING else Step(apply=NOTHING)
    latest = budget.openings.get(group, 0)
    granted = budget.granted.get(group, NOTHING)
    due = _least(granted, budget.wanted.get(group, NOTHING))
    if latest != opening:  # this opening is not on the board yet, or no longer the latest: it may lower, never raise
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
