"""Every transport of the client keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fairlead.client import Transport
from fairlead.embedded import EmbeddedTransport
from fairlead.testing.transport_batches import BatchContract
from fairlead.testing.transport_operators import OperatorContract
from fairlead.testing.transport_streams import StreamContract, ThreadsContract
from tests.unit.client.serving import ServerProcess


class TestEmbedded(StreamContract, OperatorContract, BatchContract, ThreadsContract):
    @contextmanager
    def server(self) -> Iterator[str | Transport]:
        yield EmbeddedTransport()


class TestWebSocket(StreamContract, OperatorContract, BatchContract, ThreadsContract):
    @contextmanager
    def server(self) -> Iterator[str | Transport]:
        with ServerProcess() as server:
            yield server.url
