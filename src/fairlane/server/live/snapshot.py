"""What a viewer is sent about once a second: queues with their rates, and of one queue the keys with their shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from heapq import nlargest
from itertools import zip_longest
from typing import Final

import msgspec

from fairlane.model.message import Key
from fairlane.model.views import KeyView, QueueView, ThrottleView
from fairlane.server.fair_shares import Asked, fair_shares, jain_index
from fairlane.server.live.fold import Counts
from fairlane.server.live.streams import StreamNow
from fairlane.server.live.windows import Held, KeyWindows, Window

QUEUES_MAX: Final = 200
CONSIDERED_MAX: Final = 300
"""So many keys with the most messages, and so many that were served most, are looked at closely."""


class QueueNow(msgspec.Struct, frozen=True, kw_only=True):
    """One queue, and what happened in it a second since the last time."""

    name: str
    waiting: int
    leased: int
    dead: int
    oldest_ms: int | None
    is_paused: bool
    paused_keys: int
    consumers: int
    waiters: int
    rates: dict[str, float]


class KeyNow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fairness key. ``windows`` has for each window the cost that came, that was served, and the fair share."""

    key: Key
    messages: int
    leased: int
    weight: int
    windows: list[tuple[int, int, float]]
    cap: int | None = None
    is_paused: bool = False
    wait_p50_ms: int | None = None
    wait_p99_ms: int | None = None
    throttle: str | None = None
    throttled_until_ms: int | None = None
    held_by: Held | None = None
    """What held it back within the last ten seconds beside the turns of others, now or not."""


class WindowNow(msgspec.Struct, frozen=True, kw_only=True):
    """All keys of a queue over one window."""

    span_ms: int
    covered_ms: int
    arrived: int
    served: int
    jain: float | None


class KeysNow(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of the queue that is watched: those with the most messages, and those that were served most."""

    name: str
    active_keys: int
    windows: list[WindowNow]
    keys: list[KeyNow]
    throttles: tuple[ThrottleView, ...]


class Picture(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything at one instant."""

    at_ms: int
    node: str | None = None
    """The node of a cluster that shows it."""
    queues: list[QueueNow]
    queues_left_off: int = 0
    queue: KeysNow | None = None
    streams: list[StreamNow] | None = None
    """Who consumes from the queue that is watched; told together with its keys."""


def queues_now(
    views: Iterable[QueueView], counts: dict[str, Counts], before: dict[str, Counts], elapsed_ms: int
) -> list[QueueNow]:
    """Return queues with their rates, the fullest first."""
    shown = nlargest(QUEUES_MAX, views, key=lambda view: view.waiting + view.leased + view.dead)
    nothing = Counts()
    return [
        QueueNow(
            name=view.name,
            waiting=view.waiting,
            leased=view.leased,
            dead=view.dead,
            oldest_ms=view.oldest_ms,
            is_paused=view.is_paused,
            paused_keys=len(view.paused_keys),
            consumers=view.consumers,
            waiters=view.waiters,
            rates=rates_of(counts.get(view.name, nothing), before.get(view.name, nothing), elapsed_ms),
        )
        for view in shown
    ]


def rates_of(now: Counts, before: Counts, elapsed_ms: int) -> dict[str, float]:
    """Return what happened a second."""
    names = Counts.__struct_fields__
    if elapsed_ms <= 0:
        return dict.fromkeys(names, 0.0)
    return {name: round((getattr(now, name) - getattr(before, name)) * 1000 / elapsed_ms, 2) for name in names}


class Looked(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that was looked at, for everybody who watches it."""

    view: QueueView
    windows: list[WindowNow]
    shares: list[dict[Key, float]]
    """For each window what would have been fair."""
    weight_of: Callable[[Key], int]


def looked_at(view: QueueView, windows: KeyWindows, weight_of: Callable[[Key], int], now_ms: int) -> Looked:
    """Look at a queue and at what was folded of it."""
    views = {each.key: each for each in view.keys}
    windows.hold(holds_of(view.keys), now_ms)
    weight_of = cache(weight_of)
    shares = [_fair(views, windows, served, weight_of) for served in windows.served]
    told = [
        WindowNow(
            span_ms=served.span_ms,
            covered_ms=served.covered_ms(now_ms),
            arrived=sum(arrived.totals),
            served=sum(served.totals),
            jain=jain_index(windows.of(served, key) / fair for key, fair in fairs.items() if fair > 0),
        )
        for arrived, served, fairs in zip(windows.arrived, windows.served, shares, strict=True)
    ]
    return Looked(view=view, windows=told, shares=shares, weight_of=weight_of)


def keys_now(
    looked: Looked, windows: KeyWindows, *, keys_max: int, match: str, others: Iterable[KeyView] = ()
) -> KeysNow:
    """Return the keys of a queue: half of them those with the most messages, the others those that were served most.

    ``others`` are keys that are looked for, and that may not be among those with the most messages.
    """
    views = {each.key: each for each in (*looked.view.keys, *others)}

    def now(key: Key) -> KeyNow:
        columns = zip(windows.arrived, windows.served, looked.shares, strict=True)
        amounts = [
            (windows.of(came, key), windows.of(went, key), round(fair.get(key, 0.0), 2)) for came, went, fair in columns
        ]
        return _key_now(key, views.get(key), amounts, windows, looked.weight_of)

    return KeysNow(
        name=looked.view.name,
        active_keys=looked.view.active_keys or 0,
        windows=looked.windows,
        keys=[now(key) for key in _chosen(views, windows, keys_max=keys_max, match=match)],
        throttles=looked.view.throttles,
    )


def _chosen(views: dict[Key, KeyView], windows: KeyWindows, *, keys_max: int, match: str) -> list[Key]:
    def is_wanted(key: Key) -> bool:
        return is_like(key, match)

    fullest = nlargest(keys_max, filter(is_wanted, views), key=lambda key: views[key].messages)
    busiest = windows.busiest(windows.served[1], keys_max, wanted=is_wanted if match else None)
    both = dict.fromkeys(key for pair in zip_longest(fullest, busiest) for key in pair if key is not None)
    return list(both)[:keys_max]


def is_like(key: Key, match: str) -> bool:
    """Tell whether a key, a path with slashes between its names, has a text in it, in capitals or not."""
    return not match or match.lower() in (key if isinstance(key, str) else "/".join(key)).lower()


def _fair(
    views: dict[Key, KeyView], windows: KeyWindows, served: Window, weight_of: Callable[[Key], int]
) -> dict[Key, float]:
    keys = {**views, **dict.fromkeys(windows.busiest(served, CONSIDERED_MAX))}
    asked = {key: _asked(key, views.get(key), windows, windows.of(served, key)) for key in keys}
    return fair_shares(asked, weight_of)


def _asked(key: Key, view: KeyView | None, windows: KeyWindows, served: int) -> Asked:
    """Return what a key was served, and with it what waits; what is held back by more than turns is not counted."""
    if view is None or key in windows.held:
        return Asked(served, served)
    return Asked(served, served + (view.messages - view.leased) * windows.costs.get(key, 1))


def holds_of(views: Iterable[KeyView]) -> dict[Key, Held]:
    """Return what holds back keys, beside the turns of others."""
    found: dict[Key, Held] = {}
    for view in views:
        if view.is_paused:
            found[view.key] = Held("pause")
        elif view.throttle is not None:
            found[view.key] = Held("throttle", view.throttle)
        elif view.cap is not None and view.leased >= view.cap and view.messages > view.leased:
            found[view.key] = Held("cap")
    return found


def _key_now(
    key: Key,
    view: KeyView | None,
    amounts: list[tuple[int, int, float]],
    windows: KeyWindows,
    weight_of: Callable[[Key], int],
) -> KeyNow:
    if view is None:
        return KeyNow(key=key, messages=0, leased=0, weight=weight_of(key), windows=amounts)
    return KeyNow(
        key=key,
        messages=view.messages,
        leased=view.leased,
        weight=view.weight,
        windows=amounts,
        cap=view.cap,
        is_paused=view.is_paused,
        wait_p50_ms=view.wait_p50_ms,
        wait_p99_ms=view.wait_p99_ms,
        throttle=view.throttle,
        throttled_until_ms=view.throttled_until_ms,
        held_by=windows.held[key].by if key in windows.held else None,
    )
