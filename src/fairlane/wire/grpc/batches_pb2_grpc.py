"""The stub of the service in ``batches.proto``."""

from __future__ import annotations

from typing import Any

from fairlane.wire.grpc.batches_pb2 import DESCRIPTOR
from fairlane.wire.grpc.descriptors import Stub


class BatchesStub(Stub):
    """Calls the methods of ``Batches`` over a channel."""

    def __init__(self, channel: Any) -> None:  # noqa: ANN401 - a channel of grpc or of grpc.aio
        super().__init__(DESCRIPTOR.services_by_name["Batches"], channel)
