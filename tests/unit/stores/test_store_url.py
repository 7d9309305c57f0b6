"""Stores named by a URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.adapters.memory_store import MemoryStore
from fairlead.adapters.postgres_store import PostgresStore
from fairlead.adapters.rocksdb_store import RocksDbStore
from fairlead.adapters.s3_store import S3Store
from fairlead.adapters.store_url import is_url, parse_store_url, shown_url
from fairlead.assembly import open_store
from fairlead.errors import InvalidArgument


def test_the_kind_of_a_store_follows_from_its_name(tmp_path: Path) -> None:
    """Nothing is memory, a folder is RocksDB, and a URL names the others."""
    kinds = {
        None: MemoryStore,
        str(tmp_path): RocksDbStore,
        "postgresql://ann@db/queues?namespace=x&lease_ms=500": PostgresStore,
        "postgres:///queues": PostgresStore,
        "s3://bucket/some/prefix?endpoint=http://127.0.0.1:1&anonymous=true&window_ms=5": S3Store,
    }
    assert {name: type(open_store(name)) for name in kinds} == kinds
    assert isinstance(open_store(tmp_path), RocksDbStore)


def test_what_is_postgres_own_is_passed_on() -> None:
    """The options of libpq stay in its URL, and ours don't; hosts, sockets and passwords are left as they are."""
    url = parse_store_url("postgres://ann:pass@/db?host=/run/pg&sslmode=require&namespace=x&owner=a%2Fb")
    assert url.address == "postgresql://ann:pass@/db?host=%2Frun%2Fpg&sslmode=require"
    assert dict(url.options) == {"namespace": "x", "owner": "a/b"}


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("mysql://db/x", "not at mysql://"),
        ("s3://", "s3://BUCKET/PREFIX"),
        ("s3://key:secret@bucket/x", "credentials come from elsewhere"),
        ("s3://bucket/x?window=5", "no option 'window'"),
        ("s3://bucket/x?window_ms=soon", "whole number"),
        ("s3://bucket/x?window_ms=99999999", "window_ms is from"),
        ("s3://bucket/x?anonymous=perhaps", "true or false"),
        ("postgresql:///x?lease_ms=1", "lease_ms is from"),
        ("postgresql:///x?owner=", "owner of a store"),
        ("postgresql:///x?namespace=", "namespace has"),
        ("postgresql://[x", "makes no sense"),
    ],
)
def test_what_makes_no_sense_is_refused(url: str, cause: str) -> None:
    """A URL that no store has is told, with what to change."""
    with pytest.raises(InvalidArgument, match=cause):
        open_store(url)


def test_secrets_are_not_shown() -> None:
    """What is shown of a URL has neither the password before the host nor that among the options."""
    shown = shown_url("postgresql://ann:hidden@db:5432/q?password=hidden&sslmode=require")
    assert shown == "postgresql://ann@db:5432/q?password=***&sslmode=require"
    assert shown_url("s3://bucket/p?endpoint=http://h:1") == "s3://bucket/p?endpoint=http://h:1"


def test_a_folder_is_no_url() -> None:
    """Paths of any kind are folders."""
    assert [is_url(text) for text in ("/var/lib", "data", "./s3:/x", "C:\\data", "s3://b")] == [False] * 4 + [True]
