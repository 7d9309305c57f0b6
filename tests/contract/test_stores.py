"""Every store keeps the contract."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import settings

from fairlane.adapters.log.store import LogStore
from fairlane.adapters.memory.store import MemoryStore
from fairlane.adapters.numbered_store import NumberedStore
from fairlane.adapters.postgres.store import PostgresStore
from fairlane.adapters.rocksdb.store import RocksDbStore
from fairlane.adapters.s3.bucket import AzureContainer, ObjectBucket, S3Bucket
from fairlane.adapters.s3.store import S3Store
from fairlane.ports.store import Store
from fairlane.testing.faulty_store import FaultyStore
from fairlane.testing.store_contract import StoreContract
from fairlane.testing.store_machine import check_against_model
from tests.conftest import BUCKET
from tests.kit.servers.azurite import AzuriteServer
from tests.kit.servers.stores import PostgresServer, S3Server

NUMBERS = itertools.count(1)


class ContractWithModel(StoreContract):
    """The contract, and a naive model that covers what no list of cases does."""

    examples = 100

    def test_it_agrees_with_a_naive_model(self) -> None:
        """For any writes, drops, trims and reopenings in any order, reads equal those of plain lists."""
        config = settings(max_examples=self.examples, stateful_step_count=25, deadline=None)
        check_against_model(self.make_store, self.reopen, settings=config)


class TestMemoryStore(ContractWithModel):
    def make_store(self) -> Store:
        return MemoryStore()


class TestFaultyStoreWithoutFaults(ContractWithModel):
    def make_store(self) -> Store:
        return FaultyStore(random.Random(1))


class TestNumberedStore(ContractWithModel):
    counts_from = 5 << 47

    def make_store(self) -> Store:
        return NumberedStore(MemoryStore(), first=self.counts_from)


class TestRocksDbStore(ContractWithModel):
    examples = 15
    """Each opens a database, some several times."""

    @pytest.fixture(autouse=True)
    def _folders(self, tmp_path: Path) -> None:
        self.folders = (tmp_path / f"store-{number}" for number in itertools.count())
        self.folder_of: dict[int, Path] = {}

    def make_store(self) -> Store:
        return self._store_in(next(self.folders))

    def reopen(self, store: Store) -> Store:
        """Open another object on the same folder: nothing may be carried over in memory."""
        folder = self.folder_of[id(store)]
        store.close()
        again = self._store_in(folder)
        again.recover()
        return again

    def _store_in(self, folder: Path) -> Store:
        store = RocksDbStore(folder)
        self.folder_of[id(store)] = folder
        return store


class TestLogStore(TestRocksDbStore):
    def _store_in(self, folder: Path) -> Store:
        store = LogStore(folder)
        self.folder_of[id(store)] = folder
        return store


class TestLogStoreOfTinySegments(TestRocksDbStore):
    """Each commit begins a segment, or compacts one."""

    def _store_in(self, folder: Path) -> Store:
        store = LogStore(folder, segment_bytes_max=4096)
        self.folder_of[id(store)] = folder
        return store


class TestNumberedRocksDbStore(TestRocksDbStore):
    counts_from = 63 << 47

    def _store_in(self, folder: Path) -> Store:
        store = NumberedStore(RocksDbStore(folder), first=self.counts_from)
        self.folder_of[id(store)] = folder
        return store


class TestPostgresStore(ContractWithModel):
    examples = 15

    @pytest.fixture(autouse=True)
    def _server(self, postgres: PostgresServer) -> None:
        self.url = postgres.url
        self.namespace_of: dict[int, str] = {}

    def make_store(self) -> Store:
        return self._store_of(f"contract-{next(NUMBERS)}")

    def reopen(self, store: Store) -> Store:
        """Open another object on the same namespace: nothing may be carried over in memory."""
        namespace = self.namespace_of[id(store)]
        store.close()
        again = self._store_of(namespace)
        again.recover()
        return again

    def _store_of(self, namespace: str) -> Store:
        store = PostgresStore(self.url, namespace=namespace)
        self.namespace_of[id(store)] = namespace
        return store


class TestS3Store(ContractWithModel):
    examples = 10
    kind: type[S3Store] = S3Store

    @pytest.fixture(autouse=True)
    def _server(self, s3: S3Server) -> None:
        self.endpoint = s3.endpoint
        self.prefix_of: dict[int, str] = {}

    def make_store(self) -> Store:
        return self._store_at(f"contract-{next(NUMBERS)}")

    def reopen(self, store: Store) -> Store:
        """Open another object on the same prefix: nothing may be carried over in memory."""
        prefix = self.prefix_of[id(store)]
        store.close()
        again = self._store_at(prefix)
        again.recover()
        return again

    def _store_at(self, prefix: str) -> Store:
        store = self.kind(self._bucket(f"{BUCKET}/{prefix}"), window_ms=0, segments_max=3)
        self.prefix_of[id(store)] = prefix
        return store

    def _bucket(self, address: str) -> ObjectBucket:
        return S3Bucket(address, endpoint=self.endpoint, is_anonymous=True)


class MergingS3Store(S3Store):
    """A store that merges as soon as it may, which is usually done by a background thread."""

    def sync(self) -> None:
        super().sync()
        while self.compact():
            pass


class TestS3StoreThatMerges(TestS3Store):
    kind = MergingS3Store


class TestAzureStore(TestS3Store):
    examples = 3
    kind = MergingS3Store

    @pytest.fixture(autouse=True)
    def _server(self, azure: AzuriteServer) -> None:
        self.endpoint = azure.endpoint
        self.prefix_of = {}

    def _bucket(self, address: str) -> ObjectBucket:
        return AzureContainer(address, endpoint=self.endpoint)
