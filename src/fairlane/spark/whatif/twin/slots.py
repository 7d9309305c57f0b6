"""A simulation over arrays with consumers that are one lease each; the twin of ``whatif/simulation.py``."""

from __future__ import annotations

from fairlane.spark.whatif.attempts import EXPIRED
from fairlane.spark.whatif.queues import LATER
from fairlane.spark.whatif.rows import Ints
from fairlane.spark.whatif.twin.compiler import compiled, entry
from fairlane.spark.whatif.twin.containers import insert, next_at, pop, push
from fairlane.spark.whatif.twin.turns import WAITING, Turns, release
from fairlane.spark.whatif.twin.work import (
    CHANGES_AT,
    LEASED,
    WAKE,
    TwinRun,
    Work,
    arrive,
    finish,
    lease,
    next_instant,
    note_contention,
    pass_time,
    watch,
)

FREE, THERE, CHANGED = range(3)


@entry
def play_slots(turns: Turns, work: Work, run: TwinRun, counts: Ints, slots: Ints) -> None:
    """Play a recording until nothing more can happen.

    Args:
        turns: the keys, and the messages that wait.
        work: what to play.
        run: receives what comes of it.
        counts: how many consumers are idle, how many there are, and which change is next; zeros at first.
        slots: pairs of an instant and how many consumers there are from then on.
    """
    _staff(run, counts, slots, 0)
    while True:
        now_ms = next_instant(turns, work, run)
        if now_ms == LATER:
            return
        arrive(turns, work, run, now_ms)
        while next_at(run.running) <= now_ms:
            _end(turns, work, run, counts, pop(run.running), now_ms)
        while next_at(run.gone) <= now_ms:
            pop(run.gone)
            counts[FREE] += 1
        _serve(turns, work, run, counts, slots, now_ms)
        watch(turns, work, run, now_ms)


@compiled
def _staff(run: TwinRun, counts: Ints, slots: Ints, now_ms: int) -> None:
    """Set the number of consumers to that of an instant."""
    while counts[CHANGED] < slots.shape[0] and slots[counts[CHANGED], 0] <= now_ms:
        there = slots[counts[CHANGED], 1]
        counts[FREE] += there - counts[THERE]
        counts[THERE] = there
        counts[CHANGED] += 1
    run.counts[CHANGES_AT] = slots[counts[CHANGED], 0] if counts[CHANGED] < slots.shape[0] else LATER


@compiled
def _end(turns: Turns, work: Work, run: TwinRun, counts: Ints, message: int, now_ms: int) -> None:
    release(turns, turns.key[message], 1)
    if work.end[run.attempt[message]] < EXPIRED:
        counts[FREE] += 1
    finish(turns, work, run, message, now_ms)


@compiled
def _serve(turns: Turns, work: Work, run: TwinRun, counts: Ints, slots: Ints, now_ms: int) -> None:
    """Lease messages to idle consumers."""
    if run.counts[CHANGES_AT] <= now_ms:
        _staff(run, counts, slots, now_ms)
    wake_ms = run.counts[WAKE]
    run.counts[WAKE] = LATER
    if not turns.counts[WAITING]:
        return
    if counts[FREE] <= 0:
        pass_time(turns, wake_ms, now_ms)
        return
    taken = lease(turns, run, counts[FREE], now_ms)
    counts[FREE] -= taken
    for number in range(run.counts[LEASED] - taken, run.counts[LEASED]):
        _begin(work, run, number, now_ms)
    if taken and counts[FREE] <= 0:
        note_contention(turns, run, taken)


@compiled
def _begin(work: Work, run: TwinRun, number: int, now_ms: int) -> None:
    """Begin the attempt of a lease."""
    message = run.leased[number]
    at = run.attempt[message]
    if work.end[at] >= EXPIRED:
        push(run.gone, now_ms + work.busy_ms[at], 0)
    insert(run.running, now_ms + work.lasts_ms[at], number, message)
