"""Rules that must hold when a message is delivered, and the messages that nothing holds back."""

from __future__ import annotations

from dataclasses import dataclass

from tests.kit.auditor.books import Books, Entry, Path, QueueBook, prefixes, violated

_SLACK = 1e-6


@dataclass(slots=True)
class Bucket:
    """A throttle as promised: never more than ``rate * t + burst``."""

    rate: float
    burst: float
    level: float
    at_ms: int

    def refill(self, now_ms: int) -> None:
        """Add the tokens of the time that has passed."""
        self.level = min(self.burst, self.level + self.rate * max(0, now_ms - self.at_ms) / 1000)
        self.at_ms = max(self.at_ms, now_ms)


class Rules:
    """Throttles, caps, pauses, order and times at delivery."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._buckets: dict[str, Bucket] = {}

    # ----------------------------------------------------------------------------------------------------- throttles

    def note_config(self, key: str, at_ms: int) -> None:
        """Apply a change of config to its throttle."""
        if not key.startswith("throttle:"):
            return
        name = key.removeprefix("throttle:").rpartition(":")[0]
        rate = self._books.config.get(f"throttle:{name}:rate")
        if rate is None:
            self._buckets.pop(name, None)
            return
        said = self._books.config.get(f"throttle:{name}:burst")
        burst = max(1.0, float(rate)) if said is None else float(said)
        bucket = self._buckets.get(name)
        if bucket is None:
            self._buckets[name] = Bucket(float(rate), burst, burst, at_ms)
            return
        bucket.refill(at_ms)
        bucket.rate, bucket.burst, bucket.level = float(rate), burst, min(bucket.level, burst)

    def note_opening(self, now_ms: int) -> None:
        """Empty all buckets, as a restart must."""
        for bucket in self._buckets.values():
            bucket.level, bucket.at_ms = 0.0, now_ms

    def _has_tokens(self, entry: Entry, now_ms: int, *, slack: float) -> bool:
        for name in entry.throttles:
            bucket = self._buckets.get(name)
            if bucket is not None:
                bucket.refill(now_ms)
                if bucket.level < 1 + slack:
                    return False
        return True

    # ---------------------------------------------------------------------------------------------------------- caps

    def _cap(self, book: QueueBook, path: Path, *, if_told: bool) -> int | None:
        """Return the cap of a key. A cap set by messages is certain only while one of them exists."""
        name = "/".join(path)
        said = self._books.config.get(f"cap:{book.name}:{name}")
        if said is not None:
            return int(said)
        if name in book.policy.caps:
            return book.policy.caps[name]
        told = book.told_caps.get(path)
        if told is None or (not if_told and not any(entry.path == path for entry in book.entries.values())):
            return None
        return told

    def _is_capped(self, book: QueueBook, entry: Entry, *, if_told: bool) -> bool:
        for path in prefixes(entry.path):
            cap = self._cap(book, path, if_told=if_told)
            if cap is not None and book.in_use[path] >= cap:
                return True
        return False

    def is_prompt(self, book: QueueBook, entry: Entry, *, if_told: bool) -> bool:
        """Return whether a message has a deadline or a throttle, or a cap on its key or one above it."""
        has_cap = any(self._cap(book, path, if_told=if_told) is not None for path in prefixes(entry.path))
        return entry.deadline_ms is not None or bool(entry.throttles) or has_cap

    # ----------------------------------------------------------------------------------------------------- hand-outs

    def check_hand_out(self, book: QueueBook, entry: Entry, at_ms: int) -> None:
        """Check that a message may be delivered now, and take its tokens."""
        what = f"message {entry.number} of queue {book.name}, key {entry.path}, at {at_ms}"
        if entry.due_ms is not None and entry.due_ms > at_ms:
            violated(f"handed out before it was due at {entry.due_ms}:", what)
        if entry.deadline_ms is not None and entry.deadline_ms < at_ms:
            violated(f"handed out after its deadline {entry.deadline_ms}:", what)
        if book.is_held_back(entry.path):
            violated("handed out while paused:", what)
        if self._is_capped(book, entry, if_told=False):
            violated("handed out beyond a cap:", what)
        self._check_order(entry, what)
        if not book.is_dlq:
            self._take_tokens(entry, at_ms, what)

    def _check_order(self, entry: Entry, what: str) -> None:
        if entry.is_fresh:
            first = next(iter(self._books.lanes[entry.lane]))
            if first != entry.number:
                violated(f"handed out before {first}, which came first in its lane:", what)

    def _take_tokens(self, entry: Entry, at_ms: int, what: str) -> None:
        if not self._has_tokens(entry, at_ms, slack=-_SLACK):
            violated("handed out without a token in", {name: self._buckets.get(name) for name in entry.throttles}, what)
        for name in entry.throttles:
            if name in self._buckets:
                self._buckets[name].level -= 1

    def eligible(self, queue: str, now_ms: int) -> Entry | None:
        """Return a waiting message that nothing holds back."""
        book = self._books.queues.get(queue)
        if book is None or book.is_paused:
            return None
        for entry in book.entries.values():
            if not entry.token and self._may_go(book, entry, now_ms):
                return entry
        return None

    def _may_go(self, book: QueueBook, entry: Entry, now_ms: int) -> bool:
        if entry.due_ms is not None and entry.due_ms > now_ms:
            return False
        if entry.deadline_ms is not None and entry.deadline_ms < now_ms:
            return False
        if book.is_held_back(entry.path) or self._is_capped(book, entry, if_told=True):
            return False
        if book.is_dlq and entry.cap is not None:
            return False  # whether a cap counts among dead letters is left open
        if book.is_dlq or not self._has_tokens(entry, now_ms, slack=_SLACK):
            return book.is_dlq
        return not any(self._may_be_held(book, name) for name in entry.throttles)

    def _may_be_held(self, book: QueueBook, throttle: str) -> bool:
        """Return whether all tokens of a throttle may be kept for other queues: all but one of its burst may be."""
        bucket = self._buckets.get(throttle)
        if bucket is None or bucket.rate == 0 or bucket.level >= int(bucket.burst) - _SLACK:
            return False
        others = (other for other in self._books.queues.values() if other is not book and not other.is_dlq)
        return any(
            throttle in entry.throttles and not entry.token for other in others for entry in other.entries.values()
        )
