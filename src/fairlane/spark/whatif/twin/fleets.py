"""A simulation over arrays with consumers that hold several leases; the twin of ``whatif/fleet.py``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fairlane.spark.whatif.attempts import EXPIRED
from fairlane.spark.whatif.consumers import ConsumerKind
from fairlane.spark.whatif.queues import LATER
from fairlane.spark.whatif.rows import NEVER, Flags, Ints
from fairlane.spark.whatif.twin.compiler import compiled, entry
from fairlane.spark.whatif.twin.containers import (
    append,
    deque_of,
    first_of,
    insert,
    next_at,
    pop,
    pop_left,
    push,
    size_of,
)
from fairlane.spark.whatif.twin.turns import NONE, WAITING, Turns, release
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

_CHANGED, _CREATED = range(2)
_AT, _KIND, _NUMBER = range(3)


class FleetArrays(NamedTuple):
    """The consumers of a queue.

    Attributes:
        counts: which change of their numbers is next, and how many consumers there ever were.
        changes: triples of an instant, a kind, and how many consumers of that kind there are from then on.
        holds, asks, refills, works: of each kind; see ``ConsumerKind``.
        rests_ms, rests_begin: the rests of all kinds in a row, and where those of each kind begin.
        there, there_size: of each kind the consumers that are there, and how many.
        line: the consumers that request messages.
        kind, held, working, rest, is_listed, is_leaving: of each consumer; ``rest`` is which of its rests is next.
        begins, ends: of each consumer, the first and the last lease that it does not work on yet.
        behind, attempt, holder, hidden_ms: of each lease the next one of its consumer, its attempt, its consumer, and
            if it will expire, how long the work on it takes; else -1.
    """

    counts: Ints
    changes: Ints
    holds: Ints
    asks: Ints
    refills: Ints
    works: Ints
    rests_ms: Ints
    rests_begin: Ints
    there: Ints
    there_size: Ints
    line: Ints
    kind: Ints
    held: Ints
    working: Ints
    rest: Ints
    is_listed: Flags
    is_leaving: Flags
    begins: Ints
    ends: Ints
    behind: Ints
    attempt: Ints
    holder: Ints
    hidden_ms: Ints


def fleet_of(kinds: list[ConsumerKind], *, leases: int) -> FleetArrays:
    """Return the consumers of a queue, none of which is there yet."""
    number = consumers_of(kinds)
    columns: dict[str, Any] = {
        **{name: np.zeros(number, dtype=np.int64) for name in ("kind", "held", "working", "rest")},
        **{name: np.zeros(number, dtype=np.bool_) for name in ("is_listed", "is_leaving")},
        **{name: np.full(number, NONE, dtype=np.int64) for name in ("begins", "ends")},
        **{name: np.empty(leases, dtype=np.int64) for name in ("behind", "attempt", "holder", "hidden_ms")},
        **_arrays_of(kinds),
    }
    return FleetArrays(counts=np.zeros(2, dtype=np.int64), line=deque_of(number + 1), **columns)


def _arrays_of(kinds: list[ConsumerKind]) -> dict[str, Ints]:
    """Return what is known of the kinds of consumers."""
    changes = sorted(
        ((at_ms, kind, number) for kind, one in enumerate(kinds) for at_ms, number in one.counts),
        key=lambda change: change[:2],
    )
    terms = ("holds", "asks", "refills", "works")
    rests = [one.rests_ms or [0] for one in kinds]
    return {
        "changes": np.array(changes, dtype=np.int64).reshape(-1, 3),
        **{name: np.array([getattr(one, name) for one in kinds], dtype=np.int64) for name in terms},
        "rests_ms": np.array([rest for each in rests for rest in each], dtype=np.int64),
        "rests_begin": np.cumsum([0, *map(len, rests)], dtype=np.int64),
        "there": np.zeros((len(kinds), max(one.most for one in kinds) + 1), dtype=np.int64),
        "there_size": np.zeros(len(kinds), dtype=np.int64),
    }


def consumers_of(kinds: list[ConsumerKind]) -> int:
    """Return how many consumers ever come."""
    return sum(
        max(0, number - before)
        for one in kinds
        for (_, before), (_, number) in zip([(0, 0), *one.counts], one.counts, strict=False)
    )


@entry
def play_fleet(turns: Turns, work: Work, run: TwinRun, fleet: FleetArrays) -> None:
    """Play a recording until nothing more can happen."""
    run.counts[CHANGES_AT] = fleet.changes[0, _AT]
    while True:
        now_ms = next_instant(turns, work, run)
        if now_ms == LATER:
            return
        arrive(turns, work, run, now_ms)
        while next_at(run.running) <= now_ms:
            _end(turns, work, run, fleet, pop(run.running), now_ms)
        while next_at(run.gone) <= now_ms:
            target = pop(run.gone)
            if target % 2:
                _done(work, run, fleet, target // 2, now_ms)
            else:
                append(fleet.line, target // 2)
        _serve(turns, work, run, fleet, now_ms)
        watch(turns, work, run, now_ms)


# ----------------------------------------------------------------------------------------------- coming and going


@compiled
def _staff(run: TwinRun, fleet: FleetArrays, now_ms: int) -> None:
    """Add and remove consumers up to an instant. One that leaves finishes what it holds."""
    while fleet.counts[_CHANGED] < fleet.changes.shape[0] and fleet.changes[fleet.counts[_CHANGED], _AT] <= now_ms:
        change = fleet.changes[fleet.counts[_CHANGED]]
        fleet.counts[_CHANGED] += 1
        kind = change[_KIND]
        while fleet.there_size[kind] < change[_NUMBER]:
            _add(fleet, kind)
        _sort(fleet, kind)
        while fleet.there_size[kind] > change[_NUMBER]:
            fleet.there_size[kind] -= 1
            fleet.is_leaving[fleet.there[kind, fleet.there_size[kind]]] = True
    at = fleet.counts[_CHANGED]
    run.counts[CHANGES_AT] = fleet.changes[at, _AT] if at < fleet.changes.shape[0] else LATER


@compiled
def _add(fleet: FleetArrays, kind: int) -> None:
    number = fleet.counts[_CREATED]
    fleet.counts[_CREATED] += 1
    fleet.kind[number] = kind
    fleet.rest[number] = number % (fleet.rests_begin[kind + 1] - fleet.rests_begin[kind])
    fleet.is_listed[number] = True
    fleet.there[kind, fleet.there_size[kind]] = number
    fleet.there_size[kind] += 1
    append(fleet.line, number)


@compiled
def _sort(fleet: FleetArrays, kind: int) -> None:
    """Sort the consumers of a kind: those that hold least are the first to leave, and stand last."""
    there = fleet.there[kind]
    for at in range(1, fleet.there_size[kind]):
        consumer, place = there[at], at
        while place > 0 and fleet.held[there[place - 1]] < fleet.held[consumer]:
            there[place] = there[place - 1]
            place -= 1
        there[place] = consumer


# --------------------------------------------------------------------------------------------- requests and leases


@compiled
def _wants(fleet: FleetArrays, consumer: int) -> int:
    """Return how many messages a consumer would request now; 0 for one that requests nothing."""
    kind, held = fleet.kind[consumer], fleet.held[consumer]
    if fleet.is_leaving[consumer] or held > fleet.refills[kind]:
        return 0
    wants: int = min(fleet.asks[kind], fleet.holds[kind] - held)
    return wants


@compiled
def _serve(turns: Turns, work: Work, run: TwinRun, fleet: FleetArrays, now_ms: int) -> None:
    """Lease messages to the consumers in the line."""
    if fleet.counts[_CHANGED] < fleet.changes.shape[0] and fleet.changes[fleet.counts[_CHANGED], _AT] <= now_ms:
        _staff(run, fleet, now_ms)
    wake_ms = run.counts[WAKE]
    run.counts[WAKE] = LATER
    if not turns.counts[WAITING]:
        return
    served = 0
    while size_of(fleet.line):
        consumer = first_of(fleet.line)
        wanted = _wants(fleet, consumer)
        taken = lease(turns, run, wanted, now_ms) if wanted else 0
        if wanted and not taken:
            break
        pop_left(fleet.line)
        fleet.is_listed[consumer] = False
        if taken:
            served += taken
            _hand_over(work, run, fleet, consumer, taken, now_ms)
            if not fleet.is_listed[consumer] and _wants(fleet, consumer):
                fleet.is_listed[consumer] = True
                append(fleet.line, consumer)
    if served and not size_of(fleet.line):
        note_contention(turns, run, served)
    elif not served:
        pass_time(turns, wake_ms, now_ms)


@compiled
def _hand_over(work: Work, run: TwinRun, fleet: FleetArrays, consumer: int, taken: int, now_ms: int) -> None:
    """Give the latest leases to a consumer, which begins with as many as it can."""
    for number in range(run.counts[LEASED] - taken, run.counts[LEASED]):
        message = run.leased[number]
        at = run.attempt[message]
        fleet.attempt[number], fleet.holder[number], fleet.behind[number] = at, consumer, NONE
        fleet.hidden_ms[number] = NEVER
        fleet.held[consumer] += 1
        if work.end[at] >= EXPIRED:  # its lease ends when it expires, whenever the work on it begins
            insert(run.running, now_ms + work.lasts_ms[at], number, number)
            fleet.hidden_ms[number] = work.busy_ms[at]
        if fleet.working[consumer] < fleet.works[fleet.kind[consumer]]:
            _begin(work, run, fleet, consumer, number, now_ms)
        elif fleet.begins[consumer] == NONE:
            fleet.begins[consumer] = fleet.ends[consumer] = number
        else:
            fleet.behind[fleet.ends[consumer]] = number
            fleet.ends[consumer] = number


@compiled
def _begin(work: Work, run: TwinRun, fleet: FleetArrays, consumer: int, number: int, now_ms: int) -> None:
    """Begin to work on the message of a lease."""
    fleet.working[consumer] += 1
    if fleet.hidden_ms[number] != NEVER:
        push(run.gone, now_ms + fleet.hidden_ms[number], 2 * consumer + 1)
    else:
        insert(run.running, now_ms + work.lasts_ms[fleet.attempt[number]], number, number)


# ------------------------------------------------------------------------------------------------------------ ends


@compiled
def _end(turns: Turns, work: Work, run: TwinRun, fleet: FleetArrays, number: int, now_ms: int) -> None:
    """End a lease."""
    message = run.leased[number]
    release(turns, turns.key[message], 1)
    if work.end[run.attempt[message]] < EXPIRED:
        _done(work, run, fleet, fleet.holder[number], now_ms)
    finish(turns, work, run, message, now_ms)


@compiled
def _done(work: Work, run: TwinRun, fleet: FleetArrays, consumer: int, now_ms: int) -> None:
    """End the work of a consumer on one message. It requests more if it can: now, or after its rest."""
    fleet.held[consumer] -= 1
    fleet.working[consumer] -= 1
    number = fleet.begins[consumer]
    if number != NONE:
        fleet.begins[consumer] = fleet.behind[number]
        _begin(work, run, fleet, consumer, number, now_ms)
    if fleet.is_listed[consumer] or not _wants(fleet, consumer):
        return
    fleet.is_listed[consumer] = True
    rest_ms = _rest_ms(fleet, consumer)
    if rest_ms:
        push(run.gone, now_ms + rest_ms, 2 * consumer)
    else:
        append(fleet.line, consumer)


@compiled
def _rest_ms(fleet: FleetArrays, consumer: int) -> int:
    """Return how long it takes a consumer to request more this time."""
    kind, rest = fleet.kind[consumer], fleet.rest[consumer]
    begin = fleet.rests_begin[kind]
    fleet.rest[consumer] = (rest + 1) % (fleet.rests_begin[kind + 1] - begin)
    rest_ms: int = fleet.rests_ms[begin + rest]
    return rest_ms
