"""Who looks at the live feed, and the fold that they share. Without viewers no record is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fairlane.cluster.groups import Looking
from fairlane.journal.records import AnyRecord
from fairlane.server.live.fold import LiveFold
from fairlane.server.live.keys import KeyBoard
from fairlane.server.live.windows import KeyWindows


class Viewers:
    """The viewers of a server."""

    def __init__(self, broker: Looking, listeners: set[Callable[[Sequence[AnyRecord]], None]]) -> None:
        self._broker = broker
        self._listeners = listeners
        self._watchers: Counter[str] = Counter()
        self._fold = LiveFold(broker.terms_of)
        self._boards: dict[str, KeyBoard] = {}
        self._stops: dict[str, Callable[[], None]] = {}
        self.count = 0

    @contextmanager
    def viewing(self, queue: str | None) -> Iterator[tuple[LiveFold, KeyBoard | None]]:
        """Let records be folded while somebody looks, and of one queue the keys too."""
        if not self.count:
            self._fold = LiveFold(self._broker.terms_of)
            self._listeners.add(self._note)
        self.count += 1
        if queue is not None:
            self._watchers[queue] += 1
            if queue not in self._boards:
                windows = self._fold.watched[queue] = KeyWindows(self._broker.now_ms())
                self._boards[queue] = KeyBoard(self._broker, queue, windows)
                self._stops[queue] = self._broker.watch_hand_outs(queue, windows.serve)
        try:
            yield self._fold, None if queue is None else self._boards[queue]
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
                del self._boards[queue]
                self._stops.pop(queue)()
