"""Pages to be looked at with GET, by people and by operators' machines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, Final

import msgspec

from fairlead import __version__
from fairlead.assembly import PRIVATE_PREFIX
from fairlead.errors import InvalidArgument, RouteNotFound
from fairlead.journal.events import Columns
from fairlead.server.callers import EVERY, Caller
from fairlead.server.docs_page import PAGE
from fairlead.server.doors import Doors
from fairlead.server.exchange import JSON, Exchange, line_of
from fairlead.server.metrics import CONTENT_TYPE, metrics_text
from fairlead.server.openapi import description
from fairlead.server.verbs.admin import EVENTS_MAX
from fairlead.wire.verbs import Events, ListConfig, Nothing, QueueRequest, ReadJournal

ARROW: Final = "application/vnd.apache.arrow.stream"


async def queues(doors: Doors, exchange: Exchange, caller: Caller) -> None:
    """Show all queues."""
    exchange.query()
    await exchange.answer(await doors.call("queues", Nothing(), caller))


async def queue(name: str, doors: Doors, exchange: Exchange, caller: Caller) -> None:
    """Show a queue with its keys."""
    exchange.query()
    await exchange.answer(await doors.call("inspect", QueueRequest(queue=name), caller))


async def config(doors: Doors, exchange: Exchange, caller: Caller) -> None:
    """Show config values."""
    prefix = exchange.query("prefix").get("prefix", "")
    await exchange.answer(await doors.call("list_config", ListConfig(prefix=prefix), caller))


async def journal(doors: Doors, exchange: Exchange, caller: Caller) -> None:
    """Show events of the journal: as lines of JSON, or as an Arrow stream."""
    query = exchange.query("after", "count")
    request = ReadJournal(after=_whole(query, "after", 0), count=_whole(query, "count", 1_000))
    if exchange.accepts(ARROW):
        await _journal_as_arrow(request, doors, exchange, caller)
        return
    answer = await doors.call("read_journal", request, caller)
    if not isinstance(answer, Events):
        raise TypeError("the journal is read as events")
    body = b"".join(line_of(event, JSON) for event in answer.events)
    headers = {"x-fairlead-position": str(answer.position)}
    await exchange.answer_bytes(body, "application/jsonl", headers=headers)


def _whole(query: dict[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not text.isdecimal() or not text.isascii():
        raise InvalidArgument(f"{name} is a whole number, not {text!r:.100}.")
    return int(text)


async def _journal_as_arrow(request: ReadJournal, doors: Doors, exchange: Exchange, caller: Caller) -> None:
    try:
        import pyarrow as pa  # type: ignore[import-untyped, unused-ignore] # noqa: PLC0415 - it is an extra, without types

        from fairlead.journal.arrow import batch_of  # noqa: PLC0415 - needs pyarrow
    except ImportError as error:
        raise InvalidArgument("This server has no Arrow: install fairlead[arrow] there, or ask for JSON.") from error
    caller.check("admin", EVERY)
    if request.count > EVENTS_MAX:
        raise InvalidArgument(f"One request has at most {EVENTS_MAX} events, not {request.count}.")
    doors.tally.calls["read_journal"] += 1
    slice_ = await doors.broker.read_journal(request.after, count=request.count)
    columns = Columns()
    for page in slice_.pages:
        columns.append(page)
    _hide_secrets(columns)
    sequences = columns.column("sequence") or []
    seen = sum(1 for sequence in sequences if sequence <= request.after)
    sink = pa.BufferOutputStream()
    batch = batch_of(columns).slice(seen)
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    headers = {"x-fairlead-position": str(slice_.position)}
    await exchange.answer_bytes(sink.getvalue().to_pybytes(), ARROW, headers=headers)


def _hide_secrets(columns: Columns) -> None:
    kinds, names, values = (columns.column(name) for name in ("kind", "name", "value"))
    if kinds is None or names is None or values is None:
        return
    for at, (kind, name) in enumerate(zip(kinds, names, strict=True)):
        if kind == "config_set" and name is not None and name.startswith(PRIVATE_PREFIX):
            values[at] = None


async def metrics(doors: Doors, exchange: Exchange, caller: Caller) -> None:
    """Show what is counted, for Prometheus."""
    caller.check("admin", EVERY)
    text = metrics_text(doors.tally, await doors.broker.queues())
    await exchange.answer_bytes(text.encode(), CONTENT_TYPE)


# ------------------------------------------------------------------------------------------------- what needs no rights


async def healthz(_doors: Doors, exchange: Exchange) -> None:
    """Say that the process lives."""
    await exchange.answer({"status": "ok", "version": __version__})


async def readyz(doors: Doors, exchange: Exchange) -> None:
    """Say whether work is taken: the store answers, and the server does not go down."""
    if doors.draining.is_set():
        await exchange.answer({"status": "draining"}, status=503)
        return
    await doors.broker.get_config("")
    await exchange.answer({"status": "ready"})


@cache
def _description() -> bytes:
    return msgspec.json.encode(description())


async def openapi(_doors: Doors, exchange: Exchange) -> None:
    """Show the description of the API."""
    await exchange.answer_bytes(_description(), JSON)


async def docs(_doors: Doors, exchange: Exchange) -> None:
    """Show the description for people."""
    policy = "default-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    await exchange.answer_bytes(PAGE.encode(), "text/html; charset=utf-8", headers={"content-security-policy": policy})


async def _favicon(_doors: Doors, _exchange: Exchange) -> None:
    raise RouteNotFound("There is no icon.")


PUBLIC: Final[dict[str, Callable[[Doors, Exchange], Awaitable[Any]]]] = {
    "/healthz": healthz,
    "/readyz": readyz,
    "/openapi.json": openapi,
    "/docs": docs,
    "/favicon.ico": _favicon,
}
"""What anybody may see."""
