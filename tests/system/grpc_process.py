"""A real server process that speaks gRPC too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from fairlane.wire.grpc import admin_pb2_grpc, broker_pb2_grpc

from .server_process import ServerProcess

_ADDRESS = re.compile(r"gRPC +(\S+)")


class GrpcServer(ServerProcess):
    """A server process that speaks gRPC too."""

    def __init__(self, data: Path, *flags: str) -> None:
        super().__init__(data, "--grpc-port", "0", *flags)
        self.grpc_address = ""

    def start(self) -> None:
        """Start it, and return once it says where gRPC is."""
        super().start()
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if (found := _ADDRESS.search(line)) is not None:
                self.grpc_address = found.group(1)
                return
        raise AssertionError("the server says nothing of gRPC")

    @contextmanager
    def called(self, credentials: grpc.ChannelCredentials | None = None) -> Iterator[tuple[Any, Any]]:
        """Give stubs of both services."""
        if credentials is None:
            channel = grpc.insecure_channel(self.grpc_address)
        else:
            channel = grpc.secure_channel(self.grpc_address, credentials)
        stubs: Any = (broker_pb2_grpc.BrokerStub, admin_pb2_grpc.AdminStub)
        with channel:
            yield stubs[0](channel), stubs[1](channel)


@contextmanager
def serving(data: Path, *flags: str) -> Iterator[GrpcServer]:
    """Serve for as long as the context lasts."""
    server = GrpcServer(data, *flags)
    server.start()
    try:
        yield server
    finally:
        if server.process is not None and server.process.poll() is None:
            server.kill()
