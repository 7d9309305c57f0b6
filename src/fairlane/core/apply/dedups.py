"""Dedup ids and producer numbers, known for a window and written down as long as they are; and unique keys."""

from __future__ import annotations

from itertools import repeat

from fairlane.core.dedup_ids import DedupHome, remembered_name
from fairlane.core.ledger import Ledger, Message, Queue
from fairlane.core.numbered_runs import run_of
from fairlane.core.producer_numbers import ProducerNumbers
from fairlane.journal.records import CallerImage, Enqueued, Numbered


def forget_dedups(ledger: Ledger, at_ms: int) -> None:
    """Forget the oldest dedup ids, as far as their window is over."""
    homes = ledger.dedup_homes
    while homes and homes[0].until_ms <= at_ms:
        leave_dedups(ledger, homes.popleft())


def leave_dedups(ledger: Ledger, home: DedupHome) -> None:
    """Forget a batch of dedup ids, as far as no later message has them."""
    dedups = ledger.queues[home.queue].dedups
    for dedup_id, number in home.numbers.items():
        if dedup_id in dedups and dedups[dedup_id][0] == number:
            del dedups[dedup_id]


def enter_dedups(ledger: Ledger, queue: Queue, dedups: DedupHome) -> None:
    """Remember a batch of dedup ids."""
    numbers = dedups.numbers
    queue.dedups.update(zip(numbers, zip(numbers.values(), repeat(dedups.until_ms)), strict=False))
    ledger.dedup_homes.append(dedups)


# ---------------------------------------------------------------------------------------------------------- unique keys


def enter_unique(message: Message) -> None:
    """Note the unique key of a message that is in its queue from now on."""
    name = _unique_name(message)
    if name is not None:
        message.queue.uniques[name] = message.number


def leave_unique(message: Message) -> None:
    """Give up the unique key of a message that leaves its queue. It does not get it back with a redrive."""
    name = _unique_name(message)
    if name is not None:
        message.queue.uniques.pop(name, None)
        message.aftermath().unique_key = None


def _unique_name(message: Message) -> str | None:
    key = None if message.after is None else message.after.unique_key
    return None if key is None else remembered_name(message.key, key)


# ----------------------------------------------------------------------------------------------------- producer numbers


def enter_numbers(ledger: Ledger, record: Enqueued, numbered: Numbered, at_ms: int) -> None:
    """Remember the numbers of new messages."""
    known = ledger.producer_numbers.get(numbered.caller)
    if known is None:
        known = ledger.producer_numbers[numbered.caller] = ProducerNumbers(record.sequence)
    else:
        known.expire(at_ms)
    run = run_of(numbered.numbers, record.count, record.sequence, record.dedup_until_ms)
    known.add(record.queue, numbered.producer, run)


def leave_numbers(ledger: Ledger, queue: str) -> None:
    """Forget the numbers of messages of a queue that is removed."""
    for caller, known in list(ledger.producer_numbers.items()):
        known.remove_queue(queue)
        if not known:
            del ledger.producer_numbers[caller]


def carry_caller(ledger: Ledger, image: CallerImage, home: int, at_ms: int) -> None:
    """Give the producers of a caller a later home, or restore them if recovery began after their enqueues."""
    known = ledger.producer_numbers.get(image.caller)
    if known is None or known.home >= ledger.baseline:
        # Only what has an older home is carried, so recovery began at this baseline and has not seen all of it.
        known = ledger.producer_numbers[image.caller] = ProducerNumbers.of(image, home)
    known.home = home
    known.expire(at_ms)
    if known:
        ledger.producer_numbers.move_to_end(image.caller)
    else:
        del ledger.producer_numbers[image.caller]
