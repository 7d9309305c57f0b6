"""Behaviour of the S3 board beyond the contract."""

from __future__ import annotations

import itertools

import pytest

from fairlane.adapters.s3.board import S3Board
from fairlane.adapters.s3.bucket import S3Bucket
from fairlane.errors import StoreCorrupt, StoreFailed
from tests.conftest import BUCKET
from tests.kit.servers.stores import S3Server

_numbers = itertools.count(1)


class RepeatingBucket(S3Bucket):
    """A bucket on a bad network: the answer to each write is lost, and the client repeats it."""

    def create(self, name: str, data: bytes) -> str | None:
        if name.startswith("board/"):
            super().create(name, data)
        return super().create(name, data)

    def replace(self, name: str, data: bytes, *, tag: str) -> str | None:
        if name.startswith("board/"):
            super().replace(name, data, tag=tag)
        return super().replace(name, data, tag=tag)


class CountingBucket(S3Bucket):
    """A bucket that counts what is read from it."""

    reads = 0

    def read(self, name: str) -> tuple[bytes, str] | None:
        self.reads += 1
        return super().read(name)


@pytest.fixture
def address() -> str:
    return f"{BUCKET}/s3-board-{next(_numbers)}"


def test_a_repeated_write_is_recognised_as_our_own(s3: S3Server, address: str) -> None:
    """When the first request was carried out and the second is refused, the change counts as made."""
    board = S3Board(RepeatingBucket(address, endpoint=s3.endpoint, is_anonymous=True))
    other = S3Board(S3Bucket(address, endpoint=s3.endpoint, is_anonymous=True))
    made = board.put("x", b"1", version=None)
    assert made is not None
    assert other.read() == {"x": made}
    changed = board.put("x", b"2", version=made.version)
    assert changed is not None
    assert other.read() == {"x": changed}
    assert board.put("x", b"3", version=made.version) is None
    assert board.remove("x", version=changed.version)
    again = board.put("x", b"4", version=None)
    assert again is not None
    assert other.read() == {"x": again}


def test_only_what_has_changed_is_read_again(s3: S3Server, address: str) -> None:
    """Reading a board costs one listing, and one read per new entry."""
    bucket = CountingBucket(address, endpoint=s3.endpoint, is_anonymous=True)
    board, other = S3Board(bucket), S3Board(S3Bucket(address, endpoint=s3.endpoint, is_anonymous=True))
    entries = {name: other.put(name, b"1", version=None) for name in ("a", "b", "c")}
    assert board.read() == entries
    assert board.read() == entries
    assert bucket.reads == 3
    first = entries["a"]
    assert first is not None
    entries["a"] = other.put("a", b"2", version=first.version)
    assert board.read() == entries
    assert bucket.reads == 4


def test_a_foreign_object_is_reported_by_name(s3: S3Server, address: str) -> None:
    """An object that is not ours is not taken for an entry."""
    bucket = S3Bucket(address, endpoint=s3.endpoint, is_anonymous=True)
    bucket.create("board/strange", b"hello")
    with pytest.raises(StoreCorrupt, match="board/strange"):
        S3Board(bucket).read()


def test_an_unreachable_server_fails_reads_and_not_waits() -> None:
    """A read of an unreachable bucket fails; a wait waits."""
    board = S3Board(S3Bucket("nowhere/x", endpoint="http://127.0.0.1:9", is_anonymous=True))
    with pytest.raises(StoreFailed):
        board.read()
    board.wait(0.01)
    board.close()
