"""Snapshots for viewers of the live feed: queues with their rates, and the keys of one queue with their shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from heapq import nlargest
from itertools import zip_longest
from typing import Final

import msgspec

from fairlane.model.message import Key
from fairlane.model.views import BreakerCause, KeyView, QueueView, ThrottleView
from fairlane.server.live.fold import EventCounts
from fairlane.server.live.streams import StreamSnapshot
from fairlane.server.live.summary import WindowSnapshot, entitled_shares, summary_of
from fairlane.server.live.windows import HeldBy, KeyWindows

QUEUES_MAX: Final = 1_000


class QueueSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One queue. ``rates`` are per second since the last snapshot; ``bypass`` is why its hooks are bypassed now."""

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
    bypass: BreakerCause | None = None


class KeySnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fairness key.

    Attributes:
        windows: for each window, the cost that arrived, the cost served, the entitled share, and the cost that limits
            refused.
    """

    key: Key
    messages: int
    leased: int
    weight: int
    windows: list[tuple[int, int, float, int]]
    cap: int | None = None
    is_paused: bool = False
    wait_p50_ms: int | None = None
    wait_p99_ms: int | None = None
    throttle: str | None = None
    throttled_until_ms: int | None = None
    held_by: HeldBy | None = None
    """What held the key back within the last ten seconds, apart from the turns of other keys."""


class WatchedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The watched queue with its keys: those with the most messages, and those served most."""

    name: str
    active_keys: int
    windows: list[WindowSnapshot]
    keys: list[KeySnapshot]
    throttles: tuple[ThrottleView, ...]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a viewer receives about once a second."""

    at_ms: int
    node: str | None = None
    """The node of a cluster that sent it."""
    queues: list[QueueSnapshot]
    queues_left_off: int = 0
    queue: WatchedQueue | None = None
    streams: list[StreamSnapshot] | None = None
    """Streaming consumers of the watched queue; sent together with its keys."""


def queue_snapshots(
    views: Iterable[QueueView],
    counts: dict[str, EventCounts],
    before: dict[str, EventCounts],
    elapsed_ms: int,
    bypass_of: Callable[[str], BreakerCause | None],
) -> list[QueueSnapshot]:
    """Return queues with their rates, those with the most messages first."""
    largest = nlargest(QUEUES_MAX, views, key=lambda view: view.waiting + view.leased + view.dead)
    nothing = EventCounts()
    return [
        QueueSnapshot(
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
            bypass=bypass_of(view.name),
        )
        for view in largest
    ]


def rates_of(now: EventCounts, before: EventCounts, elapsed_ms: int) -> dict[str, float]:
    """Return events per second."""
    names = EventCounts.__struct_fields__
    if elapsed_ms <= 0:
        return dict.fromkeys(names, 0.0)
    return {name: round((getattr(now, name) - getattr(before, name)) * 1000 / elapsed_ms, 2) for name in names}


class QueueSample(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a queue, shared by all its viewers."""

    view: QueueView
    windows: list[WindowSnapshot]
    shares: list[dict[Key, float]]
    """The entitled shares of each window."""
    weight_of: Callable[[Key], int]


def sample_queue(view: QueueView, windows: KeyWindows, weight_of: Callable[[Key], int], now_ms: int) -> QueueSample:
    """Combine a view of a queue with its windows."""
    views = {each.key: each for each in view.keys}
    windows.hold(holds_of(view.keys), now_ms)
    windows.note_ready(_ready(view), now_ms)
    weight_of = cache(weight_of)
    shares = [entitled_shares(views, windows, served, weight_of) for served in windows.served]
    summaries = [summary_of(views, windows, at, share, weight_of, now_ms) for at, share in enumerate(shares)]
    return QueueSample(view=view, windows=summaries, shares=shares, weight_of=weight_of)


def _ready(view: QueueView) -> list[Key]:
    """Return the keys with work that only waits for its turn. With strict priorities, turns are not by weight."""
    if view.policy.strict_priority:
        return []
    return [each.key for each in view.keys if each.may_go and each.messages > each.leased]


def watched_queue(
    sample: QueueSample, windows: KeyWindows, *, keys_max: int, match: str, others: Iterable[KeyView] = ()
) -> WatchedQueue:
    """Return a queue with its keys: half of them have the most messages, half were served most.

    ``others`` are keys that match the viewer's query and need not be among those with the most messages.
    """
    views = {each.key: each for each in (*sample.view.keys, *others)}

    def snapshot(key: Key) -> KeySnapshot:
        columns = zip(windows.arrived, windows.served, sample.shares, windows.refused, strict=True)
        amounts = [
            (
                windows.of(arrived, key),
                windows.of(served, key),
                round(entitled.get(key, 0.0), 2),
                windows.of(refused, key),
            )
            for arrived, served, entitled, refused in columns
        ]
        return _key_snapshot(key, views.get(key), amounts, windows, sample.weight_of)

    return WatchedQueue(
        name=sample.view.name,
        active_keys=sample.view.active_keys or 0,
        windows=sample.windows,
        keys=[snapshot(key) for key in _chosen(views, windows, keys_max=keys_max, match=match)],
        throttles=sample.view.throttles,
    )


def _chosen(views: dict[Key, KeyView], windows: KeyWindows, *, keys_max: int, match: str) -> list[Key]:
    def is_wanted(key: Key) -> bool:
        return matches(key, match)

    fullest = nlargest(keys_max, filter(is_wanted, views), key=lambda key: views[key].messages)
    busiest = windows.busiest(windows.served[1], keys_max, wanted=is_wanted if match else None)
    both = dict.fromkeys(key for pair in zip_longest(fullest, busiest) for key in pair if key is not None)
    return list(both)[:keys_max]


def matches(key: Key, match: str) -> bool:
    """Return whether a key contains a text, ignoring case; a path has slashes between its names."""
    return not match or match.lower() in (key if isinstance(key, str) else "/".join(key)).lower()


def holds_of(views: Iterable[KeyView]) -> dict[Key, HeldBy]:
    """Return what holds keys back, apart from the turns of other keys."""
    found: dict[Key, HeldBy] = {}
    for view in views:
        if view.is_paused:
            found[view.key] = HeldBy("pause")
        elif view.throttle is not None:
            found[view.key] = HeldBy("throttle", view.throttle)
        elif view.cap is not None and view.leased >= view.cap and view.messages > view.leased:
            found[view.key] = HeldBy("cap")
    return found


def _key_snapshot(
    key: Key,
    view: KeyView | None,
    amounts: list[tuple[int, int, float, int]],
    windows: KeyWindows,
    weight_of: Callable[[Key], int],
) -> KeySnapshot:
    if view is None:
        return KeySnapshot(key=key, messages=0, leased=0, weight=weight_of(key), windows=amounts)
    return KeySnapshot(
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
