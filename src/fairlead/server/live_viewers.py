"""Who looks at the live feed, and the fold that they share. Without viewers no record is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fairlead.cluster.house import Looking
from fairlead.journal.records import AnyRecord
from fairlead.server.live_fold import KeyWindows, LiveFold


class Viewers:
    """The viewers of a server."""

    def __init__(self, broker: Looking, listeners: set[Callable[[Sequence[AnyRecord]], None]]) -> None:
        self._broker = broker
        self._listeners = listeners
        self._watchers: Counter[str] = Counter()
        self._fold = LiveFold(broker.terms_of)
        self.count = 0

    @contextmanager
    def viewing(self, queue: str | None) -> Iterator[LiveFold]:
        """Let records be folded while somebody looks, and of one queue the keys too."""
        if not self.count:
            self._fold = LiveFold(self._broker.terms_of)
            self._listeners.add(self._note)
        self.count += 1
        if queue is not None:
            self._watchers[queue] += 1
            self._fold.watched.setdefault(queue, KeyWindows(self._broker.now_ms()))
        try:
            yield self._fold
        finally:
            self._leave(queue)

    def _note(self, records: Sequence[AnyRecord]) -> None:
        self._fold.note(records)

    def _leave(self, queue: str | None) -> None:
        self.count -= 1
        if not self.count:
            self._listeners.discard(self._note)
        if queue is not None:
            self._watchers[queue] -= 1
            if not self._watchers[queue]:
                del self._watchers[queue]
                self._fold.watched.pop(queue, None)
