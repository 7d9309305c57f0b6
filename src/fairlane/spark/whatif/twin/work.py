"""Arrivals, attempts and leases of a simulation over arrays: what both kinds of modelled consumers have in common."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlane.spark.whatif.attempts import ACKED, EXPIRED, RETURNED
from fairlane.spark.whatif.queues import LATER
from fairlane.spark.whatif.rows import NEVER, Flags, Ints
from fairlane.spark.whatif.twin.compiler import compiled
from fairlane.spark.whatif.twin.containers import heap_of, next_at
from fairlane.spark.whatif.twin.turns import READY, WAITING, Turns, move_to, offer, settle, take

COME, LEASED, WAKE, CHANGES_AT = range(4)
_SOON_MS: Final = 1


class Work(NamedTuple):
    """What a recording has of messages and attempts; see ``Recording``.

    Attributes:
        at_ms, due_ms, first: of each message; ``due_ms`` is -1 for none.
        lasts_ms: of each attempt, how long it takes once it has begun; of one whose lease expires, the lease.
        busy_ms, end, delay_ms, settle: of each attempt.
        is_timed: whether time alone can change anything.
    """

    at_ms: Ints
    due_ms: Ints
    first: Ints
    lasts_ms: Ints
    busy_ms: Ints
    end: NDArray[np.int8]
    delay_ms: Ints
    settle: Ints
    is_timed: bool


class TwinRun(NamedTuple):
    """A simulation while it goes on, and what comes of it.

    Attributes:
        counts: how many messages have come and how many leases there were; when something happens by itself, and when
            the number of consumers changes.
        attempt: of each message, its next attempt or the one that goes on.
        leased: the message of each lease.
        is_contended: of each lease, whether others had to wait for a consumer.
        first_ms: when each message was first leased.
        running: the attempts that go on, by their end.
        gone: the consumers that will be back, by instant.
    """

    counts: Ints
    attempt: Ints
    leased: NDArray[np.int32]
    is_contended: Flags
    first_ms: Ints
    running: Ints
    gone: Ints


def leases_of(work: Work) -> int:
    """Return how many leases there are at most. Under another load messages may have the same attempts."""
    last = np.flatnonzero((work.end != RETURNED) & (work.end != EXPIRED))
    return int((last[np.searchsorted(last, work.first)] - work.first + 1).sum())


def run_of(work: Work, *, leases: int, consumers: int) -> TwinRun:
    """Return a run that begins."""
    return TwinRun(
        counts=np.array([0, 0, LATER, LATER], dtype=np.int64),
        attempt=work.first.copy(),
        leased=np.empty(leases, dtype=np.int32),
        is_contended=np.zeros(leases, dtype=np.bool_),
        first_ms=np.full(work.first.size, NEVER, dtype=np.int64),
        running=heap_of(leases),
        gone=heap_of(leases + consumers),
    )


@compiled
def next_instant(turns: Turns, work: Work, run: TwinRun) -> int:
    """Return when something happens next; ``LATER`` for never."""
    now_ms: int = min(next_at(run.running), next_at(run.gone), run.counts[WAKE], _next_arrival(work, run))
    if turns.counts[WAITING]:
        now_ms = min(now_ms, run.counts[CHANGES_AT])
    return now_ms


@compiled
def _next_arrival(work: Work, run: TwinRun) -> int:
    at_ms: int = work.at_ms[run.counts[COME]] if run.counts[COME] < work.at_ms.size else LATER
    return at_ms


@compiled
def arrive(turns: Turns, work: Work, run: TwinRun, now_ms: int) -> None:
    """Offer the messages that have come. Time passes first, as in the broker, also if attempts end."""
    if next_at(run.running) <= now_ms or _next_arrival(work, run) <= now_ms:
        move_to(turns, now_ms)
    while _next_arrival(work, run) <= now_ms:
        message = run.counts[COME]
        run.counts[COME] += 1
        offer(turns, message, work.due_ms[message])


@compiled
def lease(turns: Turns, run: TwinRun, count: int, now_ms: int) -> int:
    """Lease up to ``count`` messages, and return how many."""
    move_to(turns, now_ms)
    begin = run.counts[LEASED]
    taken = take(turns, count, run.leased, begin)
    run.counts[LEASED] += taken
    for number in range(begin, begin + taken):
        message = run.leased[number]
        if run.first_ms[message] == NEVER:
            run.first_ms[message] = now_ms
    return taken


@compiled
def note_contention(turns: Turns, run: TwinRun, served: int) -> None:
    """Record that the latest leases were given while others had to wait."""
    if turns.counts[READY] > 0:
        for number in range(run.counts[LEASED] - served, run.counts[LEASED]):
            run.is_contended[number] = True


@compiled
def finish(turns: Turns, work: Work, run: TwinRun, message: int, now_ms: int) -> None:
    """End an attempt for the queue: settle its cost, or offer the message again."""
    at = run.attempt[message]
    if work.end[at] == ACKED:
        if work.settle[at]:
            settle(turns, turns.key[message], work.settle[at])
    elif work.end[at] == RETURNED or work.end[at] == EXPIRED:
        run.attempt[message] += 1
        offer(turns, message, now_ms + work.delay_ms[at] if work.delay_ms[at] else NEVER)


@compiled
def watch(turns: Turns, work: Work, run: TwinRun, now_ms: int) -> None:
    """Note when something happens by itself, unless time passes by then with what comes or ends."""
    if not work.is_timed or min(_next_arrival(work, run), next_at(run.running)) <= now_ms + _SOON_MS:
        return
    if turns.counts[WAITING] and next_at(turns.due) != LATER:
        run.counts[WAKE] = max(next_at(turns.due), now_ms + 1)


@compiled
def pass_time(turns: Turns, wake_ms: int, now_ms: int) -> None:
    """Advance time if that is what the simulation has waited for."""
    if wake_ms <= now_ms:
        move_to(turns, now_ms)
