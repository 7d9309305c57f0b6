"""Payloads of any size in the clients: sources in, readers out, and nothing left behind when something fails."""

from __future__ import annotations

import asyncio
import gzip
import io
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane.client import AsyncClient, Client
from fairlane.errors import InvalidArgument, LeaseMismatch, PayloadStreamed, PayloadTooLarge, QueueNotFound
from fairlane.model.limits import PAYLOAD_BYTES_MAX, PIECE_BYTES
from tests.kit.waiting import until_answered

PAYLOAD = bytes(range(251)) * (PAYLOAD_BYTES_MAX // 251 + 7)
"""Larger than a delivery may be, and different in each piece."""


def parts(payload: bytes, size: int = 100_001) -> Iterator[bytes]:
    """Yield a payload in parts that don't agree with pieces."""
    for at in range(0, len(payload), size):
        yield payload[at : at + size]


async def async_parts(payload: bytes) -> AsyncIterator[bytes]:
    """Yield a payload from an async iterator."""
    for part in parts(payload):
        yield part


@pytest.fixture
def client() -> Iterator[Client]:
    """A client of an embedded broker with one queue."""
    with Client.embedded() as client:
        client.create_queue("jobs")
        yield client


@pytest.mark.parametrize("kind", ["path", "text", "file", "iterator", "async iterator", "bytes"])
def test_a_payload_comes_from_any_source(client: Client, tmp_path: Path, kind: str) -> None:
    """Whatever it is read from, every byte arrives, with the terms of the message."""
    path = tmp_path / "payload"
    path.write_bytes(PAYLOAD)
    with path.open("rb") as file:
        sources: dict[str, Any] = {
            "path": path,
            "text": str(path),
            "file": file,
            "iterator": parts(PAYLOAD),
            "async iterator": async_parts(PAYLOAD),
            "bytes": PAYLOAD,
        }
        sent = client.enqueue_stream("jobs", sources[kind], fairness_key="acme", headers={"a": "b"})
    (message,) = client.lease("jobs")
    assert (message.id, message.fairness_key, message.headers) == (sent, "acme", {"a": "b"})
    assert (message.size, message.is_streamed) == (len(PAYLOAD), True)
    assert message.read() == PAYLOAD
    assert client.uploads("jobs") == []


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
def test_a_payload_that_a_delivery_can_hold_is_in_it(client: Client, size: int) -> None:
    """Also one that was uploaded in pieces, because the client could not know how long its source is."""
    client.enqueue_stream("jobs", parts(PAYLOAD[:size]))
    (message,) = client.lease("jobs")
    assert (message.payload, message.is_streamed, message.size) == (PAYLOAD[:size], False, size)
    assert message.reader().read() == PAYLOAD[:size]


def test_a_reader_is_a_binary_file(client: Client) -> None:
    """Libraries that read files read payloads, and the size is known from the start."""
    packed = gzip.compress(PAYLOAD, compresslevel=0)
    client.enqueue_stream("jobs", io.BytesIO(packed))
    (message,) = client.lease("jobs")
    with message.reader() as reader, gzip.open(reader) as unpacked:
        assert reader.size == len(packed)
        assert unpacked.read() == PAYLOAD


def test_a_streamed_payload_is_not_taken_for_an_empty_one(client: Client) -> None:
    """A program that expects bytes gets an error that says what to call."""
    client.enqueue_stream("jobs", parts(PAYLOAD))
    (message,) = client.lease("jobs")
    with pytest.raises(PayloadStreamed, match="reader"):
        _ = message.payload
    with pytest.raises(PayloadStreamed):
        message.json()


def test_reading_ends_with_the_lease(client: Client, tmp_path: Path) -> None:
    """Half of a payload is never taken for all of it."""
    client.enqueue_stream("jobs", parts(PAYLOAD))
    (message,) = client.lease("jobs")
    reader = message.reader()
    assert reader.read(10) == PAYLOAD[:10]
    client.nack(message, intent="defer", delay_ms=0)
    with pytest.raises(LeaseMismatch):
        reader.read()
    with pytest.raises(LeaseMismatch):
        message.write_to(tmp_path / "out")


def test_an_async_reader_yields_pieces(tmp_path: Path) -> None:
    """It can be iterated, read in parts of any size, and written to a file."""

    async def main() -> None:
        async with AsyncClient.embedded() as client:
            await client.create_queue("jobs")
            await client.enqueue_stream("jobs", async_parts(PAYLOAD))
            (message,) = await client.lease("jobs")
            pieces = [piece async for piece in message.reader()]
            assert b"".join(pieces) == PAYLOAD
            assert {len(piece) for piece in pieces[:-1]} == {PIECE_BYTES}
            reader = message.reader()
            assert [await reader.read(3), await reader.read(700_000)] == [PAYLOAD[:3], PAYLOAD[3:700_003]]
            await message.write_to(tmp_path / "out")
            assert (tmp_path / "out").read_bytes() == PAYLOAD

    asyncio.run(main())


def failing(payload: bytes) -> Iterator[bytes]:
    """Yield a payload, and then fail."""
    yield payload
    raise OSError("the disk is gone")


def test_a_source_that_fails_leaves_nothing(client: Client) -> None:
    """The error is that of the source, and the upload is dropped at once."""
    with pytest.raises(OSError, match="the disk is gone"):
        client.enqueue_stream("jobs", failing(PAYLOAD))
    assert (client.uploads("jobs"), client.queue("jobs").waiting) == ([], 0)


def test_a_cancelled_upload_leaves_nothing() -> None:
    """A caller that gives up waits for nothing but the drop."""

    async def never_ending() -> AsyncIterator[bytes]:
        yield PAYLOAD
        await asyncio.Event().wait()

    async def main() -> None:
        async with AsyncClient.embedded() as client:
            await client.create_queue("jobs")
            sending = asyncio.create_task(client.enqueue_stream("jobs", never_ending()))

            async def has_begun() -> bool:
                return bool(await client.uploads("jobs"))

            await until_answered(has_begun, "the upload has begun")
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            assert await client.uploads("jobs") == []

    asyncio.run(main())


def test_a_message_that_is_refused_leaves_no_upload(client: Client) -> None:
    """A term that is not valid, a queue that is full of it, and a queue that is missing."""
    with pytest.raises(InvalidArgument):
        client.enqueue_stream("jobs", parts(PAYLOAD), priority="urgent")  # type: ignore[arg-type]
    client.update_queue("jobs", {"waiting_bytes_max": 1_000_000})
    with pytest.raises(PayloadTooLarge, match="waiting_bytes_max of queue 'jobs'"):
        client.enqueue_stream("jobs", parts(PAYLOAD))
    assert client.uploads("jobs") == []
    with pytest.raises(QueueNotFound):
        client.enqueue_stream("nowhere", parts(PAYLOAD))


@pytest.mark.parametrize("source", [12, ["text"], io.StringIO("text"), io.StringIO()])
def test_a_source_has_bytes(client: Client, source: Any) -> None:
    """Anything else is refused with what to pass instead."""
    with pytest.raises(InvalidArgument, match="bytes"):
        client.enqueue_stream("jobs", source)


class NonBlocking(io.RawIOBase):
    """A file that has no bytes at the moment, and some later."""

    def __init__(self) -> None:
        self._parts = [PAYLOAD, None, PAYLOAD]

    def readable(self) -> bool:
        return True

    def read(self, _size: int = -1, /) -> bytes | None:
        return self._parts.pop(0) if self._parts else b""


async def gappy_async() -> AsyncIterator[Any]:
    """Yield None between two parts."""
    for part in (PAYLOAD, None, PAYLOAD):
        yield part


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ([PAYLOAD, None, PAYLOAD], "leave out the parts that are None"),
        (gappy_async(), "leave out the parts that are None"),
        (NonBlocking(), "a file in blocking mode"),
    ],
    ids=["iterable", "async iterable", "file"],
)
def test_none_is_not_the_end_of_a_source(client: Client, source: Any, remedy: str) -> None:
    """A gap between two parts is refused with what to do, and half of a payload is never enqueued."""
    with pytest.raises(InvalidArgument, match=remedy):
        client.enqueue_stream("jobs", source)
    assert (client.uploads("jobs"), client.queue("jobs").waiting) == ([], 0)


def test_empty_parts_of_an_iterable_are_not_its_end(client: Client) -> None:
    """Only a file ends with an empty read."""
    client.enqueue_stream("jobs", [b"a", b"", b"b"])
    (message,) = client.lease("jobs")
    assert message.payload == b"ab"
