"""The stores of the simulated cluster keep the contract."""

from __future__ import annotations

import itertools
import random

from fairlane.adapters.shared.ownership import Ownership
from fairlane.ports.store import Store
from fairlane.testing.store_contract import StoreContract
from tests.kit.cluster.links import Link
from tests.kit.cluster.store import SharedLog, SharedStore

_numbers = itertools.count()


class TestSharedStore(StoreContract):
    """The contract, over a healthy connection."""

    def make_store(self) -> Store:
        return self._store_on(SharedLog(lambda: 0))

    def reopen(self, store: Store) -> Store:
        """Open another object on the same log: nothing may be carried over in memory."""
        assert isinstance(store, SharedStore)
        store.close()
        again = self._store_on(store._log)
        again.recover()
        return again

    @staticmethod
    def _store_on(log: SharedLog) -> SharedStore:
        link = Link(random.Random(1))
        return SharedStore(
            log, link, ownership=Ownership(sends_heartbeats=False), name=str(next(_numbers)), monotonic=lambda: 0.0
        )
