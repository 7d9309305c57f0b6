"""Recovery: the ledger is what the journal from the base on says, and nothing else.

A cycle that failed may have been committed all the same. Its requests were refused as possibly done, and their callers
find out; but the leases it made have no owner, since no consumer has received their messages. ``Undelivered``
remembers those leases until recovery has shown which of them exist.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from sys import intern

from fairlane.broker.requests import Call, HandOut, Submission
from fairlane.core.apply import apply
from fairlane.core.ledger import Ledger
from fairlane.core.rows.messages import ROWS_FROM
from fairlane.errors import StoreCorrupt
from fairlane.journal import codec
from fairlane.journal.records import Enqueued, Staged, Terms
from fairlane.model.broker_limits import Limits
from fairlane.model.message import Receipt
from fairlane.ports.store import Store
from fairlane.verbs.leases import Nack


def recover(store: Store, limits: Limits, *, rows_from: int | None = ROWS_FROM) -> tuple[Ledger, int]:
    """Open a store, fold its journal, and return the ledger, and before which sequence none may be issued.

    Raises:
        StoreFailed: the store can't be opened or read.
        StoreCorrupt: a page can't be read, or does not follow on the one before.
    """
    extent = store.recover()
    ledger = Ledger(limits, sequence=extent.base, rows_from=rows_from)
    was_enabled = gc.isenabled()
    gc.disable()  # millions of objects are made and none is garbage: searching for some would double the time
    try:
        _fold(store, ledger)
    except (KeyError, ValueError, IndexError) as error:
        raise StoreCorrupt(f"The journal can't be folded after sequence {ledger.next_sequence}: {error!r}.") from error
    finally:
        if was_enabled:
            gc.enable()
    if ledger.next_sequence != extent.next_sequence:
        raise StoreCorrupt(f"The journal ends at {ledger.next_sequence}, not at {extent.next_sequence}.")
    ledger.dropped.clear()  # the commits that dropped chunks have deleted them from the store
    return ledger, extent.reserved


def _fold(store: Store, ledger: Ledger) -> None:
    for stored in store.pages(ledger.base - 1):
        fold_page(ledger, stored.page)


def fold_page(ledger: Ledger, encoded: bytes) -> None:
    """Apply the records of a page from the base of the ledger on.

    Raises:
        StoreCorrupt, KeyError, ValueError, IndexError: the page can't be read, or does not follow. The ledger may hold
            a part of it then.
    """
    page = codec.decode(encoded)
    for record in page.records:
        if record.sequence < ledger.base:
            continue
        if record.sequence != ledger.next_sequence:
            raise StoreCorrupt(f"The journal goes from sequence {ledger.next_sequence} to {record.sequence}.")
        if isinstance(record, (Enqueued, Staged)):
            _share_keys(record.terms)
        apply(ledger, record, page.at_ms)


def _share_keys(terms: Terms) -> None:
    """Share equal keys, so that a million messages of a thousand tenants hold a thousand strings and not a million."""
    terms.keys = [intern(key) if type(key) is str else key for key in terms.keys]


class Undelivered:
    """The leases of failed cycles, until recovery shows which of them were committed."""

    def __init__(self) -> None:
        self._receipts: list[tuple[str, Receipt]] = []

    def add(self, hand_outs: Iterable[HandOut]) -> None:
        """Remember what was leased in a cycle that has failed."""
        for hand_out in hand_outs:
            self._receipts.extend((hand_out.taker.queue, receipt) for receipt in hand_out.receipts())

    def give_back(self, ledger: Ledger, submit: Callable[[Submission], None]) -> None:
        """Return the messages whose leases exist after all to their queues, as if they had not been handed out."""
        for queue, receipt in self._receipts:
            if ledger.token_of(queue, ledger.ids.number_of(receipt.id)) == receipt.token:
                submit(Call(Nack(queue=queue, receipts=[receipt], intent="defer", delay_ms=0)))
        self._receipts = []
