"""The waiting messages of one queue, and the turns of their keys: deficit round robin over arrays.

The same decisions as ``scheduler/kernel.py`` with flat keys that have weights, and messages that have costs and due
times. The theory is in ``scheduler/tree.py``. Without caps, throttles, pauses and priorities a key is ready exactly
while a message of it is due, and nothing is ever parked.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlane.scheduler.kernel import IDLE_KEYS_MAX
from fairlane.scheduler.tree import PATIENCE
from fairlane.spark.whatif.queues import LATER
from fairlane.spark.whatif.rows import Flags, Ints
from fairlane.spark.whatif.twin.compiler import compiled
from fairlane.spark.whatif.twin.containers import (
    append,
    append_left,
    deque_of,
    entries_of,
    first_target,
    heap_of,
    insert,
    next_at,
    pop,
    pop_left,
    push,
    size_of,
)

NONE: Final = -1
_BOUNDARY: Final = -2
_SLEEPERS_MIN: Final = 64
ROUND, READY, SERVING, WAITING, NOW, SWEEP_AT = range(6)


class Turns(NamedTuple):
    """The waiting messages and their keys.

    Attributes:
        counts: the round; how many keys are ready; the key whose turn goes on, -1 for none; how many messages wait,
            those included that are not due; the instant; and at how many entries stale sleepers are swept.
        key, cost, next: of each message its key and cost, and the message behind it.
        share, deficit: of each key, what its turn adds and what it may spend.
        first, last: of each key the messages that are due, -1 for none.
        waiting, in_use: how many messages of each key wait, and how many are leased.
        wake_round, slept_round: of each key in which round it can pay, 0 if it does not sleep, and since when.
        is_idle_listed: whether a key is in ``idle``.
        order: the keys that take turns, and the boundary of the round.
        idle: the keys without messages, the one that is idle for longest first.
        sleepers: the keys that sleep, by the round in which they wake.
        woken: space for the keys that wake in one round.
        due: the messages that are not due, by instant.
    """

    counts: Ints
    key: NDArray[np.int32]
    cost: Ints
    next: NDArray[np.int32]
    share: Ints
    deficit: Ints
    first: Ints
    last: Ints
    waiting: Ints
    in_use: Ints
    wake_round: Ints
    slept_round: Ints
    is_idle_listed: Flags
    order: Ints
    idle: Ints
    sleepers: Ints
    woken: Ints
    due: Ints


def turns_of(key: NDArray[np.int32], cost: Ints, share: Ints) -> Turns:
    """Return the turns of keys whose messages all are yet to come."""
    keys, messages = share.size, key.size
    counts = np.array([1, 0, NONE, 0, -LATER, _SLEEPERS_MIN], dtype=np.int64)
    zeros = [np.zeros(keys, dtype=np.int64) for _ in range(5)]
    order = deque_of(keys + 1)
    append(order, _BOUNDARY)
    return Turns(
        counts=counts,
        key=key,
        cost=cost,
        next=np.full(messages, NONE, dtype=np.int32),
        share=share,
        deficit=zeros[0],
        first=np.full(keys, NONE, dtype=np.int64),
        last=np.full(keys, NONE, dtype=np.int64),
        waiting=zeros[1],
        in_use=zeros[2],
        wake_round=zeros[3],
        slept_round=zeros[4],
        is_idle_listed=np.zeros(keys, dtype=np.bool_),
        order=order,
        idle=deque_of(IDLE_KEYS_MAX + 1),
        sleepers=heap_of(max(_SLEEPERS_MIN, 2 * keys) + 1),
        woken=np.empty(keys, dtype=np.int64),
        due=heap_of(messages),
    )


# -------------------------------------------------------------------------------------------------------- messages


@compiled
def move_to(turns: Turns, now_ms: int) -> None:
    """Advance time: messages that are due now take part."""
    if now_ms <= turns.counts[NOW]:
        return
    turns.counts[NOW] = now_ms
    while next_at(turns.due) <= now_ms:
        _enter(turns, pop(turns.due))


@compiled
def offer(turns: Turns, message: int, due_ms: int) -> None:
    """Add a message at the present instant."""
    turns.waiting[turns.key[message]] += 1
    turns.counts[WAITING] += 1
    if due_ms > turns.counts[NOW]:
        push(turns.due, due_ms, message)
    else:
        _enter(turns, message)


@compiled
def _enter(turns: Turns, message: int) -> None:
    key = turns.key[message]
    turns.next[message] = NONE
    if turns.first[key] == NONE:
        turns.first[key] = message
        turns.counts[READY] += 1
        append(turns.order, key)
    else:
        turns.next[turns.last[key]] = message
    turns.last[key] = message


@compiled
def release(turns: Turns, key: int, count: int) -> None:
    """Record that messages of a key are no longer leased."""
    turns.in_use[key] -= count
    _note_idle(turns, key)


@compiled
def settle(turns: Turns, key: int, difference: int) -> None:
    """Charge a key the difference between the true and the estimated cost of a message."""
    turns.deficit[key] -= difference
    if turns.first[key] == NONE and turns.deficit[key] > 0:
        turns.deficit[key] = 0
    if turns.wake_round[key]:
        _rouse(turns, key)
        append(turns.order, key)
    _note_idle(turns, key)


@compiled
def _note_idle(turns: Turns, key: int) -> None:
    """List a key without messages. Of too many, the one that is idle for longest is forgotten, with its debt."""
    if turns.is_idle_listed[key] or turns.waiting[key]:
        return
    turns.is_idle_listed[key] = True
    append(turns.idle, key)
    if size_of(turns.idle) > IDLE_KEYS_MAX:
        oldest = pop_left(turns.idle)
        turns.is_idle_listed[oldest] = False
        if not turns.waiting[oldest] and not turns.in_use[oldest]:
            turns.deficit[oldest] = 0


# ----------------------------------------------------------------------------------------------------------- turns


@compiled
def take(turns: Turns, count: int, out: NDArray[np.int32], begin: int) -> int:
    """Hand out up to ``count`` messages to ``out`` from a place on, in the order of turns; return how many."""
    left = count
    while left > 0 and turns.counts[READY] > 0:
        key = turns.counts[SERVING]
        if key != NONE:
            served = _go_on(turns, key, left, out, begin)
        else:
            key = pop_left(turns.order)
            if key == _BOUNDARY:
                _next_round(turns)
                continue
            served = _turn(turns, key, left, out, begin)
        begin += served
        left -= served
    turns.counts[WAITING] -= count - left
    return count - left


@compiled
def _turn(turns: Turns, key: int, left: int, out: NDArray[np.int32], begin: int) -> int:
    """Give a key its turn, which may go on in the next call; return how many messages it was served."""
    turns.deficit[key] += turns.share[key]
    served = _serve(turns, key, left, out, begin)
    head, deficit = turns.first[key], turns.deficit[key]
    if head == NONE:
        turns.deficit[key] = 0
        _note_idle(turns, key)
    elif served and not deficit:
        append(turns.order, key)
    elif turns.cost[head] > deficit:
        _requeue(turns, key, turns.cost[head])
    else:
        turns.counts[SERVING] = key
    return served


@compiled
def _go_on(turns: Turns, key: int, left: int, out: NDArray[np.int32], begin: int) -> int:
    """Continue the turn of a key that an earlier call has cut short."""
    served = _serve(turns, key, left, out, begin)
    head, deficit = turns.first[key], turns.deficit[key]
    if head == NONE:
        turns.counts[SERVING] = NONE
        turns.deficit[key] = min(deficit, 0)
        _note_idle(turns, key)
    elif deficit < turns.cost[head]:
        turns.counts[SERVING] = NONE
        # Of a key that was served and has nothing left, the kernel does not look at the next message.
        _requeue(turns, key, turns.cost[head] if deficit > 0 or not served else 1)
    return served


@compiled
def _serve(turns: Turns, key: int, left: int, out: NDArray[np.int32], begin: int) -> int:
    """Hand out messages of a key while its deficit covers their costs."""
    message, deficit, served = turns.first[key], turns.deficit[key], 0
    while message != NONE and served < left and turns.cost[message] <= deficit:
        out[begin + served] = message
        deficit -= turns.cost[message]
        served += 1
        message = turns.next[message]
    turns.first[key], turns.deficit[key] = message, deficit
    turns.waiting[key] -= served
    turns.in_use[key] += served
    if message == NONE:
        turns.last[key] = NONE
        turns.counts[READY] -= 1
    return served


# ---------------------------------------------------------------------------------------------------------- rounds


@compiled
def _requeue(turns: Turns, key: int, cost: int) -> None:
    """Move a key to the back, or put it to sleep for the rounds it needs to pay for its next message."""
    rounds = -((turns.deficit[key] - cost) // turns.share[key])
    if rounds <= PATIENCE:
        append(turns.order, key)
        return
    if entries_of(turns.sleepers) >= turns.counts[SWEEP_AT]:
        _sweep(turns)
    turns.slept_round[key] = turns.counts[ROUND]
    turns.wake_round[key] = turns.counts[ROUND] + rounds
    push(turns.sleepers, turns.wake_round[key], key)


@compiled
def _next_round(turns: Turns) -> None:
    """Begin the next round in which a key has a turn. Keys that wake in it go first."""
    wake_round = _next_wake(turns)
    if size_of(turns.order):
        turns.counts[ROUND] += 1
    elif wake_round != LATER:
        turns.counts[ROUND] = wake_round
    append(turns.order, _BOUNDARY)
    found = 0
    while next_at(turns.sleepers) <= turns.counts[ROUND]:
        round_, key = next_at(turns.sleepers), pop(turns.sleepers)
        if turns.wake_round[key] == round_:
            _rouse(turns, key)
            turns.deficit[key] -= turns.share[key]  # its turn adds the last one
            turns.woken[found] = key
            found += 1
    for at in range(found - 1, -1, -1):
        append_left(turns.order, turns.woken[at])


@compiled
def _next_wake(turns: Turns) -> int:
    """Return the round in which the next key wakes. Entries of keys that were woken before are removed."""
    while next_at(turns.sleepers) != LATER:
        if turns.wake_round[first_target(turns.sleepers)] == next_at(turns.sleepers):
            break
        pop(turns.sleepers)
    return next_at(turns.sleepers)


@compiled
def _rouse(turns: Turns, key: int) -> None:
    turns.deficit[key] += (turns.counts[ROUND] - turns.slept_round[key]) * turns.share[key]
    turns.wake_round[key] = 0


@compiled
def _sweep(turns: Turns) -> None:
    """Remove stale entries from the sleepers, exactly when the kernel does: one that stays may become live again."""
    heap = turns.sleepers
    count, heap[0, 0] = heap[0, 0], 0
    for place in range(1, count + 1):
        if turns.wake_round[heap[place, 2]] == heap[place, 0]:
            insert(heap, heap[place, 0], heap[place, 1], heap[place, 2])
    turns.counts[SWEEP_AT] = max(_SLEEPERS_MIN, 2 * entries_of(heap))
