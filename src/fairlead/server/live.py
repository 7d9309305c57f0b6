"""The live feed: server-sent events with queues, rates and shares, about once a second, for whoever looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import perf_counter
from typing import Final

import msgspec

from fairlead.errors import Forbidden, InvalidArgument, QueueNotFound
from fairlead.model.message import Key
from fairlead.model.views import QueueView
from fairlead.server.callers import Caller
from fairlead.server.doors import Doors
from fairlead.server.exchange import Exchange
from fairlead.server.live_fold import Counts, LiveFold
from fairlead.server.live_picture import CONSIDERED_MAX, QUEUES_MAX, KeysNow, Picture, is_like, keys_now, queues_now
from fairlead.server.live_streams import Streams
from fairlead.server.subscribing import EVENTS, first_of

PARAMETERS: Final = ("queue", "keys_max", "match")
KEYS_SHOWN: Final = 100
KEYS_MAX: Final = 1_000
INTERVAL_S: Final = 1.0
_SPARE: Final = 80
"""Keys are looked at so seldom that the server has so many times as long for everything else."""


class _Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a viewer wants to see."""

    queue: str | None
    keys_max: int
    match: str


async def live(doors: Doors, exchange: Exchange, caller: Caller) -> None:
    """Send what happens about once a second, until the caller hangs up."""
    wish = _wish(exchange.query(*PARAMETERS))
    doors.tally.calls["live"] += 1
    doors.check_open("consume")
    if wish.queue is not None:
        caller.check("consume", wish.queue)
        await doors.broker.queue(wish.queue)  # or it is not found
    elif not caller.may_anywhere("consume"):
        raise Forbidden(f"Key {caller.name!r} has no right to consume on any queue.")
    with doors.subscription(), doors.viewers.viewing(wish.queue) as fold:
        await exchange.begin(EVENTS, headers={"cache-control": "no-store"})
        sending = _send(exchange, pictures(doors, caller, wish, fold))
        await first_of(sending, doors.draining.wait(), exchange.hung_up(), doors.keys.ended(caller))
    await exchange.end()


def _wish(query: dict[str, str]) -> _Wish:
    text = query.get("keys_max", str(KEYS_SHOWN))
    if len(text) > len(str(KEYS_MAX)) or not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= KEYS_MAX:
        raise InvalidArgument(f"keys_max is a whole number from 1 to {KEYS_MAX}, not {text!r:.100}.")
    return _Wish(queue=query.get("queue"), keys_max=int(text), match=query.get("match", ""))


async def _send(exchange: Exchange, shown: AsyncIterator[Picture]) -> None:
    async for picture in shown:
        await exchange.more(b"event: live\ndata: " + msgspec.json.encode(picture) + b"\n\n")


async def pictures(doors: Doors, caller: Caller, wish: _Wish, fold: LiveFold) -> AsyncIterator[Picture]:
    """Make a picture about once a second, until the queue that is watched is gone."""
    before = _copy(fold.counts)
    looked_ms = doors.broker.now_ms()
    keys_at = perf_counter()
    watched = Streams(doors.broker, wish.queue or "")
    while True:
        now_ms, begun, keys = doors.broker.now_ms(), perf_counter(), None
        streams = None
        views = [view for view in await doors.broker.queues() if caller.may("consume", view.name)]
        if wish.queue is not None and begun >= keys_at:
            try:
                keys = await _keys(doors, wish, fold, now_ms)
                streams = await watched.now(now_ms)
            except QueueNotFound:
                return
            keys_at = begun + _SPARE * (perf_counter() - begun)
        yield Picture(
            at_ms=now_ms,
            queues=queues_now(views, fold.counts, before, now_ms - looked_ms),
            queues_left_off=max(0, len(views) - QUEUES_MAX),
            queue=keys,
            streams=streams,
        )
        before = _copy(fold.counts)
        looked_ms = now_ms
        await asyncio.sleep(INTERVAL_S)


def _copy(counts: dict[str, Counts]) -> dict[str, Counts]:
    return {name: msgspec.structs.replace(each) for name, each in counts.items()}


async def _keys(doors: Doors, wish: _Wish, fold: LiveFold, now_ms: int) -> KeysNow:
    queue = wish.queue or ""
    view = await doors.broker.queue(queue, keys_max=CONSIDERED_MAX)
    if wish.match:
        view = await _with_matching(doors, view, wish)
    windows = fold.watched[queue]
    windows.roll(now_ms)

    def weight_of(key: Key) -> int:
        return doors.broker.weight_of(queue, key)

    return keys_now(view, windows, weight_of, keys_max=wish.keys_max, match=wish.match, now_ms=now_ms)


async def _with_matching(doors: Doors, view: QueueView, wish: _Wish) -> QueueView:
    """Add the keys that are looked for, where they are not among those with the most messages."""

    def is_wanted(key: Key) -> bool:
        return is_like(key, wish.match)

    found = await doors.broker.keys_like(view.name, is_wanted, keys_max=wish.keys_max)
    shown = {each.key for each in view.keys}
    return msgspec.structs.replace(view, keys=(*view.keys, *(each for each in found if each.key not in shown)))
