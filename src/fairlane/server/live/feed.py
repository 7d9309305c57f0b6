"""The live feed: server-sent events with queues, rates and shares, about once a second, for whoever looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final

import msgspec

from fairlane.cluster.groups import split_into
from fairlane.errors import Forbidden, InvalidArgument, QueueElsewhere, QueueMoving, QueueNotFound, QueueSplit
from fairlane.gateway.caller import Caller
from fairlane.model.partitions import MARK, partition_name, served_name
from fairlane.server.doors import Doors
from fairlane.server.interfaces.exchange import Exchange
from fairlane.server.interfaces.relay import headers_for_node, may_relay
from fairlane.server.interfaces.subscription import EVENTS, first_of
from fairlane.server.live.fold import Counts, LiveFold
from fairlane.server.live.keys import KeyBoard, KeyWish
from fairlane.server.live.remote import FarPictures
from fairlane.server.live.snapshot import QUEUES_MAX, Picture, QueueNow, queues_now
from fairlane.server.live.streams import Streams

PARAMETERS: Final = ("queue", "keys_max", "match")
KEYS_SHOWN: Final = 100
KEYS_MAX: Final = 1_000
INTERVAL_S: Final = 1.0


class _Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a viewer wants to see."""

    queue: str | None
    keys: KeyWish


async def live(doors: Doors, exchange: Exchange, caller: Caller) -> None:
    """Send what happens about once a second, until the caller hangs up."""
    wish = _wish(exchange.query(*PARAMETERS))
    doors.tally.calls["live"] += 1
    doors.check_open("consume")
    owner = None
    if wish.queue is not None:
        caller.check("consume", wish.queue)
        _check_whole(doors, wish.queue)
        owner = await _owner_elsewhere(doors, exchange, wish.queue)
    elif not caller.may_anywhere("consume"):
        raise Forbidden(f"Key {caller.name!r} has no right to consume on any queue.")
    async with _far(doors, exchange, owner) as far:
        here = None if wish.queue is None or owner is not None else served_name(wish.queue)
        with doors.subscription(), doors.viewers.viewing(here) as (fold, board):
            await exchange.begin(EVENTS, headers={"cache-control": "no-store"})
            sending = _send(exchange, pictures(doors, caller, wish, fold, board, far))
            endings = (doors.draining.wait(), exchange.hung_up(), doors.keys.ended(caller))
            await first_of(sending, *endings, *(() if far is None else (far.ended.wait(),)))
    await exchange.end()


def _check_whole(doors: Doors, queue: str) -> None:
    """Refuse to show a queue that is split: its partitions can be seen, each by its name.

    Raises:
        QueueSplit: it is.
    """
    split = None if doors.groups is None or MARK in queue else doors.groups.split_of(queue)
    if split is not None:
        raise split_into(queue, split)


async def _owner_elsewhere(doors: Doors, exchange: Exchange, queue: str) -> str | None:
    """Return the address of the node that has a queue, if it is not this one.

    Raises:
        QueueElsewhere: the caller goes there by itself.
        QueueNotFound, QueueMoving: nobody has it.
    """
    try:
        await doors.broker.queue(queue)
    except QueueElsewhere as error:
        if not may_relay(exchange):
            raise
        return error.at
    return None


def _far(doors: Doors, exchange: Exchange, owner: str | None) -> AbstractAsyncContextManager[FarPictures | None]:
    """Return what other nodes show, where there are any and it is not one of them that asks."""
    if doors.router is None or exchange.origin().is_forwarded:
        return nullcontext()
    return FarPictures(doors.router, headers_for_node(exchange), owner=owner, query=exchange.query_string)


def _wish(query: dict[str, str]) -> _Wish:
    text = query.get("keys_max", str(KEYS_SHOWN))
    if len(text) > len(str(KEYS_MAX)) or not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= KEYS_MAX:
        raise InvalidArgument(f"keys_max is a whole number from 1 to {KEYS_MAX}, not {text!r:.100}.")
    return _Wish(queue=query.get("queue"), keys=KeyWish(keys_max=int(text), match=query.get("match", "")))


async def _send(exchange: Exchange, shown: AsyncIterator[Picture]) -> None:
    async for picture in shown:
        await exchange.more(b"event: live\ndata: " + msgspec.json.encode(picture) + b"\n\n")


async def pictures(
    doors: Doors, caller: Caller, wish: _Wish, fold: LiveFold, board: KeyBoard | None, far: FarPictures | None = None
) -> AsyncIterator[Picture]:
    """Make a picture about once a second, until the queue that is watched is gone."""
    before = _copy(fold.counts)
    looked_ms = doors.broker.now_ms()
    edition = 0
    watched = Streams(wish.queue or "", doors.broker_of)
    while True:
        now_ms, keys, streams = doors.broker.now_ms(), None, None
        views = [view for view in await doors.broker.queues() if caller.may("consume", view.name)]
        if board is not None:
            try:
                edition, keys = await board.shown(wish.keys, seen=edition)
                streams = await watched.now(now_ms) if keys is not None else None
            except (QueueNotFound, QueueElsewhere, QueueMoving, QueueSplit):
                return
            keys = None if keys is None else msgspec.structs.replace(keys, name=wish.queue)
        picture = Picture(
            at_ms=now_ms,
            node=None if doors.groups is None else doors.groups.node,
            queues=_as_asked(doors, queues_now(views, fold.counts, before, now_ms - looked_ms)),
            queues_left_off=max(0, len(views) - QUEUES_MAX),
            queue=keys,
            streams=streams,
        )
        yield picture if far is None else far.joined_to(picture)
        before = _copy(fold.counts)
        looked_ms = now_ms
        await asyncio.sleep(INTERVAL_S)


def _as_asked(doors: Doors, queues: list[QueueNow]) -> list[QueueNow]:
    """Return queues under the names that mean what is shown: of one that is split, its first partition."""
    groups = doors.groups
    if groups is None or not groups.splits:
        return queues
    names = [
        partition_name(each.name, 0) if MARK not in each.name and groups.split_of(each.name) is not None else each.name
        for each in queues
    ]
    return [msgspec.structs.replace(each, name=name) for each, name in zip(queues, names, strict=True)]


def _copy(counts: dict[str, Counts]) -> dict[str, Counts]:
    return {name: msgspec.structs.replace(each) for name, each in counts.items()}
