"""GET /v1/journal: the journal as JSON lines or as an Arrow stream.

An Arrow answer may be as long as the journal. The server builds it slice by slice and serves other calls between
slices. It drops events and columns that the caller did not ask for before they become rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from typing import Any, Final

from fairlane.broker.frontends.aio import AsyncBroker
from fairlane.broker.handlers.config import without_secret
from fairlane.broker.handlers.internal import ReadSlice
from fairlane.broker.views.journal import JournalSlice
from fairlane.errors import InvalidArgument
from fairlane.gateway.caller import Caller
from fairlane.journal.events import KINDS, Columns, rows
from fairlane.journal.schema import NAMES
from fairlane.journal.selection import Selection
from fairlane.server.context import ServerContext
from fairlane.server.interfaces.exchange import JSON, Exchange, line_of
from fairlane.verbs.config import PRIVATE_PREFIX
from fairlane.verbs.journal import EVENTS_MAX
from fairlane.verbs.keys import EVERY

ARROW: Final = "application/vnd.apache.arrow.stream"
PARAMETERS: Final = (
    *("queue", "after", "count", "until", "on_trimmed"),
    *("kinds", "queues", "message_ids", "correlation_id", "since_ms", "until_ms", "columns"),
)
NUMBERS: Final = ("after", "count", "until", "since_ms", "until_ms")
_SLICE: Final = 10_000
"""Events per slice. Other calls wait at most for one slice."""
_FOR_EVER: Final = 2**63 - 1
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_DIGITS_MAX: Final = 19
"""The digits of the largest sequence number or instant."""


async def journal(server: ServerContext, exchange: Exchange, caller: Caller) -> None:
    """Answer with events of the journal, as JSON lines or as an Arrow stream."""
    query = exchange.query(*PARAMETERS)
    caller.check("admin", EVERY)
    reading = _Reading(await server.gateway.journal_of(query.get("queue")), query)
    server.tally.calls["read_journal"] += 1
    if exchange.accepts(ARROW):
        await _answer_arrow(reading, exchange)
        return
    slice_ = await reading.first()
    events = [event for page in slice_.pages for event in rows(reading.wanted.of_page(page))]
    lines = [line_of(reading.shown(event), JSON) for event in events if reading.is_wanted(event)]
    await exchange.answer_bytes(b"".join(lines), "application/jsonl", headers=reading.headers(slice_, slice_.position))


async def _answer_arrow(reading: _Reading, exchange: Exchange) -> None:
    """Answer with the schema, one batch per slice, and the end of the stream; an interrupted answer has no end."""
    try:
        from fairlane.journal.arrow import schema_of  # noqa: PLC0415 - needs an extra
    except ImportError as error:
        raise InvalidArgument(
            "This server cannot write Arrow; install fairlane[arrow] on it, or request JSON."
        ) from error
    slice_ = await reading.first()
    await exchange.begin(ARROW, headers=reading.headers(slice_, reading.reaches_to(slice_)))
    await exchange.more(schema_of(reading.columns, journal_id=slice_.journal_id).serialize().to_pybytes())
    while True:
        batch = _batch(reading, slice_)
        if batch.num_rows:
            await exchange.more(batch.serialize().to_pybytes())
        if slice_.position >= reading.reaches_to(slice_):
            break
        slice_ = await reading.following(slice_)
    await exchange.more(_END_OF_STREAM)
    await exchange.end()


def _batch(reading: _Reading, slice_: JournalSlice) -> Any:  # noqa: ANN401 - a RecordBatch, of a package without types
    import pyarrow as pa  # noqa: PLC0415 - it needs an extra

    from fairlane.journal.arrow import batch_of  # noqa: PLC0415 - needs an extra

    columns = Columns()
    for page in slice_.pages:
        columns.append(reading.wanted.of_page(page))
    _hide_secrets(columns)
    sequences = columns.column("sequence") or []
    first = bisect_right(sequences, reading.after)
    batch = batch_of(columns, names=reading.columns, journal_id=slice_.journal_id)
    batch = batch.slice(first, bisect_right(sequences, reading.until, lo=first) - first)
    count = batch.num_rows
    kept = pa.nulls(count, pa.bool_()).fill_null(True)  # noqa: FBT003 - its only argument
    for name, wanted in reading.wanted.named():
        texts = batch_of(columns, names=(name,)).slice(first, count).column(0)
        kept = pa.compute.and_(kept, pa.compute.is_in(texts, pa.array(sorted(wanted), pa.string())))
    return batch.filter(kept) if reading.wanted.named() else batch


class _Reading:
    """One request: what it selects, and how far it has been read."""

    def __init__(self, broker: AsyncBroker, query: dict[str, str]) -> None:
        self._broker = broker
        self.after = _whole(query, "after", 0)
        self.until = _whole(query, "until", _FOR_EVER)
        self._is_bounded = "until" in query
        self._count = _SLICE if self._is_bounded else _whole(query, "count", 1_000)
        if self._is_bounded and "count" in query:
            raise InvalidArgument("Pass either `until` or `count`, not both.")
        if self._count > EVENTS_MAX:
            raise InvalidArgument(f"count must be at most {EVENTS_MAX}, not {self._count}.")
        on_trimmed = query.get("on_trimmed", "fail")
        if on_trimmed not in ("fail", "skip"):
            raise InvalidArgument(f"on_trimmed must be fail or skip, not {on_trimmed!r:.100}.")
        self._skips_trimmed = on_trimmed == "skip"
        self.wanted = _selection(query)
        self.columns = self.wanted.columns or NAMES

    async def first(self) -> JournalSlice:
        """Return the first slice. Events that are added from now on are not part of the answer."""
        slice_ = await self._slice(self.after)
        self.until = min(self.until, slice_.end)
        self.wanted = self.wanted.in_journal(slice_.journal_id, slice_.since)
        return slice_

    async def following(self, slice_: JournalSlice) -> JournalSlice:
        """Return the slice after the given one."""
        return await self._slice(slice_.position)

    async def _slice(self, after: int) -> JournalSlice:
        return await self._broker.call(ReadSlice(after=after, count=self._count, skips_trimmed=self._skips_trimmed))

    def reaches_to(self, slice_: JournalSlice) -> int:
        """Return the position of the last event in the answer."""
        return self.until if self._is_bounded else slice_.position

    def headers(self, slice_: JournalSlice, position: int) -> dict[str, str]:
        """Return the headers with the next position and the bounds of the journal."""
        return {
            "x-fairlane-position": str(min(position, self.until)),
            "x-fairlane-beginning": str(slice_.beginning),
            "x-fairlane-end": str(slice_.end),
            "x-fairlane-journal": slice_.journal_id,
            "x-fairlane-since": str(slice_.since),
        }

    def is_wanted(self, event: dict[str, Any]) -> bool:
        """Return whether the request selects an event."""
        if not self.after < event["sequence"] <= self.until:
            return False
        return all(event.get(name) in wanted for name, wanted in self.wanted.named())

    def shown(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return the selected columns of an event, without secrets."""
        event = without_secret(event)
        if self.wanted.columns is None:
            return event
        return {name: event[name] for name in self.columns if name in event}


def _selection(query: dict[str, str]) -> Selection:
    columns = _texts(query, "columns", NAMES)
    return Selection(
        kinds=_texts(query, "kinds", KINDS),
        queues=_texts(query, "queues", None),
        message_ids=_texts(query, "message_ids", None),
        correlation_id=query.get("correlation_id"),
        since_ms=_whole(query, "since_ms", 0) if "since_ms" in query else None,
        until_ms=_whole(query, "until_ms", 0) if "until_ms" in query else None,
        columns=None if columns is None else tuple(name for name in NAMES if name in columns),
    )


def _texts(query: dict[str, str], name: str, known: Collection[str] | None) -> frozenset[str] | None:
    if name not in query:
        return None
    texts = frozenset(text.strip() for text in query[name].split(","))
    unknown = sorted(texts - set(known)) if known is not None else []
    if known is not None and unknown:
        raise InvalidArgument(f"{name}: unknown value {unknown[0]!r:.100}; expected some of {', '.join(known)}.")
    return texts


def _whole(query: dict[str, str], name: str, default: int) -> int:
    text = query.get(name, str(default))
    if not text.isdecimal() or not text.isascii() or len(text) > _DIGITS_MAX:
        raise InvalidArgument(f"{name} must be an integer of at least 0, not {text!r:.100}.")
    return int(text)


def _hide_secrets(columns: Columns) -> None:
    kinds, names, values = (columns.column(name) for name in ("kind", "name", "value"))
    if kinds is None or names is None or values is None:
        return
    for at, (kind, name) in enumerate(zip(kinds, names, strict=True)):
        if kind == "config_set" and name is not None and name.startswith(PRIVATE_PREFIX):
            values[at] = None
