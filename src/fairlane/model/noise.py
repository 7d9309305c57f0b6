"""Who is noisy: the one definition, for the dashboard, the live feed and the report.

A key is *noisy* if it wants far more than its share while others make do with theirs. To accuse a paying tenant falsely
costs more trust than to miss a small one, so all of this must hold over the window:

- it wanted at least ``TIMES`` its share. What a key *wanted* is its demand in the window: what it brought, and what
  limits refused; see ``demand``. Its share is what it was entitled to, or its part by weight if that is more: a key
  that wants less than its part is never noisy, however little it got;
- what it wanted beyond its share is at least ``OF_CAPACITY`` of all that was served, so that it matters;
- it wanted at least ``TIMES`` what is usual among the others, by weight: the lower quartile of them. If all want too
  much, there are too few consumers, and no key is to blame.

All of this must also last. The live view names nobody before ``OBSERVED_MS_MIN`` of a window were observed. The report
judges each hour of its tables, so that a flood of some minutes is not lost in a quiet day, and leaves out a backlog
that was served within the next hour.

A key is a *victim* if it was served less than it was entitled to while another was served more than that, each by more
than ``BOUND`` of what it was entitled to, ``OF_CAPACITY`` of all that was served, and one message: a fair scheduler is
as unfair as that. A key that had no work for part of the window could not have been served then, so the live view names
only keys that had work for all but ``BOUND`` of it, and none if priorities decide who is served.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

K = TypeVar("K")

TIMES: Final = 2.0
OF_CAPACITY: Final = 0.1
OBSERVED_MS_MIN: Final = 5_000
HOUR_MS: Final = 3_600_000
BOUND: Final = 0.1
"""The part of its entitled share by which a victim falls short at least, and by which another must exceed its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLoad:
    """What one key wanted and got in a window, as cost.

    Attributes:
        wanted: its demand, from ``demand``.
        served: what it was served.
        entitled: what it was entitled to, by weight among the keys that had work, and at most what it could use.
        part: its part of all that was served, by weight among all keys, whatever they wanted.
        grain: what one of its messages costs.
    """

    wanted: float
    served: float
    entitled: float
    part: float
    grain: float = 1.0

    @property
    def share(self) -> float:
        """The most that it may take without being noisy."""
        return max(self.entitled, self.part)

    @property
    def excess(self) -> float:
        """What it wanted beyond its share."""
        return self.wanted - self.share

    @property
    def lack(self) -> float:
        """What it was served less than it was entitled to."""
        return self.entitled - self.served


def demand(
    *,
    arrived: float,
    served: float,
    refused: float,
    served_after: float = 0.0,
    waiting: float = 0.0,
    waited_ms: float | None = None,
    window_ms: float = 0,
) -> float:
    """Return what a key wanted in a window.

    A backlog is demand of the time in which it arrived. A tenant that brings a quarter more than its share all day has
    a large backlog in the evening, and still wants only a quarter more. What is handed out first has waited as long as
    the rest took to arrive, so the part of the backlog that belongs to the window follows from that wait.

    Args:
        arrived: what was enqueued in the window, as far as it was observed.
        served: what was served; some of it may have arrived before the window.
        refused: what limits refused.
        served_after: where it is known, what was served in a window of the same length after this one, beyond what was
            enqueued then. If that is all that this window left behind, the consumers had room for it: a batch that
            comes just before the full hour is no flood.
        waiting: the backlog at the end of the window.
        waited_ms: how long the latest messages that were served had waited; None if there were none.
        window_ms: how long the window was observed.
    """
    part = min(1.0, window_ms / waited_ms) if waited_ms else 1.0
    if 0 < arrived - served <= served_after:
        arrived = served
    # What the backlog says is about the time before limits refused anything, so refusals are not added to it.
    return max(refused + max(arrived, served), waiting * part)


def noisy_keys(loads: Mapping[K, KeyLoad]) -> list[K]:
    """Return the noisy keys, the one with the most beyond its share first."""
    capacity = sum(load.served for load in loads.values())
    if capacity <= 0 or len(loads) < 2:  # noqa: PLR2004 - a single key has no others
        return []
    usual = sorted((_relative(load), at) for at, load in enumerate(loads.values()))
    found = [
        (load.excess, key)
        for at, (key, load) in enumerate(loads.items())
        if load.wanted >= TIMES * load.share
        and load.excess >= OF_CAPACITY * capacity
        and _relative(load) >= TIMES * _lower_quartile(usual, without=at)
    ]
    return [key for _, key in sorted(found, key=lambda pair: -pair[0])]


def victims(loads: Mapping[K, KeyLoad]) -> list[K]:
    """Return the keys that got less than they were entitled to while another got more, the largest lack first."""
    least = OF_CAPACITY * sum(load.served for load in loads.values())

    def matters(amount: float, load: KeyLoad) -> bool:
        return amount > max(BOUND * load.entitled, least, load.grain)

    if not any(matters(-load.lack, load) for load in loads.values()):
        return []
    found = [(load.lack, key) for key, load in loads.items() if matters(load.lack, load)]
    return [key for _, key in sorted(found, key=lambda pair: -pair[0])]


def _relative(load: KeyLoad) -> float:
    """Return what a key wanted in proportion to its weight."""
    return load.wanted / load.part if load.part > 0 else 0.0


def _lower_quartile(usual: list[tuple[float, int]], *, without: int) -> float:
    """Return the lower quartile of sorted values, with the place each has among the keys, without one of them."""
    at = (len(usual) - 2) // 4
    position = next(place for place, (_, own) in enumerate(usual) if own == without)
    return usual[at if at < position else at + 1][0]
