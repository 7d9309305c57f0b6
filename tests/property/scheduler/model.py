"""A naive model of the kernel's rules: plain lists, exact fractions, and a scan for every question.

It knows who waits and who may go, not in which order keys take turns; that is ``order_model``'s business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from fairlane.scheduler import Backpressure, Item, Key, KeyPolicy, Priority, RefusalReason, WaitReason

Path = tuple[str, ...]
NOTHING_SPECIAL = KeyPolicy()
KEY_RATES: dict[Path, tuple[int, int]] = {("b",): (125, 2), ("a", "x"): (50, 1), ("d",): (0, 3), ("c",): (300, 6)}
"""The rate and burst of each key that may have one. They never change, and a policy may have them or not."""
CHARGED_BY_COST: set[Path] = {("c",)}


class Job(Item):
    """An item with a number of its own, so that a failing example can be read."""

    __slots__ = ("number",)

    def __init__(
        self,
        number: int,
        key: Key,
        *,
        cost: int = 1,
        priority: Priority = Priority.NORMAL,
        throttles: tuple[str, ...] = (),
        due_ms: int | None = None,
        deadline_ms: int | None = None,
    ) -> None:
        super().__init__(key, cost=cost, priority=priority, throttles=throttles, due_ms=due_ms, deadline_ms=deadline_ms)
        self.number = number

    def __repr__(self) -> str:
        return f"#{self.number}({self.key!r})"


def path(key: Key) -> Path:
    """Return a key as a path of names."""
    return (key,) if isinstance(key, str) else tuple(key)


def prefixes(key: Path) -> list[Path]:
    """Return a key and the keys above it, innermost first."""
    return [key[:depth] for depth in range(len(key), 0, -1)]


@dataclass
class Entry:
    """A waiting job. ``entered`` is its position among all that entered a lane; None while it is not due."""

    job: Job
    offered: int
    entered: int | None = None

    @property
    def path(self) -> Path:
        return path(self.job.key)

    @property
    def lane(self) -> tuple[Path, Priority, tuple[str, ...]]:
        return self.path, self.job.priority, tuple(sorted(set(self.job.throttles)))


@dataclass
class ExactBucket:
    """A token bucket in fractions."""

    rate: Fraction
    burst: Fraction
    level: Fraction
    at_ms: int

    def level_at(self, now_ms: int) -> Fraction:
        return min(self.burst, self.level + self.rate * (now_ms - self.at_ms) / 1000)

    def move_to(self, now_ms: int) -> None:
        self.level, self.at_ms = self.level_at(now_ms), now_ms

    def token_at(self, now_ms: int, tokens: int = 1) -> int | None:
        """Return the first instant with this number of whole tokens."""
        missing = tokens - self.level_at(now_ms)
        if missing <= 0:
            return now_ms
        return None if self.rate == 0 else now_ms + ceil(missing * 1000 / self.rate)


@dataclass(frozen=True)
class Verdict:
    """What should happen to an offer: a refusal, possible victims of which one is dropped, or neither."""

    refusal: RefusalReason | None = None
    refusing_key: Path | None = None
    victims: tuple[Job, ...] = ()


class Rules:
    """Which items wait, which may go, and what an offer leads to."""

    def __init__(
        self,
        *,
        waiting_max: int | None = None,
        key_waiting_max: int | None = None,
        backpressure: Backpressure = Backpressure.REJECT,
        is_strict: bool = False,
    ) -> None:
        self.waiting_max = waiting_max
        self.key_waiting_max = key_waiting_max
        self.backpressure = backpressure
        self.is_strict = is_strict
        self.now_ms = 0
        self.entries: list[Entry] = []
        self.in_use: Counter[Path] = Counter()
        self.paused: set[Path] = set()
        self.policies: dict[Path, KeyPolicy] = {}
        self.provider: Callable[[Key], KeyPolicy | None] | None = None
        self.buckets: dict[str, ExactBucket] = {}
        self.key_buckets = {
            key: ExactBucket(Fraction(rate), Fraction(burst), Fraction(burst), 0)
            for key, (rate, burst) in KEY_RATES.items()
        }
        self.expired: list[Job] = []
        self._clock = 0

    # ---------------------------------------------------------------------------------------------------- time

    def move_to(self, now_ms: int) -> None:
        """Advance time: expire what is past its deadline, then move due jobs into their lanes."""
        self.now_ms = max(self.now_ms, now_ms)
        for bucket in (*self.buckets.values(), *self.key_buckets.values()):
            bucket.move_to(self.now_ms)
        for entry in list(self.entries):
            if entry.job.deadline_ms is not None and entry.job.deadline_ms < self.now_ms:
                self.entries.remove(entry)
                self.expired.append(entry.job)
        due = [entry for entry in self.entries if entry.entered is None and (entry.job.due_ms or 0) <= self.now_ms]
        for entry in sorted(due, key=lambda entry: (entry.job.due_ms or 0, entry.offered)):
            entry.entered = self._tick()

    def _tick(self) -> int:
        self._clock += 1
        return self._clock

    # ------------------------------------------------------------------------------------------------ in and out

    def accept(self, job: Job) -> None:
        """Add a job that has been accepted."""
        entry = Entry(job, self._tick())
        if job.due_ms is None or job.due_ms <= self.now_ms:
            entry.entered = self._tick()
        self.entries.append(entry)
        self.move_to(self.now_ms)

    def remove(self, job: Job) -> None:
        """Remove a job for any reason."""
        self.entries.remove(self.entry(job))

    def hand_out(self, job: Job) -> None:
        """Hand a job out: take the tokens of its throttles and rates, and count it as in use."""
        for bucket in self.buckets_of(self.entry(job)):
            bucket.level -= job.cost if self._is_charged(bucket) else 1
        self.remove(job)
        self.in_use[path(job.key)] += 1

    def entry(self, job: Job) -> Entry:
        return next(entry for entry in self.entries if entry.job is job)

    def is_waiting(self, job: Job) -> bool:
        return any(entry.job is job for entry in self.entries)

    # -------------------------------------------------------------------------------------------------- may it go

    def policy(self, key: Path) -> KeyPolicy:
        """Return the policy of a key: its own, else the provider's, else the default."""
        if key in self.policies:
            return self.policies[key]
        provided = self.provider(key[0] if len(key) == 1 else key) if self.provider is not None else None
        return provided if provided is not None else NOTHING_SPECIAL

    def used(self, key: Path) -> int:
        return sum(count for other, count in self.in_use.items() if other[: len(key)] == key)

    def waiting(self, key: Path) -> int:
        return sum(entry.path[: len(key)] == key for entry in self.entries)

    def reason(self, entry: Entry) -> tuple[WaitReason, Path | None]:
        """Return the first thing that holds an entry back, from the innermost key outwards, then its throttles."""
        if entry.entered is None:
            return WaitReason.NOT_DUE, None
        for key in prefixes(entry.path):
            if key in self.paused:
                return WaitReason.PAUSED, key
            cap = self.policy(key).cap
            if cap is not None and self.used(key) >= cap:
                return WaitReason.CAPPED, key
        head = self.head_of(entry)
        if any(bucket.level < self._need(bucket, head) for bucket in self.buckets_of(entry)):
            return WaitReason.THROTTLED, None
        return WaitReason.ELIGIBLE, None

    def buckets_of(self, entry: Entry) -> list[ExactBucket]:
        named = [self.buckets[name] for name in set(entry.job.throttles) if name in self.buckets]
        return named + [self.key_buckets[key] for key in prefixes(entry.path) if self.policy(key).rate is not None]

    def _is_charged(self, bucket: ExactBucket) -> bool:
        return any(bucket is self.key_buckets[key] for key in CHARGED_BY_COST)

    def _need(self, bucket: ExactBucket, entry: Entry) -> int:
        return min(entry.job.cost, int(bucket.burst)) if self._is_charged(bucket) else 1

    def tokens_at(self, entry: Entry) -> list[int | None]:
        """Return when each throttle and rate of an entry has the tokens that it needs."""
        return [bucket.token_at(self.now_ms, self._need(bucket, entry)) for bucket in self.buckets_of(entry)]

    def head_of(self, entry: Entry) -> Entry:
        """Return the first entry of the lane that an entry is in."""
        return next(head for head in self.heads() if head.lane == entry.lane)

    def _savers(self, entry: Entry) -> list[tuple[ExactBucket, Entry]]:
        """Return the rates by cost of an entry, each with a first entry that they may save tokens for."""
        buckets = [bucket for bucket in self.buckets_of(entry) if self._is_charged(bucket)]
        heads = [head for head in self.heads() if any(bucket in self.buckets_of(head) for bucket in buckets)]
        return [(bucket, head) for bucket in buckets for head in heads]

    def is_saved_for_another(self, entry: Entry) -> bool:
        """Return whether the tokens that an entry needs may be saved for another entry of its key."""
        return any(bucket.level < self._need(bucket, head) for bucket, head in self._savers(entry))

    def heads(self) -> list[Entry]:
        """Return the first entry of each lane."""
        firsts: dict[object, Entry] = {}
        entered = [entry for entry in self.entries if entry.entered is not None]
        for entry in sorted(entered, key=lambda entry: entry.entered or 0):
            firsts.setdefault(entry.lane, entry)
        return list(firsts.values())

    def eligible(self) -> list[Entry]:
        """Return the entries that could be handed out now."""
        return [entry for entry in self.heads() if self.reason(entry)[0] is WaitReason.ELIGIBLE]

    def next_eligible_at(self) -> int | None:
        """Return when an entry becomes eligible by the passing of time alone."""
        instants = []
        for entry in self.entries:
            if entry.entered is None:
                at_ms: int | None = entry.job.due_ms
            elif self.reason(entry)[0] is WaitReason.THROTTLED:
                tokens_at = self.tokens_at(self.head_of(entry))
                tokens_at += [
                    bucket.token_at(self.now_ms, self._need(bucket, head)) for bucket, head in self._savers(entry)
                ]
                at_ms = None if None in tokens_at else max(at for at in tokens_at if at is not None)
            else:
                continue
            deadline_ms = entry.job.deadline_ms
            if at_ms is not None and (deadline_ms is None or at_ms <= deadline_ms):
                instants.append(at_ms)
        return min(instants, default=None)

    # ----------------------------------------------------------------------------------------------------- limits

    def judge(self, job: Job) -> Verdict:
        """Return what an offer must lead to, without doing it."""
        if self.is_waiting(job):
            return Verdict(refusal=RefusalReason.ALREADY_WAITING)
        own = path(job.key)
        for key in prefixes(own):
            policy = self.policy(key)
            limit, counted = policy.waiting_max, [entry for entry in self.entries if entry.path[: len(key)] == key]
            if limit is None and key == own:
                limit, counted = self.key_waiting_max, [entry for entry in counted if entry.path == own]
            if limit is not None and len(counted) >= limit:
                return self._make_room(job, counted, self._override(key), RefusalReason.KEY_FULL, key)
        if self.waiting_max is not None and len(self.entries) >= self.waiting_max:
            return self._make_room(job, self.entries, self._override(own), RefusalReason.GLOBAL_FULL, None)
        return Verdict()

    def _override(self, key: Path) -> Backpressure | None:
        """Return the backpressure of the nearest key, from this one up, that sets it."""
        said = [self.policy(key[:depth]).backpressure for depth in range(len(key), 0, -1)]
        return next((backpressure for backpressure in said if backpressure is not None), None)

    def _make_room(
        self, job: Job, among: list[Entry], override: Backpressure | None, reason: RefusalReason, key: Path | None
    ) -> Verdict:
        how = override or self.backpressure
        if how in (Backpressure.REJECT, Backpressure.WAIT):
            return Verdict(refusal=reason, refusing_key=key)
        victims: list[Job] = []
        has_any_none = False
        for owner in self._longest_below(among, len(key or ())):
            ranks = [
                entry.job.priority
                for entry in among
                if entry.path == owner and entry.entered is not None and entry.job.priority >= job.priority
            ]
            victims += self._victims_of(owner, max(ranks), how) if ranks else []
            has_any_none = has_any_none or not ranks
        return Verdict(refusal=reason if has_any_none else None, refusing_key=key, victims=tuple(victims))

    def _longest_below(self, among: list[Entry], depth: int) -> set[Path]:
        """Return the keys that may lose an item: at each level the one with the most items, or all that tie."""
        below: dict[Path, list[Entry]] = {}
        for entry in among:
            below.setdefault(entry.path[: depth + 1], []).append(entry)
        most = max(len(entries) for entries in below.values())
        longest: set[Path] = set()
        for key, entries in below.items():
            if len(entries) == most:
                longest |= {key} if len(key) == depth else self._longest_below(entries, depth + 1)
        return longest

    def _victims_of(self, owner: Path, priority: Priority, how: Backpressure) -> list[Job]:
        lanes: dict[object, list[Entry]] = {}
        for entry in self.entries:
            if entry.path == owner and entry.job.priority == priority and entry.entered is not None:
                lanes.setdefault(entry.lane, []).append(entry)
        for lane in lanes.values():
            lane.sort(key=lambda entry: entry.entered or 0)
        if how is Backpressure.DROP_OLDEST:
            return [min((lane[0] for lane in lanes.values()), key=lambda entry: entry.offered).job]
        return [max((lane[-1] for lane in lanes.values()), key=lambda entry: entry.offered).job]
