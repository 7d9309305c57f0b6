"""Recovery: the ledger is what the journal from the base on says, and nothing else."""

from __future__ import annotations

import gc
from sys import intern

from fairlane.core.apply import apply
from fairlane.core.ledger import Ledger, Limits
from fairlane.errors import StoreCorrupt
from fairlane.journal import codec
from fairlane.journal.records import Enqueued, Staged, Terms
from fairlane.ports.store import Store


def recover(store: Store, limits: Limits) -> Ledger:
    """Open a store and fold its journal.

    Raises:
        StoreFailed: the store can't be opened or read.
        StoreCorrupt: a page can't be read, or does not follow on the one before.
    """
    extent = store.recover()
    ledger = Ledger(limits, sequence=extent.base)
    was_enabled = gc.isenabled()
    gc.disable()  # millions of objects are made and none is garbage: looking for it would double the time
    try:
        _fold(store, ledger)
    except (KeyError, ValueError, IndexError) as error:
        raise StoreCorrupt(f"The journal can't be folded after sequence {ledger.next_sequence}: {error!r}.") from error
    finally:
        if was_enabled:
            gc.enable()
    if ledger.next_sequence != extent.next_sequence:
        raise StoreCorrupt(f"The journal ends at {ledger.next_sequence}, not at {extent.next_sequence}.")
    ledger.dropped.clear()  # whatever was dropped was dropped by the commit that said so
    return ledger


def _fold(store: Store, ledger: Ledger) -> None:
    for stored in store.pages(ledger.base - 1):
        page = codec.decode(stored.page)
        for record in page.records:
            if record.sequence < ledger.base:
                continue
            if record.sequence != ledger.next_sequence:
                raise StoreCorrupt(f"The journal goes from sequence {ledger.next_sequence} to {record.sequence}.")
            if isinstance(record, (Enqueued, Staged)):
                _share_keys(record.terms)
            apply(ledger, record, page.at_ms)


def _share_keys(terms: Terms) -> None:
    """Let a million messages of a thousand tenants have a thousand keys, as they have when they come one by one."""
    terms.keys = [intern(key) if type(key) is str else key for key in terms.keys]
