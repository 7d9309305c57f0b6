"""Rules that must hold when a message is delivered, and the messages that nothing holds back."""

from __future__ import annotations

from dataclasses import dataclass

from tests.kit.auditor.books import Books, Entry, Path, QueueBook, prefixes, violated
from tests.kit.auditor.order import may_be_next

_SLACK = 1e-6


@dataclass(slots=True)
class Bucket:
    """A throttle as promised: never more than ``rate * t + burst``."""

    rate: float
    burst: float
    level: float
    at_ms: int
    charges_cost: bool = False

    def need(self, entry: Entry) -> int:
        """Return how many tokens must be there for a message."""
        return max(1, min(entry.cost, int(self.burst))) if self.charges_cost else 1

    def refill(self, now_ms: int) -> None:
        """Add the tokens of the time that has passed."""
        self.level = min(self.burst, self.level + self.rate * max(0, now_ms - self.at_ms) / 1000)
        self.at_ms = max(self.at_ms, now_ms)


class Rules:
    """Throttles, caps, pauses, order and times at delivery."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._buckets: dict[str, Bucket] = {}
        self._made: dict[tuple[str, str], Bucket] = {}
        """Buckets of a pattern or of a queue's tenants, by that and the name. Their rates and bursts never change."""
        self._empty_ms: dict[str, int] = {}
        """When a pattern, or a queue whose tenants have a rate, was there at the last opening."""

    # ----------------------------------------------------------------------------------------------------- throttles

    def note_config(self, key: str, at_ms: int) -> None:
        """Apply a change of config to its throttle."""
        if not key.startswith("throttle:"):
            return
        name = key.removeprefix("throttle:").rpartition(":")[0]
        if name.endswith("*"):
            if f"throttle:{name}:rate" not in self._books.config:
                self._made = {known: bucket for known, bucket in self._made.items() if known[0] != name}
                self._empty_ms.pop(name, None)
            return
        rate = self._books.config.get(f"throttle:{name}:rate")
        if rate is None:
            self._buckets.pop(name, None)
            return
        said = self._books.config.get(f"throttle:{name}:burst")
        burst = max(1.0, float(rate)) if said is None else float(said)
        charges_cost = self._books.config.get(f"throttle:{name}:charge") == "cost"
        bucket = self._buckets.get(name)
        if bucket is None:
            self._buckets[name] = Bucket(float(rate), burst, burst, at_ms, charges_cost)
            return
        bucket.charges_cost = charges_cost
        bucket.refill(at_ms)
        bucket.rate, bucket.burst, bucket.level = float(rate), burst, min(bucket.level, burst)

    def note_opening(self, now_ms: int) -> None:
        """Empty all buckets, as a restart must."""
        for bucket in self._buckets.values():
            bucket.level, bucket.at_ms = 0.0, now_ms
        patterns = [key.split(":")[1] for key in self._books.config if key.startswith("throttle:") and "*" in key]
        limited = [book.name for book in self._books.queues.values() if book.policy.key_rate is not None]
        self._made = {}
        self._empty_ms = dict.fromkeys([*patterns, *limited], now_ms)

    def _buckets_of(self, book: QueueBook, entry: Entry, now_ms: int) -> list[Bucket]:
        """Return the buckets that a message needs a token of, filled."""
        found = []
        for name in entry.throttles:
            if name in self._buckets:
                found.append(self._buckets[name])
            for prefix in (name[:length] for length in range(len(name), -1, -1)):
                rate = self._books.config.get(f"throttle:{prefix}*:rate")
                if rate is not None and name not in self._buckets:
                    found.append(self._made_bucket(prefix + "*", name, float(rate), max(1.0, float(rate)), now_ms))
                    break
        policy = book.policy
        if policy.key_rate is not None and policy.key_burst is not None:
            found.append(self._made_bucket(book.name, entry.path[0], policy.key_rate, policy.key_burst, now_ms))
            found[-1].charges_cost = policy.key_charge == "cost"
        for bucket in found:
            bucket.refill(now_ms)
        return found

    def _made_bucket(self, family: str, name: str, rate: float, burst: float, now_ms: int) -> Bucket:
        bucket = self._made.get((family, name))
        if bucket is None:
            earned = rate * (now_ms - self._empty_ms[family]) / 1000 if family in self._empty_ms else burst
            bucket = self._made[family, name] = Bucket(rate, burst, min(burst, earned), now_ms)
        return bucket

    def _has_tokens(self, book: QueueBook, entry: Entry, now_ms: int, *, slack: float) -> bool:
        """Return whether all buckets have what a message needs; of one that queues share, a part may be enough."""
        for bucket in self._buckets_of(book, entry, now_ms):
            need = bucket.need(entry) if slack > 0 or not self._is_shared(book, entry) else 1
            if bucket.level < need + slack:
                return False
        return True

    def _is_shared(self, book: QueueBook, entry: Entry) -> bool:
        others = (other for other in self._books.queues.values() if other is not book and not other.is_dlq)
        return any(set(entry.throttles) & set(each.throttles) for other in others for each in other.entries.values())

    # ---------------------------------------------------------------------------------------------------------- caps

    def _cap(self, book: QueueBook, path: Path, *, if_told: bool) -> int | None:
        """Return the cap of a key. A cap set by messages is certain only while one of them exists."""
        name = "/".join(path)
        said = self._books.config.get(f"cap:{book.name}:{name}")
        if said is not None:
            return int(said)
        if name in book.policy.caps:
            return book.policy.caps[name]
        said = self._books.config.get(f"cap:{book.name}:*") if len(path) == 1 and not book.is_dlq else None
        if said is not None:
            return int(said)
        told, otherwise = book.told_caps.get(path), book.policy.key_cap if len(path) == 1 else None
        if told is None:
            return otherwise
        if any(entry.path == path and entry.origin is None for entry in book.entries.values()):
            return told
        if if_told:
            return told if otherwise is None else min(told, otherwise)
        return None if otherwise is None else max(told, otherwise)

    def _is_crowded(self, book: QueueBook, entry: Entry) -> bool:
        """Return whether as many messages are leased as may be in all, and its tenant has its floor."""
        most, tenant = book.policy.in_flight_max, entry.path[0]
        if most is None:
            return False
        said = self._books.config.get(f"floor:{book.name}:{tenant}")
        floor = book.policy.key_floor if said is None else int(said)
        return book.in_use[entry.path[:1]] >= floor and sum(bool(each.token) for each in book.entries.values()) >= most

    def _is_capped(self, book: QueueBook, entry: Entry, *, if_told: bool) -> bool:
        if self._is_crowded(book, entry):
            return True
        for path in prefixes(entry.path):
            cap = self._cap(book, path, if_told=if_told)
            if cap is not None and book.in_use[path] >= cap:
                return True
        return False

    def is_prompt(self, book: QueueBook, entry: Entry, *, if_told: bool) -> bool:
        """Return whether a message has a deadline or a throttle, or a cap on its key or one above it, or its queue a
        rate for every key, a limit on messages in flight or a strict order.
        """
        policy = book.policy
        has_cap = any(self._cap(book, path, if_told=if_told) is not None for path in prefixes(entry.path))
        is_limited = has_cap or policy.key_rate is not None or policy.in_flight_max is not None or book.is_strict
        return entry.deadline_ms is not None or bool(entry.throttles) or is_limited

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
        if not book.is_strict:  # what comes first there is another rule
            self._check_order(entry, what)
        if not book.is_dlq:
            self._take_tokens(book, entry, at_ms, what)

    def _check_order(self, entry: Entry, what: str) -> None:
        if entry.is_fresh:
            first = next(iter(self._books.lanes[entry.lane]))
            if first != entry.number:
                violated(f"handed out before {first}, which came first in its lane:", what)

    def _take_tokens(self, book: QueueBook, entry: Entry, at_ms: int, what: str) -> None:
        buckets = self._buckets_of(book, entry, at_ms)
        if not self._has_tokens(book, entry, at_ms, slack=-_SLACK):
            violated("handed out without a token in", buckets, what)
        for bucket in buckets:
            bucket.level -= entry.cost if bucket.charges_cost else 1

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
        if not may_be_next(book, entry):
            return False
        if book.is_dlq and entry.cap is not None:
            return False  # whether a cap counts among dead letters is left open
        if book.is_dlq or not self._has_tokens(book, entry, now_ms, slack=_SLACK):
            return book.is_dlq
        rate = self._made.get((book.name, entry.path[0]))
        if rate is not None and rate.charges_cost and rate.level < int(rate.burst) - _SLACK:
            return False  # tokens may be saved for a message of the same tenant that costs more
        return not any(self._may_be_held(book, name) for name in entry.throttles)

    def _may_be_held(self, book: QueueBook, throttle: str) -> bool:
        """Return whether all tokens of a throttle may be kept for other queues: all but one of its burst may be."""
        made = (bucket for (_, name), bucket in self._made.items() if name == throttle)
        bucket = self._buckets.get(throttle) or next(made, None)
        if bucket is None or bucket.level >= int(bucket.burst) - _SLACK:
            return False
        if bucket.charges_cost:
            return True  # tokens may be saved for another message that costs more, also those that a rate of 0 leaves
        if bucket.rate == 0:
            return False
        others = (other for other in self._books.queues.values() if other is not book and not other.is_dlq)
        return any(
            throttle in entry.throttles and not entry.token for other in others for entry in other.entries.values()
        )
