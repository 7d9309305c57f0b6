"""Joins the views of partitions into the view of the whole queue. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from fairlane.model.names import own_dlq
from fairlane.model.partitions import Split, place_in
from fairlane.model.views import HookStatistics, KeyView, QueueView, RedriveView, ThrottleView

INSPECTED_KEYS: Final = 100
"""How many fairness keys ``inspect`` shows."""
JOINT: Final = ","
"""Separates the ids of the redrives of partitions that were started together."""
_COUNTS: Final = (
    *("waiting", "leased", "size", "dead", "waiters", "consumers", "claimed", "staged", "dead_letters", "refused"),
)
"""The numbers of a queue that are the sums of those of its partitions."""
T = TypeVar("T")


def queue_view(queue: str, views: Sequence[QueueView], *, made: int, keys_max: int) -> QueueView:
    """Return the view of a queue from those of its partitions, in order."""
    first = views[0]
    keys, counted = _keys(views)
    return msgspec.structs.replace(
        first,
        name=queue,
        created_ms=min(view.created_ms for view in views),
        is_paused=any(view.is_paused for view in views),
        paused_keys=tuple(dict.fromkeys(key for view in views for key in view.paused_keys)),
        **_sums(views, *_COUNTS),
        oldest_ms=_least(view.oldest_ms for view in views),
        active_keys=counted,
        keys=tuple(sorted(keys, key=lambda view: -view.messages)[:keys_max]),
        throttles=_throttles(views),
        registered=tuple(each for view in views for each in view.registered),
        sinks=tuple(each for view in views for each in view.sinks),
        partitions=made,
        redrives=tuple(each for view in views for each in view.redrives),
        dead_letter_queue=own_dlq(queue),
    )


def _sums(parts: Sequence[object], *names: str) -> dict[str, Any]:
    return {name: sum(getattr(part, name) for part in parts) for name in names}


def _least(instants: Iterable[int | None]) -> int | None:
    return min((instant for instant in instants if instant is not None), default=None)


def _most(numbers: Iterable[int | None]) -> int | None:
    return max((number for number in numbers if number is not None), default=None)


def _by(name: Callable[[T], object], items: Iterable[T]) -> list[list[T]]:
    """Return items grouped by name, in the order in which names first occur."""
    groups: dict[object, list[T]] = {}
    for item in items:
        groups.setdefault(name(item), []).append(item)
    return list(groups.values())


def _keys(views: Sequence[QueueView]) -> tuple[list[KeyView], int | None]:
    """Return all keys in the views, and how many keys are active; a key that is in several partitions counts once."""
    groups = _by(lambda view: view.key, (key for view in views for key in view.keys))
    twice = sum(len(group) - 1 for group in groups)
    counts = [view.active_keys for view in views if view.active_keys is not None]
    return [_key(group) for group in groups], sum(counts) - twice if counts else None


def _key(parts: list[KeyView]) -> KeyView:
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    is_held = all(part.throttle is not None for part in parts)
    return msgspec.structs.replace(
        first,
        **_sums(parts, "messages", "leased", "deficit"),
        is_paused=all(part.is_paused for part in parts),
        may_go=any(part.may_go for part in parts),
        wait_p50_ms=_most(part.wait_p50_ms for part in parts),
        wait_p99_ms=_most(part.wait_p99_ms for part in parts),
        throttle=first.throttle if is_held else None,
        throttled_until_ms=_least(part.throttled_until_ms for part in parts) if is_held else None,
    )


def _throttles(views: Sequence[QueueView]) -> tuple[ThrottleView, ...]:
    """Return throttles with the sum of what the partitions have: each has a part of the rate."""
    groups = _by(lambda view: view.name, (throttle for view in views for throttle in view.throttles))
    return tuple(msgspec.structs.replace(group[0], **_sums(group, "rate", "burst", "tokens")) for group in groups)


def queues_by_name(views: Iterable[QueueView], split_of: Callable[[str], Split | None]) -> list[QueueView]:
    """Return queues by name, each split queue as one."""
    found: dict[str, dict[int, QueueView]] = {}
    for view in views:
        queue, at = place_in(view.name)
        split = split_of(queue)
        if split is None or (at or 0) >= split.made:
            found[view.name] = {0: view}  # what an unfinished deletion or split has left is shown as it is
        else:
            found.setdefault(queue, {})[at or 0] = view
    return [_one(name, found[name], split_of(name)) for name in sorted(found)]


def _one(name: str, parts: Mapping[int, QueueView], split: Split | None) -> QueueView:
    if split is None or place_in(name)[1] is not None:
        return parts[0]
    return queue_view(name, [parts[at] for at in sorted(parts)], made=split.made, keys_max=0)


def redrive_view(queue: str, views: Sequence[RedriveView]) -> RedriveView:
    """Return the view of a redrive from those of the partitions."""
    if len(views) == 1:
        return msgspec.structs.replace(views[0], queue=queue)
    statuses = [view.status for view in views]
    status = next((each for each in ("running", "failed", "stopped") if each in statuses), "done")
    return msgspec.structs.replace(
        views[0],
        id=JOINT.join(view.id for view in views),
        queue=queue,
        status=status,
        **_sums(views, "total", "scanned", "matched", "moved"),
        started_ms=min(view.started_ms for view in views),
        ended_ms=None if status == "running" else _most(view.ended_ms for view in views),
        error=next((view.error for view in views if view.error is not None), None),
    )


def hook_statistics(parts: Sequence[HookStatistics]) -> HookStatistics:
    """Return the statistics of a queue's scripts from those of the partitions."""
    return HookStatistics(
        **_sums(parts, "calls", "faults", "bypassed", "elapsed_us", "trips"),
        is_open=any(part.is_open for part in parts),
        last_fault=next((part.last_fault for part in parts if part.last_fault is not None), None),
        open_by=next((part.open_by for part in parts if part.open_by is not None), None),
    )
