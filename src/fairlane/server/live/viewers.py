"""The viewers of the live feed, and the fold they share. Without viewers the server folds no records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fairlane.gateway.protocol import Observed
from fairlane.journal.records import AnyRecord
from fairlane.server.live.fold import LiveFold
from fairlane.server.live.keys import KeySampler
from fairlane.server.live.windows import KeyWindows


class Viewers:
    """The viewers of a server."""

    def __init__(self, broker: Observed, listeners: set[Callable[[Sequence[AnyRecord]], None]]) -> None:
        self._broker = broker
        self._listeners = listeners
        self._watchers: Counter[str] = Counter()
        self._fold = LiveFold(broker.terms_of)
        self._samplers: dict[str, KeySampler] = {}
        self._stops: dict[str, Callable[[], None]] = {}
        self.count = 0

    @contextmanager
    def viewing(self, queue: str | None) -> Iterator[tuple[LiveFold, KeySampler | None]]:
        """Fold records while the context lasts, and the keys of one queue if it is given."""
        if not self.count:
            self._fold = LiveFold(self._broker.terms_of)
            self._listeners.add(self._note)
        self.count += 1
        if queue is not None:
            self._watchers[queue] += 1
            if queue not in self._samplers:
                windows = self._fold.watched[queue] = KeyWindows(self._broker.now_ms())
                self._samplers[queue] = KeySampler(self._broker, queue, windows)
                self._stops[queue] = self._broker.watch_hand_outs(queue, windows.serve)
        try:
            yield self._fold, None if queue is None else self._samplers[queue]
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
                del self._samplers[queue]
                self._stops.pop(queue)()
