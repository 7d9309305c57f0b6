"""The journal of a live server: ranges of it as Arrow batches over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped, unused-ignore] # it comes without types

from fairlead.client import Retries
from fairlead.errors import Disconnected
from fairlead.journal.selection import Selection
from fairlead.spark.source.place import Place
from fairlead.spark.source.span import Part, Span, split

_PATH: Final = "/v1/journal"
_OWN: Final = "reader_set"
_TAIL: Final = 1_000
"""So much of the journal's end is looked through for something other than readers that have moved on."""


class ServerJournal:
    """Reads the journal of a server. It can be pickled."""

    def __init__(self, place: Place, *, on_trimmed: str) -> None:
        self._place = place
        self._on_trimmed = on_trimmed

    def span(self, near: int = 0) -> Span:
        """Return how far the journal reaches. It is looked up at a position, best at one where little has to be read.

        Raises:
            InvalidArgument: the journal does not reach to that position; it was, say, restored from a backup.
            Disconnected: the server does not answer.
        """
        query = {"after": str(near), "count": "1", "columns": "sequence", "on_trimmed": "skip"}
        with self._place.arrow(_PATH, query) as answer:
            return Span(int(answer.headers["x-fairlead-beginning"]), int(answer.headers["x-fairlead-end"]))

    def has_news(self, after: int, until: int) -> bool:
        """Tell whether there is anything in a range but readers that have moved on, as each of them does itself.

        A range that is too long to be looked through is taken for news.
        """
        if until - after > _TAIL:
            return True
        selection = Selection(columns=("sequence", "kind"))
        batches = self.read(Part(after=after, until=until), selection)
        return any(kind != _OWN for batch in batches for kind in batch.column("kind").to_pylist())

    def parts(self, after: int, until: int, *, least: int) -> list[Part]:
        """Return a range in parts, for as many tasks."""
        return split(after, until, least=least)

    def read(self, part: Part, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the events of a part; when the connection is lost it goes on after what has come.

        Raises:
            JournalTrimmed: they are gone.
            Disconnected: the server has not answered for longer than the client has patience.
        """
        after, waits, waited_s = part.after, Retries().waits_s(), 0.0
        while after < part.until:
            try:
                with self._place.arrow(_PATH, self._query(after, part.until, selection)) as answer:
                    for batch in _batches(answer):
                        yield batch
                        after = batch.column("sequence")[-1].as_py()
                        waits, waited_s = Retries().waits_s(), 0.0
                after = part.until
            except Disconnected:
                pause_s = next(waits)
                waited_s += pause_s
                if waited_s > Retries().patience_s:
                    raise
                threading.Event().wait(pause_s)

    def _query(self, after: int, until: int, selection: Selection) -> dict[str, str]:
        query = {"after": str(after), "until": str(until), "on_trimmed": self._on_trimmed}
        for name in ("kinds", "queues", "message_ids", "columns"):
            texts = getattr(selection, name)
            if texts is not None:
                query[name] = ",".join(texts if name == "columns" else sorted(texts))
        for name in ("since_ms", "until_ms"):
            if getattr(selection, name) is not None:
                query[name] = str(getattr(selection, name))
        return query


def _batches(answer: object) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream, which must come to its end mark."""
    try:
        with closing(pa.ipc.open_stream(answer)) as stream:
            yield from stream
    except pa.ArrowInvalid as error:
        raise Disconnected(f"The stream of events broke off: {error!s:.200}.") from error
