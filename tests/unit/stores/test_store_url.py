"""Stores named by a URL."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlane.adapters.log.store import LogStore
from fairlane.adapters.memory.store import MemoryStore
from fairlane.adapters.postgres.store import PostgresStore
from fairlane.adapters.rocksdb.store import RocksDbStore
from fairlane.adapters.s3.store import S3Store
from fairlane.adapters.store_url import group_url, is_url, parse_store_url, shown_url
from fairlane.assembly import open_board, open_store
from fairlane.errors import InvalidArgument


def test_the_kind_of_a_store_follows_from_its_path(tmp_path: Path) -> None:
    """No path is memory, a new folder is a log unless it says otherwise, and a URL names the others."""
    kinds = {
        None: MemoryStore,
        str(tmp_path): LogStore,
        f"log:{tmp_path}": LogStore,
        f"rocksdb:{tmp_path}": RocksDbStore,
        "postgresql://ann@db/queues?namespace=x&heartbeat_timeout_ms=500": PostgresStore,
        "postgres:///queues": PostgresStore,
        "s3://bucket/some/prefix?endpoint=http://127.0.0.1:1&anonymous=true&window_ms=5": S3Store,
        "az://container/some/prefix?account=a&endpoint=http://127.0.0.1:1/a&window_ms=5": S3Store,
    }
    assert {name: type(open_store(name)) for name in kinds} == kinds
    assert isinstance(open_store(tmp_path), LogStore)


@pytest.mark.parametrize(("made", "other"), [("log", "rocksdb"), ("rocksdb", "log")])
def test_an_existing_folder_keeps_its_kind(tmp_path: Path, made: str, other: str) -> None:
    """The kind of the store in a folder is recognised, and another one is never made in its place."""
    store = open_store(f"{made}:{tmp_path}")
    store.recover()
    store.close()
    assert type(open_store(tmp_path)) is type(store)
    with pytest.raises(InvalidArgument, match=r"holds a store of kind .*, not"):
        open_store(f"{other}:{tmp_path}").recover()


def test_options_of_postgresql_are_passed_on() -> None:
    """The options of libpq stay in its URL, and ours don't; hosts, sockets and passwords are unchanged."""
    url = parse_store_url("postgres://ann:pass@/db?host=/run/pg&sslmode=require&namespace=x&owner=a%2Fb")
    assert url.address == "postgresql://ann:pass@/db?host=%2Frun%2Fpg&sslmode=require"
    assert dict(url.options) == {"namespace": "x", "owner": "a/b"}


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("mysql://db/x", "scheme mysql://"),
        ("s3://", "s3://BUCKET/PREFIX"),
        ("s3://key:secret@bucket/x", "without credentials"),
        ("s3://bucket/x?window=5", "no option 'window'"),
        ("az://", "az://CONTAINER/PREFIX"),
        ("az://container/x?region=eu", "no option 'region'"),
        ("azure://container/x", "s3:// or az://"),
        ("s3://bucket/x?window_ms=soon", "must be an integer"),
        ("s3://bucket/x?window_ms=99999999", "window_ms must be 0 to"),
        ("s3://bucket/x?anonymous=perhaps", "true or false"),
        ("postgresql:///x?heartbeat_timeout_ms=1", "heartbeat_timeout_ms must be 100 to"),
        ("postgresql:///x?owner=", "owner of a store"),
        ("postgresql:///x?namespace=", "namespace must have"),
        ("postgresql://[x", "Invalid store URL"),
    ],
)
def test_an_invalid_url_is_refused(url: str, cause: str) -> None:
    """The error for an invalid URL says what to change."""
    with pytest.raises(InvalidArgument, match=cause):
        open_store(url)


def test_secrets_are_not_shown() -> None:
    """The shown URL has neither the password before the host nor one among the options."""
    shown = shown_url("postgresql://ann:hidden@db:5432/q?password=hidden&sslmode=require")
    assert shown == "postgresql://ann@db:5432/q?password=***&sslmode=require"
    assert shown_url("s3://bucket/p?endpoint=http://h:1") == "s3://bucket/p?endpoint=http://h:1"


def test_a_folder_is_not_a_url() -> None:
    """Paths of any kind are folders."""
    assert [is_url(text) for text in ("/var/lib", "data", "./s3:/x", "C:\\data", "s3://b")] == [False] * 4 + [True]


def test_a_group_has_a_store_of_its_own_beside_the_board() -> None:
    """The URL of a group is that of its cluster with another namespace or prefix, and its owner."""
    url = group_url(
        "postgres://ann:pass@/db?host=/run/pg&namespace=x&force=true", "orders", owner="a b", heartbeat_timeout_ms=500
    )
    assert parse_store_url(url).address == "postgresql://ann:pass@/db?host=%2Frun%2Fpg"
    assert dict(parse_store_url(url).options) == {
        "namespace": "x.g.orders",
        "owner": "a b",
        "heartbeat_timeout_ms": "500",
    }
    unnamed = group_url("postgresql:///db", "orders", owner="a", heartbeat_timeout_ms=500)
    assert parse_store_url(unnamed).options["namespace"] == "default.g.orders"
    s3 = group_url("s3://bucket/some/prefix/?anonymous=true&owner=z", "orders", owner="a", heartbeat_timeout_ms=500)
    assert parse_store_url(s3).address == "bucket/some/prefix/g/orders"
    assert dict(parse_store_url(s3).options) == {"anonymous": "true", "owner": "a", "heartbeat_timeout_ms": "500"}
    bare = group_url("s3://bucket", "orders", owner="a", heartbeat_timeout_ms=500)
    assert parse_store_url(bare).address == "bucket/g/orders"


@pytest.mark.parametrize(
    ("url", "group"), [("/folder", "x"), ("mysql://x", "x"), ("s3://bucket", "a/b"), ("s3://b", "")]
)
def test_an_invalid_group_is_refused(url: str, group: str) -> None:
    """A folder has no groups, and a group needs a valid queue name."""
    with pytest.raises(InvalidArgument):
        group_url(url, group, owner="a", heartbeat_timeout_ms=500)


def test_a_folder_has_no_board() -> None:
    """Several nodes need a store that all of them reach."""
    with pytest.raises(InvalidArgument, match="postgresql://, s3:// or az://"):
        open_board("/some/folder")
