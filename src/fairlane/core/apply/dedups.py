"""Dedup ids: known for a window, and written down somewhere as long as they are."""

from __future__ import annotations

from itertools import repeat

from fairlane.core.ledger import DedupHome, Ledger, Queue


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
