"""The live feed: server-sent events with queues, rates and shares, about once a second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final

import msgspec

from fairlane.errors import Forbidden, InvalidArgument, QueueElsewhere, QueueMoving, QueueNotFound, QueueSplit
from fairlane.gateway.caller import Caller
from fairlane.model.names import is_dlq
from fairlane.model.partitions import served_name
from fairlane.model.views import QueueView
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.exchange import Exchange
from fairlane.server.interfaces.relay import headers_for_node, may_relay
from fairlane.server.interfaces.subscription import EVENTS, first_of
from fairlane.server.live.fold import EventCounts, LiveFold
from fairlane.server.live.keys import KeyQuery, KeySampler
from fairlane.server.live.remote import RemoteSnapshots
from fairlane.server.live.snapshot import QUEUES_MAX, QueueSnapshot, Snapshot, queue_snapshots
from fairlane.server.live.streams import StreamSampler

PARAMETERS: Final = ("queue", "keys_max", "match", "queues_match")
KEYS_SHOWN: Final = 100
KEYS_MAX: Final = 1_000
INTERVAL_S: Final = 1.0


class _Query(msgspec.Struct, frozen=True, kw_only=True):
    """What a viewer asks for."""

    queue: str | None
    keys: KeyQuery
    queues_match: str = ""
    """A text that the names of all queues contain that the viewer wants, ignoring case."""


async def live(server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    """Send a snapshot about once a second, until the caller disconnects."""
    query = _query(exchange.query(*PARAMETERS))
    server.tally.calls["live"] += 1
    server.check_open()
    owner = None
    if query.queue is not None:
        caller.check("observe", query.queue)
        server.gateway.check_whole(query.queue)
        owner = await _owner_elsewhere(server, exchange, query.queue)
    elif not caller.may_anywhere("observe"):
        raise Forbidden(f"API key {caller.name!r} may not observe any queue.")
    async with _remote(server, exchange, owner) as remote:
        here = None if query.queue is None or owner is not None else served_name(query.queue)
        with server.subscription(exchange.holder), server.viewers.viewing(here) as (fold, sampler):
            await exchange.begin(EVENTS, headers={"cache-control": "no-store"})
            sending = _send(exchange, snapshots(server, caller, query, fold, sampler, remote))
            endings = (server.draining.wait(), exchange.hung_up(), server.api_keys.ended(caller))
            await first_of(sending, *endings, *(() if remote is None else (remote.ended.wait(),)))
    await exchange.end()


async def _owner_elsewhere(server: ServerContext, exchange: Exchange, queue: str) -> str | None:
    """Return the address of the node that owns a queue; None if it is this one.

    Raises:
        QueueElsewhere: another node owns it, and the caller follows such answers itself.
        QueueNotFound, QueueMoving: no node owns it.
    """
    try:
        await server.observed.queue(queue)
    except QueueElsewhere as error:
        if not may_relay(exchange):
            raise
        return error.at
    return None


def _remote(
    server: ServerContext, exchange: Exchange, owner: str | None
) -> AbstractAsyncContextManager[RemoteSnapshots | None]:
    """Return the snapshots of other nodes; nothing if one of them asks."""
    if exchange.context().is_forwarded:
        return nullcontext()
    return RemoteSnapshots(server.gateway, headers_for_node(exchange), owner=owner, query=exchange.query_string)


def _query(parameters: dict[str, str]) -> _Query:
    text = parameters.get("keys_max", str(KEYS_SHOWN))
    if len(text) > len(str(KEYS_MAX)) or not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= KEYS_MAX:
        raise InvalidArgument(f"keys_max must be an integer from 1 to {KEYS_MAX}, not {text!r:.100}.")
    keys = KeyQuery(keys_max=int(text), match=parameters.get("match", ""))
    return _Query(queue=parameters.get("queue"), keys=keys, queues_match=parameters.get("queues_match", "").lower())


async def _send(exchange: Exchange, snapshots: AsyncIterator[Snapshot]) -> None:
    async for snapshot in snapshots:
        await exchange.more(b"event: live\ndata: " + msgspec.json.encode(snapshot) + b"\n\n")


async def snapshots(
    server: ServerContext,
    caller: Caller,
    query: _Query,
    fold: LiveFold,
    sampler: KeySampler | None,
    remote: RemoteSnapshots | None = None,
) -> AsyncIterator[Snapshot]:
    """Yield a snapshot about once a second, until the watched queue is deleted or moves away."""
    before = _copy(fold.counts)
    sampled_ms = server.observed.now_ms()
    version = 0
    consumers = StreamSampler(query.queue or "", server.gateway.served)
    while True:
        now_ms, keys, streams = server.observed.now_ms(), None, None
        views = await _listed(server, caller, query)
        if sampler is not None:
            try:
                version, keys = await sampler.snapshot(query.keys, seen=version)
                streams = await consumers.sample(now_ms) if keys is not None else None
            except (QueueNotFound, QueueElsewhere, QueueMoving, QueueSplit):
                return
        snapshot = Snapshot(
            at_ms=now_ms,
            node=server.gateway.node,
            queues=_rows(server, views, fold.counts, before, now_ms - sampled_ms),
            queues_left_off=max(0, len(views) - QUEUES_MAX),
            queue=None if keys is None else msgspec.structs.replace(keys, name=query.queue),
            streams=streams,
        )
        yield snapshot if remote is None else remote.merged_into(snapshot)
        before = _copy(fold.counts)
        sampled_ms = now_ms
        await asyncio.sleep(INTERVAL_S)


async def _listed(server: ServerContext, caller: Caller, query: _Query) -> list[QueueView]:
    """Return the queues that a viewer wants and may see."""
    views = [view for view in await server.observed.queues() if query.queues_match in view.name.lower()]
    return [view for view in views if _is_worth_it(view, query) and caller.may("observe", view.name)]


def _is_worth_it(view: QueueView, query: _Query) -> bool:
    """Return whether a queue is worth a row: an empty dead-letter queue is only if it is watched."""
    return not is_dlq(view.name) or view.waiting + view.leased + view.dead > 0 or view.name == query.queue


def _rows(
    server: ServerContext,
    views: list[QueueView],
    counts: dict[str, EventCounts],
    before: dict[str, EventCounts],
    elapsed_ms: int,
) -> list[QueueSnapshot]:
    """Return queues under the names that callers use: the first partition of a split queue has its own name there."""
    queues = queue_snapshots(views, counts, before, elapsed_ms, server.observed.bypass_of)
    return [msgspec.structs.replace(each, name=server.gateway.shown_name(each.name)) for each in queues]


def _copy(counts: dict[str, EventCounts]) -> dict[str, EventCounts]:
    return {name: msgspec.structs.replace(each) for name, each in counts.items()}
