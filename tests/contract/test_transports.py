"""Every transport of the client keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fairlane.client import Transport
from fairlane.client.transport.grpc import GrpcTransport
from fairlane.client.transport.http import HttpTransport
from fairlane.embedded import EmbeddedTransport
from tests.kit.transports.batches import BatchContract
from tests.kit.transports.operators import OperatorContract
from tests.kit.transports.streams import StreamContract, ThreadsContract

from .nursery import served


class TestEmbedded(StreamContract, OperatorContract, BatchContract, ThreadsContract):
    @contextmanager
    def server(self) -> Iterator[str | Transport]:
        yield EmbeddedTransport()


class TestWebSocket(StreamContract, OperatorContract, BatchContract, ThreadsContract):
    @contextmanager
    def server(self) -> Iterator[str | Transport]:
        with served() as (http, _):
            yield http


class TestHttp(StreamContract, OperatorContract, ThreadsContract):
    @contextmanager
    def server(self) -> Iterator[str | Transport]:
        with served() as (http, _):
            yield HttpTransport(http, poll_ms=20)


class TestGrpc(StreamContract, OperatorContract, ThreadsContract):
    @contextmanager
    def server(self) -> Iterator[str | Transport]:
        with served() as (_, grpc):
            yield GrpcTransport(f"grpc://{grpc}")
