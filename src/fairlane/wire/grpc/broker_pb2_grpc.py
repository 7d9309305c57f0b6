"""The stub of the service in ``broker.proto``."""

from __future__ import annotations

from typing import Any

from fairlane.wire.grpc.broker_pb2 import DESCRIPTOR
from fairlane.wire.grpc.descriptors import Stub


class BrokerStub(Stub):
    """Calls the methods of ``Broker`` over a channel."""

    def __init__(self, channel: Any) -> None:  # noqa: ANN401 - a channel of grpc or of grpc.aio
        super().__init__(DESCRIPTOR.services_by_name["Broker"], channel)
