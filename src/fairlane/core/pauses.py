"""When a queue and its keys were paused, so that a wait can be told from a pause.

The log is part of the ledger: it follows from the journal's ``QueuePaused`` records, and a baseline repeats it, so a
pause that spans a restart is measured like any other. It is bounded: of the pauses that are over, the oldest are
forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlane.journal.records import PauseImage
from fairlane.model.message import NEVER_MS, Key, canonical

_KEPT_MAX = 1_024
"""The number of pauses remembered for one queue, besides those that are still on."""

PauseSpan = tuple[int, int | None]
"""When a pause began, and when it ended; None while it is on."""


class PauseLog:
    """The pauses of one queue.

    Attributes:
        spans: the pauses of the queue as a whole under None, and of its keys.
    """

    __slots__ = ("_until_ms", "spans")

    def __init__(self) -> None:
        self.spans: dict[Key | None, list[PauseSpan]] = {}
        self._until_ms = 0  # when the last of all pauses ended: most waits begin after that, and need no look

    def __bool__(self) -> bool:
        return bool(self.spans)

    def note(self, key: Key | None, at_ms: int, *, is_paused: bool) -> None:
        """Record that the queue, or one of its keys, was paused or resumed. Repeating it changes nothing."""
        spans = self.spans.get(key, [])
        is_on = bool(spans) and spans[-1][1] is None
        if is_paused == is_on:
            return
        if is_paused:
            self.spans.setdefault(key, []).append((at_ms, None))
        else:
            spans[-1] = (spans[-1][0], at_ms)
        self._forget_oldest()
        self._note_end()

    def _note_end(self) -> None:
        ends = [NEVER_MS if until_ms is None else until_ms for spans in self.spans.values() for _, until_ms in spans]
        self._until_ms = max(ends, default=0)

    def _forget_oldest(self) -> None:
        over = [(until_ms, str(key), key) for key, spans in self.spans.items() for _, until_ms in spans if until_ms]
        for _, _, key in sorted(over, key=lambda span: span[:2])[: max(0, len(over) - _KEPT_MAX)]:
            self._drop_first(key)

    def _drop_first(self, key: Key | None) -> None:
        del self.spans[key][0]
        if not self.spans[key]:
            del self.spans[key]

    def within(self, key: Key, since_ms: int, until_ms: int) -> int:
        """Return how long of a wait the queue, the message's key or a key above it was paused."""
        if since_ms >= self._until_ms:
            return 0
        path = (key,) if isinstance(key, str) else key
        places: list[Key | None] = [None, *(canonical(path[:depth]) for depth in range(1, len(path) + 1))]
        spans = sorted(
            (max(begun_ms, since_ms), until_ms if ended_ms is None else min(ended_ms, until_ms))
            for place in places
            for begun_ms, ended_ms in self.spans.get(place, ())
        )
        # The queue and a key may be paused at once: an instant that both cover counts once.
        total_ms, reached_ms = 0, since_ms
        for begun_ms, ended_ms in spans:
            if ended_ms > reached_ms:
                total_ms += ended_ms - max(begun_ms, reached_ms)
                reached_ms = ended_ms
        return total_ms

    def images(self) -> list[PauseImage]:
        """Return the log as a baseline holds it."""
        return [
            PauseImage(key, begun_ms, ended_ms) for key, spans in self.spans.items() for begun_ms, ended_ms in spans
        ]

    @classmethod
    def of(cls, images: Iterable[PauseImage]) -> PauseLog:
        """Create the log that ``images`` describes."""
        log = cls()
        for image in images:
            log.spans.setdefault(image.key, []).append((image.from_ms, image.until_ms))
        log._note_end()
        return log
