"""One window of a queue for viewers: what its keys got and were entitled to, who is noisy, and who is a victim."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

import msgspec

from fairlane.model.message import Key
from fairlane.model.noise import BOUND, OBSERVED_MS_MIN, KeyLoad, demand, noisy_keys, victims
from fairlane.model.shares import entitlements, fair_ratio, jain_index
from fairlane.model.views import KeyView
from fairlane.server.live.windows import KeyWindows, Window

CONSIDERED_MAX: Final = 300
"""Keys that entitled shares are computed over: as many with the most messages, and as many served most."""
NAMED_MAX: Final = 5
"""The noisy keys of a window that are named, and the victims."""


class NoisyKey(msgspec.Struct, frozen=True, kw_only=True):
    """A noisy key, by ``fairlane.model.noise``.

    Attributes:
        wanted: the cost that it wanted in the window, by ``demand``.
        served: the cost that it was served.
        entitled: the cost that it was entitled to.
        refused: the cost that limits refused.
    """

    key: Key
    wanted: int
    served: int
    entitled: float
    refused: int


class VictimKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that got less than its share while another got more, by ``fairlane.model.noise``.

    Attributes:
        served: the cost that it was served.
        entitled: the cost that it was entitled to.
    """

    key: Key
    served: int
    entitled: float


class WindowSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All keys of a queue over one window.

    Attributes:
        wanted: the cost that all keys together wanted.
        noisy: the noisy keys, the noisiest first. A paused key is never among them.
        victims: the keys that got less than their share while another got more, the largest lack first.
    """

    span_ms: int
    covered_ms: int
    arrived: int
    served: int
    jain: float | None
    wanted: int = 0
    noisy: list[NoisyKey] = []
    victims: list[VictimKey] = []


def entitled_shares(
    views: dict[Key, KeyView], windows: KeyWindows, served: Window, weight_of: Callable[[Key], int]
) -> dict[Key, float]:
    """Return what each key was entitled to in a window."""
    keys = {**views, **dict.fromkeys(windows.busiest(served, CONSIDERED_MAX))}
    costs = {key: windows.of(served, key) for key in keys}
    wanted = {key: _wanted(key, views.get(key), windows, cost) for key, cost in costs.items()}
    return entitlements(sum(costs.values()), wanted, weight_of)


def _wanted(key: Key, view: KeyView | None, windows: KeyWindows, served: int) -> float:
    """Return the cost that a key would have taken: what it was served, and its backlog.

    A key that a throttle, its cap or a pause holds back wants no more than it got: it is not starved.
    """
    return served if key in windows.held else served + _waiting(view, windows)


def _waiting(view: KeyView | None, windows: KeyWindows) -> int:
    """Return the cost of a key's backlog."""
    return 0 if view is None else (view.messages - view.leased) * windows.costs.get(view.key, 1)


def summary_of(
    views: dict[Key, KeyView],
    windows: KeyWindows,
    at: int,
    entitled: dict[Key, float],
    weight_of: Callable[[Key], int],
    now_ms: int,
) -> WindowSnapshot:
    """Return how a window went for all keys, given the shares that they were entitled to."""
    arrived, served = windows.arrived[at], windows.served[at]
    ratios = [
        fair_ratio(windows.of(served, key), share, grain=windows.costs.get(key, 1))
        for key, share in entitled.items()
        if share > 0
    ]
    covered_ms = served.covered_ms(now_ms)
    wanted = {key: _demand(key, views.get(key), windows, at, covered_ms) for key in entitled}
    is_known = covered_ms >= OBSERVED_MS_MIN
    loads = _loads(views, windows, at, entitled, wanted, weight_of) if is_known else {}
    return WindowSnapshot(
        span_ms=served.span_ms,
        covered_ms=covered_ms,
        arrived=sum(arrived.totals),
        served=sum(served.totals),
        jain=jain_index(ratios),
        wanted=sum(wanted.values()),
        noisy=_noisy(loads, windows, at),
        victims=_victims(loads, windows, covered_ms, now_ms),
    )


def _demand(key: Key, view: KeyView | None, windows: KeyWindows, at: int, covered_ms: int) -> int:
    """Return what a key wanted in a window. Of a key that is held back and was not served, only arrivals count."""
    waited_ms = None if view is None else view.wait_p99_ms
    is_known = waited_ms is not None or key not in windows.held
    return round(
        demand(
            arrived=windows.of(windows.arrived[at], key),
            served=windows.of(windows.served[at], key),
            refused=windows.of(windows.refused[at], key),
            waiting=_waiting(view, windows) if is_known else 0,
            waited_ms=waited_ms,
            window_ms=covered_ms,
        )
    )


def _loads(
    views: dict[Key, KeyView],
    windows: KeyWindows,
    at: int,
    entitled: dict[Key, float],
    wanted: dict[Key, int],
    weight_of: Callable[[Key], int],
) -> dict[Key, KeyLoad]:
    served = {key: windows.of(windows.served[at], key) for key in entitled}
    parts = entitlements(sum(served.values()), dict.fromkeys(entitled, inf), weight_of)
    return {
        key: KeyLoad(
            wanted=wanted[key],
            served=served[key],
            entitled=entitled[key],
            part=parts[key],
            grain=windows.costs.get(key, 1),
        )
        for key in entitled
        if (view := views.get(key)) is None or not view.is_paused
    }


def _noisy(loads: dict[Key, KeyLoad], windows: KeyWindows, at: int) -> list[NoisyKey]:
    return [
        NoisyKey(
            key=key,
            wanted=round(loads[key].wanted),
            served=round(loads[key].served),
            entitled=round(loads[key].entitled, 2),
            refused=windows.of(windows.refused[at], key),
        )
        for key in noisy_keys(loads)[:NAMED_MAX]
    ]


def _victims(loads: dict[Key, KeyLoad], windows: KeyWindows, covered_ms: int, now_ms: int) -> list[VictimKey]:
    """Return the victims that had work for as good as the whole window."""
    least_ms = covered_ms * (1 - BOUND)
    found = [key for key in victims(loads) if windows.ready_ms(key, now_ms) >= least_ms]
    return [
        VictimKey(key=key, served=round(loads[key].served), entitled=round(loads[key].entitled, 2))
        for key in found[:NAMED_MAX]
    ]
