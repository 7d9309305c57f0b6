"""Consumers as a journal shows them: how many there were, how they request messages, and how many they work on at once.

A lease is not a consumer. A worker that leases eight messages and works on them one after the other holds eight leases,
and has the speed of one consumer; most of the time for which it holds the eighth lease is not work. The journal has the
owner of each lease, and the order of leases and ends. From these follow, for each owner:

- ``holds``: how many leases it holds at most: those it held before a request, and those it requested.
- ``asks``: how many messages it requests at once.
- ``refills``: how many leases it still holds when it requests more. A streaming consumer requests after each
  acknowledgement, up to its credit; one that leases in batches requests when the batch is done.
- ``works``: how many messages it works on at the same time, see ``parallelism.py``.
- ``rests_ms``: how long it takes to request more once it can, when messages were waiting: the round trip, or a pause.
- presence: from when to when it was there. Idle consumers stand in a line and are served in turn. So an owner that got
  nothing while everyone else got messages several times over was not there.

Leases without an owner are assigned to consumers too: if all requests were for the same number, each batch is taken to
be that of the consumer that has been idle for longest. Otherwise nothing tells which leases belong together, and each
counts as a consumer of its own. Leases that expired are left out, because their consumers were gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import msgspec
import numpy as np

from fairlane.spark.whatif.parallelism import began, parallelism
from fairlane.spark.whatif.presence import Counts, Span, presences, slots_over_time, summed
from fairlane.spark.whatif.rows import NEVER, Flags, Ints

NEVER_ENDED = 1 << 62
_RESTS_MAX = 64
_REQUESTS_MIN = 2
"""The requests that an owner makes at least, in the mean, if it is the name of a consumer."""
_MOST = 0.98
"""The part of requests that a rule has to hold for: some leases of a consumer that was restarted are in its way."""


class ConsumerKind(msgspec.Struct, frozen=True, kw_only=True):
    """Consumers of one queue that work alike.

    Attributes:
        holds: how many leases one of them holds at most.
        asks: how many messages it requests at once at most.
        refills: it requests more when it holds at most this many.
        works: how many messages it works on at the same time.
        rests_ms: how long it takes to request more, as seen one after the other; none if it always does so at once.
        counts: pairs of an instant and how many of these consumers there are from then on.
    """

    holds: int = 1
    asks: int = 1
    refills: int = 0
    works: int = 1
    rests_ms: list[int] = []
    counts: Counts

    @property
    def is_plain(self) -> bool:
        """Whether one of them is one lease, and takes the next message immediately."""
        return self.holds == 1 and not self.rests_ms

    @property
    def most(self) -> int:
        """How many of them there are at most."""
        return max(count for _, count in self.counts)


@dataclass(frozen=True, slots=True)
class LeaseLog:
    """The leases of one queue, in order.

    Attributes:
        sequence, at_ms: of the lease.
        record: equal for leases that were requested together.
        owner: the number of the owner; -1 for none.
        asked: how many messages were requested.
        end_sequence, end_ms: of the lease's end; ``NEVER_ENDED`` for one that the journal does not show.
        ready_ms: since when the message waited for nothing but a consumer; -1 for one that something else held up.
    """

    sequence: Ints
    at_ms: Ints
    record: Ints
    owner: Ints
    asked: Ints
    end_sequence: Ints
    end_ms: Ints
    ready_ms: Ints

    def only(self, kept: Flags) -> LeaseLog:
        """Return some of the leases."""
        return LeaseLog(*(getattr(self, name)[kept] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class QueueConsumers:
    """The consumers of a queue.

    Attributes:
        kinds: the consumers.
        begin_ms: when the work on each lease's message began: later than the lease, if others were before it.
    """

    kinds: list[ConsumerKind]
    begin_ms: Ints


def consumers_of(log: LeaseLog) -> QueueConsumers:
    """Return the consumers that a log of leases shows."""
    kinds: list[ConsumerKind] = []
    begin_ms = log.at_ms.copy()
    is_named = _named(log)
    for named, kept in ((True, is_named), (False, ~is_named)):
        if not kept.any():
            continue
        part = log.only(kept)
        if not named and np.unique(_requests(part).asked).size > 1:
            kinds.append(ConsumerKind(counts=_slots(part, np.arange(part.owner.size))))
            continue
        begins = part.at_ms.copy()
        kinds += _Requests(part, part.owner if named else _chained(part)).kinds(begins, named=named)
        begin_ms[kept] = begins
    return QueueConsumers(kinds or [ConsumerKind(counts=[(0, 0)])], begin_ms)


def _named(log: LeaseLog) -> Flags:
    """Return which leases have an owner that tells something: not one that is made up for each request."""
    is_named: Flags = log.owner != NEVER
    if is_named.any():
        owners, requests = (np.unique(column[is_named]).size for column in (log.owner, log.record))
        if requests < _REQUESTS_MIN * owners:
            return np.zeros_like(is_named)
    return is_named


@dataclass(frozen=True, slots=True)
class _Batches:
    """The requests of a log: the first lease of each, how many leases it got, and how many messages it was for."""

    first: Ints
    size: Ints
    asked: Ints


def _requests(log: LeaseLog) -> _Batches:
    first = np.flatnonzero(np.concatenate([[True], log.record[1:] != log.record[:-1]]))
    size = np.diff(np.append(first, log.record.size))
    return _Batches(first, size, np.maximum(log.asked[first], size))


def _chained(log: LeaseLog) -> Ints:
    """Return a consumer for each lease: that of a request is the one that has been idle for longest."""
    requests = _requests(log)
    last = np.maximum.reduceat(log.end_sequence, requests.first).tolist()
    idle: list[tuple[int, int]] = []  # when its last lease ended, and its number
    found, known = [], 0
    for sequence, ended in zip(log.sequence[requests.first].tolist(), last, strict=True):
        if idle and idle[0][0] < sequence:
            _, consumer = heappop(idle)
        else:
            consumer, known = known, known + 1
        found.append(consumer)
        heappush(idle, (ended, consumer))
    return np.repeat(np.array(found, dtype=np.int64), requests.size)


class _Requests:
    """The requests of known consumers, with what each of them held at the time."""

    def __init__(self, log: LeaseLog, owner: Ints) -> None:
        self._log = log
        _, self._owner = np.unique(owner, return_inverse=True)
        self._batches = _requests(log)
        self._of = self._owner[self._batches.first]
        self._read_held()
        self._leases_of = _runs(self._owner)
        self._requests_of = _runs(self._of)
        self._terms = [self._terms_of(requests) for requests in self._requests_of]

    def _read_held(self) -> None:
        """Count the leases that each consumer held, at each of its leases and ends."""
        log, closed = self._log, np.flatnonzero(self._log.end_sequence != NEVER_ENDED)
        owner = np.concatenate([self._owner, self._owner[closed]])
        sequence = np.concatenate([log.sequence, log.end_sequence[closed]])
        order = np.lexsort((sequence, owner))
        self._events_of = _runs(owner[order])
        self._sequence = sequence[order]
        self._at_ms = np.concatenate([log.at_ms, log.end_ms[closed]])[order]
        self._steps = np.concatenate([np.ones(log.sequence.size, np.int64), np.full(closed.size, -1, np.int64)])[order]
        self._held = _held(owner[order], self._steps)
        is_lease = order < log.sequence.size
        self._event = np.empty(log.sequence.size, dtype=np.int64)
        self._event[order[is_lease]] = np.flatnonzero(is_lease)
        self.position: Ints = self._held[self._event] - 1  # how many leases its consumer held already

    def _terms_of(self, requests: Ints) -> tuple[int, int, int]:
        asked = self._batches.asked[requests]
        held = self.position[self._batches.first[requests]]
        holds, asks = int((held + asked).max()), int(asked.max())
        if held.any() and (held + asked == holds).mean() >= _MOST:
            return holds, asks, holds - 1  # a stream: it requests up to its credit, again and again
        return holds, asks, min(holds - 1, int(np.quantile(held, _MOST, method="lower")))

    def kinds(self, begins: Ints, *, named: bool) -> list[ConsumerKind]:
        """Return the kinds of the consumers, and write to ``begins`` when they began to work on each message."""
        found: dict[tuple[int, int, int], list[int]] = {}
        for owner, terms in enumerate(self._terms):
            found.setdefault(terms, []).append(owner)
        spans = self._presence() if named else []
        kinds = []
        for terms, owners in sorted(found.items()):
            counts = summed([span for owner in owners for span in spans[owner]]) if named else []
            kinds.append(self._kind(terms, owners, counts or _slots(self._log, self._owner), begins))
        return kinds

    def _kind(self, terms: tuple[int, int, int], owners: list[int], counts: Counts, begins: Ints) -> ConsumerKind:
        holds, asks, refills = terms
        log, works = self._log, 1
        if holds > 1:
            size = np.repeat(self._batches.size, self._batches.size)
            runs = [self._leases_of[owner] for owner in owners]
            works = parallelism([(log.at_ms[run], log.end_ms[run], self.position[run], size[run]) for run in runs])
            for run in runs:
                begins[run] = began(log.at_ms[run], log.end_ms[run], size[run], works=works)
        rests = np.concatenate([self._rests(owner, refills) for owner in owners])
        return ConsumerKind(
            holds=holds, asks=asks, refills=refills, works=max(1, works), rests_ms=_some(rests), counts=counts
        )

    def _rests(self, owner: int, refills: int) -> Ints:
        """Return how long a consumer took to request more while messages were waiting, one after the other."""
        events, first = self._events_of[owner], self._batches.first[self._requests_of[owner]]
        held, steps, at_ms = self._held[events], self._steps[events], self._at_ms[events]
        # From these events on it could take more: it just got down to ``refills``, or did not get all it could hold.
        could = (held <= refills) & ((steps > 0) | (held == refills))
        since = np.maximum.accumulate(np.where(could, np.arange(events.size), NEVER))
        at = self._event[first] - events[0] - 1  # the event before the request
        before = np.where(at >= 0, since[at], NEVER)
        could_ms, ready_ms = at_ms[before], self._log.ready_ms[first]
        known = (before != NEVER) & (self.position[first] <= refills) & (ready_ms != NEVER) & (ready_ms <= could_ms)
        rests: Ints = (self._log.at_ms[first] - could_ms)[known]
        return rests

    def _presence(self) -> list[list[Span]]:
        """Return from when to when each consumer was there."""
        first = self._batches.first
        event = self._event[first]
        begins = np.array([events[0] for events in self._events_of])[self._of]
        is_again = (self.position[first] == 0) & (event > begins)
        before = np.maximum(event - 1, 0)
        ends = [
            (NEVER_ENDED if self._held[events[-1]] else int(self._sequence[events[-1]]), int(self._at_ms[events[-1]]))
            for events in self._events_of
        ]
        return presences(
            self._requests_of,
            self._log.sequence[first],
            self._log.at_ms[first],
            idle_sequence=np.where(is_again, self._sequence[before], NEVER),
            idle_ms=np.where(is_again, self._at_ms[before], NEVER),
            ends=ends,
        )


def _runs(owner: Ints) -> list[Ints]:
    """Return for each owner, from 0 on, where it is, in order."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(owner[order])) + 1)


def _held(owner: Ints, steps: Ints) -> Ints:
    """Return how many leases an owner holds after each step; those of an owner are next to each other."""
    total = np.cumsum(steps)
    is_first = np.concatenate([[True], owner[1:] != owner[:-1]])
    first = np.maximum.accumulate(np.where(is_first, np.arange(total.size), 0))
    held: Ints = total - (total - steps)[first]
    return held


def _some(rests: Ints) -> list[int]:
    """Return a sample of the rests.

    The longest few are left out: some consumers worked meanwhile, under leases that then expired.
    """
    if rests.size:
        rests = rests[rests <= np.quantile(rests, _MOST, method="lower")]
    if not rests.any():
        return []
    chosen = np.linspace(0, rests.size - 1, min(rests.size, _RESTS_MAX)).astype(np.int64)
    found: list[int] = rests[chosen].tolist()
    return found


def _slots(log: LeaseLog, owner: Ints) -> Counts:
    """Return how many consumers there were, by how many were busy when a message had waited for one."""
    closed = log.end_sequence != NEVER_ENDED
    order = np.argsort(np.concatenate([log.sequence, log.end_sequence[closed]]), kind="stable")
    of = np.concatenate([owner, owner[closed]])[order]
    steps = np.concatenate([np.ones(owner.size, np.int64), np.full(int(closed.sum()), -1, np.int64)])[order]
    by_owner = np.argsort(of, kind="stable")
    held = np.empty_like(steps)
    held[by_owner] = _held(of[by_owner], steps[by_owner])
    busier = np.where((steps > 0) & (held == 1), 1, np.where((steps < 0) & (held == 0), -1, 0))
    has_waited = (log.ready_ms != NEVER) & (log.ready_ms < log.at_ms)
    shows = np.concatenate([has_waited, np.zeros(int(closed.sum()), np.bool_)])
    at_ms = np.concatenate([log.at_ms, log.end_ms[closed]])
    return slots_over_time(at_ms[order], busier, shows[order])
