"""The journal of a live server, or of a queue's group in a cluster: ranges of it as Arrow batches over HTTP.

In a cluster a journal is where its group is. The node that has it is found as the client of Fairlane finds it, and is
remembered until it fails to answer or says that it has the journal no more; then it is found again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from http.client import HTTPMessage
from typing import Final

import pyarrow as pa

from fairlane.client import Retries
from fairlane.errors import Disconnected, FairlaneError, InvalidArgument, JournalMismatch, QueueMoving
from fairlane.journal.selection import Selection
from fairlane.spark.source.ranges import JournalBounds, ReadRange, first_of, split
from fairlane.spark.source.server_address import Patience, ServerAddress, is_of_the_moment

_PATH: Final = "/v1/journal"
_OWN: Final = "reader_set"
_TAIL: Final = 1_000
"""How many sequences at the journal's end are searched for events other than ``reader_set``."""


class ServerJournal:
    """Reads the journal of a server. It can be pickled.

    Attributes:
        at: the address it is read at, as far as is known.
    """

    def __init__(
        self, place: ServerAddress, *, on_trimmed: str, queue: str | None = None, retries: Retries | None = None
    ) -> None:
        """Prepare, without connecting.

        Args:
            place: the server, or nodes of a cluster.
            on_trimmed: what to do about a position that is gone: ``fail`` or ``skip``.
            queue: in a cluster, a queue of the group whose journal is meant.
            retries: how long to go on asking, once there was an answer.

        Raises:
            InvalidArgument: there are several nodes, and it is not said whose journal is meant.
        """
        if queue is None and len(place.addresses) > 1:
            raise InvalidArgument(
                "Each group in a cluster has its own journal. Set the option queue to a queue of the group to read."
            )
        self._place = place
        self._on_trimmed = on_trimmed
        self._queue = queue
        self._retries = retries or Retries()
        self.at = place.addresses[0]
        self._has_answered = False

    def span(self, near: int = 0) -> JournalBounds:
        """Return the bounds of the journal. The lookup reads at a position, ideally near the end.

        Raises:
            Disconnected: the server does not answer: from the start, or for longer than the client has patience.
        """
        query = {"after": str(near), "count": "1", "columns": "sequence", "on_trimmed": "skip"}
        patience = Patience(self._retries)
        while True:
            try:
                with self._place.arrow(_PATH, self._of_queue(query), at=self.at) as answer:
                    bounds = _bounds(answer.headers)
            except InvalidArgument:
                if query["after"] == "0":
                    raise
                query["after"] = "0"  # the journal does not reach there: the caller finds out that it is another one
            except FairlaneError as error:
                self._seek(error, patience)
            else:
                self._has_answered = True
                return bounds

    def since(self) -> int:
        """Return from where on the journal has its id; see ``JournalIdentity``."""
        return self.span().since

    def has_news(self, after: int, until: int) -> bool:
        """Return whether a range holds more than readers that moved on, which each of them causes itself.

        A range that is too long to be looked through is taken for news.
        """
        if until - after > _TAIL:
            return True
        selection = Selection(columns=("sequence", "kind"))
        batches = self.read(ReadRange(after=after, until=until), selection)
        return any(kind != _OWN for batch in batches for kind in batch.column("kind").to_pylist())

    def parts(self, after: int, until: int, *, least: int) -> list[ReadRange]:
        """Split a range into parts for tasks, each with the present address of the journal."""
        return [replace(part, at=self.at) for part in split(after, until, least=least)]

    def read(self, part: ReadRange, selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield the events of a part. After a lost connection it continues where it was, at this or another node.

        Raises:
            JournalTrimmed: they are gone.
            JournalMismatch: it is another journal than the one that was planned, or it was set back.
            Disconnected, QueueMoving: no node answered within the retry limit.
        """
        self.at, self._has_answered = part.at or self.at, True  # the driver had an answer when it planned this part
        after, patience = part.after, Patience(self._retries)
        while after < part.until:
            try:
                with self._place.arrow(_PATH, self._query(after, part.until, selection), at=self.at) as answer:
                    check_journal(answer.headers["x-fairlane-journal"], part.journal_id, "This task")
                    for batch in _batches(answer):
                        yield batch
                        after = batch.column("sequence")[-1].as_py()
                        patience.renew()
                    after = max(after, int(answer.headers["x-fairlane-position"]))
                if after < part.until:
                    raise self._short(after, part.until)
            except FairlaneError as error:
                self._seek(error, patience)

    def _seek(self, error: FairlaneError, patience: Patience) -> None:
        """Wait and look up the address again after a failure; raise the failure if a retry cannot help."""
        if not is_of_the_moment(error):
            raise error
        is_found = self._has_answered
        if self._queue is not None:
            try:
                self.at = self._place.owner_of(self._queue)
                is_found = True
            except FairlaneError as failed:
                error = failed
        if isinstance(error, Disconnected) and not is_found:
            raise error
        patience.wait(error)

    def _short(self, reached: int, until: int) -> FairlaneError:
        """Return the error for a journal that is shorter than it was."""
        if self._queue is not None:
            return QueueMoving(f"{self.at} has the journal only up to {reached}, not up to {until}.")
        return JournalMismatch(
            f"The journal ends at {reached} but used to reach {until}. Its store was restored from a backup."
        )

    def _of_queue(self, query: dict[str, str]) -> dict[str, str]:
        return query if self._queue is None else {**query, "queue": self._queue}

    def _query(self, after: int, until: int, selection: Selection) -> dict[str, str]:
        query = {"after": str(after), "until": str(until), "on_trimmed": self._on_trimmed}
        for name in ("kinds", "queues", "message_ids", "columns"):
            texts = getattr(selection, name)
            if texts is not None:
                query[name] = ",".join(texts if name == "columns" else sorted(texts))
        for name in ("since_ms", "until_ms"):
            if getattr(selection, name) is not None:
                query[name] = str(getattr(selection, name))
        return self._of_queue(query)


def check_journal(found: str, wanted: str | None, what: str) -> None:
    """Raise JournalMismatch if a journal is not the one that is wanted; None wants any."""
    if wanted is not None and found != wanted:
        raise JournalMismatch(f"{what} reads journal {wanted or 'without an id'}, but the journal here is {found}.")


def _bounds(headers: HTTPMessage) -> JournalBounds:
    beginning, end, since = (int(headers[f"x-fairlane-{name}"]) for name in ("beginning", "end", "since"))
    return JournalBounds(max(beginning, first_of(end)), end, headers["x-fairlane-journal"], since)


def _batches(answer: object) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream, which must end with its end mark."""
    try:
        with closing(pa.ipc.open_stream(answer)) as stream:
            yield from stream
    except pa.ArrowInvalid as error:
        raise Disconnected(f"The stream of events ended early: {error!s:.200}.") from error
